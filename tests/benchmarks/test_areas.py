"""Every area runs, in a process of its own, on sizes so small that only its working is seen."""

import pytest

from benchmarks.areas import AREAS, AreaError, chosen, require
from benchmarks.clock import EFFORTS
from benchmarks.process import AreaStopped, measured

TINY = EFFORTS["tiny"]


@pytest.mark.parametrize("area", AREAS, ids=lambda area: area.name)
def test_an_area_gives_the_rows_that_it_announces_with_equal_results(area):
    rows = list(measured(area, TINY))
    assert [row.checked for row in rows] == ["equal"] * area.module.count(TINY)
    assert {row.area for row in rows} == {area.name}
    assert len({row.key for row in rows}) == len(rows)
    assert all(row.ours.median > 0 or row.state == "count" for row in rows)


def test_areas_announce_more_rows_the_more_is_measured():
    for area in AREAS:
        counts = [area.module.count(EFFORTS[name]) for name in ("tiny", "quick", "full")]
        assert 0 < counts[0] <= counts[1] <= counts[2]


def test_an_unknown_area_lists_those_that_exist():
    with pytest.raises(AreaError, match=r"unknown area 'locale'.\n  areas: traffic, planning, local, dispatch"):
        chosen(["traffic", "locale"])


def test_a_missing_peer_names_the_extra(monkeypatch):
    monkeypatch.setattr("benchmarks.areas.find_spec", lambda name: None if name == "jax" else name)
    require(chosen(["traffic"]))
    with pytest.raises(AreaError) as caught:
        require(chosen(["traffic", "local"]))
    assert "the area 'local' compares with jax, which is not installed." in str(caught.value)
    assert "pip install 'shardwise[jax]', or `make bench` in a checkout" in str(caught.value)


def test_an_area_that_stops_says_why(monkeypatch):
    (area,) = chosen(["traffic"])
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(AreaStopped, match="the process of traffic ended with 1"):
        list(measured(area, TINY))
