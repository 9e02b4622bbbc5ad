"""Axes, sub-axes, and the arithmetic on them."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwise import DeviceMesh, LayoutError
from shardwise.layout.axis import (
    Axis,
    check_disjoint,
    common,
    cover,
    gaps,
    has_crossing,
    is_disjoint,
    merge,
    overlap,
    without,
)
from tests.layout.oracle import digit, position
from tests.layout.strategies import axis_lists, factors, meshes

DIVISORS = st.sampled_from([1, 2, 3, 4, 6, 12, 24])


@st.composite
def sub_axes(draw: st.DrawFn, of: int = 24) -> Axis:
    pre = draw(DIVISORS.filter(lambda d: of % d == 0))
    return Axis("x", pre, draw(DIVISORS.filter(lambda d: (of // pre) % d == 0)), of)


def levels(axis: Axis) -> np.ndarray:
    """For each position of the mesh axis, the position along a sub-axis of it."""
    return np.arange(axis.of) // axis.post % axis.size


@given(sub_axes(), st.integers(0, 23))
def test_a_digit_is_the_middle_index_of_a_reshape(axis, coord):
    assert axis.pre * axis.size * axis.post == axis.of
    assert axis.digit(coord) == digit(DeviceMesh((24,), ("x",)), axis, coord)


@given(sub_axes())
def test_the_text_of_an_axis_names_it(axis):
    mesh = DeviceMesh((24,), ("x",))
    assert mesh.axis(str(axis)) == axis
    assert repr(axis) == str(axis)
    assert axis.is_whole == (axis.size == 24) == (str(axis) == "x")


@given(sub_axes(), sub_axes())
def test_axes_overlap_unless_their_digits_are_independent(a, b):
    pairs = set(zip(levels(a).tolist(), levels(b).tolist(), strict=True))
    nested = a.pre % (b.pre * b.size) == 0 or b.pre % (a.pre * a.size) == 0
    free = a.size == 1 or b.size == 1 or nested
    assert overlap(a, b) == overlap(b, a) == (not free)
    if free:
        assert len(pairs) == a.size * b.size
    assert not overlap(a, Axis("y", b.pre, b.size, b.of))


@given(st.data())
def test_merging_keeps_the_positions(data):
    mesh = data.draw(meshes())
    axes = data.draw(axis_lists(mesh))
    short = merge(axes)
    assert merge(short) == short
    assert all(axis.size > 1 for axis in short)
    for device in range(mesh.num_devices):
        assert position(mesh, axes, device) == position(mesh, short, device)


@given(st.data())
def test_what_is_left_and_what_is_used_make_the_axis(data):
    mesh = data.draw(meshes())
    used = data.draw(axis_lists(mesh))
    for name, of in zip(mesh.axis_names, mesh.mesh_shape, strict=True):
        whole = Axis(name, 1, of, of)
        left = gaps(whole, used)
        assert all(axis.size > 1 for axis in left)
        everything = sorted([*left, *(a for a in used if a.name == name)], key=lambda a: (a.pre, a.size))
        check_disjoint(everything, "here")
        assert merge(everything) == ((whole,) if of > 1 else ())


def test_an_axis_of_size_one_takes_nothing_away():
    whole = Axis("x", 1, 8, 8)
    assert gaps(whole, [Axis("x", 2, 4, 8), Axis("x", 4, 1, 8)]) == [Axis("x", 1, 2, 8)]
    assert gaps(whole, [Axis("x", 4, 1, 8)]) == [whole]


@given(st.data())
def test_common_and_without_make_the_whole(data):
    mesh = data.draw(meshes())
    axes, removed = mesh.rest(()), data.draw(axis_lists(mesh))
    kept, shared = without(axes, removed), common(axes, removed)
    assert set(shared) == {axis for axis in removed if axis.size > 1}
    check_disjoint([*kept, *shared], "here")
    assert np.prod([a.size for a in (*kept, *shared)]) == mesh.num_devices


EVERY = [Axis("x", pre, size, 24) for pre in range(1, 25) for size in range(1, 25) if 24 % (pre * size) == 0]


def contains(outer: Axis, inner: Axis) -> bool:
    """Whether one axis is a factor of another: its position follows from, and is free within, the other's."""
    return inner.pre % outer.pre == 0 and (outer.pre * outer.size) % (inner.pre * inner.size) == 0


def tells(axes: tuple[Axis, ...]) -> int:
    """How many positions some axes tell apart together."""
    return len({tuple(axis.digit(coord) for axis in axes) for coord in range(24)})


def test_what_two_axes_share_is_the_largest_factor_of_both():
    for a, b in product(EVERY, EVERY):
        shared = [f for f in EVERY if f.size > 1 and contains(a, f) and contains(b, f)]
        largest = max((f.size for f in shared), default=1)
        assert [f for f in shared if f.size == largest] == list(common([a], [b])), (a, b)


def test_what_is_left_of_an_axis_and_what_it_shares_make_it_up_even_where_axes_cross():
    for a, b in product(EVERY, EVERY):
        parts = (*common([a], [b]), *without([a], [b]))
        check_disjoint(parts, "here")
        assert tells(parts) == np.prod([part.size for part in parts], initial=1) == a.size
        assert all(contains(a, part) for part in parts)
        assert is_disjoint([a], [b]) == (not overlap(a, b))
        assert has_crossing([a], [b]) == has_crossing([b], [a]) == any(overlap(f, b) for f in without([a], [b]))
        assert is_disjoint([a], [b]) or bool(common([a], [b])) or has_crossing([a], [b])


def test_a_cover_is_the_smallest_axis_that_has_both_as_factors():
    for a, b in product(EVERY, EVERY):
        made = cover([a, b])
        check_disjoint(made, "here")
        assert all(axis.size == 1 or any(contains(c, axis) for c in made) for axis in (a, b))
        if overlap(a, b):
            both = [c for c in EVERY if contains(c, a) and contains(c, b)]
            assert made == (min(both, key=lambda c: c.size),)
        else:
            assert made == merge(sorted([a, b]))


@given(st.data())
def test_factors_of_a_mesh_are_disjoint(data):
    mesh = data.draw(meshes())
    check_disjoint(data.draw(factors(mesh)), "here")


ERRORS = [
    (
        [Axis("x", 1, 8, 8), Axis("x", 1, 8, 8)],
        "mesh axis 'x' is used twice in here.\n  each mesh axis may split one dim, or be partial, once.",
    ),
    (
        [Axis("x", 2, 2, 8), Axis("x", 2, 2, 8)],
        "mesh axis 'x:(2)2' is used twice in here.\n  each mesh axis may split one dim, or be partial, once.",
    ),
    (
        [Axis("x", 1, 8, 8), Axis("x", 2, 4, 8)],
        "mesh axis 'x' is used beside its own sub-axis in here: x, x:(2)4.",
    ),
    (
        [Axis("x", 1, 4, 8), Axis("y", 1, 2, 2), Axis("x", 2, 4, 8)],
        "sub-axes x:(1)4 and x:(2)4 overlap in here.\n"
        "  'x' has 8 positions; sub-axes used together must be disjoint factors of it.",
    ),
    (
        [Axis("x", 1, 2, 12), Axis("x", 3, 2, 12)],
        "sub-axes x:(1)2 and x:(3)2 overlap in here.\n"
        "  'x' has 12 positions; sub-axes used together must be disjoint factors of it.",
    ),
]


@pytest.mark.parametrize(("axes", "text"), ERRORS)
def test_axes_used_together_are_disjoint(axes, text):
    with pytest.raises(LayoutError) as caught:
        check_disjoint(axes, "here")
    assert str(caught.value) == text
