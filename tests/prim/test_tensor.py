"""The tensor as a value: what it is, how it is read, and that nothing outside can change it."""

import copy
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import shardwise as sw
from shardwise import (
    CPU,
    ArgumentError,
    BindingError,
    Cut,
    DeviceMesh,
    DimSpec,
    EngineError,
    Layout,
    MeshError,
    P,
    Shard,
    ShardingSpec,
    Tensor,
    asarray,
    default_device,
    from_shards,
    shard,
)
from shardwise.engine.grid import Grid
from shardwise.engine.local_shards import LocalShards
from shardwise.prim.tensor import move_to, operand, settle, together
from tests.layout.oracle import held_box
from tests.prim.cases import DTYPES, Move, assert_holds, held, host_meshes, jax_of_eight, moves, same, spread, values

M4 = DeviceMesh((4,), ("x",))
M23 = DeviceMesh((2, 3), ("a", "b"))


@given(moves(one_mesh=True))
def test_a_tensor_says_what_it_is(move: Move) -> None:
    x, want = spread(move.src, move.shape, move.dtype)
    assert (x.shape, x.dtype, x.ndim, x.size, x.nbytes) == (
        want.shape,
        want.dtype,
        want.ndim,
        want.size,
        want.nbytes,
    )
    assert x.layout is move.src
    assert x.mesh is move.src.mesh
    assert x.engine is sw.current_engine()
    one = len(set(x.mesh.devices)) == 1
    assert x.device == (x.mesh.device(0) if one else None)
    found = x.sharding
    assert (found.to_layout(x.ndim) if isinstance(found, ShardingSpec) else found) is move.src
    assert_holds(x, move.src, want)
    assert same(np.asarray(x), want, exact=str(move.src.reduce_op) != "avg")
    assert len(x.shards) == x.mesh.num_devices
    for i, piece in enumerate(x.shards):
        assert (piece.device, piece.index) == (x.mesh.device(i), i)
        assert piece.box == held_box(move.src, move.shape, i)
        assert same(piece.array, x.local(i))
        assert not piece.array.flags.writeable
    again = from_shards(x.shards, x.mesh, x.layout, x.shape)
    assert all(same(a, b) for a, b in zip(held(again), held(x), strict=True))


@given(moves(one_mesh=True))
def test_gather_puts_the_value_on_every_device(move: Move) -> None:
    x, want = spread(move.src, move.shape, move.dtype)
    y = x.gather()
    assert y.layout is Layout.replicated(x.mesh, x.ndim)
    assert all(same(got, want, exact=str(move.src.reduce_op) != "avg") for got in held(y))


@given(st.data())
def test_item_is_the_global_value(data: st.DataObject) -> None:
    mesh = data.draw(host_meshes())
    dtype = data.draw(st.sampled_from([t for t in DTYPES if t.kind != "b"]))
    x, want = spread(Layout(mesh, [None, None], mesh.axis_names[:1]), (1, 1), dtype)
    assert x.item() == want.item()
    assert isinstance(x.item(), complex if dtype.kind == "c" else int if dtype.kind in "iu" else float)
    if dtype.kind != "c":
        assert (float(x), int(x), bool(x)) == (float(want.item()), int(want.item()), bool(want.item()))
    assert complex(x) == complex(want.item())


def test_reading_what_is_not_there() -> None:
    x = shard(np.zeros((2, 2)), M4, P())
    with pytest.raises(BindingError, match=r"item\(\) needs a tensor of one element, got shape \(2, 2\)"):
        x.item()
    with pytest.raises(sw.MeshError, match="4"):
        x.local(4)
    with pytest.raises(TypeError, match=r"a Tensor is not iterable: it is one value .* x.numpy\(\) gives its elements"):
        iter(x)
    with pytest.raises(TypeError, match=r"^a Tensor does not change; x\.at\[...\]\.set\(value\) returns a new one\.$"):
        x[0] = 1.0
    with pytest.raises(TypeError, match="0-d"):
        len(asarray(1.0))
    assert len(x) == 2
    with sw.engine_context(sw.AbstractEngine()):
        y = shard(np.zeros(4), M4, P("x"))
        assert repr(y) == "Tensor(float64[4@x] on x=4, abstract)"
        assert repr(asarray([1.0])) == "Tensor(float64[1] on cpu:0, abstract)"
        with pytest.raises(EngineError, match="a tensor on the abstract engine has a layout but no values"):
            y.numpy()


