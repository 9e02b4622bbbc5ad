"""Contractions: sums of products over named dims, as in einsum."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np

from shardwise.caches import cache
from shardwise.engine.arrays import cast, dtype_of, is_low, is_torch
from shardwise.layout.placement import ReduceOp
from shardwise.prim.arithmetic.broadcast import broadcast
from shardwise.prim.arithmetic.by_element import as_in
from shardwise.prim.arithmetic.elementwise import in_bytes, tangent_of_product
from shardwise.prim.dispatch.decision import row_of_work
from shardwise.prim.forms import Form, Loops, Read, as_form
from shardwise.prim.kernel import in_room, makes_products, transpose
from shardwise.prim.primitive import Cotangents, Primitive, needs_others
from shardwise.prim.relayout import resolve
from shardwise.prim.rule import Rule
from shardwise.prim.tensor import Tensor
from shardwise.prim.views.shapes import expand
from shardwise.prim.work import Work

times: Callable[[Any, Any], Any] = operator.matmul  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


@cache()
def contraction_rule(terms: tuple[str, ...], out: str) -> Rule:
    """Return the factor rule of an einsum: a factor per letter, those not in the result summed."""
    reduced = tuple((c, ReduceOp.SUM) for c in dict.fromkeys("".join(terms)) if c not in out)
    return Rule(tuple(map(tuple, terms)), tuple(out), reduced, linear="each", dense=True)


def _contract(*operands: Tensor, terms: tuple[str, ...], out: str) -> Work:
    return Work(_name(terms, out), _kernel(terms, out), contraction_rule(terms, out), [in_bytes(x) for x in operands])


@cache()
def _name(terms: tuple[str, ...], out: str) -> str:
    # For messages: a product of matrices is an einsum too, and its letters tell which operand is which.
    return f"einsum('{','.join(terms)}->{out}')"


@cache()
def _kernel(terms: tuple[str, ...], out: str) -> Callable[..., Any]:
    text = ",".join(terms) + "->" + out
    fast = as_matmul(terms, out) if len(terms) == 2 else None

    def kernel(*arrays: Any) -> Any:
        for array in arrays:
            if is_low(dtype_of(array)):
                return low(arrays)
        return plain(arrays)

    def plain(arrays: Sequence[Any]) -> Any:
        if is_torch(arrays[0]):
            import torch

            return torch.einsum(text, *arrays) if fast is None else fast(*arrays)
        return np.einsum(text, *arrays, optimize=len(arrays) > 2) if fast is None else fast(*arrays)

    def low(arrays: Sequence[Any]) -> Any:
        sizes = dict(zip("".join(terms), (n for a in arrays for n in a.shape), strict=True))
        count = prod(n for letter, n in sizes.items() if letter not in out)
        if len(arrays) < 3 and makes_products(arrays, count):
            return plain(arrays)
        wide, dtype = in_room(arrays, count)
        return cast(plain(wide), dtype)

    return kernel


@cache()
def as_matmul(terms: tuple[str, ...], out: str) -> Any:
    """Return two operands as one matrix product, for which libraries have BLAS; None where they are none."""
    # Batch, left, summed, right.
    a, b = terms
    batch = [c for c in out if c in a and c in b]
    left = [c for c in out if c in a and c not in b]
    right = [c for c in out if c in b and c not in a]
    summed = [c for c in a if c in b and c not in out]
    if not summed or len(set(a)) != len(a) or len(set(b)) != len(b):
        return None
    if set(a) != {*batch, *left, *summed} or set(b) != {*batch, *right, *summed}:
        return None
    if [*batch, *left, *right] != list(out) == [*batch, *right, *left]:
        # The other way round the result comes in the order of the letters: a transposed one is slow to work with.
        swapped = as_matmul((b, a), out)

        def swap(x: Any, y: Any) -> Any:
            return swapped(y, x)

        return swap
    first = tuple(a.index(c) for c in (*batch, *left, *summed))
    second = tuple(b.index(c) for c in (*batch, *summed, *right))
    back = tuple([*batch, *left, *right].index(c) for c in out)

    n, m, k = len(batch), len(left), len(summed)
    if m == k == len(right) == 1 and first == second == back == tuple(range(n + 2)):
        return times

    def matrices(x: Any, y: Any) -> Any:
        result = transpose(x, first) @ transpose(y, second)
        return result if back == straight else transpose(result, back)

    def product(x: Any, y: Any) -> Any:
        x, y = transpose(x, first), transpose(y, second)
        lead, mid, tail = x.shape[:n], x.shape[n : n + m], y.shape[n + k :]
        size = prod(x.shape[n + m :])
        result = x.reshape(*lead, prod(mid), size) @ y.reshape(*lead, size, prod(tail))
        return transpose(result.reshape((*lead, *mid, *tail)), back)

    straight = tuple(range(len(out)))
    return matrices if m == k == len(right) == 1 else product


def _contract_vjp(ct: Tensor, result: Tensor, *operands: Tensor, terms: tuple[str, ...], out: str) -> Cotangents:
    return tuple(partial(_cotangent, ct, i, operands, terms, out) for i in range(len(operands)))


def _cotangent(ct: Tensor, i: int, operands: tuple[Tensor, ...], terms: tuple[str, ...], out: str) -> Tensor:
    x, term = operands[i], terms[i]
    others = [(y, t) for k, (y, t) in enumerate(zip(operands, terms, strict=True)) if k != i]
    known = set(out).union(*(t for _, t in others))
    shared = "".join(c for c in term if c in known)
    cotangent = as_in(contract(ct, *(y for y, _ in others), terms=(out, *(t for _, t in others)), out=shared), x)
    if shared == term:
        return cotangent
    # A letter that was summed by itself: the cotangent is repeated along it.
    wide = expand(resolve(cotangent), at=tuple(k for k, c in enumerate(term) if c not in known))
    return broadcast(wide, layout=x.layout.resolved().without_halo(), shape=x.shape)


def _contract_jvp(tangents: Any, result: Tensor, *operands: Tensor, terms: tuple[str, ...], out: str) -> Any:
    return tangent_of_product(contract, tangents, operands, {"terms": terms, "out": out})


def _form(result: Tensor, *operands: Tensor, terms: tuple[str, ...], out: str) -> Form:
    # The letters of the result first; the others are summed over.
    letters = (*out, *dict.fromkeys(c for term in terms for c in term if c not in out))
    reads = [Read(as_form(x), tuple(term), result.dtype) for x, term in zip(operands, terms, strict=True)]
    product = " * ".join("xyzuvw"[: len(terms)])
    body = f"total + {product}" if len(letters) > len(out) else product
    return Loops(result.shape, result.dtype, letters, tuple(reads), body)


LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def _batch(row: Primitive, lead: Any, mapped: Any, operands: Any, params: Any) -> Tensor:
    terms, out = params["terms"], params["out"]
    front = "".join([c for c in LETTERS if c not in "".join(terms)][: lead.count])  # a letter per leading dim
    wide = tuple(front + term if m else term for term, m in zip(terms, mapped, strict=True))
    return contract(*operands, terms=wide, out=front + out)


contract = row_of_work(
    "einsum", _contract, _contract_vjp, _contract_jvp, batch=_batch, needs=needs_others, effort=2, lower=_form
)
