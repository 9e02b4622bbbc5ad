"""Trials: a changed file, the tests that run the changed line, and whether one of them fails."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tools.mutation.changes import Change
from tools.mutation.cover import CONVENTIONS, QUIET, Cover, Test
from tools.mutation.fork import Task
from tools.mutation.hook import CODES, import_files, install, write_codes


@dataclass(frozen=True)
class Outcome:
    """What became of a change: the test that failed, or none, and how many of the tests that run the line ran."""

    change: Change
    killer: str | None
    ran: int
    covering: int

    @property
    def words(self) -> str:
        """The outcome, for the table."""
        if self.killer is not None:
            return f"killed by {self.killer}"
        if not self.covering:
            return "no test covers it"
        return f"survived {self.ran} tests" + (f" of {self.covering}" if self.ran < self.covering else "")


def choose(change: Change, cover: Cover, limit: float, first: str | None) -> tuple[list[Test], int]:
    """Return the tests to try, in order, that fit into `limit` seconds, and how many there are in all.

    Those written for the file come first, then those of its room; of these the fastest. A test that killed the change
    before comes before all.
    """
    covering = cover.reaching(change.path, change.place)
    room, stem = Path(change.path).parent.name, Path(change.path).stem

    def rank(test: Test) -> tuple[bool, bool, bool, float, str]:
        own = test.file in (change.path, f"tests/{room}/test_{stem}.py", *CONVENTIONS)
        return test.id != first, not own, f"/{room}/" not in test.file, test.seconds, test.id

    out, left = [], limit
    for test in sorted(covering, key=rank):
        if test.seconds <= left or not out:
            out.append(test)
            left -= test.seconds
    return out, len(covering)


def task_of(name: str, root: Path, change: Change, tests: Sequence[Test], output: Path, grace: float) -> Task:
    """Return the task that tries a change and writes the name of the test that fails, if any, to a file."""
    codes, place = output.with_suffix(".codes"), str(root / change.path)
    write_codes(str(codes), {place: change.compile(place)})  # where it lies: some code asks who calls it
    seconds = sum(test.seconds for test in tests)
    return Task(name, lambda: _try(root, change, tests, output, codes, grace), 60 + 20 * seconds)


def read_killer(output: Path, status: int) -> str | None:
    """Return what a trial wrote, or how it ended."""
    killer = output.read_text(encoding="utf-8") if output.exists() else None
    for path in (output, output.with_suffix(".codes")):
        path.unlink(missing_ok=True)
    if killer is not None:
        return killer
    if os.WIFSIGNALED(status):
        late = os.WTERMSIG(status) in (signal.SIGPROF, signal.SIGKILL)
        return "the time limit" if late else f"signal {os.WTERMSIG(status)}"
    return f"exit status {os.waitstatus_to_exitcode(status)}" if status else None


def control(root: Path, cover: Cover, names: Collection[str], output: Path) -> Task:
    """Return the task that runs tests on the sources as they are, and writes the names of those that fail."""
    tests = [test for test in cover.tests if test.id in names]
    return Task("control", lambda: _control(root, tests, output), 600 + 20 * sum(t.seconds for t in tests))


class _Control:
    def __init__(self, tests: Sequence[Test], output: Path) -> None:
        self.names, self.output = {test.id for test in tests}, output

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if item.nodeid in self.names]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            with self.output.open("a", encoding="utf-8") as file:
                file.write(json.dumps(report.nodeid) + "\n")


def _control(root: Path, tests: Sequence[Test], output: Path) -> None:
    files = [str(root / file) for file in dict.fromkeys(t.file for t in tests)]
    pytest.main([*QUIET, f"--rootdir={root}", *files], plugins=[_Control(tests, output)])


class _Judge:
    """Runs the chosen tests in their order, each in bounded time, and ends the process at the first that fails."""

    def __init__(self, tests: Sequence[Test], output: Path, grace: float) -> None:
        self.order = {test.id: k for k, test in enumerate(tests)}
        self.seconds = {test.id: test.seconds for test in tests}
        self.output, self.grace = output, grace

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted((i for i in items if i.nodeid in self.order), key=lambda i: self.order[i.nodeid])

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        signal.setitimer(signal.ITIMER_PROF, 5 * self.seconds[item.nodeid] + self.grace)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._end(f"import for {report.nodeid}")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # Hypothesis complains of slow generation on a busy machine: this says nothing about the change.
        if report.failed and "FailedHealthCheck" not in str(report.longrepr):
            self._end(report.nodeid)

    def _end(self, killer: str) -> None:
        self.output.write_text(killer, encoding="utf-8")
        os._exit(0)


def _try(root: Path, change: Change, tests: Sequence[Test], output: Path, codes: Path, grace: float) -> None:
    # In a process of its own.
    os.environ[CODES] = str(codes)
    install()
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, 60)
    try:
        import_files(str(root), dict.fromkeys([str(root / change.path), *(str(root / t.file) for t in tests)]))
    except Exception as error:
        output.write_text(f"its import: {type(error).__name__}", encoding="utf-8")
        return
    near = [t for t in tests if t.file == tests[0].file or t.file == change.path]
    for group in (near, [t for t in tests if t not in near]):
        files = [str(root / file) for file in dict.fromkeys(t.file for t in group)]
        if files:
            status = pytest.main([*QUIET, f"--rootdir={root}", *files], plugins=[_Judge(group, output, grace)])
            if status not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
                output.write_text(f"pytest, which ended with status {int(status)}", encoding="utf-8")
                return
