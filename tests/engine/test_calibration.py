"""Calibration: the numbers of a machine that is known come back, and real processes agree on theirs."""

from typing import Any

import numpy as np
import pytest

import shardwise as sw
from shardwise import (
    AbstractEngine,
    ArgumentError,
    DeviceMesh,
    EngineError,
    Link,
    Links,
    P,
    engine_context,
    mesh_context,
    plan_reshard,
)
from shardwise.engine.calibration import SIZES, fit_links, slowest
from shardwise.plan.fit import Sample
from tests.engines.pool import Pool

pytestmark = pytest.mark.xdist_group("processes")

LINE, GRID = DeviceMesh((4,), ("x",)), DeviceMesh((2, 2), ("a", "b"))
FEW = (1 << 12, 1 << 18)


# -- on a machine that is known --------------------------------------------------------------------------


def rounds(mesh: DeviceMesh, names: tuple[str, ...], seconds: Any) -> list[Sample]:
    """The rounds over some axes: all-gathers and shifts, whose times a function of messages and bytes knows."""
    count = int(np.prod([mesh.axis_size(name) for name in names]))
    return [Sample(m, size, seconds(m, size)) for size in SIZES for m in {1, count - 1}]


def test_every_axis_gets_its_own_numbers() -> None:
    mesh = DeviceMesh((4, 8), ("dp", "tp"))
    known = {"dp": Link(2e-5, 1e10, 5e-6), "tp": Link(2e-6, 4e11, 1e-6)}

    def time_of(link: Link) -> Any:
        return lambda m, size: link.latency + link.overhead * (m - 1) + size / link.bandwidth

    samples = {(mesh.axis(name),): rounds(mesh, (name,), time_of(link)) for name, link in known.items()}
    links, factor = fit_links(samples)
    assert factor == pytest.approx(1)
    for name, link in known.items():
        found = links[name]
        assert (found.latency, found.bandwidth, found.overhead) == pytest.approx(
            (link.latency, link.bandwidth, link.overhead), rel=1e-4
        )


def test_what_a_further_message_costs_is_seen_over_all_axes_where_every_axis_has_two_devices() -> None:
    # 3 messages in a round over both axes: the first is in the latency, two are further ones.
    def alone(m: int, size: int) -> float:
        return 1e-3 + size / 1e9

    def all_axes(m: int, size: int) -> float:
        return 1e-3 + 2e-4 * (m - 1) + size / 1e9

    samples: dict[Any, list[Sample]] = {(GRID.axis(name),): rounds(GRID, (name,), alone) for name in ("a", "b")}
    samples[GRID.axis("a"), GRID.axis("b")] = rounds(GRID, ("a", "b"), all_axes)
    links, factor = fit_links(samples)
    assert factor == pytest.approx(1, rel=1e-4)
    for link in links.values():
        assert (link.latency, link.bandwidth, link.overhead) == pytest.approx((1e-3, 1e9, 2e-4), rel=1e-3)
    plan = plan_reshard(P("a", "b"), P(), (1024, 1024), "float32", mesh=GRID, links=links)
    assert plan.time == pytest.approx(all_axes(3, 3 << 20), rel=1e-3)


def test_the_slowest_link_is_as_slow_as_any_in_everything() -> None:
    assert slowest([Link(1, 5, 2), Link(3, 4, 0)]) == Link(3, 4, 2)


# -- between processes -----------------------------------------------------------------------------------


def measured(mesh: DeviceMesh | None, sizes: tuple[int, ...] = FEW, repeats: int = 2) -> tuple[Links, Any]:
    links = Links.measure(mesh, sizes=sizes, repeats=repeats)
    return links, links.origin


def measured_in_context() -> tuple[Links, Any]:
    with mesh_context(GRID):
        return measured(None)


def test_all_processes_get_the_same_links_of_every_axis(four: Pool) -> None:
    answers = four.run(measured, GRID)
    assert answers == [answers[0]] * 4
    links, origin = answers[0]
    assert [name for name, _ in links.axes] == ["a", "b"]
    for _, link in links.axes:
        assert link.latency >= 0
        assert 0 < link.bandwidth < 1e12
    assert links.default == slowest([link for _, link in links.axes])
    assert 1e6 < links.compute < 1e14
    assert (origin.mesh, origin.sizes, origin.repeats) == ("a=2, b=2", FEW, 2)
    assert (origin.shardwise, len(origin.hosts)) == (sw.__version__, 1)
    assert origin.factor >= 1
    links.check(GRID)


