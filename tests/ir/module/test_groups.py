"""Groups: devices that differ along some axes only, by brute force over the grid."""

from itertools import permutations

import numpy as np

from shardwise.ir.module.groups import Group, group_of, multi_index, piece


def test_a_group_has_the_devices_that_differ_along_its_axes_only() -> None:
    for shape in ((4,), (2, 3), (2, 1, 3)):
        places = list(np.ndindex(*shape))
        assert [multi_index(shape, device) for device in range(len(places))] == places
        for count in range(len(shape) + 1):
            for axes in permutations(range(len(shape)), count):
                for device, place in enumerate(places):
                    group = group_of(shape, axes, device)
                    fixed = [a for a in range(len(shape)) if a not in axes]
                    members = [d for d, p in enumerate(places) if all(p[a] == place[a] for a in fixed)]
                    assert list(group.devices) == sorted(members, key=lambda d: [places[d][a] for a in axes])
                    assert group.sizes == tuple(shape[a] for a in axes)
                    assert group.devices[group.position(device)] == device
                    assert group.at([place[a] for a in axes]) == group.position(device)


def test_a_group_of_nobody_else() -> None:
    assert group_of((2, 3), (), 4) == Group((4,), ())
    assert multi_index((), 0) == ()


def test_pieces_are_balanced_the_larger_ones_first() -> None:
    for size in range(9):
        for parts in range(1, 6):
            want = [list(some) for some in np.array_split(np.arange(size), parts)]
            assert [list(range(size))[piece(size, parts, k)] for k in range(parts)] == want
