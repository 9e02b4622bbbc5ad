"""Every public function: what it hands out, which dtypes and integers it takes, and what it says of anything else."""

from collections.abc import Iterator
from inspect import Parameter, signature
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import shardwise
from shardwise import (
    Axis,
    DeviceMesh,
    Layout,
    P,
    ReduceOp,
    ShardwiseError,
    Tensor,
    all_gather,
    all_slice,
    all_to_all,
    asarray,
    cpu,
    grad,
    halo_exchange,
    plan_reshard,
    random,
    shard,
    shard_map,
    shift,
)
from shardwise.layout.placement import reductions_of
from tests.ops.calls import MESH, Call, calls, public_functions, tensors_of

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # arccos(2) and the like


def test_every_public_function_has_a_call():
    assert not public_functions() - {call.name for call in calls()}


def test_every_call_is_right_for_one_dtype_at_least():
    right = [_is_taken(call) for call in calls("float64")]
    for dtype in ("int64", "uint8"):
        right = [known or _is_taken(call) for known, call in zip(right, calls(dtype), strict=True)]
    assert [call.name for call, is_right in zip(calls(), right, strict=True) if not is_right] == []


def _is_taken(call: Call) -> bool:
    try:
        call()
    except ShardwiseError:
        return False
    return True


# -- what is handed out ----------------------------------------------------------------------------------


def test_no_function_hands_out_an_array_that_can_be_written_to():
    for call in calls():
        try:
            made = call()
        except ShardwiseError:
            continue
        for x in tensors_of(made):
            for array in (*(s.array for s in x.shards), *map(x.local, range(x.mesh.num_devices)), x.numpy()):
                assert type(array) is np.ndarray, call.name
                assert not array.flags.writeable, call.name


# -- dtypes ----------------------------------------------------------------------------------------------

SMALL = [ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.int2, ml_dtypes.uint2]
FLOATS = [
    ml_dtypes.bfloat16,
    ml_dtypes.float8_e3m4,
    ml_dtypes.float8_e4m3,
    ml_dtypes.float8_e4m3b11fnuz,
    ml_dtypes.float8_e4m3fn,
    ml_dtypes.float8_e4m3fnuz,
    ml_dtypes.float8_e5m2,
    ml_dtypes.float8_e5m2fnuz,
    ml_dtypes.float8_e8m0fnu,
    ml_dtypes.float6_e2m3fn,
    ml_dtypes.float6_e3m2fn,
    ml_dtypes.float4_e2m1fn,
]
OURS = {  # what NumPy has not, or has otherwise
    *"topk norm gelu relu sigmoid silu softplus softmax log_softmax logsumexp layer_norm rms_norm".split(),
    *"stop_gradient empty_like empty conv cross_entropy embedding one_hot astype from_shards asarray".split(),
    *"einsum tensordot".split(),  # NumPy has none of int4, or int4 again; ours are int8, as NumPy's matmul is
}
PLACE = ("mesh", "layout")


def _of_numpy(call: Call) -> Any:
    # What NumPy makes of the same arguments.
    def plain(value: Any) -> Any:
        if isinstance(value, Tensor):
            return value.numpy()
        return type(value)(map(plain, value)) if isinstance(value, list | tuple) else value

    how = {name: plain(value) for name, value in call.kwargs.items() if name not in PLACE}
    if call.name == "meshgrid":
        how["copy"] = False
    args = [plain(value) for value in call.args]
    if call.name == "cumulative_sum" and "axis" not in how:
        how["axis"] = 0
    return getattr(np, call.name)(*args, **how)


@pytest.mark.parametrize("dtype", SMALL, ids=lambda kind: kind.__name__)
def test_functions_of_integers_of_few_bits_are_numpys_or_refused_by_name(dtype):
    refusals: dict[str, str] = {}
    for call in calls(np.dtype(dtype)):
        try:
            outs = tensors_of(call())
        except ShardwiseError as error:
            refusals[call.name] = str(error)
            continue
        if call.name in OURS or not hasattr(np, call.name) or not outs:
            continue
        wanted = _of_numpy(call)
        for out, want in zip(outs, wanted if isinstance(wanted, tuple | list) else [wanted], strict=True):
            want = np.asarray(want)
            assert (out.dtype, out.shape) == (want.dtype, want.shape), call.name
            assert np.array_equal(out.numpy().astype(float), want.astype(float), equal_nan=True), call.name
    for name, text in refusals.items():
        assert str(np.dtype(dtype)) in text, (name, text)


