"""Mutants: small random changes of the sources, and whether the tests notice them.

    python tools/mutants.py plan --count 150 --seed 1

Each change is tried in a process of its own, which imports the changed file in the stead of the one on disk and runs
the tests that run the changed line, the fastest first, until one fails. The working tree stays as it is. Which tests
run which line is measured first, once per state of the sources, and remembered in `.mutants/`.

A change that no test fails for is a survivor: a test is missing, or the code does nothing there. Those that cannot
change what the library does are listed with the reason in `tools/mutants_kept.toml`, and reported apart.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import random
import sys
import tempfile
import warnings
from collections.abc import Iterable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tools.mutation.changes import Change, changes_of, compile_tree  # noqa: E402
from tools.mutation.cover import CONVENTIONS, measure  # noqa: E402
from tools.mutation.fork import run_tasks  # noqa: E402
from tools.mutation.kept import Kept, read_kept, stale  # noqa: E402
from tools.mutation.trial import Outcome, choose, control, read_killer, task_of  # noqa: E402

# The tests that can see into a room, and are worth their time. Files of the package stand for their doctests.
TESTS = {
    "layout": ["tests/layout", "tests/plan", "src/shardwise/layout", "src/shardwise/plan"],
    "plan": ["tests/plan", "tests/pictures", "tests/engine", "src/shardwise/plan"],
    "prim": ["tests/prim", "tests/ops", "tests/transform", "src/shardwise/prim"],
    "engine": ["tests/engine", "tests/engines", "tests/ops/test_communication.py", "src/shardwise/engine"],
}
PRELOADED = ["numpy", "hypothesis", "hypothesis.extra.numpy", "ml_dtypes", "optree", "rich", "click", "torch", "jax"]


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("room", help=f"{', '.join(TESTS)}, or a file of one, such as plan/search.py")
    parser.add_argument("--count", type=int, default=150, help="how many changes to try")
    parser.add_argument("--seed", type=int, default=1, help="which ones")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time")
    parser.add_argument("--limit", type=float, default=20.0, help="seconds of tests per change")
    parser.add_argument(
        "--grace", type=float, default=5.0, help="seconds more than five times its own that a test may take"
    )
    parser.add_argument("--minimum", type=float, help="fail below this percentage killed")
    parser.add_argument("--root", type=Path, default=ROOT, help="the project")
    parser.add_argument("--package", default="shardwise", help="its package in src/")
    parser.add_argument("--tests", nargs="*", help="test files and folders, instead of those of the room")
    return parser.parse_args(arguments)


def sources(root: Path, package: str, rooms: Iterable[str]) -> list[Path]:
    """Return the files of some rooms, or the one file that is named."""
    paths = [root / "src" / package / room for room in rooms]
    return [file for path in paths for file in (sorted(path.rglob("*.py")) if path.is_dir() else [path])]


def test_files(root: Path, names: Iterable[str]) -> list[Path]:
    """Return the files that have tests: test_*.py, and sources with examples."""
    paths = [root / name for name in names]
    files = [file for path in paths for file in (sorted(path.rglob("*.py")) if path.is_dir() else [path])]
    return [f for f in files if f.name.startswith("test_") or (root / "src" in f.parents and ">>>" in f.read_text())]


def sample(changes: list[Change], count: int, seed: int) -> list[Change]:
    """Return some of the changes, at random, in the order of the files; those that change no code are left out."""
    order, out = list(changes), list[Change]()
    random.Random(seed).shuffle(order)
    for change in order:
        if len(out) == count:
            break
        if not change.is_idle(compile_tree(change.tree, change.path)):
            out.append(change)
    return sorted(out, key=lambda c: (c.path, c.line))


def preload(names: Iterable[str]) -> None:
    """Import what takes long and is not changed, so that every trial begins with it."""
    warnings.filterwarnings("ignore", message=".*fork.*")
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        pytest.main(["--version", "--noconftest", "-c", os.devnull])  # this loads the plugins
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError:
            continue


def attempt(
    options: argparse.Namespace, changes: Sequence[Change], tests: Sequence[Path], folder: Path
) -> list[Outcome]:
    """Try the changes; return what became of each."""
    root = options.root
    rooms = sorted({path.name for path in (root / "src" / options.package).iterdir() if path.name in TESTS})
    marked = sources(root, options.package, [*rooms, *([] if rooms else [options.room])])
    cover = measure(root, marked, tests, folder, options.jobs)
    before = folder / "killers.json"
    killers: dict[str, str] = json.loads(before.read_text(encoding="utf-8")) if before.exists() else {}
    chosen = [choose(c, cover, options.limit, killers.get("\n".join(c.key))) for c in changes]
    outcomes: dict[int, Outcome] = {
        k: Outcome(changes[k], None, 0, covering) for k, (found, covering) in enumerate(chosen) if not found
    }
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        outputs = [Path(scratch) / str(k) for k in range(len(changes))]
        tasks = (
            task_of(str(k), root, changes[k], found, outputs[k], options.grace)
            for k, (found, _) in enumerate(chosen)
            if found
        )
        for task, status in run_tasks(tasks, options.jobs):
            k = int(task.name)
            found, covering = chosen[k]
            outcomes[k] = outcome = Outcome(changes[k], read_killer(outputs[k], status), len(found), covering)
            if outcome.killer is not None:
                killers["\n".join(changes[k].key)] = outcome.killer
            print(f"  {len(outcomes)}/{len(changes)} {line_of(outcome)}", flush=True)
        # A test that fails without any change too, on a busy machine say, has killed nothing.
        failing, names = Path(scratch) / "failing", {o.killer for o in outcomes.values() if o.killer}
        list(run_tasks([control(root, cover, names, failing)] if names else [], 1))
        unreliable = (
            set(map(json.loads, failing.read_text(encoding="utf-8").splitlines())) if failing.exists() else set()
        )
    for k, outcome in outcomes.items():
        if outcome.killer in unreliable:
            print(f"  fails without a change too: {outcome.killer}", flush=True)
            outcomes[k] = replace(outcome, killer=None)
    before.write_text(json.dumps(killers, indent=1), encoding="utf-8")
    return [outcomes[k] for k in range(len(changes))]


def line_of(outcome: Outcome) -> str:
    """Return one line of the table."""
    change = outcome.change
    return f"{change.path}:{change.line}  {_brief(change.before)} -> {_brief(change.after)}  {outcome.words}"


def _brief(text: str) -> str:
    return text if len(text) <= 100 else text[:97] + "..."


def report(outcomes: Sequence[Outcome], kept: Sequence[Kept], old: Sequence[Kept]) -> float:
    """Print what survived, what is kept and the score; return the percentage killed."""
    killed = [o for o in outcomes if o.killer is not None]
    survivors = [o for o in outcomes if o.killer is None]
    print(f"\nsurvivors: {len(survivors)}")
    for outcome in survivors:
        print(f"  {line_of(outcome)}\n      {outcome.change.text}")
    if kept:
        print(f"\nkept, with a reason: {len(kept)}")
        for entry in kept:
            print(f"  {entry.file}  {_brief(entry.change)}\n      {entry.line}\n      {entry.reason}")
    for entry in old:
        print(f"\nno longer a change of {entry.file}, so take it off the list: {entry.change}\n      {entry.line}")
    score = 100 * len(killed) / max(1, len(outcomes))
    print(f"\nkilled {len(killed)} of {len(outcomes)}: {score:.1f} %", flush=True)
    return score


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    options = parse(arguments)
    root = options.root = options.root.resolve()
    room = options.room.partition("/")[0]
    if options.tests is None and room not in TESTS:
        print(f"unknown room {options.room!r}: there are {', '.join(TESTS)}.", file=sys.stderr)
        return 2
    files = [str(path.relative_to(root)) for path in sources(root, options.package, [options.room])]
    changes = [c for f in files for c in changes_of(f, (root / f).read_text(encoding="utf-8"))]
    kept = read_kept(root / "tools" / "mutants_kept.toml")
    drawn = sample(changes, options.count, options.seed)
    print(f"{len(drawn)} of {len(changes)} changes of {options.room}, seed {options.seed}", flush=True)
    here = Path(__file__).parent
    os.environ["PYTHONPATH"] = os.pathsep.join([str(root / "src"), str(here / "mutation" / "site")])
    sys.path.insert(0, str(root / "src"))
    os.chdir(root)
    preload(PRELOADED if root == ROOT else [])
    tests = test_files(root, options.tests if options.tests is not None else [*TESTS[room], *CONVENTIONS])
    outcomes = attempt(options, [c for c in drawn if c.key not in kept], tests, root / ".mutants")
    score = report(outcomes, [kept[c.key] for c in drawn if c.key in kept], stale(kept.values(), changes, files))
    return int(options.minimum is not None and score < options.minimum)


if __name__ == "__main__":
    sys.exit(main())
