"""Processes: an area is measured in a process of its own, so that nothing is warm and no peer meets another's settings.

python -m benchmarks.process AREA EFFORT    writes the rows, as they are done, a line each
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.areas import Area, chosen
from benchmarks.clock import EFFORTS, Effort
from benchmarks.row import Row

ROOT = Path(__file__).parent.parent
START = "row: "


class AreaStopped(Exception):
    """The process of an area ended before it was done."""


def environment() -> dict[str, str]:
    """Return the variables of a process that measures."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    # With fewer threads than virtual devices, collectives of JAX can deadlock.
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths), "NPROC": "16", "JAX_PLATFORMS": "cpu"}


def measured(area: Area, effort: Effort) -> Iterator[Row]:
    """Yield the rows of an area, measured in a new process."""
    command = [sys.executable, "-m", "benchmarks.process", area.name, effort.name]
    with tempfile.TemporaryFile("w+", encoding="utf-8") as errors:
        child = subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=errors, text=True, cwd=ROOT)
        try:
            assert child.stdout is not None
            with child.stdout as lines:
                yield from filter(None, map(of_line, lines))
            if child.wait():
                errors.seek(0)
                last = "\n".join(errors.read().strip().splitlines()[-8:])
                raise AreaStopped(f"the process of {area.name} ended with {child.returncode}:\n{last}")
        finally:
            child.kill()
            child.wait()


def to_line(row: Row) -> str:
    """Return a row as a line that tells it from what peers print."""
    return START + json.dumps(row.to_json())


def of_line(line: str) -> Row | None:
    """Return the row of a line, or None where it is something else.

    >>> of_line("a word of a peer") is None
    True
    """
    return Row.from_json(json.loads(line.removeprefix(START))) if line.startswith(START) else None


def main(area: str, effort: str) -> None:
    """Measure an area in this process."""
    (found,) = chosen([area])
    for row in found.module.rows(EFFORTS[effort]):
        print(to_line(row), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