@pytest.mark.parametrize(
    "dtype",
    [pytest.param(t, marks=[] if i in (6, 8) else pytest.mark.long) for i, t in enumerate(FLOATS)],
)
def test_functions_of_floats_of_few_bits_give_a_value_or_an_error_of_ours(dtype):
    for call in calls(np.dtype(dtype)):
        try:
            outs = tensors_of(call())
        except ShardwiseError:
            continue
        for out in outs:
            assert out.numpy().dtype == out.dtype


@pytest.mark.parametrize("dtype", SMALL, ids=lambda kind: kind.__name__)
def test_integers_of_few_bits_are_moved_and_reduced_as_they_are(dtype):
    values = np.array([[1, 0, 1], [0, 1, 1]]).astype(dtype)
    x = shard(values, MESH, P("x", "y"))
    for made in (all_gather(x, 0), all_slice(shard(x, MESH, P()), 0, "x"), all_to_all(x, 1, 0), cpu(x)):
        assert made.dtype == values.dtype
        assert np.array_equal(made.numpy().astype(int), values.astype(int))
    assert shift(x, "x", 1).numpy().astype(int).tolist() == values[::-1].astype(int).tolist()
    assert halo_exchange(x, 0, 1).local(0).astype(int).tolist() == values[:, :1].astype(int).tolist()
    assert ReduceOp.AVG not in reductions_of(x.dtype)
    for op in reductions_of(x.dtype):
        pending = shard(x, MESH, Layout(MESH, [None, "y"], ["x"], op))
        for made in (pending, shard(pending, MESH, P("y"))):
            assert made.dtype == values.dtype
            assert np.array_equal(made.numpy().astype(int), values.astype(int)), op


