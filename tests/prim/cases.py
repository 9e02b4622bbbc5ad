"""Tensors to test with: generated layouts and values, what each device must hold, and what must be sent."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from math import prod
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest
from hypothesis import strategies as st

from shardwise import CPU, Cut, DeviceMesh, Layout, ReduceOp, Tensor, current_engine, from_shards, plan_reshard
from shardwise.layout.axis import Axis
from shardwise.layout.placement import reductions_of
from tests.layout.oracle import Box, grouped, held_box, position
from tests.layout.strategies import cuts, factors, meshes

FLOATS = [np.dtype(t) for t in ("float16", "float32", "float64", ml_dtypes.bfloat16)]
DTYPES = [*FLOATS, *map(np.dtype, ("int8", "int64", "uint8", "bool", "complex64"))]

COMBINE: dict[ReduceOp, Callable[[Any, Any], Any]] = {
    ReduceOp.SUM: np.add,
    ReduceOp.AVG: np.add,
    ReduceOp.MIN: np.minimum,
    ReduceOp.MAX: np.maximum,
    ReduceOp.PROD: np.multiply,
    ReduceOp.BAND: np.bitwise_and,
    ReduceOp.BOR: np.bitwise_or,
    ReduceOp.BXOR: np.bitwise_xor,
}


class Move(NamedTuple):
    """Two layouts of one shape and dtype."""

    src: Layout
    dst: Layout
    shape: tuple[int, ...]
    dtype: np.dtype


# -- values --------------------------------------------------------------------------------------------


def values(shape: Sequence[int], dtype: Any, seed: int = 0) -> np.ndarray:
    """Small whole numbers, whose sums are exact in every dtype."""
    rng = np.random.default_rng(seed)
    dtype = np.dtype(dtype)
    low, high = (0, 2) if dtype.kind == "b" else (0, 4) if dtype.kind == "u" else (-3, 4)
    out = rng.integers(low, high, tuple(shape))
    if dtype.kind == "c":
        out = out + 1j * rng.integers(low, high, tuple(shape))
    return np.asarray(out).astype(dtype)


def reduced(terms: Sequence[np.ndarray], op: ReduceOp) -> np.ndarray:
    """The reduction of several arrays, with NumPy."""
    with np.errstate(over="ignore"):
        out = np.asarray(reduce(COMBINE[op], terms), terms[0].dtype)
    if op is not ReduceOp.AVG:
        return out
    whole: Any = out
    part: Any = whole[..., None].view(whole.real.dtype)  # of complex numbers each part is rounded once
    return (part / part.dtype.type(len(terms))).view(out.dtype)[..., 0]


def part(value: np.ndarray, box: Box) -> np.ndarray:
    """A box of an array, with zeros where it is outside."""
    out = np.zeros([stop - start for start, stop in box], value.dtype)
    inside = [(max(a, 0), max(max(a, 0), min(b, n))) for (a, b), n in zip(box, value.shape, strict=True)]
    target = tuple(slice(a - start, b - start) for (a, b), (start, _) in zip(inside, box, strict=True))
    out[target] = value[tuple(slice(a, b) for a, b in inside)]
    return out


def spread(layout: Layout, shape: Sequence[int], dtype: Any = "float64", seed: int = 0) -> tuple[Tensor, np.ndarray]:
    """A tensor of a layout, made from its shards, and its global value."""
    count = prod(axis.size for axis in layout.partial)
    terms = [values(shape, dtype, seed + i) for i in range(count)]
    shards = [
        part(terms[position(layout.mesh, layout.partial, device)], held_box(layout, shape, device))
        for device in range(layout.mesh.num_devices)
    ]
    return from_shards(shards, layout.mesh, layout, shape), reduced(terms, layout.reduce_op or ReduceOp.SUM)


def held(x: Tensor) -> list[np.ndarray]:
    """What every device holds."""
    return [np.asarray(x.local(device)) for device in range(x.mesh.num_devices)]


def same(got: Any, want: Any, exact: bool = True) -> bool:
    """Whether two arrays agree in shape, dtype and every element, bit by bit or nearly."""
    got, want = np.asarray(got), np.asarray(want)
    if got.shape != want.shape or got.dtype != want.dtype:
        return False
    if exact:
        return bool(np.array_equal(got, want))
    wide = "complex128" if want.dtype.kind == "c" else "float64"
    few = want.dtype.itemsize == 2
    return bool(
        np.allclose(got.astype(wide), want.astype(wide), rtol=2e-2 if few else 1e-5, atol=1e-2 if few else 1e-6)
    )


def assert_holds(x: Tensor, layout: Layout, want: np.ndarray) -> None:
    """The tensor has this layout and value, each device holds its part of it, and replicas agree."""
    exact = layout.reduce_op is not ReduceOp.AVG
    assert x.layout is layout
    assert x.shape == want.shape
    assert same(x.numpy(), want, exact), (x.numpy(), want)
    local = held(x)
    for group in grouped(x.mesh, layout.replicated_axes, range(x.mesh.num_devices)):
        assert all(local[device].tobytes() == local[group[0]].tobytes() for device in group)
    for device in range(x.mesh.num_devices):
        box = held_box(layout, want.shape, device)
        assert local[device].shape == tuple(stop - start for start, stop in box)
        assert not local[device].flags.writeable
        assert layout.partial or same(local[device], part(want, box), exact)


# -- JAX -----------------------------------------------------------------------------------------------


def jax_of_eight() -> Any:
    """JAX with 64 bits and eight CPU devices, which it has to be told of before it starts."""
    jax = pytest.importorskip("jax")
    if jax.config.jax_num_cpu_devices != 8:
        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_num_cpu_devices", 8)
    jax.config.update("jax_enable_x64", True)
    return jax


# -- traffic -------------------------------------------------------------------------------------------


@contextmanager
def traffic_of(src: Layout, dst: Layout, shape: Sequence[int], dtype: Any) -> Iterator[None]:
    """Inside, exactly the bytes of the plan from one layout to another are sent, by kind of step."""
    plan = plan_reshard(src, dst, tuple(shape), dtype)
    counters = current_engine().counters
    counters.reset()
    yield
    planned: dict[str, int] = {}
    for step in plan.steps:
        if not step.is_local and step.received.total:
            planned[step.kind] = planned.get(step.kind, 0) + step.received.total
    assert counters.total == plan.received.total
    assert counters.bytes_moved == planned


# -- generated -----------------------------------------------------------------------------------------


def on_host(mesh: DeviceMesh) -> DeviceMesh:
    """The mesh with CPUs in the place of accelerators."""
    return DeviceMesh(mesh.mesh_shape, mesh.axis_names, [CPU(device.id) for device in mesh.devices])


def host_meshes(max_axes: int = 3, max_size: int = 4, max_devices: int = 12) -> st.SearchStrategy[DeviceMesh]:
    """Meshes whose devices are all CPUs, some of them one and the same."""
    return meshes(max_axes=max_axes, max_size=max_size, max_devices=max_devices).map(on_host)


@st.composite
def layouts_for(
    draw: st.DrawFn,
    mesh: DeviceMesh,
    shape: Sequence[int],
    *,
    op: ReduceOp | None = None,
    plain: bool = False,
    halo: bool = True,
) -> Layout:
    """Layouts on a mesh that bind to a shape; partial ones if a reduction is given."""
    homes: dict[int, list[Axis]] = {}
    for axis in draw(factors(mesh)):
        homes.setdefault(draw(st.integers(-1 if op is None else -2, len(shape) - 1)), []).append(axis)
    dims = []
    for dim, size in enumerate(shape):
        axes = homes.get(dim, [])
        uncut = plain or draw(st.booleans())
        dims.append(Cut(axes, **({} if uncut else draw(cuts(prod(a.size for a in axes), size, halo=halo)))))
    return Layout(mesh, dims, homes.get(-2, []), op or "sum")


SHAPES = st.lists(st.integers(0, 7), max_size=3).map(tuple)


@st.composite
def moves(draw: st.DrawFn, *, partial: bool = True, halo: bool = True, one_mesh: bool = False) -> Move:
    """Layouts to go from and to, on one mesh or on two, with a shape and a dtype for which both are defined."""
    src = draw(host_meshes())
    dst = src
    if not one_mesh and draw(st.booleans()):
        dst = draw(host_meshes())
    shape, dtype = draw(SHAPES), draw(st.sampled_from(DTYPES))
    ops = [None, *reductions_of(dtype)] if partial else [None]
    a, b = (draw(st.sampled_from(ops)) for _ in range(2))
    kinds = {"op": a, "halo": halo}, {"op": b, "halo": halo}
    return Move(draw(layouts_for(src, shape, **kinds[0])), draw(layouts_for(dst, shape, **kinds[1])), shape, dtype)


@st.composite
def even_layouts(draw: st.DrawFn, mesh: DeviceMesh, op: ReduceOp | None = None) -> tuple[Layout, tuple[int, ...]]:
    """Layouts of which all shards are equal, with their shape."""
    rank = draw(st.integers(0, 3))
    homes: dict[int, list[Axis]] = {}
    for axis in draw(factors(mesh)):
        homes.setdefault(draw(st.integers(-1 if op is None else -2, rank - 1)), []).append(axis)
    shape = [prod(a.size for a in homes.get(dim, [])) * draw(st.integers(0, 2)) for dim in range(rank)]
    return Layout(mesh, [homes.get(dim, []) for dim in range(rank)], homes.get(-2, []), op or "sum"), tuple(shape)