@pytest.mark.parametrize(
    ("tensor", "text"),
    [
        (asarray([1.0, 2.0]), "Tensor([1., 2.], float64[2] on cpu:0)"),
        (asarray(3), "Tensor(3, int64[] on cpu:0)"),
        (shard(np.arange(4), M4, P("x")), "Tensor([0, 1, 2, 3], int64[4@x] on x=4)"),
        (
            shard(np.zeros((2, 1), "float32"), M23, P(("a", "b"))),
            "Tensor([[0.],\n        [0.]], float32[2@a.b, 1] on a=2, b=3)",
        ),
        (shard(np.ones(1), M23, P(unreduced=["b"])), "Tensor([1.], float64[1] sum(b) on a=2, b=3)"),
        (shard(np.zeros((0, 2)), M4, P("x")), "Tensor([], float64[0@x, 2] on x=4)"),
    ],
)
def test_repr(tensor: Tensor, text: str) -> None:
    assert repr(tensor).replace(" ", "") == text.replace(" ", "")


def test_sharding_is_a_spec_where_one_can_say_it() -> None:
    assert shard(np.zeros(4), M4, P("x")).sharding == ShardingSpec(M4, [DimSpec(["x"])])
    chunked = Layout(M4, [Cut("x", split="chunk")])
    assert shard(np.zeros(4), M4, chunked).sharding is chunked


# -- nothing outside can change it ---------------------------------------------------------------------


MAKERS: dict[str, Callable[[Any], Tensor]] = {
    "asarray": asarray,
    "shard whole": lambda a: shard(a, M4, P()),
    "shard": lambda a: shard(a, M4, P("x")),
    "shard columns": lambda a: shard(a, M4, P(None, "x")),
    "shard partial": lambda a: shard(a, M4, P(unreduced=["x"])),
    "shard simulated": lambda a: shard(a, DeviceMesh((2,), ("x",), [CPU(0)] * 2), P("x")),
    "from_shards": lambda a: from_shards([a] * 4, M4, P(), a.shape),
    "from_shards split": lambda a: from_shards([a[i : i + 1] for i in range(4)], M4, P("x"), a.shape),
    "to_device": lambda a: sw.to_device(a, CPU(1)),
    "broadcast": lambda a: sw.distributed_broadcast(a, M4),
}


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("name", MAKERS)
def test_later_writes_to_the_source_do_not_show(name: str, library: str) -> None:
    source: Any = np.arange(16.0).reshape(4, 4)
    if library == "torch":
        source = pytest.importorskip("torch").tensor(source)
    x = MAKERS[name](source)
    source[...] = -1
    assert same(x.numpy(), np.arange(16.0).reshape(4, 4))


@pytest.mark.parametrize("spec", [P(), P("x"), P(unreduced=["x"])])
def test_arrays_handed_out_are_read_only(spec: P) -> None:
    x = shard(np.arange(4.0), M4, spec)
    for array in (x.numpy(), x.local(0), x.shards[1].array, np.asarray(x)):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 7
    copy = np.array(x)
    copy[...] = 7
    assert same(x.numpy(), np.arange(4.0))


def test_array_protocol() -> None:
    x = shard(np.arange(4.0), M4, P())
    assert np.asarray(x, "float32").dtype == "float32"
    assert np.shares_memory(np.asarray(x), x.local(0))
    assert not np.shares_memory(np.array(x, copy=True), x.local(0))
    with pytest.raises(ValueError, match="a copy is needed to convert float64 to float32"):
        np.asarray(x, "float32", copy=False)


def test_dlpack() -> None:
    torch = pytest.importorskip("torch")
    data = np.arange(4.0)
    x = shard(data, M4, P("x"))
    assert same(np.from_dlpack(x.local(2)), np.array([2.0]))
    assert torch.from_dlpack(x.local(3)).tolist() == [3.0]
    whole = x.gather()
    assert same(np.from_dlpack(whole), data)
    assert not np.from_dlpack(whole).flags.writeable
    assert np.shares_memory(np.from_dlpack(whole), whole.local(0))  # who is told, and listens, gets no copy
    # torch takes no notice of what is read-only, so it gets a copy; so do consumers that cannot be told.
    torch.from_dlpack(whole).zero_()
    old = torch.utils.dlpack.from_dlpack(whole.__dlpack__())
    old.zero_()
    assert same(whole.numpy(), data)
    assert torch.from_dlpack(asarray(2.0) + 1.0).item() == 3.0
    for bad in (x, shard(data, M4, P(unreduced=["x"])), shard(data, M4, Layout(M4, [Cut((), halo=1, edge="pad")]))):
        with pytest.raises(ArgumentError, match=r"only a whole tensor can be exported; .*\n  export one shard"):
            np.from_dlpack(bad)


