"""Communication functions against NumPy on the global view or on the stack of local arrays, and their traffic."""

import random
from collections.abc import Callable, Sequence
from inspect import signature
from math import prod
from random import Random
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import shardwise as sw
from shardwise import (
    CPU,
    Accelerator,
    ArgumentError,
    BindingError,
    Cut,
    DeviceMesh,
    DimSpec,
    EngineError,
    Layout,
    LayoutError,
    NamedMapping,
    P,
    PlacementMapping,
    ReduceOp,
    Replicated,
    Sharded,
    ShardingSpec,
    Tensor,
    all_gather,
    all_reduce,
    all_slice,
    all_to_all,
    default_device,
    distributed_broadcast,
    halo_exchange,
    mesh_context,
    pmean,
    ppermute,
    reduce_scatter,
    reshard,
    shard,
    shift,
    to_device,
    transfer_to,
)
from shardwise.engine.arrays import torch_of
from shardwise.layout.axis import Axis, without
from shardwise.layout.placement import reductions_of
from tests.layout.oracle import digit, grouped, held_box
from tests.layout.strategies import axis_lists, cuts, factors
from tests.plan.cases import sub_axis_layouts
from tests.prim.cases import (
    DTYPES,
    SHAPES,
    Move,
    assert_holds,
    even_layouts,
    held,
    host_meshes,
    layouts_for,
    moves,
    part,
    reduced,
    same,
    spread,
    traffic_of,
    values,
)

M4 = DeviceMesh((4,), ("x",))
M23 = DeviceMesh((2, 3), ("a", "b"))
M222 = DeviceMesh((2, 2, 2), ("a", "b", "c"))


def moved_to(move: Callable[[], Tensor], x: Tensor, layout: Layout, want: np.ndarray) -> None:
    """A function that only changes the layout gives this one, sends what the plan says and keeps the value."""
    with traffic_of(x.layout, layout, x.shape, x.dtype):
        y = move()
    assert_holds(y, layout, want)


def on(data: np.ndarray, layout: Layout) -> Tensor:
    """An array in a layout: beside a tensor, also where one device has all the slots of a mesh."""
    return shard(data, layout.mesh, layout)


# -- shard ---------------------------------------------------------------------------------------------


@given(moves(one_mesh=True), st.sampled_from(["array", "list", "tensor"]))
def test_shard_puts_on_every_device_its_part_of_host_data(move: Move, kind: str) -> None:
    data = values(move.shape, "float64" if kind == "list" else move.dtype)
    if kind == "list":
        data = np.array(data.tolist())  # which has no dtype, and no shape where it is empty
    if data.shape != move.shape or (move.dst.partial and move.dst.reduce_op not in reductions_of(data.dtype)):
        return
    source = {"array": data, "list": data.tolist(), "tensor": sw.asarray(data)}[kind]
    if kind == "tensor" and len(set(move.dst.mesh.devices)) < move.dst.mesh.num_devices:
        return
    assert_holds(shard(source, move.dst.mesh, move.dst), move.dst, data)


@given(moves())
def test_shard_takes_tensors_of_any_layout_to_any_other_with_the_bytes_of_the_plan(move: Move) -> None:
    x, want = spread(move.src, move.shape, move.dtype)
    assert_holds(x, move.src, want)
    moved_to(lambda: shard(x, move.dst.mesh, move.dst), x, move.dst, want)


@given(moves(partial=False))
def test_reshard_is_shard_and_deprecated(move: Move) -> None:
    x, want = spread(move.src, move.shape, move.dtype)

    def run() -> Tensor:
        with pytest.warns(DeprecationWarning, match=r"reshard is deprecated; use shard, which takes tensors of any"):
            return reshard(x, move.dst.mesh, dim_specs=move.dst)

    moved_to(run, x, move.dst, want)


@pytest.mark.parametrize(
    "spec",
    [
        [DimSpec(["a"]), DimSpec()],
        P("a", None),
        P("a"),
        [Sharded(0), Replicated()],
        PlacementMapping(M23, (Sharded(0), Replicated())),
        NamedMapping(M23, ("a", None)),
        ShardingSpec(M23, [DimSpec(["a"]), DimSpec()]),
        Layout(M23, ["a", None]),
    ],
    ids=lambda spec: type(spec).__name__,
)
def test_every_vocabulary_gives_the_same_tensor(spec: Any) -> None:
    data = values((5, 4), "int8")
    assert_holds(shard(data, M23, spec), Layout(M23, ["a", None]), data)
    with mesh_context(M23):
        assert_holds(shard(data, None, spec), Layout(M23, ["a", None]), data)


def test_a_layout_brings_its_mesh() -> None:
    assert shard(np.zeros(4), None, Layout(M4, ["x"])).layout is Layout(M4, ["x"])
    with pytest.raises(LayoutError, match=r"the specs belong to the mesh \(x=4\), but mesh is \(a=2, b=3\)"):
        shard(np.zeros(4), M23, Layout(M4, ["x"]))


def test_trees_are_sharded_leaf_by_leaf() -> None:
    data = {"w": np.arange(4.0), "b": [np.ones(2), (np.zeros(4, "int8"),)]}
    out = shard(data, M4, P("x"))
    assert out["w"].shape == (4,)
    assert isinstance(out["b"], list)
    assert isinstance(out["b"][1], tuple)
    assert {str(x.layout) for x in (out["w"], out["b"][0], out["b"][1][0])} == {"[x]"}
    back = all_gather(out)
    assert same(back["b"][1][0].numpy(), data["b"][1][0])
    assert shard({}, M4, P("x")) == {}
    assert shard([np.float32(1), np.float32(2)], M4, P("x")).dtype == "float32"
    assert shard(3.0, M4, P()).item() == 3.0


def test_partial_axes_and_replicated_axes() -> None:
    data = np.arange(4.0)
    x = shard(data, M23, P("a"), partial_axes=["b"])
    assert_holds(x, Layout(M23, ["a"], ["b"]), data)
    assert shard(data, M23, P("a"), partial_axes={"b": "max"}).layout.reduce_op is ReduceOp.MAX
    assert shard(data, M23, P(unreduced=["a"]), partial_axes="b").layout is Layout(M23, [None], ["a", "b"])
    assert shard(data, M23, P("a"), {"b"}).layout is Layout(M23, ["a"])
    assert shard(data, M23, P("a"), replicated_axes="b").layout is Layout(M23, ["a"])
    with pytest.raises(LayoutError, match=r"axis 'a' is in replicated_axes, but \[a\] uses it"):
        shard(data, M23, P("a"), ["a"])
    with pytest.raises(LayoutError, match=r"unknown mesh axis 'c'.*\n.*a=2, b=3"):
        shard(data, M23, P("a"), ["c"])
    with pytest.raises(BindingError, match="reduction 'sum' is not defined for bool"):
        shard(np.array([True]), M23, P(unreduced=["a"]))


def test_replicated_axes_that_overlap_what_splits_without_nesting_are_refused() -> None:
    mesh = DeviceMesh((6,), ("x",))
    for layout in (Layout(mesh, ["x:(1)3"]), Layout(mesh, [None], ["x:(1)3"])):
        with pytest.raises(LayoutError, match=r"axis 'x:\(1\)2' is in replicated_axes, but .* uses it"):
            shard(np.arange(6.0), mesh, layout, ["x:(1)2"])
        assert shard(np.arange(6.0), mesh, layout, ["x:(3)2"]).layout is layout
    with pytest.raises(LayoutError, match=r"sub-axes x:\(1\)3 and x:\(2\)3 overlap"):
        ShardingSpec(mesh, [DimSpec(["x:(1)3"])], replicated_axes=["x:(2)3"])


