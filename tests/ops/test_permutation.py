"""Permutations given as pairs, as sources per device."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwise import ArgumentError, DeviceMesh, LayoutError
from shardwise.ops.permutation import sources_of
from tests.layout.strategies import meshes

MESH = DeviceMesh((2, 4), ("a", "b"))


@given(st.data())
def test_along_an_axis_every_group_is_permuted_alike(data: st.DataObject) -> None:
    mesh = data.draw(meshes(max_devices=24))
    name = data.draw(st.sampled_from(mesh.axis_names))
    size = mesh.axis_size(name)
    pairs = list(enumerate(data.draw(st.permutations(range(size)))))[: data.draw(st.integers(0, size))]
    got = sources_of(mesh, pairs, name)
    by_device = [(group[s], group[t]) for group in mesh.groups(name) for s, t in pairs]
    assert got == sources_of(mesh, by_device, None)
    assert {t: s for t, s in enumerate(got) if s is not None} == {t: s for s, t in by_device}


def test_numpy_ints_and_sub_axes_will_do() -> None:
    assert sources_of(MESH, np.array([[0, 7]]), None) == (None,) * 7 + (0,)
    assert sources_of(MESH, [(0, 1)], "b:(2)2") == (None, 0, None, 2, None, 4, None, 6)


@pytest.mark.parametrize(
    ("pairs", "axis", "error", "text"),
    [
        ([(0, 8)], None, LayoutError, "ppermute: device 8 does not exist; there are 8."),
        ([(-1, 0)], None, LayoutError, "ppermute: device -1 does not exist; there are 8."),
        ([(0, 4)], "b", LayoutError, "ppermute: position along 'b' 4 does not exist; there are 4."),
        ([(0, 1), (0, 2)], None, LayoutError, "ppermute: device 0 is named twice as a source in [(0, 1), (0, 2)]."),
        ([(0, 1), (2, 1)], None, LayoutError, "ppermute: device 1 is named twice as a target in [(0, 1), (2, 1)]."),
        (
            [(0, 1, 2)],
            None,
            ArgumentError,
            "ppermute: a permutation is a list of (source, target) pairs, got (0, 1, 2).",
        ),
        ([3], None, ArgumentError, "ppermute: a permutation is a list of (source, target) pairs, got 3."),
        ([(0.5, 1)], None, ArgumentError, "ppermute: a permutation is a list of (source, target) pairs, got (0.5, 1)."),
        (
            [(0, True)],
            None,
            ArgumentError,
            "ppermute: a permutation is a list of (source, target) pairs, got (0, True).",
        ),
    ],
)
def test_wrong_pairs(pairs: Any, axis: str | None, error: type[Exception], text: str) -> None:
    with pytest.raises(error) as caught:
        sources_of(MESH, pairs, axis)
    assert str(caught.value) == text