@pytest.mark.parametrize("dtype", SMALL, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize(
    "number", [2, 2.5, True, np.int64(3), np.float32(0.5), np.ones(3, "int8"), np.ones(3, "float32")], ids=str
)
def test_integers_of_few_bits_beside_other_numbers_are_numpys(dtype, number):
    values = np.array([1, 0, 1]).astype(dtype)
    x = shard(values, MESH, P("y"))
    for name in ("add", "multiply", "maximum", "divide", "equal", "less"):
        for ours, theirs in (((x, number), (values, number)), ((number, x), (number, values))):
            made, wanted = getattr(shardwise, name)(*ours), getattr(np, name)(*theirs)
            assert (made.dtype, made.numpy().tolist()) == (wanted.dtype, wanted.tolist()), (name, number)


def test_what_a_dtype_has_no_result_for_says_so():
    with pytest.raises(shardwise.ArgumentError, match=r"^bitwise_and is not defined for float64: ufunc 'bitwise_and' "):
        shardwise.bitwise_and([1.0], [2.0])
    with pytest.raises(shardwise.ArgumentError, match=r"^mean is not defined for int4.\n  convert first: x.astype\("):
        asarray(np.ones(3, ml_dtypes.int4)).mean()
    with pytest.raises(shardwise.BindingError, match=r"^pow of int64: integers to the power of -1 are not integers.\n"):
        shardwise.pow(np.array([2]), -1)
    with pytest.raises(shardwise.BindingError, match=r"^add of int8: Python integer 300 out of bounds for int8.$"):
        shardwise.add(np.array([1], "int8"), 300)
    with pytest.raises(shardwise.ArgumentError, match=r"^concat: bfloat16, int64 have no dtype in common.\n  convert"):
        shardwise.concat([np.ones(2, ml_dtypes.bfloat16), np.ones(2, "int64")])


# -- integers --------------------------------------------------------------------------------------------


class Whole:
    """Something that counts as an int, as Python says it."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value

    def __repr__(self) -> str:
        return f"Whole({self.value})"


def _ints_in(value: Any, make: Any) -> Any:
    # The same argument with every int in it, also in tuples and lists, made anew; None where there is none.
    if isinstance(value, bool) or not isinstance(value, int | tuple | list):
        return None
    if isinstance(value, int):
        return make(value)
    entries = [_ints_in(entry, make) for entry in value]
    if all(entry is None for entry in entries):
        return None
    return type(value)(old if new is None else new for old, new in zip(value, entries, strict=True))


VALUES = {  # arguments that are numbers rather than integers: a 1 among them is a value
    *"full full_like clip arange linspace asarray pad norm var".split(),
}


def _changed(call: Call, make: Any) -> Iterator[tuple[int | str, Call]]:
    for at, value in [*enumerate(call.args), *call.kwargs.items()]:
        new = _ints_in(value, make)
        if new is not None and not (call.name in VALUES and at not in ("num", "pad_width")):
            yield at, call.with_(at, new)


def _summary(made: Any) -> Any:
    # What can be compared of a result, and that no size in it is anything but an int.
    if isinstance(made, list | tuple) and not hasattr(made, "_fields"):
        return [_summary(one) for one in made]
    for sizes in (getattr(made, name, ()) for name in ("shape", "mesh_shape", "offsets", "halo")):
        assert all(type(size) in (int, str) for size in sizes or ()), (sizes, made)
    if isinstance(made, Tensor):
        assert all(type(n) is int for cut in made.layout.dims for n in cut.offsets or ())
        return made.type_text, made.numpy().tolist()
    assert not isinstance(made, np.generic), made
    return None if callable(made) else str(made)


LONG = pytest.mark.long


@pytest.mark.parametrize(
    "make", [np.int64, Whole, *(pytest.param(m, marks=LONG) for m in (np.int32, np.uint8, np.array))]
)
def test_whatever_counts_as_an_int_is_taken_for_one(make):
    for call in calls("int64"):
        if not _is_taken(call):
            continue
        wanted = _summary(call())
        for at, changed in _changed(call, lambda n: make(n) if n >= 0 or make is not np.uint8 else n):
            assert (call.name, at, _summary(changed())) == (call.name, at, wanted)


def test_every_integer_of_a_signature_is_in_a_call():
    missing, right = [], calls()
    for name in sorted(public_functions() | {"DeviceMesh", "Sharded", "Cut", "DimSpec", "CPU"}):
        some = [call for call in right if call.name == name]
        parameters = signature(some[0].function).parameters
        wanted = {n for n, p in parameters.items() if _is_integer(p) and name not in VALUES}
        for call in some:
            changed = {at for at, _ in _changed(call, np.int64)}
            wanted -= {n for i, n in enumerate(parameters) if i in changed or n in changed}
        missing += [f"{name}({n})" for n in wanted]
    assert missing == ["from_shards(shards)"]  # a mapping by device


def _is_integer(parameter: Parameter) -> bool:
    words = str(parameter.annotation).replace("[", " ").replace("]", " ").replace(",", " ").split()
    return "int" in words or "Axis" in words


@pytest.mark.parametrize("make", [np.int64, np.int32, Whole])
def test_methods_indices_and_layouts_take_whatever_counts_as_an_int(make):
    def whole(*numbers: int) -> Any:
        return tuple(map(make, numbers))

    (one,), x = whole(1), asarray(np.arange(6.0).reshape(2, 3))
    shapes = [x.reshape(*whole(3, 2)), x.reshape(whole(6)), x.transpose(*whole(1, 0)), x.sum(one), x[one], x[:one]]
    shapes += [x.at[one].set(0.0), x.at[:one].add(1.0), x[..., one], x.split(one), x.roll(one), x.unstack(axis=one)[0]]
    for made in shapes:
        assert all(type(size) is int for size in getattr(made, "shape", ()))
    assert x[one].numpy().tolist() == [3.0, 4.0, 5.0]
    mesh = DeviceMesh(whole(2, 2), ("x", "y"))
    assert (mesh.device(one), mesh.coords(one), mesh.axis_size(one)) == (mesh.device(1), mesh.coords(1), 2)
    assert mesh.fix(x=one).num_devices == 2
    assert Layout(mesh, [Axis("x", one, make(2), make(2))]) is Layout(mesh, ["x"])
    assert all(type(n) is int for n in Layout(mesh, [Axis("x", one, make(2), make(2))]).dims[0].axes[0][1:])
    layout = Layout(mesh, ["x", None])
    assert layout.local_shape(whole(4, 6), one) == (2, 6)
    plan = plan_reshard(layout, Layout(mesh, ["y", None]), whole(4, 6), "float32", memory_limit=make(100))
    assert plan.received.of(one) == plan.received.of(1)
    both = grad(lambda a, b: (a * b).sum(), argnums=whole(0, 1))(np.ones(2), np.ones(2))
    assert len(both) == 2
    assert isinstance(grad(lambda a, b: (a * b).sum(), argnums=one)(np.ones(2), np.ones(2)), Tensor)
    assert random.fold_in(random.key(make(7)), one) == random.fold_in(random.key(7), 1)

    def local(v: Any) -> Any:
        out = shardwise.expand_dims(shardwise.softmax(v, axis=one), axis=one)
        out = shardwise.squeeze(shardwise.moveaxis(out, one, make(0)), make(0))
        return shardwise.reshape(shardwise.permute_dims(out, whole(1, 0)), whole(-1)).sum(axis=make(0))

    assert shard_map(local, mesh, P("x"), P())(np.zeros((4, 6))).shape == ()


@pytest.mark.parametrize("name", ["sum", "softmax", "argmax", "expand_dims", "roll", "topk", "split", "stack"])
def test_bools_are_no_integers(name):
    call = next(call for call in calls() if call.name == name)
    for at, changed in _changed(call, bool):
        with pytest.raises((shardwise.ArgumentError, shardwise.BindingError)):
            changed()
        assert at is not None


# -- what is out of range --------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [-3, 2, 10**30, np.int64(2)])
@pytest.mark.parametrize("spec", [P(), P("x")], ids=str)
def test_an_index_that_is_not_there_is_an_index_error(at, spec):
    x = shard(np.arange(4.0).reshape(2, 2), MESH, spec)
    several = np.array([at]) if -(2**63) <= at < 2**63 else None
    for index in (at, several, (..., at), [0, at]):
        if index is None or (isinstance(index, list) and several is None):
            continue
        for call in (lambda i: x[i], lambda i: x.at[i].get(), lambda i: x.at[i].set(0.0), lambda i: x.at[i].add(1.0)):
            with pytest.raises(IndexError, match="is out of range for a dim of 2 elements") as caught:
                call(index)
            assert isinstance(caught.value, shardwise.RangeError | ValueError)
    if several is not None:
        for made in (lambda: shardwise.take(x, several, axis=0), lambda: shardwise.embedding(several, x)):
            with pytest.raises(IndexError, match=f"index {at} is out of range for a dim of 2 elements"):
                made()
    with pytest.raises(IndexError, match="an index with 3 entries does not fit a tensor with 2 dims"):
        x[0, 0, 0]


@pytest.mark.parametrize("at", [-4, 5, 10**30])
def test_a_dim_that_is_not_there_is_an_index_error_and_a_value_error_as_in_numpy(at):
    for call in calls():
        if "axis" not in call.kwargs or call.name in ("one_hot", "concat") or not isinstance(call.kwargs["axis"], int):
            continue
        with pytest.raises(shardwise.RangeError, match=f"{call.name}: axis {at} is out of range for a ") as caught:
            call.with_("axis", at)()
        assert isinstance(caught.value, IndexError)
        assert isinstance(caught.value, ValueError)
    x = np.ones((2, 2))
    for made in (lambda: shardwise.permute_dims(x, (0, at)), lambda: shardwise.moveaxis(x, 0, at)):
        with pytest.raises(shardwise.RangeError, match=f"axis {at} is out of range for a tensor with 2 dims"):
            made()
    with pytest.raises(shardwise.RangeError, match=r"squeeze: axis .* is out of range for a tensor with 2 dims"):
        shardwise.squeeze(x, at)


def test_tensordot_over_more_dims_than_there_are():
    with pytest.raises(shardwise.RangeError, match=r"^tensordot over 2 dims does not fit shapes \(2,\) and \(0,\).$"):
        shardwise.tensordot([1.0, 2.0], ())
    assert shardwise.tensordot([1.0, 2.0], (), axes=0).shape == (2, 0)
    with pytest.raises(shardwise.ArgumentError, match=r"^tensordot: axes is an int, or a pair of the dims of x1 "):
        shardwise.tensordot([1.0], [1.0], axes=())  # type: ignore[arg-type]
    with pytest.raises(shardwise.BindingError, match="a dim is named twice"):
        shardwise.tensordot(np.ones((2, 2)), np.ones((2, 2)), axes=((0, 0), (0, 1)))


# -- wrong arguments -------------------------------------------------------------------------------------

OTHER = DeviceMesh((3,), ("z",))


def wrong() -> list[Any]:
    """What a function might be given instead of what it takes; iterators are new ones."""
    return [
        *(None, "x", "", b"x", -1, -7, 3, 10**30, 2**63, -(2**63), 1.5, -1.0, float("nan"), float("inf"), 1j, True),
        *([], (), {}, set(), [[]], [None], ["a"], (1, 2, 3, 4, 5), [1, [2]], {"a": 1}, range(3), iter([1])),
        *(object(), object, len, slice(1), ..., NotImplemented, np.float64("nan"), np.datetime64("2020")),
        *(np.array([1.5]), np.array(["a"]), np.array(None), np.array([1, 2], object), np.array(["2020"], "M8[D]")),
        *(np.zeros((2, 0)), np.zeros((1,) * 6), np.zeros(2, [("a", "f4")]), np.dtype("int8"), "float32"),
        *(asarray([1.0, 2.0]), shard(np.ones(6), OTHER, P("z")), MESH, [MESH], OTHER, shardwise.CPU(0)),
        *(P("q"), P("x"), P("x", "y", "z"), Layout(OTHER, ["z"]), ReduceOp.SUM, shardwise.Partial()),
        *([shardwise.Sharded(0)], [shardwise.Sharded(9)], [shardwise.DimSpec(["x"])]),
    ]


FUNCTIONS = {("vjp", 0), ("jvp", 0), ("explain", 0)}  # what they are given is called: errors are its own
RAW = ("has no attribute", "not subscriptable", "is not iterable", "not callable", "unhashable", "to unpack")


def _refusal(call: Any) -> str:
    # What an error of ours says; any other is not caught.
    try:
        for x in tensors_of(call()):
            x.numpy()
    except ShardwiseError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("step", [29, pytest.param(1, marks=LONG)])
def test_a_wrong_argument_is_refused_with_an_error_of_ours(step):
    values, number = wrong(), 0
    for call in calls():
        for at in (*range(len(call.args)), *call.kwargs):
            for i, value in enumerate(values):
                number += 1
                if number % step or ((call.name, at) in FUNCTIONS and callable(value)):
                    continue
                text = _refusal(call.with_(at, value))
                assert not any(raw in text for raw in RAW), (call.name, at, i, text)


@pytest.mark.parametrize("step", [13, pytest.param(1, marks=LONG)])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_wrong_arguments_of_methods_and_indices_are_refused_with_an_error_of_ours(step):
    x = calls()[0].args[0]
    layout, sizes = x.layout, (4, 6)
    plan = plan_reshard(P("x"), P("y"), sizes, "float32", mesh=MESH)
    several = [x, MESH, layout, P("x"), plan, plan.steps[0], shardwise.NamedMapping(MESH, P("x"))]
    several += [shardwise.PlacementMapping(MESH, [shardwise.Sharded(0), shardwise.Replicated()])]
    several += [shardwise.DistributedTensorType("float32", sizes, MESH, P("x"))]
    ways = [getattr(one, name) for one in several for name in dir(one) if _is_method(one, name)]
    ways += [lambda v: x[v], lambda v: x[0, v], lambda v: x[:v], lambda v: x[::v], lambda v: x.at[v].get()]
    ways += [lambda v: x.at[v].set(1.0), lambda v: x.at[0].set(v), lambda v: x.at[[0, 1]].add(v)]
    ways += [lambda v, name=name: getattr(x, name)(v) for name in ("__add__", "__pow__", "__matmul__", "__eq__")]
    ways += [lambda v: shardwise.vjp(shardwise.square, x)[1](v), lambda v: shard_map(shardwise.abs, MESH, v, P("x"))(x)]
    ways += [lambda v: shard_map(shardwise.abs, MESH, P("x"), v)(x)]
    for name in ("sum", "softmax", "expand_dims"):
        ways.append(lambda v, name=name: _locally(lambda a: getattr(shardwise, name)(a, axis=v), x))
    for name in ("reshape", "permute_dims", "squeeze", "matmul", "add", "astype", "broadcast_to"):
        ways.append(lambda v, name=name: _locally(lambda a: getattr(shardwise, name)(a, v), x))
    number = 0
    for way in ways:
        count = _required(way)
        for i, value in enumerate(wrong()):
            number += 1
            if number % step == 0:
                text = _refusal(lambda way=way, value=value, count=count: way(*[value] * count))
                assert not any(raw in text for raw in RAW), (way, i, text)


def _locally(fn: Any, x: Tensor) -> Tensor:
    return shard_map(fn, MESH, P("x"), P("x"))(x)


def _is_method(one: Any, name: str) -> bool:
    # Of a tensor it may be that a property is not there, which is an error of its own.
    if name.startswith("_") or name in ("picture", "show", "arrays", "kept"):
        return False
    kind = getattr(type(one), name, None)
    return callable(kind) and bool(_parameters(getattr(one, name)))


def _parameters(way: Any) -> list[Parameter]:
    plain = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    return [p for p in signature(way).parameters.values() if p.kind in plain]


def _required(way: Any) -> int:
    return max(1, sum(p.default is Parameter.empty for p in _parameters(way)))