@pytest.mark.parametrize("op", ReduceOp, ids=str)
def test_reshards_between_sub_axes_that_do_not_nest(op: ReduceOp) -> None:
    rng = Random(str(op))
    for sizes in ((6,), (6,), (6,), (12,), (6, 2)):
        found = sub_axis_layouts(DeviceMesh(sizes, ("x", "y")[: len(sizes)]), 1, str(op))
        for _ in range(4):
            src, dst = rng.choice(found), rng.choice(found)
            dtype = "float64" if op is ReduceOp.AVG else "int64"
            x, value = spread(src, (13,), dtype)
            assert_holds(shard(x, src.mesh, dst), dst, value)


def test_a_pending_sum_over_sub_axes_that_do_not_nest_keeps_every_element() -> None:
    mesh = DeviceMesh((6,), ("x",))
    x = shard(np.array([1, 2, 3]), mesh, P("x:(1)3"))
    assert shard(x, mesh, Layout(mesh, ["x:(2)3"], ["x:(1)2"])).numpy().tolist() == [1, 2, 3]


def test_axes_that_cut_across_those_of_the_layout_are_refused() -> None:
    mesh = DeviceMesh((12,), ("x",))
    x = shard(np.zeros((12, 12)), mesh, P("x:(1)6"))
    across = r"the axes \[x:\(1\)4\] cut across the sub-axes that \[x:\(1\)6\|-\] uses"
    with pytest.raises(LayoutError, match=f"all_gather: {across}"):
        all_gather(x, 0, physical_axis="x:(1)4")
    with pytest.raises(LayoutError, match=f"all_to_all: {across}"):
        all_to_all(x, 1, 0, mesh_axes="x:(1)4")
    with pytest.raises(LayoutError, match=f"all_reduce: {across}"):
        all_reduce(x, reduce_axes="x:(1)4")
    with pytest.raises(LayoutError, match=r"all_slice needs axes .* uses 'x:\(1\)4'"):
        all_slice(x, 1, "x:(1)4")
    pending = shard(np.zeros(12), mesh, Layout(mesh, [None], ["x:(1)6"]))
    with pytest.raises(LayoutError, match="has a pending sum, which cannot be resolved as max"):
        all_reduce(pending, reduce_op="max", reduce_axes="x:(1)4")


def test_operands_whose_sub_axes_do_not_nest_meet() -> None:
    mesh = DeviceMesh((6,), ("x",))
    data = np.arange(36.0).reshape(6, 6)
    for a, b in (("x:(1)3", "x:(1)2"), ("x:(1)2", "x:(3)2"), ("x:(2)3", "x:(1)3")):
        x, y = shard(data, mesh, P(a)), shard(data, mesh, P(None, b))
        assert same((x + y).numpy(), data + data)
        assert same((x @ y).numpy(), data @ data)
        pending = shard(data, mesh, Layout(mesh, [None, None], [a]))
        assert same((pending * y).numpy(), data * data)
        assert same((pending + x).numpy(), data + data)
        assert same(pending[2:5].numpy(), data[2:5])


ZEROS = [
    np.dtype(t) for t in ("float16", "float32", "float64", "complex64", "bfloat16", "float8_e5m2", "float8_e4m3fn")
]


@pytest.mark.parametrize("dtype", ZEROS, ids=str)
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_a_pending_sum_keeps_the_sign_of_zero(dtype: np.dtype, library: str) -> None:
    mesh = DeviceMesh((2, 2), ("x", "y"))
    data = np.array([-0.0, 0.0, 1.0, -0.0]).astype(dtype)
    if dtype.kind == "c":
        data[:2] = complex(0.0, -0.0), complex(-0.0, -0.0)
    given: Any = torch_of(data) if library == "torch" else data
    for src, dst in (("x", ["x", "y"]), (None, ["y"]), ("y", ["x"])):
        pending = shard(shard(given, mesh, P(src)), mesh, P(unreduced=dst))
        for y in (pending, pending.gather(), shard(pending, DeviceMesh((3,), ("z",)), P("z"))):
            assert np.asarray(y.gather().numpy(), dtype).tobytes() == data.tobytes()
    made = sw.full((4,), -0.0, dtype=dtype, mesh=mesh, layout=P(unreduced=["x"]))
    assert np.signbit(np.real(made.numpy().astype("complex128"))).all()
    picked = sw.take(shard(data, mesh, P(("x", "y"))), np.array([3, 0, 1, 0]), axis=0)
    assert picked.numpy().tobytes() == data[[3, 0, 1, 0]].tobytes()


def test_what_is_no_array_is_refused() -> None:
    for bad in ("text", object(), np.array(["a"]), np.array([object()])):
        with pytest.raises(ArgumentError, match="expected"):
            shard(bad, M4, P())


# -- layout by layout ----------------------------------------------------------------------------------


@given(st.data())
def test_all_gather_makes_dims_whole(data: st.DataObject) -> None:
    move = data.draw(moves(one_mesh=True))
    x, want = spread(move.src, move.shape, move.dtype)
    dims, pending = list(move.src.dims), move.src.partial
    op = move.src.reduce_op or "sum"

    def without_axes(which: Sequence[int], axes: Sequence[Axis]) -> Layout:
        new = [
            without(c.axes, axes) if k in which and without(c.axes, axes) != c.axes else c for k, c in enumerate(dims)
        ]
        return Layout(x.mesh, new, pending, op)

    every = x.layout.sharded_axes
    moved_to(lambda: all_gather(x), x, without_axes(range(x.ndim), every), want)
    for dim in range(-x.ndim, x.ndim):
        moved_to(lambda dim=dim: all_gather(x, dim), x, without_axes([dim % x.ndim], every), want)
    for axis in every:
        gone = without_axes(range(x.ndim), [axis])
        moved_to(lambda axis=axis: all_gather(x, physical_axis=str(axis)), x, gone, want)


def test_all_gather_errors() -> None:
    x = shard(np.zeros((4, 4)), M23, P("a"))
    with pytest.raises(LayoutError, match=r"all_gather: physical_axis='b' does not split any dim of \[a\|-\]"):
        all_gather(x, physical_axis="b")
    with pytest.raises(LayoutError, match=r"physical_axis='a' does not split dim 1 of"):
        all_gather(x, 1, physical_axis="a")
    with pytest.raises(LayoutError, match=r"all_gather: axis=2 is out of range for a tensor with 2 dims"):
        all_gather(x, 2)
    with pytest.raises(ArgumentError, match=r"all_gather: axis is a tensor dim as an int, got 'a'"):
        all_gather(x, "a")  # type: ignore
    with pytest.raises(LayoutError, match=r"unknown mesh axis 'c' in all_gather"):
        all_gather(x, physical_axis="c")
    with pytest.raises(ArgumentError, match=r"all_gather needs a Tensor, got ndarray; make one with shard"):
        all_gather(np.zeros(4))


@given(st.data())
def test_all_slice_splits_over_replicated_axes(data: st.DataObject) -> None:
    move = data.draw(moves(one_mesh=True, halo=False))
    if not move.shape:
        return
    x, want = spread(move.src, move.shape, move.dtype)
    dim = data.draw(st.integers(-x.ndim, x.ndim - 1))
    over = x.layout.replicated_axes
    cuts = [Cut((*c.axes, *over)) if k == dim % x.ndim and over else c for k, c in enumerate(x.layout.dims)]
    target = Layout(x.mesh, cuts, x.layout.partial, x.layout.reduce_op or "sum")
    if over:
        moved_to(lambda: all_slice(x, dim), x, target, want)
        moved_to(lambda: all_slice(x, dim, [str(a) for a in over]), x, target, want)
    if x.layout.sharded_axes:
        with pytest.raises(LayoutError, match="all_slice needs axes on which the tensor is replicated, but"):
            all_slice(x, dim, str(x.layout.sharded_axes[0]))


def test_all_slice_of_whole_dims_sends_nothing() -> None:
    x = shard(np.arange(10.0), M23, P())
    with sw.trace_communication() as log:
        assert [part.size for part in held(all_slice(x, 0))] == [2, 2, 2, 2, 1, 1]
    assert log.bytes == 0


