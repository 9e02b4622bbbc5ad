"""A layout as it is drawn: what a cell says of a part, a halo and the devices that hold it."""

import pytest

from shardwise import CPU, BindingError, Cut, DeviceMesh, Layout
from shardwise.pictures.binding import MOST_DEVICES, bind_layout, order_text, span_text

MESH = DeviceMesh((2, 4), ("x", "y"))


def test_parts_are_intervals_where_sizes_are_known_and_numbers_where_not() -> None:
    layout = Layout(MESH, ["y", None, Cut("x", offsets=(0, 1, 5))])
    known, unknown = bind_layout(layout, (10, 3, 5)), bind_layout(layout, None)
    assert [known.span(0, part) for part in range(4)] == ["0:3", "3:6", "6:8", "8:10"]
    assert [unknown.span(0, part) for part in range(4)] == [f"part {part}" for part in range(4)]
    assert (known.span(1, 0), unknown.span(1, 0)) == ("0:3", "all")
    assert unknown.span(2, 1) == "1:5"  # offsets tell it
    assert (known.is_known, unknown.is_known) == (True, False)
    assert [unknown.knows(dim) for dim in range(3)] == [False, False, True]
    assert known.box((1, 0, 1)) == "3:6, 0:3, 1:5"
    assert (known.shape_text, unknown.shape_text) == ("10x3x5", "?x?x?")
    assert bind_layout(layout, ("n", 3, 5)).shape_text == "nx3x5"
    assert bind_layout(Layout(MESH, []), ()).shape_text == "0-d"


def test_halos_are_said_where_there_are_any() -> None:
    layout = Layout(MESH, [Cut("y", halo=(1, 2))])
    known, unknown = bind_layout(layout, (12,)), bind_layout(layout, None)
    assert [known.halo_text(0, part) for part in range(4)] == ["holds 0:5", "holds 2:8", "holds 5:11", "holds 8:12"]
    assert [unknown.halo_text(0, part) for part in range(4)] == ["halo 0,2", "halo 1,2", "halo 1,2", "halo 1,0"]
    assert bind_layout(Layout(MESH, ["y"]), (12,)).halo_text(0, 1) == ""
    assert known.held_box((1,)) == ((2, 8),)


@pytest.mark.parametrize(
    ("layout", "tile", "text"),
    [
        (Layout(MESH, ["x", "y"]), (1, 2), "6"),
        (Layout(MESH, ["y"]), (1,), "1,5"),
        (Layout(MESH, ["x"]), (1,), "4-7"),
        (Layout(MESH, [None]), (0,), "0-7"),
        (Layout(MESH, ["y"], ["x"]), (1,), "1+5"),
        (Layout(MESH, ["x:(1)2"], ["y:(1)2"]), (0,), "(0,1)+(2,3)"),
        (Layout(DeviceMesh((3, 9), ("x", "y")), ["x"], ["y"]), (0,), "0+1+2+..."),
        (Layout(DeviceMesh((9, 2), ("x", "y")), ["y"]), (1,), "1,3,5,..."),
        (Layout(DeviceMesh((8, 2), ("x", "y")), ["y"]), (1,), "1,3,5,7,9,11,13,15"),
    ],
    ids=str,
)
def test_the_devices_of_a_tile(layout: Layout, tile: tuple[int, ...], text: str) -> None:
    assert bind_layout(layout, None).devices(tile) == text


def test_a_shape_must_fit() -> None:
    with pytest.raises(BindingError, match=r"the layout \[y\] has 1 dims, the shape \(2, 3\) has 2\."):
        bind_layout(Layout(MESH, ["y"]), (2, 3))
    with pytest.raises(BindingError, match="halo"):
        bind_layout(Layout(MESH, [Cut("y", halo=4)]), (8,))
    assert span_text((3, 7)) == "3:7"


def test_the_order_of_devices_is_told_where_it_is_another() -> None:
    assert order_text(MESH) == ""
    turned = DeviceMesh((9,), ("x",), [CPU(8 - i) for i in range(9)])
    assert order_text(turned) == ", ".join(f"{i} is cpu:{8 - i}" for i in range(MOST_DEVICES)) + ", ..."
    assert not order_text(DeviceMesh((8,), ("x",), [CPU(7 - i) for i in range(8)])).endswith("...")
