"""Ops of one's own: functions of local arrays with a rule that says how dims belong together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from itertools import compress
from typing import Any, cast

import numpy as np
from array_api_compat import array_namespace

from shardwise.engine.arrays import cast as cast_array
from shardwise.engine.arrays import dtype_of, is_torch, readonly
from shardwise.engine.job import RESULT
from shardwise.errors import ArgumentError, BindingError, DerivativeError, check_function, is_list
from shardwise.layout.layout import Shape
from shardwise.layout.placement import check_dtype
from shardwise.layout.tiling import Box
from shardwise.ops.own_rules import Sizes, read_rule
from shardwise.prim.dispatch.decision import row_of_work
from shardwise.prim.face import public
from shardwise.prim.interpreters.batch import Lead
from shardwise.prim.interpreters.local import reshape_array
from shardwise.prim.kernel import zeros
from shardwise.prim.primitive import Primitive
from shardwise.prim.tensor import Tensor, asarray, together
from shardwise.prim.work import Work

Dtype = Any  # a dtype, or a function of those of the operands
Leads = tuple[tuple[Lead, tuple[bool, ...]], ...]  # dims in front, the outermost first, and which operands have them


@public()
def custom_op(
    fn: Callable[..., Any],
    *,
    rule: str,
    dtype: Dtype = None,
    sizes: Sizes | None = None,
    vjp: Callable[..., Any] | None = None,
    jvp: Callable[..., Any] | None = None,
) -> Callable[..., Tensor]:
    """Return an op on tensors made of a function of local arrays and a rule that says how their dims belong together.

    The rule is written like einsum. Dims that operands and result share may be split, and each device calls `fn` on its
    part; a dim in `[brackets]`, or one that the result does not have, is made whole first, unless the rule says that it
    is reduced, as in `"ij,jk->ik sum(j)"`: then parts give parts of a sum. `fn` must not write to what it is given.
    `sizes` gives the size of a dim that only the result has, as an int or a function of the other sizes, by their
    names; `dtype` the dtype of the result, if it is not that of the first operand. `vjp(cotangent, out, *operands)`
    returns a cotangent per operand, or None, and `jvp(tangents, out, *operands)` the tangent, both of them by functions
    of tensors.

    >>> from shardwise import DeviceMesh, P, shard
    >>> sort = custom_op(lambda a: np.sort(a, axis=-1), rule="i[j]->i[j]")
    >>> x = shard(np.array([[3.0, 1.0], [2.0, 4.0]]), DeviceMesh((2,), ("x",)), P(None, "x"))
    >>> sort(x).numpy()
    array([[1., 3.],
           [2., 4.]])
    """
    check_function(fn, "custom_op")
    known = dict(sizes or {})
    written = read_rule(rule, known)
    name = getattr(fn, "__name__", "the op")

    def kind(dtypes: Sequence[np.dtype]) -> np.dtype:
        if callable(dtype) and not isinstance(dtype, type):  # np.float32 is a dtype too
            return check_dtype(dtype(*dtypes))
        return check_dtype(dtypes[0] if dtype is None else dtype)

    def work(*operands: Tensor, leads: Leads = ()) -> Work:
        fronts = [sum(lead.count for lead, mapped in leads if mapped[i]) for i in range(len(operands))]
        sizes_by_dim = written.bind(name, [x.shape[front:] for x, front in zip(operands, fronts, strict=True)], known)
        names = [(tuple(f"lead {n} {k}" for k in range(lead.count)), mapped) for n, (lead, mapped) in enumerate(leads)]
        for (dims, _), (lead, _) in zip(names, leads, strict=True):
            sizes_by_dim.update(zip(dims, lead.sizes, strict=True))
        out_dtype = kind([x.dtype for x in operands])

        def kernel(box: Box, *arrays: Any) -> Any:
            shape = tuple(stop - start for start, stop in box)
            return _each_place(fn, name, arrays, leads, shape, out_dtype)

        how = written.rule(names, sizes_by_dim)
        return Work(name, kernel, how, operands, located=(RESULT,), dtype=out_dtype)

    def back(ct: Tensor, out: Tensor, *operands: Tensor, leads: Leads = ()) -> tuple[Any, ...]:
        if not leads:
            return _cotangents(name, cast(Any, vjp)(ct, out, *operands), operands)
        (lead, mapped), rest = leads[0], leads[1:]
        with lead.open() as level:
            ready = [lead.wrap(x, level) if m else x for x, m in zip(operands, mapped, strict=True)]
            cotangents = back(lead.wrap(ct, level), lead.wrap(out, level), *ready, leads=rest)
            parts: list[Any] = [cast(Any, part)() if callable(part) else part for part in cotangents]
            values = [None if part is None else lead.below(part, level) for part in parts]
        return lead.sum_shared(mapped, values)

    def ahead(tangents: Sequence[Any], out: Tensor, *operands: Tensor, leads: Leads = ()) -> Tensor:
        if not leads:
            return asarray(cast(Any, jvp)(tuple(tangents), out, *operands))
        (lead, mapped), rest = leads[0], leads[1:]
        with lead.open() as level:

            def hide(some: Sequence[Any]) -> list[Any]:
                return [lead.wrap(x, level) if m and x is not None else x for x, m in zip(some, mapped, strict=True)]

            moved, ready = hide(tangents), hide(operands)
            return lead.below(ahead(moved, lead.wrap(out, level), *ready, leads=rest), level)

    def batch(
        row: Primitive, lead: Lead, mapped: tuple[bool, ...], operands: list[Any], params: dict[str, Any]
    ) -> Tensor:
        return row(*operands, leads=((lead, mapped), *params.get("leads", ())))

    row = row_of_work(name, work, None if vjp is None else back, None if jvp is None else ahead, batch=batch)

    @wraps(fn)
    def op(*operands: Any) -> Tensor:
        if len(operands) != len(written.operands):
            raise ArgumentError(f"{name} takes {len(written.operands)} operands by {rule!r}, got {len(operands)}.")
        return row(*together(*operands))

    return op


def _each_place(
    fn: Callable[..., Any], name: str, arrays: Sequence[Any], leads: Leads, shape: Shape, dtype: np.dtype
) -> Any:
    # The function at each place of the dims in front, of which an array may have some.
    counts = [lead.count for lead, _ in leads]
    front = sum(counts)
    if not front:
        return _call_kernel(fn, name, arrays, shape, dtype)
    out: list[Any] = []
    for place in np.ndindex(shape[:front]):
        some: list[Any] = []
        for i, array in enumerate(arrays):
            flags = [mapped[i] for (_, mapped), count in zip(leads, counts, strict=True) for _ in range(count)]
            at = tuple(compress(place, flags))
            element = array[at] if at else array
            some.append(element if hasattr(element, "shape") else np.asarray(element))  # NumPy makes scalars of some
        out.append(_call_kernel(fn, name, some, shape[front:], dtype))
    if not out:
        return cast_array(zeros(arrays[0], shape), dtype)
    return reshape_array(array_namespace(out[0]).stack(out), shape)


def _call_kernel(fn: Callable[..., Any], name: str, arrays: Sequence[Any], shape: Shape, dtype: np.dtype) -> Any:
    # Tensors do not change: NumPy arrays are given so that they cannot be written to.
    result = fn(*[array if is_torch(array) else readonly(array) for array in arrays])
    array = result if is_torch(result) else np.asarray(result)
    if tuple(array.shape) != shape or dtype_of(array) != dtype:
        raise BindingError(
            f"{name} made {dtype_of(array)}{list(array.shape)} of {', '.join(str(list(a.shape)) for a in arrays)}, and "
            f"by its rule that is {dtype}{list(shape)}.\n  mend the rule, or give custom_op the dtype or the sizes."
        )
    return array


def _cotangents(name: str, result: Any, operands: Sequence[Tensor]) -> tuple[Any, ...]:
    parts = result if is_list(result) else (result,)
    if len(parts) != len(operands):
        raise DerivativeError(f"{name}: vjp returns {len(operands)} cotangents, one per operand, got {len(parts)}.")
    for number, (part, x) in enumerate(zip(parts, operands, strict=True)):
        if isinstance(part, Tensor) and (part.shape, part.dtype) != (x.shape, x.dtype):
            raise BindingError(
                f"{name}: operand {number} is {x.dtype}{list(x.shape)}, its cotangent {part.dtype}{list(part.shape)}."
            )
    return tuple(part if part is None or callable(part) else asarray(part) for part in parts)
