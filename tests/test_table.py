"""The table: every public function of tensors, every method, attribute and operator comes from it."""

import doctest
import inspect

import numpy as np
import pytest

import shardwise as sw
from shardwise.prim.arithmetic import elementwise
from shardwise.prim.face import BINARY, COMPARISONS, UNARY, face_of
from shardwise.prim.methods import Methods
from shardwise.prim.primitive import Primitive
from shardwise.table import EVERY, FUNCTIONS, METHODS

# Public functions that no tensor is given to: of meshes, layouts, plans, engines and pictures.
OTHERS = """accelerator_count as_layout cache_info clear_caches current_engine current_mesh default_device
    engine_context global_shape_from_local init
    local_shard_shape_from_global mesh_context picture plan_reshard shard_shape step trace_communication""".split()
# What a tensor says of itself, and how Python and NumPy read it: none of them is an op.
OWN = """arrays device dtype engine is_local item kept layout level local local_shards mapping mesh nbytes ndim
    numpy shape sharding shards size storage type_text is_recorded picture""".split()


def test_every_public_function_is_of_the_table() -> None:
    functions = {n for n, thing in vars(sw).items() if inspect.isfunction(thing) and not n.startswith("_")}
    assert functions - {*FUNCTIONS} - {*OTHERS} == set()
    assert {name: getattr(sw, name) for name in FUNCTIONS} == FUNCTIONS


def test_every_method_and_operator_is_of_the_table() -> None:
    inherited = {n for base in sw.Tensor.__mro__ if base not in (sw.Tensor, Methods) for n in vars(base)}
    own = {n for n in vars(sw.Tensor) if not n.startswith("_")} - {*OWN}
    assert own <= inherited | {*METHODS}, "a method of tensors that the table does not have"
    added = {n for n in vars(Methods) if n not in ("__slots__", "__module__", "__doc__", "__hash__", "__annotations__")}
    assert added == {*METHODS}
    for name, attribute in METHODS.items():
        assert getattr(Methods, name) is attribute or inspect.getattr_static(Methods, name) is attribute


def test_every_operator_of_python_that_numbers_have_is_there() -> None:
    words = {*BINARY.values(), *COMPARISONS.values(), *UNARY.values(), *(f"r{word}" for word in BINARY.values())}
    assert {f"__{word}__" for word in words} <= {*METHODS}


def test_no_name_is_given_twice() -> None:
    names = [face.name for function in EVERY if (face := face_of(function)) is not None and face.name]
    assert len(names) == len(set(names))
    shown = [n for function in EVERY for n in _attributes(function)]
    assert len(shown) == len(set(shown))


def _attributes(function: object) -> list[str]:
    face = face_of(function)
    assert face is not None
    return [name for name in (face.method, face.attribute) if name]


def test_an_elementwise_function_is_declared_in_one_place() -> None:
    rows = {name: row for name, row in vars(elementwise).items() if isinstance(row, Primitive) and row.function}
    assert len(rows) > 60
    for name, row in rows.items():
        assert row.name == name
        assert row.function is getattr(sw, name)
        assert row.function.__doc__
        assert row.work is not None


@pytest.mark.parametrize(
    "name", [n for n, row in vars(elementwise).items() if isinstance(row, Primitive) and row.function]
)
def test_the_example_of_an_elementwise_function_is_true(name: str) -> None:
    function = FUNCTIONS[name]
    (example,) = doctest.DocTestParser().get_examples(function.__doc__ or "")
    scope = {**FUNCTIONS, "np": np}
    assert repr(eval(example.source, scope)) == example.want.strip()
    assert example.source.startswith(f"{name}(")


def test_what_python_has_is_public_but_not_imported_by_a_star() -> None:
    for name in ("abs", "all", "any", "max", "min", "pow", "round", "sum"):
        assert name not in sw.__all__
        assert FUNCTIONS[name] is getattr(sw, name)
    assert sorted(sw.__all__) == list(sw.__all__)