@given(st.data())
def test_tiled_all_to_all_moves_the_sharding_of_a_dim(data: st.DataObject) -> None:
    mesh = data.draw(host_meshes())
    shape = data.draw(st.lists(st.integers(0, 7), min_size=1, max_size=3))
    layout = data.draw(layouts_for(mesh, shape, plain=True))
    x, want = spread(layout, shape, data.draw(st.sampled_from(DTYPES)))
    concat, split = (data.draw(st.integers(-x.ndim, x.ndim - 1)) for _ in range(2))
    source, target = concat % x.ndim, split % x.ndim
    axes = layout.dims[source].axes
    if not axes:
        assert all_to_all(x, split, concat) is x
        return
    if source == target:
        return
    chosen = data.draw(st.sampled_from([None, *axes]))
    moving = axes if chosen is None else (chosen,)
    new = [list(c.axes) for c in layout.dims]
    new[source] = list(without(axes, moving))
    new[target] += moving
    names = None if chosen is None else str(chosen)
    moved_to(lambda: all_to_all(x, split, concat, mesh_axes=names), x, Layout(mesh, new), want)


def test_all_to_all_names_axes_that_split_the_dim() -> None:
    mesh = DeviceMesh((2, 3, 1), ("a", "b", "one"))
    x = shard(np.zeros((6, 6)), mesh, P("a"))
    assert str(all_to_all(x, 1, 0, mesh_axes="a").layout) == "[-|a]"
    for names in ("b", ("a", "b")):
        with pytest.raises(
            LayoutError, match=r"all_to_all: dim 0 is not sharded by .* in \[a\|-\], so there is nothing"
        ):
            all_to_all(x, 1, 0, mesh_axes=names)
    assert all_to_all(x, 1, 0, mesh_axes="one") is x
    assert all_to_all(x, 0, 0, mesh_axes="one") is x


def test_all_to_all_along_one_dim_exchanges_blocks() -> None:
    x = shard(np.arange(8), DeviceMesh((2,), ("x",)), P("x"))
    want = np.array([0, 1, 4, 5, 2, 3, 6, 7])
    assert_holds(all_to_all(x, 0, 0), x.layout, want)
    assert same(all_to_all(all_to_all(x, 0, 0), 0, 0).numpy(), np.arange(8))
    inside = sw.shard_map(lambda a: all_to_all(a, 0, 0, mesh_axes="x"), x.mesh, P("x"), P("x"))
    assert same(inside(x).numpy(), want)


def exchanged(x: Tensor, dim: int, axes: Sequence[Axis]) -> tuple[list[np.ndarray], int]:
    """What each device must hold after the groups over `axes` exchange blocks of a dim, and the elements received."""
    local, out, sent = held(x), [np.empty(0)] * x.mesh.num_devices, 0
    for group in grouped(x.mesh, axes, range(x.mesh.num_devices)):
        for at, device in enumerate(group):
            pieces = [np.array_split(local[member], len(group), axis=dim)[at] for member in group]
            out[device] = np.concatenate(pieces, axis=dim)
            sent += sum(piece.size for member, piece in zip(group, pieces, strict=True) if member != device)
    return out, sent


@given(st.data())
def test_blocks_are_exchanged_however_dims_are_cut(data: st.DataObject) -> None:
    mesh = data.draw(host_meshes(max_size=6, max_devices=24))
    dtype = data.draw(st.sampled_from(DTYPES))
    if data.draw(st.booleans()):
        shape = data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=3))
        layout = data.draw(layouts_for(mesh, shape, halo=False, op=data.draw(st.sampled_from([None, ReduceOp.MAX]))))
        if layout.partial and ReduceOp.MAX not in reductions_of(dtype):
            return
    else:
        layout, shape = data.draw(even_layouts(mesh))
        shape = [size * layout.parts(k) for k, size in enumerate(shape)]
    homes = [k for k, cut in enumerate(layout.dims) if cut.axes]
    if not homes:
        return
    dim = data.draw(st.sampled_from(homes))
    axes = data.draw(st.permutations(layout.dims[dim].axes))
    axes = axes[: data.draw(st.integers(1, len(axes)))]
    x, _ = spread(layout, shape, dtype)
    sw.current_engine().counters.reset()
    y = all_to_all(x, dim, dim - x.ndim, mesh_axes=[str(a) for a in axes])
    sent = sw.current_engine().counters.total
    assert y.shape == x.shape
    plain = shard(x, mesh, layout.resolved())
    wanted, count = exchanged(plain, dim, axes)
    assert layout.partial or sent == count * dtype.itemsize
    for got, want in zip(held(shard(y, mesh, y.layout.resolved())), wanted, strict=True):
        assert same(got, want)
    if dtype != "float64":
        return
    f = lambda x: all_to_all(x, dim, dim, mesh_axes=[str(a) for a in axes])  # noqa: E731
    t, w = on(values(shape, dtype, 3), plain.layout), on(values(shape, dtype, 4), y.layout.resolved())
    back = sw.vjp(f, plain)[1](w)[0]
    assert back.layout is plain.layout
    assert (sw.jvp(f, (plain,), (t,))[1].numpy() * w.numpy()).sum() == (back.numpy() * t.numpy()).sum()
    again = sw.vjp(lambda ct: sw.vjp(f, plain)[1](ct)[0], w)[1](t)[0]
    assert same(again.numpy(), f(t).numpy())


@given(st.data())
def test_slices_are_swapped_however_other_dims_are_cut(data: st.DataObject) -> None:
    mesh = data.draw(host_meshes(max_size=4, max_devices=24))
    rank = data.draw(st.integers(2, 3))
    split, concat = data.draw(st.permutations(range(rank)))[:2]
    homes: dict[int, list[Axis]] = {}
    for axis in data.draw(factors(mesh)):
        homes.setdefault(data.draw(st.integers(-1, rank - 1)), []).append(axis)
    axes = [a for a in homes.get(concat, []) if a.size > 1 and data.draw(st.booleans())]
    count = prod(a.size for a in axes)
    dims, shape = [], []
    for dim in range(rank):
        own = homes.get(dim, [])
        parts = prod(a.size for a in own)
        size = {split: count * parts, concat: 2 * parts}.get(dim, data.draw(st.integers(0, 5)))
        dims.append(Cut(own, **({} if dim in (split, concat) else data.draw(cuts(parts, size, halo=False)))))
        shape.append(size)
    x, _ = spread(Layout(mesh, dims), shape, "float64")
    names = [str(a) for a in axes]
    f = lambda x: all_to_all(x, split, concat, tiled=False, mesh_axes=names)  # noqa: E731
    y, back = sw.vjp(f, x)
    local = held(x)
    for group in grouped(mesh, axes, range(mesh.num_devices)):
        for at, device in enumerate(group):
            slices = [np.take(local[member], at, axis=split) for member in group]
            assert same(held(y)[device], np.stack(slices, axis=concat))
    t, w = on(values(shape, "float64", 3), x.layout), on(values(y.shape, "float64", 4), y.layout)
    gradient = back(w)[0]
    assert gradient.layout is x.layout
    assert (sw.jvp(f, (x,), (t,))[1].numpy() * w.numpy()).sum() == (gradient.numpy() * t.numpy()).sum()


def test_slices_of_unequal_shards_cannot_be_stacked() -> None:
    x = shard(np.zeros((3, 7)), M23, P(None, "b"))
    with pytest.raises(BindingError) as caught:
        all_to_all(x, 0, 1, tiled=False)
    assert str(caught.value) == (
        "all_to_all with tiled=False stacks what a group along b holds, so its parts of dim 1 must be equal; 7 "
        "elements over 3 devices are not.\n  pad the dim, or use tiled=True."
    )


