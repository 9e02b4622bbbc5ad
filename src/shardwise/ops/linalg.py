"""Products of tensors: einsum, matmul, tensordot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardwise.errors import ArgumentError, BindingError, RangeError, as_int, as_tuple, check_ints
from shardwise.ops.reductions import dim_of
from shardwise.prim.arithmetic.contract import LETTERS, contract
from shardwise.prim.face import public
from shardwise.prim.tensor import Tensor, together
from shardwise.prim.views.shapes import expand, squeeze


@public()
def einsum(subscripts: str, /, *operands: Any) -> Tensor:
    """Return the sum of products that the subscripts describe, as `numpy.einsum` does.

    A dim that is summed and sharded leaves a pending sum, which is resolved when that is cheapest.

    >>> einsum("ij,jk->ik", [[1.0, 2.0]], [[3.0], [4.0]]).numpy()
    array([[11.]])
    """
    tensors = together(*operands)
    terms, out = _parse(subscripts, [x.ndim for x in tensors])
    sizes: dict[str, int] = {}
    for term, x in zip(terms, tensors, strict=True):
        for letter, size in zip(term, x.shape, strict=True):
            if sizes.setdefault(letter, size) != size:
                raise BindingError(
                    f"einsum({subscripts!r}): {letter!r} has size {sizes[letter]} in one operand and {size} in another."
                )
    return contract(*tensors, terms=tuple(terms), out=out)


def _parse(subscripts: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    if not isinstance(subscripts, str):
        raise ArgumentError(f"einsum takes subscripts such as 'ij,jk->ik' first, got {subscripts!r}.")
    text = subscripts.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise ArgumentError(f"einsum({subscripts!r}) names {len(terms)} operands, got {len(ranks)}.")
    spare = [c for c in LETTERS if c not in text]
    widest = max(
        (rank - len(t.replace("...", "")) for t, rank in zip(terms, ranks, strict=True) if "..." in t), default=0
    )
    if widest > len(spare) or widest < 0:
        raise ArgumentError(f"einsum({subscripts!r}) does not fit operands with {list(ranks)} dims.")
    dots = "".join(spare[:widest])
    full: list[str] = []
    for term, rank in zip(terms, ranks, strict=True):
        missing = rank - len(term.replace("...", ""))
        letters = term.replace("...", dots[widest - missing :] if missing > 0 else "")
        if len(letters) != rank or (not letters.isalpha() and letters):
            raise ArgumentError(f"einsum({subscripts!r}): {term!r} does not fit an operand with {rank} dims.")
        if len(set(letters)) != len(letters):
            raise ArgumentError(f"einsum({subscripts!r}): a letter is repeated in {term!r}; take the diagonal first.")
        full.append(letters)
    if arrow:
        out = right.replace("...", dots)
    else:
        every = "".join(full)
        out = dots + "".join(sorted(c for c in set(every) - set(dots) if every.count(c) == 1))
    if unknown := [c for c in out if c not in "".join(full)] or [c for c in out if out.count(c) > 1]:
        raise ArgumentError(f"einsum({subscripts!r}): {unknown[0]!r} in the result is not in any operand, or twice.")
    return full, out


@public(method=True, operator="@")
def matmul(x1: Any, x2: Any, /) -> Tensor:
    """Return the matrix product over the last two dims; leading dims broadcast, vectors are allowed.

    >>> matmul([[1.0, 2.0], [3.0, 4.0]], [1.0, 1.0]).numpy()
    array([3., 7.])
    """
    a, b = together(x1, x2)
    if not a.ndim or not b.ndim:
        raise BindingError(f"matmul needs at least one dim, got shapes {a.shape} and {b.shape}.")
    if a.shape[-1] != b.shape[0 if b.ndim == 1 else -2]:
        raise BindingError(f"matmul: shapes {a.shape} and {b.shape} do not fit together.")
    if a.ndim == b.ndim == 2:
        return contract(a, b, terms=("xy", "yz"), out="xz")
    rank = max(a.ndim, b.ndim, 2) - 2
    batch = LETTERS[:rank]
    left, right = batch[rank - max(0, a.ndim - 2) :], batch[rank - max(0, b.ndim - 2) :]
    ones: list[str] = []
    shapes = [dict(zip(left, a.shape, strict=False)), dict(zip(right, b.shape, strict=False))]
    for letter in batch:
        sizes = {s[letter] for s in shapes if letter in s}
        if len(sizes - {1}) > 1:
            raise BindingError(f"matmul: the leading dims of {a.shape} and {b.shape} do not broadcast.")
        ones += [letter] if sizes == {1} else []
    # A leading dim of size one beside a larger one is left out; where all are one it is put back at the end.
    a, left = _drop(a, left)
    b, right = _drop(b, right)
    first = left + ("y" if a.ndim == len(left) + 1 else "xy")
    second = right + ("y" if b.ndim == len(right) + 1 else "yz")
    out = (
        "".join(c for c in batch if c in left + right) + ("x" if "x" in first else "") + ("z" if "z" in second else "")
    )
    product = contract(a, b, terms=(first, second), out=out)
    return expand(product, at=tuple(batch.index(c) for c in ones)) if ones else product


def _drop(x: Tensor, letters: str) -> tuple[Tensor, str]:
    at = tuple(k for k in range(len(letters)) if x.shape[k] == 1)
    return (squeeze(x, at=at), "".join(c for k, c in enumerate(letters) if k not in at)) if at else (x, letters)


@public(method=True)
def tensordot(x1: Any, x2: Any, /, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> Tensor:
    """Return the sum of products over pairs of dims: the last of `x1` with the first of `x2`, or those listed.

    >>> tensordot([1.0, 2.0], [3.0, 4.0], axes=1).item()
    11.0
    """
    a, b = together(x1, x2)
    first, second = _pairs(a, b, axes)
    if len(first) != len(second) or [a.shape[k] for k in first] != [b.shape[k] for k in second]:
        raise BindingError(f"tensordot over {axes} does not fit shapes {a.shape} and {b.shape}.")
    left = list(LETTERS[: a.ndim])
    right = list(LETTERS[a.ndim : a.ndim + b.ndim])
    for i, j in zip(first, second, strict=True):
        right[j] = left[i]
    out = [c for k, c in enumerate(left) if k not in first] + [c for k, c in enumerate(right) if k not in second]
    return contract(a, b, terms=("".join(left), "".join(right)), out="".join(out))


def _pairs(a: Tensor, b: Tensor, axes: Any) -> tuple[list[int], list[int]]:
    # The dims of both tensors that are summed over, in pairs.
    count = as_int(axes)
    if count is not None:
        if not 0 <= count <= min(a.ndim, b.ndim):
            raise RangeError(f"tensordot over {count} dims does not fit shapes {a.shape} and {b.shape}.")
        return list(range(a.ndim - count, a.ndim)), list(range(count))
    wanted = "tensordot: axes is an int, or a pair of the dims of x1 and those of x2"
    pair = as_tuple(axes, wanted)
    if len(pair) != 2:
        raise ArgumentError(f"{wanted}, got {axes!r}.")
    first, second = (
        [dim_of(x, k, "tensordot") for k in check_ints(dims, wanted)] for x, dims in zip((a, b), pair, strict=True)
    )
    if len(set(first)) != len(first) or len(set(second)) != len(second):
        raise BindingError(f"tensordot: a dim is named twice in axes={axes!r}.")
    return first, second
