"""Peers: numbers and partners that each device works out from its place, run on every device."""

from itertools import product

import numpy as np
import pytest
from xdsl.ir import Block

from shardwise.ir.passes.peers import PlaceGroup, fit_sum
from shardwise.ir.passes.writer import Writer
from tests.ir.passes.devices import mesh_named, run_written

MESH = mesh_named(2, 3)
EVERY = np.arange(6)


def test_numbers_that_are_a_sum_of_coordinates_are_found() -> None:
    rng = np.random.default_rng(0)
    for shape in ((4,), (2, 3), (3, 2, 2), (9, 9)):
        places = np.array(list(np.ndindex(*shape)))
        for factors in list(product(range(-2, 3), repeat=1 + len(shape)))[::7]:
            values = factors[0] + places @ np.array(factors[1:])
            for some in (np.arange(len(places)), np.flatnonzero(np.arange(len(places)) % 3 != 1)):
                found = fit_sum(places[some], values[some])
                assert found is not None
                assert (found[0] + places[some] @ found[1:] == values[some]).all()
            if len(places) > 4 and len(set(values.tolist())) > 1:
                values[rng.integers(len(values))] += 100
                assert fit_sum(places, values) is None


def test_numbers_that_are_none_are_not_taken_for_one() -> None:
    square = np.array(list(np.ndindex(2, 2)))
    for table in ((0, 0, 0, 1), (0, 1, 1, 0), (0, 3, 1, 5), (5, 5, 5, 6)):
        assert fit_sum(square, np.array(table)) is None
    assert fit_sum(np.arange(3).reshape(3, 1), np.array([0, 1, 3])) is None
    nothing = fit_sum(square[:0], np.array([], dtype=np.int64))
    assert nothing is not None
    assert nothing.tolist() == [0, 0, 0]
    alike = fit_sum(square[[1, 3]], np.array([6, 6]))
    assert alike is not None
    assert alike.tolist() == [6, 0, 0]


@pytest.mark.parametrize("table", [(0, 1, 2, 10, 11, 12), (4,) * 6, (3, 1, 4, 1, 5, 9)])
def test_each_device_gets_its_number(table: tuple[int, ...]) -> None:
    values = np.array(table)
    for axes in ([0, 1], [1, 0]):

        def write(w: Writer, axes: list[int] = axes) -> list:
            group = PlaceGroup(w, MESH, axes)
            number = group.fit(EVERY, values)
            assert (number is None) == (3 in table or (axes == [1, 0] and table[3] == 10))
            return [group.look_up(EVERY, values) if number is None else number, w.value(0)]

        sizes = [MESH.mesh_shape[a] for a in axes]
        for device, (got, _) in enumerate(run_written(MESH, write)):
            place = np.unravel_index(device, MESH.mesh_shape)
            assert int(got) == table[int(np.ravel_multi_index([place[a] for a in axes], sizes))]


PEERS = {
    "around": [(x, (y + 1) % 3) for x, y in np.ndindex(2, 3)],
    "around both": [((x + 1) % 2, (y + 2) % 3) for x, y in np.ndindex(2, 3)],
    "mirrored": [(1 - x, 2 - y) for x, y in np.ndindex(2, 3)],
    "anyhow": [(0, 1), (1, 2), (0, 0), (1, 1), (0, 2), (1, 0)],
    "some": [None, (0, 0), (0, 1), None, (1, 0), (1, 1)],
    "one": [None, None, None, None, (0, 0), None],
}


@pytest.mark.parametrize("name", PEERS)
def test_each_device_knows_its_peer_and_the_numbers_of_its_peer(name: str) -> None:
    pairs = PEERS[name]
    places = np.array([k for k, pair in enumerate(pairs) if pair is not None])
    others = np.array([3 * pair[0] + pair[1] for pair in pairs if pair is not None])
    table = np.array([3, 1, 4, 1, 5, 9])

    def write(w: Writer) -> list:
        group = PlaceGroup(w, MESH, [0, 1])
        peers = group.peers(places, others)
        number = peers.number(EVERY, table)
        assert peers.are_in_range or number is None
        return [*peers.coordinates, -1 if number is None else number, group.has_peer(places, others)]

    for device, (x, y, number, has_peer) in enumerate(run_written(MESH, write)):
        assert bool(has_peer) == (pairs[device] is not None)
        if pairs[device] is not None:
            assert (int(x), int(y)) == pairs[device]
            # Some go one place back, which the first of a row cannot.
            assert int(number) == (-1 if name == "some" else table[3 * int(x) + int(y)])


def test_who_goes_around_needs_no_table() -> None:
    for name, tables in {"around": 0, "around both": 0, "mirrored": 0, "anyhow": 1}.items():
        w = Writer(Block())
        others = np.array([3 * pair[0] + pair[1] for pair in PEERS[name] if pair is not None])
        peers = PlaceGroup(w, MESH, [0, 1]).peers(EVERY, others)
        assert len([op for op in w.top if op.name == "tensor.extract"]) == tables
        assert peers.number(EVERY, np.full(6, 7)) == 7


def test_numbers_of_peers_that_are_nobody_are_not_looked_up() -> None:
    w = Writer(Block())
    peers = PlaceGroup(w, MESH, [0, 1]).peers(np.array([1, 2, 4, 5]), np.array([0, 1, 3, 4]))
    assert not peers.are_in_range
    assert peers.number(EVERY, np.array([3, 1, 4, 1, 5, 9])) is None
    assert peers.number(EVERY, np.arange(6)) is not None
