"""Exchanges: who gives whom which piece of a dim, and the way back."""

import numpy as np
import pytest

from shardwise import BindingError, Cut, DeviceMesh, Layout, P, shard
from shardwise.prim.movement.exchanges import blocks, check_slices, exchange_blocks, swap_slices
from tests.prim.cases import held, same

MESH = DeviceMesh((2, 3), ("a", "b"))
A, B = MESH.axis("a"), MESH.axis("b")


def test_pieces_are_balanced_and_every_element_has_a_place_after() -> None:
    layout = Layout(MESH, [Cut(("a", "b"), offsets=(0, 4, 4, 5, 7, 13, 14))])
    found = blocks(layout, (14,), 0, (B,))
    assert found.axes == (A, B)
    assert found.pieces == ((2, 1, 1), (0, 0, 0), (1, 0, 0), (1, 1, 0), (2, 2, 2), (1, 0, 0))
    assert found.after is Layout(MESH, [Cut(("a", "b"), offsets=(0, 3, 4, 5, 9, 12, 14))])
    assert not found.is_even
    assert found.shares(1) == ([1, 0, 0, 1, 2, 0], [0, 1, 0, 0, 3, 0])
    # Along the major axis the members of a group are not neighbours.
    assert blocks(layout, (14,), 0, (A,)).pieces == ((2, 2), (1, 1), (0, 0), (3, 3), (1, 0), (1, 0))


@pytest.mark.parametrize("axes", [(A,), (B,), (A, B), (B, A)])
@pytest.mark.parametrize("size", [0, 5, 36, 72, 40])
def test_the_way_back_is_the_inverse(axes: tuple, size: int) -> None:
    x = shard(np.arange(2 * size).reshape(2, size), MESH, P(None, ("a", "b")))
    y = exchange_blocks(x, dim=1, axes=axes)
    back = exchange_blocks(y, dim=1, axes=axes, back_to=x.layout)
    assert back.layout is x.layout
    assert same(back.numpy(), x.numpy())
    assert sorted(y.numpy().ravel().tolist()) == list(range(2 * size))


def test_slices_are_as_many_as_the_group_has_members() -> None:
    check_slices(Layout(MESH, ["a", "b"]), (6, 3), 0, 3)
    with pytest.raises(BindingError, match="all_to_all: dim 0 has size 2, but must be 3, the size of the group"):
        check_slices(Layout(MESH, ["a", "b"]), (5, 3), 0, 3)
    x = shard(np.arange(18.0).reshape(3, 6), MESH, P(None, "b"))
    y = swap_slices(x, split=0, concat=1, axes=(B,), home=1)
    assert y.layout is Layout(MESH, ["b", None])
    assert [h.tolist() for h in held(y)][:3] == [np.arange(18.0).reshape(3, 3, 2)[i].T.tolist() for i in range(3)]
