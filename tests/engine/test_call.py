"""Calls: what processes compare before any data moves tells every difference apart."""

from shardwise import CPU, DeviceMesh
from shardwise.engine.call import Call, meshes_text

MESH = DeviceMesh((2, 2), ("a", "b"))
CALL = Call("all_gather", (0, 1), (4,), "int8", "[x]", "[-]", None, None, "digest", "mesh")


def test_a_call_differs_in_whatever_differs() -> None:
    others = ["permute", (0, 2), (5,), "int16", "[y]", "[x]", "sum", 0, "other", ""]
    assert len(others) == len(Call._fields)
    for field, value in zip(Call._fields, others, strict=True):
        assert CALL._replace(**{field: value}) != CALL
    assert CALL._replace(root=None) == CALL
    assert Call(*CALL[:-1]).meshes == ""


def test_one_mesh_is_named_once_and_two_in_their_order() -> None:
    turned = DeviceMesh((2, 2), ("a", "b"), [CPU(i) for i in (3, 2, 1, 0)])
    line = DeviceMesh((4,), ("x",))
    assert meshes_text(MESH, MESH) == "DeviceMesh(a=2, b=2)"
    assert meshes_text(MESH, line) == "DeviceMesh(a=2, b=2) -> DeviceMesh(x=4)"
    assert meshes_text(line, MESH) == "DeviceMesh(x=4) -> DeviceMesh(a=2, b=2)"
    assert meshes_text(MESH, turned) == f"{MESH!r} -> {turned!r}"