@pytest.mark.parametrize(("split", "concat"), [(1, 0), (1, 2), (2, 0), (-2, -1), (0, 0), (0, 1)])
def test_untiled_all_to_all_swaps_slices(split: int, concat: int) -> None:
    shape = [6, 6, 6]
    spec: list[Any] = [None, None, None]
    spec[concat] = "b"
    shape[split % 3] = 3 if split % 3 != concat % 3 else 9
    x, _ = spread(P(*spec).to_layout(3, M23), shape, "float32")
    y = all_to_all(x, split, concat, tiled=False)
    assert y.ndim == 3
    for group in M23.groups("b"):
        for i, device in enumerate(group):
            slices = [np.take(held(x)[other], i, axis=split) for other in group]
            assert same(held(y)[device], np.stack(slices, axis=concat % 3))


def test_untiled_all_to_all_needs_a_dim_of_the_size_of_the_group() -> None:
    x = shard(np.zeros((6, 4)), M23, P("b"))
    with pytest.raises(BindingError, match="all_to_all: dim 1 has size 4, but must be 3, the size of the group"):
        all_to_all(x, 1, 0, tiled=False)


@given(st.data())
def test_halo_exchange_adds_what_neighbours_hold(data: st.DataObject) -> None:
    mesh = data.draw(host_meshes())
    shape = data.draw(st.lists(st.integers(1, 7), min_size=1, max_size=2))
    layout = data.draw(layouts_for(mesh, shape, halo=False))
    x, want = spread(layout, shape, data.draw(st.sampled_from(DTYPES)))
    dim = data.draw(st.integers(-x.ndim, x.ndim - 1))
    old = layout.dims[dim]
    least = min(stop - start for start, stop in (held_box(layout, shape, d)[dim] for d in range(mesh.num_devices)))
    halo = data.draw(st.integers(0, least)), data.draw(st.integers(0, least))
    edge: Any = data.draw(st.sampled_from(["clip", "pad"]))
    cuts = list(layout.dims)
    cuts[dim] = Cut(old.axes, split=old.split, offsets=old.offsets, halo=halo, edge=edge)
    moved_to(lambda: halo_exchange(x, dim, halo, edge=edge), x, Layout(mesh, cuts), want)


def test_halo_exchange_errors() -> None:
    x = shard(np.arange(8.0), M4, P("x"))
    assert [h.tolist() for h in held(halo_exchange(x, 0, (1, 0)))][1] == [1, 2, 3]
    assert halo_exchange(halo_exchange(x, 0, 1), 0, 0).layout is x.layout
    with pytest.raises(LayoutError, match="a halo is a pair of widths of 0 or more, got -1"):
        halo_exchange(x, 0, -1)
    with pytest.raises(BindingError, match="halo"):
        halo_exchange(x, 0, 3)
    with pytest.raises(LayoutError, match=r"unknown edge policy 'wrap'"):
        halo_exchange(x, 0, 1, edge="wrap")  # type: ignore
    with pytest.raises(ArgumentError, match="mesh_axis is for use inside shard_map"):
        halo_exchange(x, 0, 1, mesh_axis="x")


@given(moves())
def test_distributed_broadcast_puts_the_whole_everywhere(move: Move) -> None:
    x, want = spread(move.src, move.shape, move.dtype)
    everywhere = Layout.replicated(move.dst.mesh, len(move.shape))
    moved_to(lambda: distributed_broadcast(x, move.dst.mesh), x, everywhere, want)
    if not move.src.mesh.is_single:
        moved_to(lambda: distributed_broadcast(x), x, Layout.replicated(move.src.mesh, x.ndim), want)


def test_distributed_broadcast_of_host_data() -> None:
    assert_holds(distributed_broadcast([1.0, 2.0], M4), Layout(M4, [None]), np.array([1.0, 2.0]))
    with mesh_context(M4):
        assert distributed_broadcast({"a": np.ones(1)})["a"].mesh is M4  # type: ignore
    with pytest.raises(sw.MeshError, match=r"no mesh was given.\n  pass mesh=DeviceMesh"):
        distributed_broadcast([1.0])


# -- reductions ----------------------------------------------------------------------------------------


def reduced_locals(x: Tensor, axes: Sequence[Axis], op: ReduceOp) -> list[np.ndarray]:
    """What each device must hold after the local arrays of its group over `axes` are reduced."""
    local, out = held(x), [np.empty(0)] * x.mesh.num_devices
    for group in grouped(x.mesh, axes, range(x.mesh.num_devices)):
        for device in group:
            out[device] = reduced([local[member] for member in group], op)
    return out


@st.composite
def reductions(draw: st.DrawFn, dtypes: Sequence[np.dtype] = DTYPES) -> tuple[Tensor, list[Axis], ReduceOp]:
    """Tensors of equal shards with axes to reduce over: whole mesh axes, or those that the layout uses."""
    mesh = draw(host_meshes())
    dtype = draw(st.sampled_from(dtypes))
    op = draw(st.sampled_from(reductions_of(dtype)))
    layout, shape = draw(even_layouts(mesh, op if draw(st.booleans()) else None))
    x, _ = spread(layout, shape, dtype)
    if draw(st.booleans()):
        axes = [mesh.axis(name) for name in mesh.axis_names]
    else:
        axes = [*layout.sharded_axes, *layout.replicated_axes, *layout.partial]
    axes = draw(st.permutations(axes))
    return x, axes[: draw(st.integers(0, len(axes)))], op


@given(reductions())
def test_all_reduce_reduces_what_the_devices_of_a_group_hold(case: tuple[Tensor, list[Axis], ReduceOp]) -> None:
    x, axes, op = case
    y = all_reduce(x, reduce_op=op, reduce_axes=[str(a) for a in axes])
    exact = op is not ReduceOp.AVG
    assert y.dtype == x.dtype
    left = without(x.layout.partial, axes)
    assert set(y.layout.partial) <= set(left)
    # Where a reduction over other axes stays pending, its terms are the planner's choice, and only their total counts.
    wanted = reduced_locals(x, [*axes, *left], op)
    resolved = all_reduce(y, reduce_op=op, reduce_axes=[str(a) for a in y.layout.partial])
    assert all(same(got, want, exact) for got, want in zip(held(resolved), wanted, strict=True))


@given(reductions())
def test_all_reduce_over_everything_is_the_default(case: tuple[Tensor, list[Axis], ReduceOp]) -> None:
    x, _, op = case
    every = [x.mesh.axis(name) for name in x.mesh.axis_names]
    wanted = reduced_locals(x, x.layout.partial or every, op)
    got = held(all_reduce(x, reduce_op=op.value))
    assert all(same(a, b, op is not ReduceOp.AVG) for a, b in zip(got, wanted, strict=True))


@given(moves(one_mesh=True))
def test_all_reduce_of_partial_values_resolves_them_with_the_bytes_of_the_plan(move: Move) -> None:
    x, want = spread(move.src, move.shape, move.dtype)
    if not move.src.partial:
        return
    done = Layout(x.mesh, move.src.dims)
    with traffic_of(x.layout, done, x.shape, x.dtype):
        y = all_reduce(x)
    assert y.layout is done
    assert same(y.numpy(), want, move.src.reduce_op is not ReduceOp.AVG)


@st.composite
def uneven_reductions(draw: st.DrawFn) -> tuple[Tensor, list[Axis], ReduceOp]:
    """Tensors with axes to reduce over; dims, or groups of one dim, that are not reduced are cut in any way."""
    mesh = draw(host_meshes(max_size=6, max_devices=24))
    dtype = draw(st.sampled_from(DTYPES))
    op = draw(st.sampled_from(reductions_of(dtype)))
    rank = draw(st.integers(1, 3))
    homes: dict[int, list[Axis]] = {}
    for axis in draw(factors(mesh)):
        homes.setdefault(draw(st.integers(-2, rank - 1)), []).append(axis)
    axes = [axis for some in homes.values() for axis in some if draw(st.booleans())]
    dims, shape = [], []
    for dim in range(rank):
        own = homes.get(dim, [])
        parts = prod(a.size for a in own)
        if terms := [a for a in own if a in axes and a.size > 1]:
            # The members of each group hold equally many elements, whatever other groups hold.
            wide = np.array(draw(st.lists(st.integers(0, 3), min_size=parts, max_size=parts))).reshape(
                [a.size for a in own]
            )
            first = wide[tuple(slice(1) if a in terms else slice(None) for a in own)]
            ends = np.cumsum(np.broadcast_to(first, wide.shape).ravel())
            dims.append(Cut(own, offsets=(0, *map(int, ends))))
            shape.append(int(ends[-1]))
            continue
        size = draw(st.integers(0, 7))
        dims.append(Cut(own, **draw(cuts(parts, size))))
        shape.append(size)
    layout = Layout(mesh, dims, homes.get(-2, []), op)
    return spread(layout, shape, dtype)[0], draw(st.permutations(axes)), op


