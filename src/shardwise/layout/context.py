"""The mesh context: the mesh that is meant where none is given."""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

from shardwise.errors import ArgumentError, MeshError
from shardwise.layout.mesh import DeviceMesh

_current: ContextVar[DeviceMesh | None] = ContextVar("mesh", default=None)


@contextmanager
def mesh_context(mesh: DeviceMesh) -> Generator[DeviceMesh]:
    """Supply `mesh` wherever a mesh is omitted, inside a `with` block.

    >>> with mesh_context(DeviceMesh((2,), ("x",))):
    ...     current_mesh()
    DeviceMesh(x=2)
    """
    if not isinstance(mesh, DeviceMesh):
        raise ArgumentError(f"mesh_context needs a DeviceMesh, got {mesh!r}.")
    token = _current.set(mesh)
    try:
        yield mesh
    finally:
        _current.reset(token)


def current_mesh(mesh: DeviceMesh | None = None) -> DeviceMesh:
    """Return `mesh` or, where it is omitted, that of the surrounding `mesh_context`.

    >>> with mesh_context(DeviceMesh((2,), ("x",))):
    ...     current_mesh(), current_mesh(DeviceMesh((4,), ("y",)))
    (DeviceMesh(x=2), DeviceMesh(y=4))
    """
    mesh = _current.get() if mesh is None else mesh
    if mesh is None:
        raise MeshError("no mesh was given.\n  pass mesh=DeviceMesh(...), or work inside `with mesh_context(mesh):`.")
    if not isinstance(mesh, DeviceMesh):
        raise ArgumentError(f"a DeviceMesh was expected, got {mesh!r}.")
    return mesh
