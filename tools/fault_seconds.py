"""The table of docs/faults.md: what happens, what is said then, and the seconds that it took in a run of the tests.

    python tools/fault_seconds.py         run the tests that note how long something took, and write the table
    python tools/fault_seconds.py FILE    write it with what a run noted in a file (SHARDWISE_FAULT_SECONDS=FILE)

The words are those of tests/faults/rows.py. A row whose seconds nobody noted keeps those that it has on the page.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.machine import this_machine  # noqa: E402
from tests.faults.rows import ROWS, Row  # noqa: E402

PAGE = ROOT / "docs" / "faults.md"
TABLE = re.compile(r"(?<=<!-- faults -->\n).*?(?=<!-- /faults -->)", re.DOTALL)
CONDITIONS = re.compile(r"(?<=<!-- faults: conditions -->).*?(?=<!-- /faults -->)", re.DOTALL)
HEAD = ["what happens", "what all others are told", "seconds"]
IMPORT = re.compile(r"^from tests\.faults\.rows import .*\bnote\b", re.MULTILINE)


def read_notes(text: str) -> dict[str, str]:
    """Return the longest time that was noted of each row, and the timeout that was set, if it was waited for.

    >>> read_notes('{"name": "killed", "seconds": 0.26}\\n{"name": "killed", "seconds": 1.04}')
    {'killed': '1.0'}
    >>> read_notes('{"name": "killed", "seconds": 0.034}')
    {'killed': '0.03'}
    >>> read_notes('{"name": "stopped", "seconds": 5.12, "timeout": 5.0}')
    {'stopped': '5.1, of a timeout of 5'}
    """
    longest: dict[str, tuple[float, float]] = {}
    for line in text.splitlines():
        note = json.loads(line)
        longest[note["name"]] = max(longest.get(note["name"], (0.0, 0.0)), (note["seconds"], note.get("timeout", 0.0)))
    return {
        name: f"{seconds:.{1 if seconds >= 1 else 2}f}{f', of a timeout of {timeout:g}' * bool(timeout)}"
        for name, (seconds, timeout) in longest.items()
    }


def read_table(page: str) -> list[list[str]]:
    """Return the cells of all rows of the table on a page."""
    found = TABLE.search(page)
    lines = found[0].strip().splitlines()[2:] if found else []
    return [[cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def write_table(page: str, seconds: Mapping[str, str], rows: Mapping[str, Row] = ROWS) -> str:
    """Return a page with the table of all rows; those without seconds keep what they have there."""
    before = {cells[0]: cells[-1] for cells in read_table(page)}
    unknown = [name for name, row in rows.items() if name not in seconds and row.happens not in before]
    if unknown:
        raise SystemExit(f"no test has noted how long these take: {', '.join(unknown)}; run `make faults`.")
    lines = [HEAD, ["---", "---", "---:"]]
    lines += [[row.happens, row.said, seconds.get(name) or before[row.happens]] for name, row in rows.items()]
    table = "".join("".join(f"| {cell.replace('|', chr(92) + '|')} " for cell in cells) + "|\n" for cells in lines)
    return TABLE.sub(lambda _: f"\n{table}\n", page)


def write_conditions(page: str) -> str:
    """Return a page that says when and where all was measured."""
    return CONDITIONS.sub(lambda _: f"on {date.today()}, on {this_machine()}", page)


def files_that_note() -> list[Path]:
    """Return the files of tests that note how long something took."""
    return sorted(path for path in (ROOT / "tests").rglob("test_*.py") if IMPORT.search(path.read_text("utf-8")))


def run_tests(file: Path) -> None:
    """Run all tests of the files that note seconds, the long ones too."""
    paths = map(str, files_that_note())
    named = os.environ | {"SHARDWISE_FAULT_SECONDS": str(file)}
    if subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "0", "-q", "-m", "", *paths], cwd=ROOT, env=named
    ).returncode:
        raise SystemExit("some tests failed: the page stays as it is.")


def main(arguments: list[str]) -> None:
    """Write the page."""
    with TemporaryDirectory() as folder:
        file = Path(arguments[0]) if arguments else Path(folder) / "seconds"
        if not arguments:
            run_tests(file)
        seconds = read_notes(file.read_text(encoding="utf-8"))
    page = write_table(PAGE.read_text(encoding="utf-8"), seconds)
    PAGE.write_text(page if arguments else write_conditions(page), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
