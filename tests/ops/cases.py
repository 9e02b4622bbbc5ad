"""Tensors in generated layouts for tests of functions, and what a function must not do: send what it need not."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from shardwise import (
    AbstractEngine,
    DeviceMesh,
    Layout,
    P,
    ReduceOp,
    Tensor,
    current_engine,
    engine_context,
    shard,
    vjp,
)
from shardwise.engine.abstract import AbstractArrays
from shardwise.engine.arrays import torch_of
from shardwise.layout.placement import reductions_of
from tests.layout.oracle import held_box, owned_box, slices
from tests.prim.cases import DTYPES, SHAPES, assert_holds, host_meshes, layouts_for, part, same, spread

PENDING = (ReduceOp.SUM, ReduceOp.MAX, ReduceOp.MIN, ReduceOp.AVG, ReduceOp.BOR)
Shape = tuple[int, ...]


@st.composite
def tensors(
    draw: st.DrawFn,
    shape: Shape | st.SearchStrategy[Shape] = SHAPES,
    dtypes: Sequence[Any] = tuple(DTYPES),
    *,
    mesh: DeviceMesh | None = None,
    partial: bool = True,
    halo: bool = True,
    seed: int = 0,
) -> Tensor:
    """A tensor of small whole numbers in any layout that its shape and dtype allow."""
    mesh = mesh or draw(host_meshes())
    sizes = shape if isinstance(shape, tuple) else draw(shape)
    dtype = np.dtype(draw(st.sampled_from(list(dtypes))))
    ops = [op for op in PENDING if op in reductions_of(dtype)] if partial else []
    layout = draw(layouts_for(mesh, sizes, op=draw(st.sampled_from([None, *ops])), halo=halo))
    return spread(layout, sizes, dtype, seed)[0]


def with_torch(x: Tensor) -> Tensor:
    """The tensor with torch arrays."""
    return Tensor([torch_of(array) for array in x.arrays], x.layout, x.shape, x.dtype, x.engine)


def without_values(x: Tensor, engine: AbstractEngine) -> Tensor:
    """The tensor on the abstract engine."""
    return Tensor(AbstractArrays(x.storage, x.dtype), x.layout, x.shape, x.dtype, engine)


def agrees(
    ours: Callable[..., Any],
    theirs: Callable[..., Any],
    *given: Tensor,
    torch: bool = True,
    exact: bool = True,
    bytes_: bool = True,
) -> Any:
    """Our function of tensors gives what NumPy's gives of the values, whatever the library and the engine.

    With torch arrays the values are the same; on the abstract engine layouts, shapes, dtypes and bytes are.
    """
    counters = current_engine().counters
    # A tensor remembers what its pending reduction came to, so each run gets tensors of its own.
    given = tuple(Tensor(x.arrays, x.layout, x.shape, x.dtype, x.engine) for x in given)
    counters.reset()
    # Ops pay once for a pending value, so each call is given values that no other call has resolved.
    made = ours(*[Tensor(x.arrays, x.layout, x.shape, x.dtype, x.engine) for x in given])
    sent = dict(counters.bytes_moved)
    with np.errstate(all="ignore"):
        wanted = theirs(*[np.asarray(x.numpy()) for x in given])
    outs, wants = _several(made), _several(wanted)
    assert len(outs) == len(wants)
    for out, want in zip(outs, wants, strict=True):
        _holds(out, np.asarray(want), exact)
    engine = AbstractEngine()
    with engine_context(engine):
        abstract = _several(ours(*[without_values(x, engine) for x in given]))
    for a, b in zip(abstract, outs, strict=True):
        assert (a.layout, a.shape, a.dtype) == (b.layout, b.shape, b.dtype)
        assert a.engine is engine
    assert not bytes_ or engine.counters.bytes_moved == sent
    if torch:
        found = _several(ours(*[with_torch(x) for x in given]))
        for a, b in zip(found, outs, strict=True):
            assert (a.layout, a.shape, a.dtype) == (b.layout, b.shape, b.dtype)
            alike = same(a.numpy(), b.numpy()) if exact else _near(a.numpy(), b.numpy())
            assert alike, (a.numpy(), b.numpy())
    return made


def _several(made: Any) -> list[Any]:
    return list(made) if isinstance(made, tuple | list) else [made]


def _holds(out: Tensor, want: np.ndarray, exact: bool) -> None:
    assert out.dtype == want.dtype, (out.dtype, want.dtype)
    assert out.shape == want.shape, (out.shape, want.shape)
    if exact and not np.any(want != want):
        assert_holds(out, out.layout, want)
        return
    assert _near(out.numpy(), want), (out.numpy(), want)
    for device in range(out.mesh.num_devices):
        own = part(want, held_box(out.layout, want.shape, device))
        local = np.asarray(out.local(device))
        assert local.shape == own.shape
        assert out.layout.partial or _near(local, own)


def _near(got: np.ndarray, want: np.ndarray) -> bool:
    wide = "complex128" if want.dtype.kind == "c" else "float64"
    size = want.dtype.itemsize // (2 if want.dtype.kind == "c" else 1)
    few = 2e-2 if size <= 2 else 1e-5 if size == 4 else 1e-10
    return bool(np.allclose(got.astype(wide), want.astype(wide), rtol=few, atol=few, equal_nan=True))


# -- what must be sent -----------------------------------------------------------------------------------


def sent(call: Callable[[], Any]) -> tuple[Any, int]:
    """What a call makes, and the bytes that it sends between devices."""
    counters = current_engine().counters
    counters.reset()
    made = call()
    return made, counters.total


def lacking(sources: Sequence[np.ndarray], given: Sequence[Layout], shapes: Sequence[Shape], out: Layout) -> int:
    """How many elements devices must receive for a result, worked out element by element.

    `sources[i]` is, for every element of the result, the number of the element of operand i that it is, or -1.
    Each device needs every distinct one once, unless it holds it.
    """
    count = 0
    for device in range(out.mesh.num_devices):
        own = slices(owned_box(out, sources[0].shape, device))
        for source, layout, shape in zip(sources, given, shapes, strict=True):
            numbers = np.arange(int(np.prod(shape))).reshape(shape)
            has = numbers[slices(held_box(layout, shape, device))]
            count += len(set(source[own].ravel().tolist()) - {-1} - set(has.ravel().tolist()))
    return count


def moves_only_what_changes_device(
    ours: Callable[..., Tensor], theirs: Callable[..., np.ndarray], *given: Tensor
) -> None:
    """A function that only rearranges elements sends exactly those that a device of the result lacks."""
    made, size = sent(lambda: ours(*given))
    sources = []
    for i, x in enumerate(given):
        numbers = np.arange(x.size).reshape(x.shape)
        sources.append(theirs(*[numbers if k == i else np.full(y.shape, -1) for k, y in enumerate(given)]))
    wanted = lacking(sources, [x.layout for x in given], [x.shape for x in given], made.layout)
    assert size == wanted * made.dtype.itemsize, (size, wanted * made.dtype.itemsize, made.layout)


# -- derivatives -----------------------------------------------------------------------------------------


def transposed(fn: Callable[..., Tensor], *given: Tensor) -> None:
    """The reverse derivative of a linear function is its transpose, in the layouts of the arguments.

    With whole numbers both sides of <ct, f(x)> = <f'(ct), x> are exact.
    """
    out, back = vjp(fn, *given)
    rng = np.random.default_rng(0)
    cotangent = rng.integers(-3, 4, out.shape).astype(out.dtype)
    found = back(cotangent)
    for x, ct in zip(given, found, strict=True):
        assert ct.layout is x.layout.resolved()
        assert ct.shape == x.shape
    left = np.vdot(cotangent, out.numpy())
    right = sum(np.vdot(ct.numpy(), x.numpy()) for x, ct in zip(given, found, strict=True))
    assert np.allclose(left, right), (left, right)
    again = vjp(fn, *map(with_torch, given))[1](with_torch(shard(cotangent, out.mesh, P())))
    for a, b in zip(again, found, strict=True):
        assert a.layout is b.layout
        assert _near(a.numpy(), b.numpy())
