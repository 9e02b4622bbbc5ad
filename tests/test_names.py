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


MESH = shardwise.DeviceMesh((2,), ("x",))
PLAN = shardwise.plan_reshard(P("x"), P(), (4,), "float32", mesh=MESH)


@pytest.mark.parametrize(
    ("owner", "old", "new"),
    [
        (shardwise.LocalEngine(), "work", "run_kernel"),
        (shardwise.AbstractEngine(), "work", "run_kernel"),
        (MESH, "checked_index", "check_index"),
        (PLAN.steps[0], "ground", "slots"),
    ],
)
def test_a_name_from_before_warns_and_is_what_it_is_called_now(owner: object, old: str, new: str) -> None:
    name = type(owner).__name__
    with pytest.warns(DeprecationWarning, match=rf"^{name}\.{old} is called {new} now\.$") as caught:
        found = getattr(owner, old)
    assert found == getattr(owner, new)
    assert caught[0].filename == __file__
    assert getattr(type(owner), old).new == new  # nothing warns where only the class is looked at