def test_without_a_mesh_there_is_one_link_for_all_axes(four: Pool) -> None:
    answers = four.run(measured, None)
    assert answers == [answers[0]] * 4
    links, origin = answers[0]
    assert links.axes == ()
    assert origin.mesh == "all=4"
    assert four.run(measured_in_context)[0][1].mesh == "a=2, b=2"


def what_is_timed(mesh: DeviceMesh, size: int) -> list[tuple[int, int, int, int]]:
    """Rounds, messages and bytes of each trial as it says itself, and the bytes that came here."""
    from shardwise.engine.calibration import _Team

    engine = sw.current_engine()
    team = _Team(engine, mesh)
    out = []
    for trial in team.trials(tuple(map(mesh.axis, mesh.axis_names)), size):
        engine.counters.reset()
        engine.run(trial.program, trial.arrays)
        out.append((trial.rounds, trial.messages, trial.received, engine.counters.total))
    return out


@pytest.mark.parametrize("mesh", [LINE, GRID], ids=str)
def test_trials_say_what_arrives(four: Pool, mesh: DeviceMesh) -> None:
    size = 1 << 20
    for answers in four.run(what_is_timed, mesh, size):
        # All-gather, reduce-scatter and all-to-all from three others; a shift from one.
        assert [(rounds, messages) for rounds, messages, _, _ in answers] == [(1, 3)] * 3 + [(1, 1)]
        for _, _, received, counted in answers:
            assert received == counted
            assert received == pytest.approx(size, rel=0.02)


def told(mesh: DeviceMesh) -> list[tuple[int, int]]:
    from shardwise.engine.calibration import measure

    heard: list[tuple[int, int]] = []
    measure(mesh, FEW, 2, lambda done, rounds: heard.append((done, rounds)))
    return heard


def test_who_listens_hears_how_far_it_is(four: Pool) -> None:
    assert four.run(told, LINE) == [[(1, 3), (2, 3), (3, 3)]] * 4


def of_two(mesh: DeviceMesh) -> Any:
    try:
        return Links.measure(mesh, sizes=FEW, repeats=1).axes[0][0]
    except EngineError as error:
        return str(error)


def test_processes_without_a_device_are_told(four: Pool) -> None:
    first, second, *others = four.run(of_two, LINE.select("x:(2)2", names=("y",)))
    assert first == second == "y"
    for text in others:
        assert text == (
            "links of DeviceMesh(y=2) are measured by processes with one of its devices each; this one has 0.\n"
            "  start as many processes as the mesh has devices, and call it in all of them."
        )


# -- what is refused -------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", [sw.LocalEngine(), AbstractEngine()], ids=lambda engine: engine.name)
def test_engines_without_processes_say_how_to_start_some(engine: Any) -> None:
    with engine_context(engine), pytest.raises(EngineError) as caught:
        Links.measure(LINE)
    assert str(caught.value) == (
        f"links are measured between processes, and here all devices are in one (engine {engine.name!r}).\n"
        "  measure them with shardwise calibrate -n 4 -o links.json, or call it in a script "
        "under shardwise run -n 4 ..."
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sizes": 3}, "sizes is a list of bytes"),
        ({"sizes": []}, "sizes is a list of bytes that a device receives, got none."),
        ({"sizes": [0]}, "a size in bytes is a whole number above 0, got 0."),
        ({"sizes": ["1"]}, "a size in bytes is a whole number"),
        ({"repeats": 0}, "repeats is a whole number above 0, got 0."),
        ({"repeats": 1.5}, "repeats is a whole number"),
    ],
)
def test_what_is_no_size_or_number_of_rounds_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        Links.measure(LINE, **options)
    assert str(caught.value).startswith(message)


def test_one_device_has_no_links(four: Pool) -> None:
    text = "DeviceMesh(x=1) has one device, which has no links to measure.\n  measure them with shardwise calibrate"
    assert all(answer.startswith(text) for answer in four.run(of_two, DeviceMesh((1,), ("x",))))