def test_a_dim_that_is_not_reduced_keeps_its_elements() -> None:
    mesh = DeviceMesh((2, 3), ("x", "y"))
    x = shard(np.array([[1.0, 2.0], [10.0, 20.0]]), mesh, P("x", "y"))
    assert_holds(all_reduce(x, reduce_axes="x"), Layout(mesh, [None, "y"]), np.array([[11.0, 22.0]]))
    assert_holds(reduce_scatter(x, 1, reduce_axes="x"), Layout(mesh, [None, ("y", "x")]), np.array([[11.0, 22.0]]))
    assert_holds(pmean(x, "x"), Layout(mesh, [None, "y"]), np.array([[5.5, 11.0]]))
    groups = shard(np.arange(6.0), mesh, Layout(mesh, [Cut(("y", "x"), offsets=(0, 2, 4, 5, 6, 6, 6))]))
    assert_holds(
        all_reduce(groups, reduce_axes="x"), Layout(mesh, [Cut("y", offsets=(0, 2, 3, 3))]), np.array([2.0, 4.0, 9.0])
    )


@given(uneven_reductions())
def test_dims_that_are_not_reduced_may_be_cut_in_any_way(case: tuple[Tensor, list[Axis], ReduceOp]) -> None:
    x, axes, op = case
    names, exact = [str(a) for a in axes], op is not ReduceOp.AVG
    y = all_reduce(x, reduce_op=op, reduce_axes=names)
    own = Tensor(x.arrays, x.layout, x.shape, x.dtype, x.engine)
    wanted = reduced_locals(shard(own, x.mesh, x.layout.without_halo()), [*axes, *without(x.layout.partial, axes)], op)
    done = all_reduce(y, reduce_op=op, reduce_axes=[str(a) for a in y.layout.partial])
    plain = shard(done, x.mesh, done.layout.without_halo())
    assert all(same(got, want, exact) for got, want in zip(held(plain), wanted, strict=True))
    for dim in range(x.ndim):
        z = reduce_scatter(x, dim, reduce_op=op, reduce_axes=names)
        assert same(z.numpy(), done.numpy(), exact)
        again = reduce_scatter(z, dim, reduce_op=op, reduce_axes=[str(a) for a in z.layout.partial])
        for device, got in enumerate(held(again)):
            assert same(got, part(done.numpy(), held_box(again.layout, done.shape, device)), exact)
    if op is ReduceOp.AVG:
        assert same(pmean(x, names).numpy(), done.numpy(), exact)


@given(uneven_reductions())
def test_derivatives_of_reductions_whose_other_dims_are_cut_in_any_way(
    case: tuple[Tensor, list[Axis], ReduceOp],
) -> None:
    x, axes, op = case
    if x.dtype.kind in "iub" or x.dtype.itemsize < 8 or op in (ReduceOp.MAX, ReduceOp.MIN, ReduceOp.PROD):
        return
    plain = shard(x, x.mesh, x.layout.resolved())

    def both(x: Tensor) -> tuple[Tensor, Tensor]:
        names = [str(a) for a in axes]
        return all_reduce(x, reduce_op=op, reduce_axes=names), reduce_scatter(x, 0, reduce_op=op, reduce_axes=names)

    for which in range(2):
        y, back = sw.vjp(lambda x, which=which: both(x)[which], plain)
        t, w = on(values(x.shape, x.dtype, 5), plain.layout), on(values(y.shape, x.dtype, 6), y.layout)
        gradient = back(w)[0]
        assert gradient.layout is plain.layout
        tangent = sw.jvp(lambda x, which=which: both(x)[which], (plain,), (t,))[1]
        assert same(tangent.numpy(), both(t)[which].numpy(), exact=False)
        assert np.isclose((tangent.numpy() * w.numpy()).sum(), (gradient.numpy() * t.numpy()).sum())


def test_reductions_of_equal_copies_need_no_communication() -> None:
    x = shard(values((4,), "int8"), DeviceMesh((200,), ("x",)), P())
    with sw.trace_communication() as log:
        assert same(all_reduce(x).numpy(), (x.numpy().astype(int) * 200).astype("int8"))
        assert same(all_reduce(x, reduce_op="bxor").numpy(), np.zeros(4, "int8"))
        assert same(all_reduce(x, reduce_op="max").numpy(), x.numpy())
    assert log.bytes == 0
    endless = shard(np.array([complex(np.inf, 0), complex(-np.inf, 2)]), M23, P())
    assert all_reduce(endless, reduce_axes="b").numpy().tolist() == [complex(np.inf, 0), complex(-np.inf, 6)]
    flags = shard(np.array([True, False]), M23, P())
    assert same(all_reduce(flags, reduce_op="bxor", reduce_axes="a").numpy(), np.array([False, False]))
    assert same(all_reduce(flags, reduce_op="bxor", reduce_axes="b").numpy(), np.array([True, False]))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint64", "float32", "complex64"])
@pytest.mark.parametrize("copies", [128, 129, 256, 257, 300])
def test_there_may_be_more_copies_than_fit_in_the_dtype(dtype: str, copies: int) -> None:
    data = np.array([0, 1, 2, 3, -1 if np.dtype(dtype).kind != "u" else 7]).astype(dtype)
    mesh = DeviceMesh((copies,), ("x",))
    ops = [op for op in ("sum", "prod", "max", "bxor", "avg") if ReduceOp.of(op) in reductions_of(np.dtype(dtype))]
    for op in ops:
        with np.errstate(all="ignore"):
            want = reduced([data] * copies, ReduceOp.of(op))
            got = all_reduce(shard(data, mesh, P()), reduce_op=op).numpy()
        assert same(got, want) or (np.isclose(got, want) | ~np.isfinite(want)).all(), (op, got, want)


@pytest.mark.parametrize("copies", [17, 257, 449, 2049])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float8_e4m3fn", "float8_e5m2"])
def test_copies_of_small_floats_are_added_in_float32_and_rounded_once(dtype: str, copies: int) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    data = np.array([0.0, 0.125, -0.375, 0.015625]).astype(kind)
    mesh = DeviceMesh((copies,), ("x",))
    got = all_reduce(shard(data, mesh, P())).numpy()
    with np.errstate(all="ignore"):
        want = (data.astype("float32") * copies).astype(kind)
    assert got.dtype == kind
    assert got.tobytes() == want.tobytes()
    ones = np.array([1.0, -1.0]).astype(kind)
    product = all_reduce(shard(ones, mesh, P()), reduce_op="prod").numpy()
    assert product.astype("float32").tolist() == [1.0, (-1.0) ** copies]
    if copies > 17:
        return
    back = sw.vjp(lambda x: pmean(x), shard(np.ones(copies, kind), mesh, P("x")))[1](np.ones(1, kind))[0]
    assert (back.numpy() == np.asarray(1 / copies, "float32").astype(kind)).all()