# -- torch ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "bool", "bfloat16", "complex64", "float16"])
def test_torch_tensors_stay_torch_tensors(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    data = torch.arange(8).reshape(4, 2).to(getattr(torch, dtype))
    x = shard(data, M4, P("x"))
    assert x.dtype == np.dtype(dtype)
    for y in (x, x.gather(), asarray(data), shard(x, M23, P(None, "a")), sw.shift(x, "x"), sw.to_device(x, CPU(2))):
        assert all(isinstance(y.local(i), torch.Tensor) for i in range(y.mesh.num_devices))
        assert y.local(0).dtype == data.dtype
    assert torch.equal(torch.cat([x.local(i) for i in range(4)]), data)
    assert x.numpy().dtype == np.dtype(dtype)
    x.local(0).zero_()  # a copy
    assert torch.equal(x.gather().local(3), data)
    if dtype not in ("bool",):
        assert isinstance((x * 2 + np.ones(2, x.dtype)).local(0), torch.Tensor)
        assert (x * 2).dtype == x.dtype
        assert isinstance(sw.all_reduce(x).local(0), torch.Tensor)


def test_torch_values_that_need_gradients_are_refused() -> None:
    torch = pytest.importorskip("torch")
    one, parameter = DeviceMesh((1,), ("x",)), torch.nn.Parameter(torch.ones(2))
    wanted, x = torch.ones(2, requires_grad=True), asarray(np.ones(2))
    for call in (
        asarray,
        lambda t: asarray(t, "float64"),
        lambda t: shard(t, M4, P("x")),
        lambda t: from_shards([t] * 4, M4, P(), (2,)),
        lambda t: from_shards([t, t.detach(), t, t], M4, P(), (2,)),
        lambda t: sw.from_torch(t, one, P(), (2,)),
        lambda t: x + t,
        lambda t: t * x,
        lambda t: sw.add(x, t),
        lambda t: sw.where(x > 0, t, x),
        lambda t: sw.matmul(x, t),
        lambda t: sw.concat([x, t]),
        lambda t: x.at[0:2].set(t),
        lambda t: sw.sum(t),
        lambda t: sw.to_device(t, CPU(1)),
        lambda t: sw.grad(lambda y: sw.sum(y))(t),
        lambda t: sw.vjp(lambda y: y, x)[1](t),
        lambda t: sw.shard_map(lambda a: a, one, P(), P())(t),
        lambda t: sw.shard_map(lambda a: a + t, one, P(), P())(np.ones(2)),
        lambda t: asarray([t, t]),
    ):
        for value in (wanted, parameter, wanted * 2.0):
            with pytest.raises(ArgumentError, match=r"(?s)requires grad.*detach\(\)"):
                call(value)
    assert asarray(parameter.detach()).numpy().tolist() == [1.0, 1.0]
    still = torch.nn.Parameter(torch.ones(2), requires_grad=False)
    assert type(asarray(still).local(0)) is torch.Tensor
    assert asarray(torch.ones(2), "float64").dtype == "float64"


def test_nothing_of_a_tensor_can_be_set_or_deleted() -> None:
    x = shard(np.arange(8.0), M4, P("x"))
    names = [name for name in dir(x) if not name.startswith("_")]
    assert {"shape", "dtype", "layout", "mesh", "engine", "device", "T", "at", "sum", "arrays", "kept"} <= set(names)
    for name in [*names, "anything"]:
        with pytest.raises(AttributeError):
            setattr(x, name, (2, 4))
        with pytest.raises(AttributeError):
            delattr(x, name)
    for name in ("shape", "dtype", "layout", "T"):
        with pytest.raises(
            FrozenInstanceError, match=f"a Tensor does not change: '{name}' cannot be set.\n  reshape, ast"
        ):
            setattr(x, name, None)
        with pytest.raises(FrozenInstanceError, match=f"'{name}' cannot be deleted"):
            delattr(x, name)
    assert x.gather().numpy().tolist() == list(range(8))
    again = copy.copy(x)
    assert (again.shape, again.type_text, again.numpy().tolist()) == (x.shape, x.type_text, x.numpy().tolist())

    def inside(a: Any) -> Any:
        for name in ("shape", "dtype", "mesh", "stack", "ndim"):
            with pytest.raises(FrozenInstanceError, match=f"a LocalTensor does not change: '{name}'"):
                setattr(a, name, None)
        return a

    sw.shard_map(inside, M4, P("x"), P("x"))(x)

    def watched(a: Any) -> Any:
        with pytest.raises(FrozenInstanceError, match="does not change: 'shape'"):
            a.shape = (2, 4)
        return sw.sum(a)

    sw.grad(watched)(x)


def test_each_device_is_given_one_shard() -> None:
    x = shard(np.arange(8.0), M4, P("x"))
    pieces = list(x.shards)
    other = Shard(pieces[1].device, 1, pieces[1].box, np.array([7.0, 7.0]))
    for some in (
        [*pieces, other],
        [*pieces, pieces[1]],
        [pieces[0], other, pieces[1], pieces[3]],
    ):
        with pytest.raises(BindingError, match="two shards were given for device 1; each device holds one"):
            from_shards(some, M4, P("x"), (8,))
    with pytest.raises(BindingError, match="the shard of device 1 was given for device 0"):
        from_shards({0: pieces[1], 1: pieces[0], 2: pieces[2], 3: pieces[3]}, M4, P("x"), (8,))
    arrays = [piece.array for piece in pieces]
    with pytest.raises(BindingError, match="the shard of device 3 was given for device 0"):
        from_shards([pieces[3], *arrays[1:]], M4, P("x"), (8,))
    with pytest.raises(MeshError, match="device -1 is outside the mesh"):
        from_shards({**dict(enumerate(arrays)), -1: other.array}, M4, P("x"), (8,))
    with pytest.raises(BindingError, match="got 5 shards"):
        from_shards([*arrays, other.array], M4, P("x"), (8,))
    assert from_shards(pieces[::-1], M4, P("x"), (8,)).numpy().tolist() == list(range(8))
    assert from_shards({p.index: p for p in pieces}, M4, P("x"), (8,)).numpy().tolist() == list(range(8))


@settings(max_examples=20)
@given(moves(one_mesh=True), st.sampled_from([t for t in DTYPES if t.kind != "c"]))
def test_asarray_of_a_tensor_has_the_dtype_that_is_asked_for(move: Move, dtype: Any) -> None:
    assume(move.dtype.kind != "c")
    x, _ = spread(move.src, move.shape, move.dtype)
    assert asarray(x) is asarray(x, x.dtype) is asarray(x, str(x.dtype)) is x
    y = asarray(x, dtype)
    assert y.dtype == dtype
    with np.errstate(invalid="ignore"):
        assert same(y.numpy(), x.numpy().astype(dtype), exact=str(move.src.reduce_op) != "avg")


# -- making ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["list", "number", "numpy", "scalar", "jax", "dlpack"])
def test_asarray_takes_anything_array_like(kind: str) -> None:
    class Exporter:
        def __dlpack__(self, **options: Any) -> Any:
            return np.ones(2).__dlpack__(**options)

        def __dlpack_device__(self) -> tuple[int, int]:
            return np.ones(2).__dlpack_device__()

    if kind == "jax":
        given: Any = jax_of_eight().numpy.ones(2)
    else:
        given = {"list": [1.0, 1.0], "number": 1.0, "numpy": np.ones(2), "scalar": np.float32(1), "dlpack": Exporter()}[
            kind
        ]
    x = asarray(given)
    assert x.device == CPU(0)
    assert x.numpy().sum() == x.size
    assert asarray(x) is x
    with default_device(CPU(3)):
        assert asarray(given).device == CPU(3)
        assert asarray(x).device == CPU(0)


def test_asarray_converts_and_refuses() -> None:
    assert asarray([1, 2], "float32").dtype == "float32"
    for bad in ("text", [object()], np.array(["a"]), np.zeros(2, "M8[s]"), np.zeros(1, [("a", int)]), [[1], [1, 2]]):
        with pytest.raises(ArgumentError, match="expected"):
            asarray(bad)


def test_from_shards_checks_what_it_is_given() -> None:
    made = from_shards({1: [3.0], 0: [1.0, 2.0]}, DeviceMesh((2,), ("x",)), P("x"), (3,))
    assert same(made.numpy(), np.array([1.0, 2, 3]))
    with sw.mesh_context(M4):
        assert from_shards([[1.0]] * 4, None, P(), (1,)).mesh is M4
    for dtype in ("float64", "bfloat16", "float8_e4m3fn", "complex64"):
        assert from_shards([np.array([np.nan]).astype(dtype)] * 4, M4, P(), (1,)).shape == (1,)
    pieces = [Shard(CPU(i), i, ((i, i + 1),), np.full(1, i)) for i in range(4)]
    assert same(from_shards(pieces, M4, P("x"), (4,)).numpy(), np.arange(4))

    def text(*args: Any) -> str:
        with pytest.raises(BindingError) as caught:
            from_shards(*args)
        return str(caught.value)

    assert text([[1.0]] * 3, M4, P(), (1,)) == "the mesh (x=4) has 4 devices, got 3 shards."
    assert text([[1.0], [1.0], [1.0], [1]], M4, P(), (1,)) == "shards must have one dtype, got float64, int64."
    assert text([[1.0]] * 4, M4, P("x"), (5,)) == (
        "device 0 must hold shape (2,) of a tensor of shape (5,) laid out [x], got (1,)."
    )
    assert text([[1.0], [1.0], [2.0], [1.0]], M4, P(), (1,)) == (
        "devices 0 and 2 hold the same part under [-], but their arrays differ.\n"
        "  if they are contributions to be summed, say so: P(..., unreduced=[axis])."
    )
    assert "reduction 'sum' is not defined for bool" in text([[True]] * 4, M4, P(unreduced=["x"]), (1,))


def test_contributions_may_differ() -> None:
    x = from_shards([[1.0], [2.0], [3.0], [4.0]], M4, P(unreduced=["x"]), (1,))
    assert x.item() == 10.0
    assert from_shards([[1.0], [2.0], [3.0], [4.0]], M4, P(unreduced={"x": "max"}), (1,)).item() == 4.0


@given(st.sampled_from(DTYPES), st.lists(st.integers(0, 3), max_size=3))
def test_tensors_compare_by_element_and_hash_by_identity(dtype: np.dtype, shape: list[int]) -> None:
    x, y = (asarray(values(shape, dtype)) for _ in range(2))
    assert (x == y).dtype == (x != y).dtype == np.dtype(bool)
    assert (x == y).numpy().all()
    assert not (x != y).numpy().any()
    assert hash(x) == hash(x) != hash(y)


def test_ops_pay_once_for_a_pending_sum_and_collectives_every_time() -> None:
    mesh = DeviceMesh((4,), ("x",))
    x = sw.sum(shard(np.arange(8.0).reshape(4, 2), mesh, P("x")), axis=0)
    once = ("all_reduce", 2 * 3 * x.nbytes)
    with sw.trace_communication() as log:
        assert np.array_equal(sw.exp(x).numpy(), np.exp([12.0, 16.0]))
        assert np.array_equal(sw.sqrt(x).numpy(), np.sqrt([12.0, 16.0]))
    assert [(record.kind, record.bytes) for record in log] == [once]
    with sw.trace_communication() as log:
        sw.all_reduce(x)
        sw.all_reduce(x)
    assert [(record.kind, record.bytes) for record in log] == [once, once]
    # What was paid for does not change what an op on the pending value gives.
    assert (x * 2.0).layout.partial


# -- where arrays are --------------------------------------------------------------------------------------


def test_a_value_is_looked_at_again_after_it_was_read() -> None:
    # What an accelerator waits for may be given up while it is read.
    for spec, reads in ((P(), 1), (P("x"), 4)):
        x, calls = shard(np.arange(4.0), M4, spec), []
        arrays = LocalShards(x.storage, dict(enumerate(x.arrays)), 0, check=lambda calls=calls: calls.append(1))
        y = Tensor(arrays, x.layout, x.shape, x.dtype)
        assert same(y.numpy(), np.arange(4.0))
        assert len(calls) == reads + 1

    def give_up(calls: list[int]) -> None:
        calls.append(1)
        if len(calls) == 2:
            raise EngineError("given up")

    seen: list[int] = []
    whole = shard(np.arange(4.0), M4, P())
    shards = LocalShards(whole.storage, {0: whole.arrays[0]}, 0, check=lambda: give_up(seen))
    y = Tensor(shards, whole.layout, (4,), whole.dtype)
    with pytest.raises(EngineError, match="given up"):
        y.numpy()


def test_what_is_in_other_processes_is_not_read() -> None:
    x = shard(np.arange(4.0), M4, P("x"))
    y = Tensor(LocalShards(x.storage, {1: x.arrays[1]}, 1), x.layout, x.shape, x.dtype)
    with pytest.raises(
        EngineError,
        match=r"this process holds a part of float64\[4@x\] on \(x=4\) only, and reading never communicates",
    ):
        y.numpy()
    assert repr(y) == "Tensor(float64[4@x] on x=4, of which device 1 is here)"
    none = Tensor(LocalShards(x.storage, {1: x.arrays[1]}, 9), x.layout, x.shape, x.dtype)
    assert repr(none) == "Tensor(float64[4@x] on x=4, of which device none is here)"
    all_of_it = Tensor(LocalShards(x.storage, dict(enumerate(x.arrays)), 0), x.layout, x.shape, x.dtype)
    assert same(all_of_it.numpy(), np.arange(4.0))
    assert repr(all_of_it) == repr(x)


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_equal_tiles_stay_one_array_that_is_not_the_users(library: str) -> None:
    source: Any = np.arange(8.0)
    if library == "torch":
        source = pytest.importorskip("torch").tensor(source)
    x = shard(source, M4, P("x"))
    assert type(x.kept) is Grid
    assert all(not np.shares_memory(np.asarray(array), np.asarray(source)) for array in x.arrays)
    whole = shard(source, M4, P())
    assert not np.shares_memory(np.asarray(whole.arrays[0]), np.asarray(source))
    uneven = shard(source, DeviceMesh((3,), ("x",)), P("x"))
    assert type(uneven.kept) is tuple
    assert all(not np.shares_memory(np.asarray(array), np.asarray(source)) for array in uneven.arrays)


def test_arrays_are_kept_as_a_tuple() -> None:
    x = asarray(np.arange(2.0))
    y = Tensor([x.arrays[0]], x.layout, x.shape, x.dtype)
    assert type(y.kept) is tuple
    assert y.engine is sw.current_engine()
    assert (Tensor.level, Tensor.is_recorded) == (0, False)
    other = sw.AbstractEngine()
    assert Tensor(x.arrays, x.layout, x.shape, x.dtype, other).engine is other


def test_a_tensor_of_no_dims_is_formatted_as_its_number() -> None:
    assert f"{asarray(2.5):.2f}" == "2.50"
    assert f"{asarray(2.5)}" == "Tensor(2.5, float64[] on cpu:0)"
    with pytest.raises(TypeError):
        format(asarray([2.5, 3.5]), ".2f")
    with pytest.raises(TypeError):
        format(asarray([2.5]), ".2f")


def test_local_shards_are_tensors_on_one_device_each() -> None:
    x, value = spread(Layout(M23, ["b", Cut("a", halo=1, edge="pad")]), (4, 3))
    parts = x.local_shards
    assert len(parts) == 6
    for device, y in enumerate(parts):
        assert (y.device, y.dtype) == (M23.device(device), x.dtype)
        assert y.shape == x.local(device).shape
        assert same(y.numpy(), x.local(device))
        assert y.layout is Layout.replicated(DeviceMesh.single(M23.device(device)), 2)
    assert same(value, x.numpy())


def test_what_has_the_layout_already_is_the_tensor_itself() -> None:
    x = shard(np.arange(4.0), M4, P(unreduced=["x"]))
    assert move_to(x, x.layout) is x
    assert settle(x) is x
    resolved = operand(x, x.layout.resolved())
    assert operand(x, x.layout.resolved()) is resolved
    assert settle(x) is resolved
    split = Layout(M4, ["x"])
    assert operand(x, split) is operand(x, split) is not resolved
    assert settle(x) is x  # what is remembered is split
    y = shard(np.arange(4.0), M4, P("x"))
    assert operand(y, Layout(M4, [None])) is not operand(y, Layout(M4, [None]))
    assert settle(y) is y


def test_operands_come_together_on_the_mesh_of_the_first_that_is_spread() -> None:
    x, alone = shard(np.arange(4.0), M4, P("x")), asarray(np.ones(2))
    got = together(alone, [1.0, 2.0], x)
    assert got[0] is alone
    assert got[2] is x
    assert got[1].layout is Layout.replicated(M4, 1)
    single = together(alone, [1.0])
    assert single[0] is alone
    assert single[1].mesh.is_single
