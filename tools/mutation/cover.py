"""Cover: which tests run which statements, measured once per state of the sources and tests."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import time
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

from tools.mutation.changes import Place, compile_tree, is_docstring, places_of, start_of
from tools.mutation.fork import Task, run_tasks
from tools.mutation.hook import CODES, MARKS, import_files, install, write_codes

CONVENTIONS = {"tests/test_values.py"}  # what holds in every module
QUIET = ["-q", "-p", "no:cacheprovider", "-n0", "--no-header", "--no-summary"]
QUIET += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # plugins are imported before pytest starts


@dataclass(frozen=True)
class Test:
    """One test that passes: its id, the CPU seconds it takes, and the numbers of the marks that it reaches."""

    id: str
    seconds: float
    marks: frozenset[int]

    @property
    def file(self) -> str:
        """The file that the test is in."""
        return self.id.partition("::")[0]


@dataclass(frozen=True)
class Cover:
    """The tests, and the number of the mark of every place."""

    tests: tuple[Test, ...]
    numbers: dict[tuple[str, Place], int]

    def reaching(self, path: str, place: Place | None) -> list[Test]:
        """Return the tests that run a place.

        What runs at import is seen by those that run anything of the file, and by those that look at all modules.
        """
        if place is not None:
            number = self.numbers[path, place]
            return [test for test in self.tests if number in test.marks]
        wanted = {number for (file, _), number in self.numbers.items() if file == path}
        return [t for t in self.tests if t.file in CONVENTIONS or not wanted.isdisjoint(t.marks)]


def measure(root: Path, sources: Sequence[Path], tests: Sequence[Path], folder: Path, jobs: int) -> Cover:
    """Return what the tests cover; only test files that have no measurement for this state are run."""
    numbers: dict[tuple[str, Place], int] = {}
    codes = {str(path): _mark(root, path, numbers) for path in sources}
    state = _digest([*sorted((root / "src").rglob("*.py")), *_shared(root)])
    folder.mkdir(parents=True, exist_ok=True)
    outputs = {test: folder / f"cover-{_digest([test], state)}.json" for test in tests}
    missing = [test for test in tests if not outputs[test].exists()]
    if missing:
        marked = folder / "marked"
        write_codes(str(marked), codes)
        tasks = [
            Task(str(test.relative_to(root)), lambda t=test: _record(root, t, outputs[t], marked, len(numbers)), 3600.0)
            for test in missing
        ]
        for done, (task, status) in enumerate(run_tasks(tasks, jobs), 1):
            print(f"  cover {done}/{len(tasks)}: {task.name}" + (f" (status {status})" if status else ""), flush=True)
    return Cover(tuple(t for path in outputs.values() if path.exists() for t in _read(path)), numbers)


def _shared(root: Path) -> list[Path]:
    # What tests share: everything in tests/ that is no test itself.
    return [path for path in sorted((root / "tests").rglob("*.py")) if not path.name.startswith("test_")]


def _digest(paths: Iterable[Path], start: str = "") -> str:
    out = hashlib.sha256(start.encode())
    for path in paths:
        out.update(str(path).encode() + b"\0" + path.read_bytes())
    return out.hexdigest()[:16]


# -- marks --------------------------------------------------------------------------------------------


def _mark(root: Path, path: Path, numbers: dict[tuple[str, Place], int]) -> CodeType:
    # Before every statement of a function `__marks__[number] = 1`: far cheaper than a trace function.
    tree, name = ast.parse(path.read_bytes()), str(path.relative_to(root))
    for node, field in list(places_of(tree)):
        body: Any = getattr(node, field)
        if isinstance(body, ast.expr):
            number = numbers.setdefault((name, start_of(body)), len(numbers))
            setattr(node, field, _parse(f"__marks__.__setitem__({number}, 1) or x", body).value)
            getattr(node, field).values[1] = body
            continue
        out: list[ast.stmt] = body[:1] if is_docstring(body[0]) else []
        for statement in body[len(out) :]:
            number = numbers.setdefault((name, start_of(statement)), len(numbers))
            out += [_parse(f"__marks__[{number}] = 1", statement), statement]
        setattr(node, field, out)
    return compile_tree(tree, str(path))


def _parse(text: str, at: ast.AST) -> Any:
    node = ast.parse(text).body[0]
    for part in ast.walk(node):
        ast.copy_location(part, at)
    return node


# -- one test file ------------------------------------------------------------------------------------


class _Recorder:
    def __init__(self, marks: Any) -> None:
        self.marks, self.tests, self.failed = marks, dict[str, tuple[float, str]](), set[str]()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.marks[:] = bytes(len(self.marks))
        cpu, wall = time.process_time(), time.monotonic()
        result = yield
        cpu, wall = time.process_time() - cpu, time.monotonic() - wall
        # A test that waits, or lets other processes work, is slow too; on a busy machine everything waits.
        bits = b64encode(zlib.compress(bytes(self.marks))).decode()
        self.tests[item.nodeid] = (round(max(cpu, wall / 4), 4), bits)
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:
            self.failed.add(report.nodeid)


def _record(root: Path, test: Path, output: Path, marked: Path, count: int) -> None:
    # In a process of its own.
    marks = output.with_suffix(".marks")
    marks.write_bytes(bytes(count + 1))
    os.environ |= {CODES: str(marked), MARKS: str(marks)}
    recorder = _Recorder(install())
    import_files(str(root), [str(test)])
    pytest.main([*QUIET, f"--rootdir={root}", str(test)], plugins=[recorder])
    marks.unlink()
    passed = {name: found for name, found in recorder.tests.items() if name not in recorder.failed}
    output.with_suffix(".part").write_text(json.dumps(passed), encoding="utf-8")
    output.with_suffix(".part").rename(output)


def _read(path: Path) -> Iterator[Test]:
    for name, (seconds, bits) in json.loads(path.read_text(encoding="utf-8")).items():
        marks = zlib.decompress(b64decode(bits))
        yield Test(name, seconds, frozenset(k for k, mark in enumerate(marks) if mark))