@pytest.mark.parametrize("dtype", ["float16", "float8_e4m3fn"])
def test_an_average_of_large_numbers_is_not_a_sum_that_overflows(dtype: str) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    big = np.full((6, 2), ml_dtypes.finfo(kind).max).astype(kind)
    x, pending = shard(big, M23, P(("a", "b"))), Layout(M23, [None, None], ["a", "b"], "avg")
    terms = sw.from_shards([big] * 6, M23, pending, (6, 2))
    inside = sw.shard_map(lambda a: pmean(a), M23, P(("a", "b")), P())
    for average in (pmean(x), pmean(x, "a"), inside(x), all_reduce(terms), terms, sw.mean(x), inside(big)):
        assert (average.numpy() == big[0, 0]).all()
    assert (reduce_scatter(x, 1, reduce_op="avg").numpy() == big[0, 0]).all()
    # The derivative of an average is an average of cotangents.
    rows = sw.shard_map(lambda a: pmean(a), M23, P(("a", "b")), P(("a", "b")))
    assert (sw.vjp(rows, x)[1](big)[0].numpy() == big).all()
    assert (sw.jvp(rows, (x,), (big,))[1].numpy() == big).all()
    assert (sw.jvp(pmean, (x,), (big,))[1].numpy() == big[0, 0]).all()
    sixth = (big[:1].astype("float32") / 6).astype(kind)
    assert (sw.vjp(pmean, x)[1](big[:1])[0].numpy() == sixth).all()  # type: ignore


@pytest.mark.parametrize("sizes", [(2, 1), (1, 1), (1, 2), (1,)], ids=str)
@pytest.mark.parametrize("op", ["sum", "avg", "max", "min", "prod"])
def test_axes_of_one_device_change_nothing_about_reductions(op: str, sizes: tuple[int, ...]) -> None:
    mesh = DeviceMesh(sizes, tuple("xy"[: len(sizes)]))
    data, w = np.arange(1.0, 9.0), np.array([1.0, -2, 3, 1, 2, 5, -1, 4])
    x = shard(data, mesh, P("x"))
    for names in ("x", ("x",), *([("x", "y"), "y", None] if sizes[1:] == (1,) else []), ()):
        several = sizes[0] if names is None or "x" in names else 1
        terms = data.reshape(several, -1)
        want = reduced(list(terms), ReduceOp.of(op))
        weights = {
            "sum": np.ones_like(terms),
            "avg": np.full_like(terms, 1 / several),
            "max": terms == want,
            "min": terms == want,
            "prod": want / terms,
        }[op]
        gradient = (weights * w[: want.size]).reshape(-1)
        for call in (
            lambda x, names=names: all_reduce(x, reduce_op=op, reduce_axes=names),
            lambda x, names=names: reduce_scatter(x, 0, reduce_op=op, reduce_axes=names),
        ):
            y, back = sw.vjp(call, x)
            assert same(y.numpy(), want, exact=False)
            assert same(back(w[: want.size])[0].numpy(), gradient, exact=False)
            tangent = sw.jvp(call, (x,), (w,))[1].numpy()
            assert np.isclose((tangent * w[: want.size]).sum(), (gradient * w).sum())
            inside = sw.shard_map(call, mesh, P("x"), P(mesh.axis_names))
            total, pull = sw.vjp(inside, x)
            forward, back = sw.jvp(inside, (x,), (w,))[1].numpy(), pull(np.full(total.shape, 2.0))[0].numpy()
            assert np.isclose((forward * 2.0).sum(), (back * w).sum())


def test_all_reduce_errors() -> None:
    x = shard(np.arange(5.0), M4, P("x"))
    with pytest.raises(BindingError) as caught:
        all_reduce(x)
    assert str(caught.value) == (
        "reducing over x adds the shards of dim 0 up, so they must be equal; 5 elements over 4 devices are not.\n"
        "  to sum the dim itself, reduce the global view; to have it whole on every device, all_gather."
    )
    y = shard(np.arange(4.0), M4, P(unreduced={"x": "max"}))
    with pytest.raises(LayoutError) as caught:
        all_reduce(y, reduce_op="sum")
    assert str(caught.value) == (
        "all_reduce: [-] max(x) has a pending max, which cannot be resolved as sum.\n"
        "  leave reduce_op out, or resolve it first: all_reduce(x)."
    )
    with pytest.raises(LayoutError, match=r"unknown reduction 'mean'.\n  reductions: sum, avg, min, max, prod"):
        all_reduce(y, reduce_op="mean")
    with pytest.raises(BindingError, match="reduction 'avg' is not defined for int64"):
        pmean(shard(np.arange(4), M4, P("x")))
    with pytest.raises(LayoutError, match="mesh axis 'x' is used twice in the axes of all_reduce"):
        all_reduce(y, reduce_axes=["x", "x"])
    six = shard(np.arange(6.0), DeviceMesh((6,), ("x",)), P("x:(1)2"))
    with pytest.raises(LayoutError, match=r"the axes \[x:\(1\)3\] cut across the sub-axes that \[x:\(1\)2\] uses"):
        all_reduce(six, reduce_axes="x:(1)3")


def test_another_pending_reduction_is_resolved_before() -> None:
    # Elsewhere than the pending axis, another reduction is of the finished values.
    x = sw.from_shards([np.full(2, float(i)) for i in range(6)], M23, P("b", unreduced={"a": "max"}), (6,))
    y = all_reduce(x, reduce_op="sum", reduce_axes="b")
    assert same(y.numpy(), np.full(2, 3.0 + 4 + 5))


def test_a_halo_is_left_out_of_reductions() -> None:
    x = halo_exchange(shard(np.arange(8.0), M4, P("x")), 0, 1)
    assert same(all_reduce(x).numpy(), np.array([12.0, 16.0]))


@given(st.data())
def test_reduce_scatter_leaves_each_device_its_piece(data: st.DataObject) -> None:
    x, axes, op = data.draw(reductions())
    if not x.ndim:
        return
    dim = data.draw(st.integers(-x.ndim, x.ndim - 1))
    names = [str(a) for a in axes]
    whole = all_reduce(x, reduce_op=op, reduce_axes=names)
    y = reduce_scatter(x, dim, reduce_op=op, reduce_axes=names)
    base = [without(c.axes, axes) for c in x.layout.dims]
    base[dim] = (*base[dim], *axes)
    left = without(y.layout.partial, axes)
    want = Layout(x.mesh, base, left, op)
    assert y.layout is want
    assert same(y.numpy(), whole.numpy(), op is not ReduceOp.AVG)
    if not y.layout.partial and y.size:
        assert all(
            same(got, part(whole.numpy(), held_box(want, y.shape, device)), op is not ReduceOp.AVG)
            for device, got in enumerate(held(y))
        )


def test_reduce_scatter_of_partial_values_sends_what_the_plan_says() -> None:
    layout = Layout(M222, [None, "c"], ["a", "b"])
    x, want = spread(layout, (8, 5), "float32")
    moved_to(lambda: reduce_scatter(x, 0), x, Layout(M222, [("a", "b"), "c"]), want)
    moved_to(lambda: reduce_scatter(x, 0, reduce_axes="b"), x, Layout(M222, ["b", "c"], ["a"]), want)
    with pytest.raises(LayoutError, match="reduce_scatter: axis=2 is out of range"):
        reduce_scatter(x, 2)
    with pytest.raises(LayoutError, match=r"reduce_scatter: .* pending sum, which cannot be resolved as max"):
        reduce_scatter(x, 0, reduce_op="max")


def test_pmean_is_the_average_over_devices() -> None:
    x, _ = spread(Layout(M23, ["b"]), (6,), "float32")
    assert same(pmean(x, "b").numpy(), held(x)[0] / 3 + held(x)[1] / 3 + held(x)[2] / 3, exact=False)
    assert same(pmean(x, "a").numpy(), x.numpy())
    assert [y.shape for y in pmean([x, x])] == [(2,), (2,)]


# -- point to point ------------------------------------------------------------------------------------


