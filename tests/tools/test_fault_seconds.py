"""The table of docs/faults.md has all rows, with their words and the seconds of a run; every row has a test."""

import ast
import json
from pathlib import Path

import pytest

from shardwise.engine.farewell import AT_THE_END
from shardwise.engine.guard.vital_signs import ENDED, SILENT_HOST, STATES
from shardwise.engine.guard.watchdog import CLOSED, UNREADABLE
from tests.faults import rows
from tests.faults.rows import ROWS, Row
from tools.fault_seconds import HEAD, PAGE, files_that_note, read_notes, read_table, write_table

SOME = {"killed": Row("A | B is killed", "`RankLost`"), "late": Row("It is late", "a line in the log")}
EMPTY = "Before.\n\n<!-- faults -->\n<!-- /faults -->\n\nAfter."


def test_the_page_has_every_row_in_order_with_its_words_and_seconds() -> None:
    table = read_table(PAGE.read_text(encoding="utf-8"))
    assert [cells[:2] for cells in table] == [[row.happens, row.said] for row in ROWS.values()], "run `make faults`"
    assert all(float(cells[2].partition(",")[0]) >= 0 for cells in table)


@pytest.mark.parametrize("text", [CLOSED, UNREADABLE, AT_THE_END, *STATES.values(), ENDED, SILENT_HOST])
def test_the_page_says_what_is_said(text: str) -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert text.partition(": one long call")[0].removeprefix("it is stopped by ") in page


def noted(path: Path) -> set[str]:
    """The rows that a test file names where it notes seconds."""
    out = set[str]()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "note":
            parts = [part.value for part in ast.walk(node.args[0]) if isinstance(part, ast.Constant)]
            out |= {part for part in parts if isinstance(part, str)}
    return out


def test_every_row_has_a_test_that_notes_its_seconds() -> None:
    assert set(ROWS) - {name for path in files_that_note() for name in noted(path)} == set()


def test_what_is_noted_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "ROWS", SOME)
    monkeypatch.delenv("SHARDWISE_FAULT_SECONDS", raising=False)
    rows.note("killed", 7.0)  # for nobody
    monkeypatch.setenv("SHARDWISE_FAULT_SECONDS", str(tmp_path / "seconds"))
    for name, seconds, timeout in (("killed", 0.31, 0.0), ("late", 2.06, 2.0), ("killed", 0.25, 0.0)):
        rows.note(name, seconds, timeout)
    text = (tmp_path / "seconds").read_text()
    assert [json.loads(line)["happens"] for line in text.splitlines()] == [
        "A | B is killed",
        "It is late",
        "A | B is killed",
    ]
    page = write_table(EMPTY, read_notes(text), SOME)
    assert page == (
        "Before.\n\n<!-- faults -->\n\n"
        f"| {' | '.join(HEAD)} |\n| --- | --- | ---: |\n"
        "| A \\| B is killed | `RankLost` | 0.31 |\n"
        "| It is late | a line in the log | 2.1, of a timeout of 2 |\n"
        "\n<!-- /faults -->\n\nAfter."
    )
    assert write_table(page, {}, SOME) == page  # what was known is kept,
    again = write_table(page, {"late": "3.0"}, dict(reversed(SOME.items())))
    assert read_table(again) == [
        ["It is late", "a line in the log", "3.0"],
        ["A | B is killed", "`RankLost`", "0.31"],
    ]


def test_a_row_of_which_nothing_is_known_is_not_written() -> None:
    with pytest.raises(SystemExit, match="no test has noted how long these take: late; run `make faults`"):
        write_table(EMPTY, {"killed": "0.3"}, SOME)


def test_a_name_that_is_no_row_is_refused() -> None:
    with pytest.raises(KeyError):
        rows.note("nobody knows this", 1.0)
