"""The hunt finds what is planted, makes it small, and prints a program that shows it."""

import re
from typing import Any

import pytest

import shardwise
from shardwise.prim.movement.mirror import mirror
from tests.every.cases import Case, shrink
from tests.every.draws import Draws
from tests.every.hunt import hunt, main


def test_choices_are_replayed_and_are_the_simplest_past_their_end() -> None:
    first = Draws(7)
    numbers = [first.below(10), first.between(3, 8), first.choice("abc"), first.order(4), first.some([1, 2, 3])]
    again = Draws(choices=first.made)
    assert numbers == [again.below(10), again.between(3, 8), again.choice("abc"), again.order(4), again.some([1, 2, 3])]
    assert (again.below(10), again.order(3), again.rarely(2)) == (0, [0, 1, 2], False)


def test_a_case_is_made_as_small_as_it_can_be() -> None:
    def fails(case: Case) -> bool:
        return case.draw()[0].names["mesh"][1].num_devices >= 4

    start = next(case for case in (Case("add", seed) for seed in range(99)) if fails(case))
    mesh = shrink(start, fails).draw()[0].names["mesh"][1]
    assert mesh.mesh_shape == (4,)
    assert mesh.devices == shardwise.DeviceMesh((4,), ("x",)).devices


def _wrong_where_it_is_split(x: Any, *, dims: Any) -> Any:
    return x if x.layout.sharded_axes else mirror(x, dims=dims)


def _broken_where_it_is_split(x: Any, *, dims: Any) -> Any:
    return {}["gone"] if x.layout.sharded_axes else mirror(x, dims=dims)


@pytest.mark.parametrize(
    ("planted", "error", "says"),
    [
        (_wrong_where_it_is_split, AssertionError, "local engine: values"),
        (_broken_where_it_is_split, KeyError, "local engine: raw KeyError: 'gone' (test_hunt.py"),
    ],
)
def test_a_planted_bug_is_found_once_and_its_smallest_program_fails(
    monkeypatch: pytest.MonkeyPatch, planted: Any, error: type[Exception], says: str
) -> None:
    monkeypatch.setattr("shardwise.ops.joining.mirror", planted)
    catches = []
    for catch in hunt(1, 60, ["flip"], say=lambda *args, **how: None):
        catches.append(catch)
        break
    (catch,) = catches
    assert says in catch.program
    assert "DeviceMesh((2,), ('x',))" in catch.program  # two devices along one axis, and two elements at most
    assert len(re.findall(r"\d\.0", catch.program.partition("a = ")[2].partition("\n")[0])) <= 2, catch.program
    with pytest.raises(error):
        exec(catch.program, {})
    monkeypatch.undo()
    exec(catch.program, {})


def test_the_command_tells_how_many_causes_it_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tests.every.hunt.NAMES", ["flip"])
    assert main(1, 0.3) == 0
    monkeypatch.setattr("shardwise.ops.joining.mirror", _wrong_where_it_is_split)
    assert main(1, 1.5) == 1
    shown = capsys.readouterr()
    assert shown.out.count("# ----") == 1
    assert "seed 1:" in shown.err
    assert "1 causes" in shown.err