@given(st.data())
def test_ppermute_sends_shards_from_device_to_device(data: st.DataObject) -> None:
    mesh = data.draw(host_meshes())
    count = mesh.num_devices
    layout = Layout(mesh, [list(data.draw(axis_lists(mesh, min_size=99)))])
    x, _ = spread(layout, (count * data.draw(st.integers(0, 2)),), data.draw(st.sampled_from(DTYPES)))
    sources, targets = (data.draw(st.permutations(range(count))) for _ in range(2))
    pairs = list(zip(sources, targets, strict=True))[: data.draw(st.integers(0, count))]
    sw.current_engine().counters.reset()
    y = ppermute(x, pairs)
    sent = sum(x.local(source).nbytes for source, target in pairs if source != target)
    assert sw.current_engine().counters.total == sent
    back = {target: source for source, target in pairs}
    for device, got in enumerate(held(y)):
        assert same(got, held(x)[back[device]] if device in back else np.zeros_like(got))
    assert y.layout is layout


@given(st.data())
def test_along_an_axis_positions_are_permuted_in_every_group(data: st.DataObject) -> None:
    mesh = data.draw(host_meshes())
    dtype = data.draw(st.sampled_from(DTYPES))
    op = data.draw(st.sampled_from([None, *reductions_of(dtype)]))
    layout, shape = data.draw(even_layouts(mesh, op))
    axes = [a for a in layout.sharded_axes if a.size > 1]
    if not axes:
        return
    axis = data.draw(st.sampled_from(axes))
    x, _ = spread(layout, shape, dtype)
    offset, rotate = data.draw(st.integers(-5, 5)), data.draw(st.booleans())
    y = shift(x, str(axis), offset, rotate=rotate)
    pairs = [(i, (i + offset) % axis.size) for i in range(axis.size) if rotate or 0 <= i + offset < axis.size]
    z = ppermute(x, pairs, axis=str(axis))
    assert y.layout is z.layout is x.layout
    back = {target: source for source, target in pairs}
    for group in grouped(mesh, [axis], range(mesh.num_devices)):
        for device in group:
            at = digit(mesh, axis, device)
            want = held(x)[group[back[at]]] if at in back else np.zeros_like(held(x)[device])
            assert same(held(y)[device], want)
            assert same(held(z)[device], want)


def test_ppermute_of_replicated_and_partial_values() -> None:
    x = shard(np.arange(2.0), M23, P("a"))
    swapped = ppermute(x, [(0, 3), (1, 4), (2, 5), (3, 0), (4, 1), (5, 2)])
    assert same(swapped.numpy(), np.array([1.0, 0.0]))
    with pytest.raises(LayoutError) as caught:
        ppermute(x, [(0, 3)])
    assert str(caught.value) == (
        "devices (0, 1, 2) hold the same data under [a], but would receive different shards.\n"
        "  permute along an axis that splits the tensor, or write local-view code with shard_map."
    ).replace("(0, 1, 2)", "(3, 4, 5)")
    # The terms of a sum are not values of their own.
    terms = sw.from_shards([np.full(1, float(i)) for i in range(6)], M23, P("a", unreduced=["b"]), (2,))
    assert same(shift(terms, "a").numpy(), np.array([12.0, 3.0]))
    assert shift(terms, "b").numpy().tolist() == terms.numpy().tolist()
    with pytest.raises(LayoutError, match="hold the same data under"):
        ppermute(terms, [(0, 1)], axis="b")


def test_a_halo_is_left_out_of_permutations() -> None:
    x = halo_exchange(shard(np.arange(8.0), M4, P("x")), 0, 1, edge="pad")
    y = shift(x, "x")
    assert_holds(y, Layout(M4, ["x"]), np.roll(np.arange(8.0), 2))


def test_ppermute_errors() -> None:
    x = shard(np.arange(5.0), M4, P("x"))
    with pytest.raises(LayoutError, match=r"shards can only be permuted where they have equal shapes; devices \(0,\)"):
        ppermute(x, [(0, 1)])
    with pytest.raises(ArgumentError, match=r"ppermute needs a Tensor, got list"):
        ppermute([1.0], [(0, 1)])
    with pytest.raises(LayoutError, match=r"unknown mesh axis 'y' in shift"):
        shift(x, "y")
    with pytest.raises(ArgumentError, match=r"shift needs a Tensor, got ndarray"):
        shift(np.zeros(4), "x")


# -- devices -------------------------------------------------------------------------------------------


@given(moves(partial=True))
def test_to_device_brings_the_whole_value_to_one_device(move: Move) -> None:
    x, want = spread(move.src, move.shape, move.dtype)
    mesh = move.src.mesh
    if len(set(mesh.devices)) < mesh.num_devices:
        return
    target = Layout.replicated(DeviceMesh.single(mesh.device(mesh.num_devices - 1)), x.ndim)
    moved_to(lambda: to_device(x, target.mesh.device(0)), x, target, want)
    moved_to(lambda: to_device(x, sharding=move.dst), x, move.dst, want)


def test_to_device_rules() -> None:
    data = np.arange(4.0)
    x = shard(data, M4, P("x"))
    assert to_device(x) is x
    assert to_device(data).device == CPU(0)
    with default_device(CPU(3)):
        assert to_device(data).device == CPU(3)
        assert to_device(x) is x
    assert to_device(data, CPU(2)).device == CPU(2)
    assert to_device(x, CPU(2)).device == CPU(2)
    assert x.device is None
    assert to_device(x, sharding=P()).layout is Layout(M4, [None])
    assert to_device(x, sharding=[Replicated()]).layout is Layout(M4, [None])
    assert to_device(data, sharding=ShardingSpec(M4, [DimSpec(["x"])])).layout is x.layout
    assert to_device([1.0, 2.0], sharding=Layout(M4, ["x"])).shape == (2,)
    with mesh_context(M4):
        assert to_device(to_device(data), sharding=P("x")).layout is x.layout
    assert transfer_to(data, CPU(1)).device == CPU(1)
    assert transfer_to(x, sharding=P()).layout is Layout(M4, [None])
    assert sw.cpu(to_device(data, CPU(1))).device == CPU(0)
    assert [y.device for y in sw.cpu([to_device(data, CPU(1)), data])] == [CPU(0), CPU(0)]
    with pytest.raises(ArgumentError, match="to_device takes a device or a sharding, not both"):
        to_device(x, CPU(0), sharding=P())
    with pytest.raises(ArgumentError, match=r"to_device needs a Device such as CPU\(0\), got 'cpu'"):
        to_device(x, "cpu")  # type: ignore


