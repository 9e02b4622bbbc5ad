"""Shardings while a program runs: the shards of split axes, halos and offsets, one device at a time."""

import pytest

from shardwise.errors import ProgramError
from shardwise.ir.module.shardings import Sharding


def test_dims_are_cut_by_grid_axes_outer_to_inner() -> None:
    sharding = Sharding("g", (2, 3), ((1, 0),))
    owned = [sharding.layout(2).box((7, 4), device) for device in range(6)]
    rows = [(0, 2), (2, 3), (3, 4), (4, 5), (5, 6), (6, 7)]
    for device in range(6):
        x, y = divmod(device, 3)
        assert owned[device] == (rows[2 * y + x], (0, 4))
        assert sharding.shape((7, 4), device) == (rows[2 * y + x][1] - rows[2 * y + x][0], 4)


def test_halos_are_of_one_size_at_the_border_too() -> None:
    sharding = Sharding("g", (2, 3), ((0,), (), (1,)), halos=(1, 2, 3, 0))
    assert sharding.layout(3).held_box((4, 5, 9), 0) == ((-1, 4), (0, 5), (-3, 3))
    assert sharding.layout(3).held_box((4, 5, 9), 5) == ((1, 6), (0, 5), (3, 9))
    assert sharding.layout(3).box((4, 5, 9), 5) == ((2, 4), (0, 5), (6, 9))
    assert sharding.shape((4, 5, 9), 5) == (5, 5, 6)


def test_offsets_are_taken_dim_by_dim() -> None:
    sharding = Sharding("g", (2, 3), ((0,), (1,)), offsets=(0, 1, 4, 0, 0, 2, 9))
    assert [sharding.layout(2).box((4, 9), device) for device in range(6)] == [
        (rows, columns) for rows in ((0, 1), (1, 4)) for columns in ((0, 0), (0, 2), (2, 9))
    ]


def test_dims_that_are_not_named_are_whole_and_more_than_there_are_refused() -> None:
    sharding = Sharding("g", (2,), ((0,),))
    assert sharding.shape((4, 7, 3), 1) == (2, 7, 3)
    with pytest.raises(ProgramError) as caught:
        Sharding("g", (2,), ((0,), ())).layout(1)
    assert str(caught.value) == "a sharding of 2 dims is given to a tensor with 1."


def test_the_mesh_of_a_layout_is_named_as_the_grid() -> None:
    layout = Sharding("here", (2, 3), ((1,),)).layout(1)
    assert layout.mesh.name == "here"
    assert layout.mesh.axis_names == ("axis0", "axis1")
