"""Names: whatever is public shows as users call it, and can be found by that name."""

import inspect
import pickle

import pytest

import shardwise
from shardwise import P
from shardwise.names import origin, publish

PUBLIC = {
    name: thing
    for name, thing in vars(shardwise).items()
    if not name.startswith("_") and (inspect.isclass(thing) or inspect.isfunction(thing))
}


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_shows_as_one_of_the_package(name: str) -> None:
    thing = PUBLIC[name]
    assert thing.__module__ == "shardwise"
    assert origin(thing).startswith("shardwise.")
    assert pickle.loads(pickle.dumps(thing)) is thing


def test_classes_functions_and_errors_show_by_it() -> None:
    assert (repr(P), repr(shardwise.Tensor)) == ("<class 'shardwise.P'>", "<class 'shardwise.Tensor'>")
    assert inspect.getmodule(shardwise.tanh) is shardwise
    with pytest.raises(shardwise.ArgumentError) as caught:
        shardwise.DeviceMesh("x", 2)  # type: ignore
    assert f"{caught.type.__module__}.{caught.type.__qualname__}" == "shardwise.ArgumentError"


def test_what_is_of_elsewhere_stays_so() -> None:
    class Own:
        pass

    publish("shardwise", [Own, pytest.raises, 3])
    assert (Own.__module__, origin(Own)) == (__name__, __name__)
    assert pytest.raises.__module__ == "_pytest.raises"
    assert (origin(3), origin(len)) == ("", "builtins")


def test_what_is_published_keeps_its_origin() -> None:
    class Part:
        pass

    Part.__module__ = "whole.part"
    publish("whole", [Part])
    publish("whole", [Part])
    assert (Part.__module__, origin(Part)) == ("whole", "whole.part")