@pytest.mark.parametrize(
    "move",
    [
        sw.gpu,
        sw.accelerator,
        lambda x: to_device(x, Accelerator(0)),
        lambda x: shard(x, DeviceMesh((2,), ("x",), [Accelerator(0), Accelerator(1)]), P("x")),
        lambda x: shard(sw.asarray(x), DeviceMesh((2,), ("x",), [Accelerator(0), Accelerator(1)]), P("x")),
    ],
)
def test_without_accelerators_the_error_says_what_was_looked_for(move: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardwise.engine.arrays.accelerator_count", lambda: 0)
    with pytest.raises(EngineError) as caught:
        move(np.zeros(4))
    assert str(caught.value) == (
        "Accelerator(0) is not there: 0 accelerators were found (looked for CUDA devices through torch, then CuPy).\n"
        "  install the extra shardwise[torch] with a CUDA build, or use CPU()."
    )


def test_accelerators_are_numbered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardwise.engine.arrays.accelerator_count", lambda: 2)
    with pytest.raises(EngineError, match=r"Accelerator\(2\) is not there: 2 accelerators were found"):
        sw.accelerator(np.zeros(4), device_id=2)


def test_the_abstract_engine_knows_accelerators_that_are_not_there() -> None:
    mesh = DeviceMesh((2,), ("x",), [Accelerator(7), Accelerator(8)])
    with sw.engine_context(sw.AbstractEngine()):
        x = shard(np.zeros(4), mesh, P("x"))
        assert sw.cpu(x).device == CPU(0)
        assert sw.accelerator(x, 9).device == Accelerator(9)


# -- keywords ------------------------------------------------------------------------------------------

X = shard(np.arange(4.0), M4, P("x"))


@pytest.mark.parametrize(
    ("call", "keywords"),
    [
        (lambda **k: shard(X, M4, P(), **k), "mesh, dim_specs, replicated_axes, partial_axes"),
        (lambda **k: all_gather(X, **k), "axis, physical_axis"),
        (lambda **k: all_reduce(X, **k), "reduce_op, reduce_axes"),
        (lambda **k: reduce_scatter(X, 0, **k), "axis, reduce_op, reduce_axes"),
        (lambda **k: all_slice(X, 0, **k), "axis, mesh_axes"),
        (lambda **k: all_to_all(X, 0, 0, **k), "split_axis, concat_axis, tiled, mesh_axes"),
        (lambda **k: pmean(X, **k), "reduce_axes"),
        (lambda **k: ppermute(X, [], **k), "permutation, axis"),
        (lambda **k: shift(X, "x", **k), "axis, offset, rotate"),
        (lambda **k: halo_exchange(X, 0, 1, **k), "axis, halo, edge, mesh_axis"),
        (lambda **k: distributed_broadcast(X, **k), "mesh"),
        (lambda **k: to_device(X, **k), "device, sharding"),
        (lambda **k: transfer_to(X, **k), "device, sharding"),
        (lambda **k: sw.cpu(X, **k), "none"),
        (lambda **k: sw.gpu(X, **k), "none"),
        (lambda **k: sw.accelerator(X, **k), "device_id"),
    ],
)
def test_unknown_keywords_raise_and_the_known_ones_are_listed(call: Callable[..., Any], keywords: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        call(colour=1)
    assert "() does not understand the keyword 'colour'.\n" in str(caught.value)
    assert f"  keywords: {keywords}" in str(caught.value)


def test_a_near_miss_is_suggested() -> None:
    with pytest.raises(ArgumentError, match=r"did you mean 'reduce_op'\?"):
        all_reduce(X, reduce_ops="sum")  # type: ignore


def test_every_argument_can_be_given_by_the_name_the_reference_gives_it() -> None:
    assert all_gather(sharded_tensor=X, axis=0).layout is Layout(M4, [None])
    assert all_reduce(sharded_tensor=X).shape == (1,)
    assert all_to_all(sharded_tensor=X, split_axis=0, concat_axis=0).layout is Layout(
        M4, [Cut("x", offsets=(0, 4, 4, 4, 4))]
    )
    assert reduce_scatter(sharded_tensor=X, axis=0).shape == (1,)
    assert ppermute(sharded_tensor=X, permutation=[]).numpy().tolist() == [0] * 4
    assert distributed_broadcast(x=X, mesh=M4).layout is Layout(M4, [None])
    assert to_device(x=X, device=CPU(0)).device == CPU(0)
    assert shard(x=X, mesh=M4, dim_specs=P(), replicated_axes=None).layout is Layout(M4, [None])
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'sharded_tensor'"):
        all_gather()  # type: ignore


@given(SHAPES, st.sampled_from(DTYPES))
def test_more_devices_than_elements(shape: tuple[int, ...], dtype: np.dtype) -> None:
    data = values(shape, dtype)
    mesh = DeviceMesh((3, 1, 5), ("x", "one", "y"))
    spec = [("x", "y"), "one", None][: len(shape)]
    x = shard(data, mesh, P(*spec))
    assert_holds(all_gather(x), Layout.replicated(mesh, len(shape)), data)
    assert prod(shape) == sum(x.local(d).size for d in range(15)) or not shape


@pytest.mark.parametrize("integer", [np.int64, np.int8, np.uint8], ids=lambda kind: kind.__name__)
def test_any_integer_is_a_dim_an_offset_or_a_position(integer: Any) -> None:
    x = shard(values((4, 12), "float64"), M23, P("a", "b"))
    calls: list[Callable[[Callable[[int], Any]], Tensor]] = [
        lambda i: all_gather(x, i(1)),
        lambda i: all_gather(x, physical_axis=i(1)),
        lambda i: all_slice(shard(x, M23, P("a")), i(1)),
        lambda i: all_to_all(x, i(0), i(1)),
        lambda i: all_to_all(x, i(1), i(1), mesh_axes=i(1)),
        lambda i: reduce_scatter(x, i(1), reduce_axes=i(0)),
        lambda i: all_reduce(x, reduce_axes=(i(0), "b")),
        lambda i: pmean(x, i(1)),
        lambda i: shift(x, "b", i(2)),
        lambda i: shift(x, i(1), i(1), rotate=False),
        lambda i: ppermute(x, [(i(0), i(1)), (i(1), i(0))]),
        lambda i: ppermute(x, [(i(0), i(5))], axis=("a", "b")),
        lambda i: halo_exchange(x, i(1), i(1)),
        lambda i: halo_exchange(x, i(1), (i(1), i(0))),
    ]
    for call in calls:
        got, want = call(integer), call(int)
        assert got.layout is want.layout
        assert same(got.numpy(), want.numpy())
        assert all(type(size) is int for size in got.shape)
        for cut in got.layout.dims:
            assert all(type(width) is int for width in (*cut.halo, *(cut.offsets or ())))


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda x: all_gather(x, True), "all_gather: axis is a tensor dim as an int, got True"),
        (lambda x: all_slice(x, 0.0), "all_slice: axis is a tensor dim as an int, got 0.0"),  # type: ignore
        (lambda x: reduce_scatter(x, np.True_), "reduce_scatter: axis is a tensor dim as an int"),  # type: ignore
        (lambda x: all_to_all(x, np.zeros(2, int), 0), "all_to_all: split_axis is a tensor dim as an int"),  # type: ignore
        (lambda x: shift(x, "x", 1.0), "shift: offset is how many positions as an int, got 1.0"),  # type: ignore
        (lambda x: shift(x, "x", True), "shift: offset is how many positions as an int, got True"),
        (lambda x: ppermute(x, [(True, 0)]), r"a permutation is a list of \(source, target\) pairs, got"),
    ],
)
def test_what_is_no_integer_is_refused(call: Callable[[Tensor], Any], text: str) -> None:
    with pytest.raises(ArgumentError, match=text):
        call(X)


ANYTHING: list[Any] = [
    0, 1, -1, 5, True, None, 1.5, "a", "b", "c", "", "a:(1)2", ("a",), ("a", "b"), ["b"], (), np.int64(1),
    np.float32(1), np.True_, np.array(1), np.array([0, 1]), {"a"}, {"a": 1}, (0, 1), [(0, 1)], [(0,)], [0, 1], object(),
    "sum", "MAX", ReduceOp.BXOR, P("a"), CPU(0), M23, M23.axis("a"), 10**30, float("nan"), (1, -1), "clip", "pad", b"a",
    int, [None], slice(1), ...,
]  # fmt: skip


@pytest.mark.parametrize("inside", [False, True], ids=["global view", "local view"])
def test_arguments_of_any_kind_give_a_result_or_an_error_of_ours(inside: bool) -> None:
    rng = random.Random(0)
    functions = [all_gather, all_slice, all_to_all, all_reduce, reduce_scatter, pmean, ppermute, shift, halo_exchange]
    functions += [sw.broadcast, sw.reduce, sw.gather, sw.scatter, sw.send_recv] if inside else [to_device, transfer_to]
    data = np.arange(36).reshape(6, 6)
    refused = 0
    for _ in range(1500):
        function, more = rng.choice(functions), {}
        for p in list(signature(function).parameters.values())[1:]:
            if p.kind is not p.VAR_KEYWORD and (p.default is p.empty or rng.random() < 0.5):
                more[p.name] = rng.choice(ANYTHING)
        mesh = rng.choice([M23, DeviceMesh((2, 1), ("a", "b"))])
        x = data.astype(rng.choice(["float64", "int8"]))
        try:
            if inside:
                call = sw.shard_map(lambda a, f=function, more=more: f(a, **more), mesh, P("a"), P(("a", "b")))
                call(x)
            else:
                function(shard(x, mesh, rng.choice([P("a", "b"), P(), P(None, ("a", "b"))])), **more)
        except sw.ShardwiseError:
            refused += 1
    assert 200 < refused < 1500
