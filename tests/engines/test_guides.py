"""The guide that sets DTensor beside us: its programs run in four processes, and their assertions hold."""

import re
from pathlib import Path
from typing import Any

from tests.engines.pool import Pool

PAGE = Path(__file__).parent.parent.parent / "docs" / "guides" / "from-dtensor.md"
BLOCKS = re.findall(r"^```python title=\"(\w+)\"\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S)


def run_blocks(blocks: list[tuple[str, str]]) -> list[str]:
    """Run all blocks of the page as one program, and return whose they were."""
    names: dict[str, Any] = {}
    for side, text in blocks:
        exec(compile(text, f"{PAGE.name}, {side}", "exec"), names)
    return [side for side, _ in blocks]


ENGINES = PAGE.parent.parent / "engines.md"


def run_program(text: str) -> float:
    """Run a program, and return the sum of its result."""
    names: dict[str, Any] = {}
    exec(compile(text, ENGINES.name, "exec"), names)
    return float(names["y"].gather().numpy().sum())


def test_the_program_on_the_page_of_engines_runs_in_four_processes_and_in_one(four: Pool) -> None:
    (text,) = re.findall(r"^```python\n(# train.py\n.*?)^```$", ENGINES.read_text(encoding="utf-8"), re.M | re.S)
    assert four.run(run_program, text) == [run_program(text)] * 4


def test_the_guide_from_dtensor_is_true_in_four_processes(four: Pool) -> None:
    sides = [side for side, _ in BLOCKS]
    assert set(sides) == {"DTensor", "shardwise", "both"}
    assert sum(text.count("assert ") for _, text in BLOCKS) > 15
    assert four.run(run_blocks, BLOCKS) == [sides] * 4
