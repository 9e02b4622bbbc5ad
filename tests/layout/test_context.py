"""The mesh context: the innermost mesh is meant, and only where none is given."""

from threading import Thread
from typing import Any

import pytest

from shardwise import ArgumentError, DeviceMesh, MeshError, mesh_context
from shardwise.layout.context import current_mesh

X, Y = DeviceMesh((2,), ("x",)), DeviceMesh((4,), ("y",))


def test_the_innermost_mesh_is_meant_and_the_outer_one_comes_back() -> None:
    with mesh_context(X) as given:
        assert given is X
        assert current_mesh() is X
        with mesh_context(Y):
            assert current_mesh() is Y
            assert current_mesh(X) is X
        assert current_mesh() is X
    with pytest.raises(MeshError):
        current_mesh()


def test_a_context_ends_when_an_error_leaves_it() -> None:
    with pytest.raises(ZeroDivisionError), mesh_context(X):
        raise ZeroDivisionError
    with pytest.raises(MeshError):
        current_mesh()


def test_without_a_mesh_the_error_says_how_to_give_one() -> None:
    with pytest.raises(MeshError) as caught:
        current_mesh()
    text = "no mesh was given.\n  pass mesh=DeviceMesh(...), or work inside `with mesh_context(mesh):`."
    assert str(caught.value) == text


@pytest.mark.parametrize("wrong", [None, "x", 2, ("x",), DeviceMesh])
def test_what_is_no_mesh_is_refused_and_named(wrong: Any) -> None:
    with pytest.raises(ArgumentError, match=r"^mesh_context needs a DeviceMesh, got ") as caught, mesh_context(wrong):
        pass
    assert repr(wrong) in str(caught.value)
    if wrong is None:
        return
    with mesh_context(X), pytest.raises(ArgumentError, match=r"^a DeviceMesh was expected, got ") as caught:
        current_mesh(wrong)
    assert repr(wrong) in str(caught.value)


def test_other_threads_have_no_mesh() -> None:
    found: list[Any] = []

    def look() -> None:
        try:
            found.append(current_mesh())
        except MeshError as error:
            found.append(error)

    with mesh_context(X):
        thread = Thread(target=look)
        thread.start()
        thread.join()
    assert isinstance(found[0], MeshError)
