"""The exception tree, and the small checks that errors come from."""

from typing import Any

import numpy as np
import pytest

import shardwise
from shardwise import errors
from shardwise.errors import ArgumentError, ShardwiseError, as_int, as_tuple, did_you_mean, printable

PARENTS = {
    "ShardwiseError": (Exception,),
    "LayoutError": (ShardwiseError, ValueError),
    "MeshError": (errors.LayoutError,),
    "BindingError": (errors.LayoutError,),
    "RangeError": (errors.BindingError, IndexError),
    "ConversionError": (errors.LayoutError,),
    "PlanError": (ShardwiseError, ValueError),
    "EngineError": (ShardwiseError, RuntimeError),
    "ProgramError": (ShardwiseError, RuntimeError),
    "CollectiveError": (errors.EngineError,),
    "RankLost": (errors.CollectiveError,),
    "CollectiveTimeout": (errors.CollectiveError,),
    "CollectiveMismatch": (errors.CollectiveError,),
    "DerivativeError": (ShardwiseError, ValueError),
    "ModuleError": (ShardwiseError, ValueError),
    "ParseError": (errors.ModuleError,),
    "VerifyError": (errors.ModuleError,),
    "ArgumentError": (ShardwiseError, TypeError),
}


def test_the_tree_is_the_one_that_is_drawn():
    found = {n: c.__bases__ for n, c in vars(errors).items() if isinstance(c, type) and issubclass(c, Exception)}
    assert found == PARENTS
    assert all(f"─ {name} " in (errors.__doc__ or "") for name in PARENTS if name != "ShardwiseError")


@pytest.mark.parametrize("name", PARENTS)
def test_every_error_is_public_and_caught_by_a_builtin(name):
    kind = getattr(shardwise, name)
    assert kind is getattr(errors, name)
    assert issubclass(kind, ShardwiseError)
    if name != "ShardwiseError":
        assert sum(issubclass(kind, builtin) for builtin in (ValueError, TypeError, RuntimeError)) == 1


@pytest.mark.parametrize(
    ("got", "names", "text"),
    [
        ("pt", ["dp", "tp"], "\n  did you mean 'tp'?"),
        ("bacth", ["batch", "match"], "\n  did you mean 'batch'?"),
        ("zebra", ["dp", "tp"], ""),
        ("x", [], ""),
        (7, iter(["dp"]), ""),
    ],
)
def test_the_nearest_name_is_suggested(got, names, text):
    assert did_you_mean(got, names) == text


@pytest.mark.parametrize("value", [3, np.int64(3), np.uint8(3), np.array(3)])
def test_numbers_of_any_kind_are_ints(value):
    assert as_int(value) == 3
    assert type(as_int(value)) is int


@pytest.mark.parametrize("value", [True, np.bool_(True), 3.0, "3", None, (3,), np.array([3, 4]), np.float32(3)])
def test_anything_else_is_no_int(value):
    assert as_int(value) is None


def test_ordered_collections_are_listed():
    for values in ([1, 2], (1, 2), iter([1, 2]), np.array([1, 2]), range(1, 3)):
        assert as_tuple(values, "numbers") == (1, 2)


@pytest.mark.parametrize("values", ["ab", b"ab", {1}, {1: 2}, 5, None])
def test_anything_else_is_not_listed(values: Any):
    with pytest.raises(ArgumentError) as caught:
        as_tuple(values, "wanted a list")
    assert str(caught.value) == f"wanted a list, got {values!r}."


def test_what_would_control_a_terminal_is_escaped_and_the_rest_stays():
    assert printable("a\n\tb \x1b[31m\r\x00\x7f\x9b\u202eé漢\ud800") == (
        "a\n\tb \\x1b[31m\\r\\x00\\x7f\\x9b\\u202eé漢\\ud800"
    )
    assert printable("a\nb\tc", keep="") == r"a\nb\tc"
    for number in range(0x110000):
        text = printable(chr(number), keep="")
        assert text == chr(number) or not chr(number).isprintable()
        assert text.encode()
