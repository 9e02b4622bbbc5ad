"""`make mutants` tells changes that a test notices from those that none does, and from those that none runs."""

import marshal
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools.mutation.changes import changes_of
from tools.mutation.trial import task_of

ROOT = Path(__file__).parent.parent.parent
SOURCE = '''\
"""A tiny room."""


def larger(a, b):
    return a if a > b else b


def is_pair(values):
    if not values:
        raise ValueError(f"{len(values)} values are no pair, got {values}.")


def count_down(n):
    while n:
        n -= 1


def unused(a):
    return a - 7
'''
TEST = """\
import pytest
from tiny.room.numbers import count_down, is_pair, larger


def test_larger():
    assert larger(1, 2) == larger(2, 1) == 2


def test_is_pair():
    is_pair((1, 2))
    with pytest.raises(ValueError, match="no pair"):
        is_pair(())


def test_count_down():
    count_down(3)


def test_that_fails():
    assert larger(1, 2) == 1
"""
KEPT = """\
[[kept]]
file = "src/tiny/room/numbers.py"
line = "return a if a > b else b"
change = "a > b -> a >= b"
reason = "Of two equal numbers either is the larger."

[[kept]]
file = "src/tiny/room/numbers.py"
line = "return a if a > c else c"
change = "a > c -> a >= c"
reason = "The line is gone."
"""


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = tmp_path_factory.mktemp("tiny")
    texts = {"src/tiny/__init__.py": "", "src/tiny/room/__init__.py": "", "src/tiny/room/numbers.py": SOURCE}
    texts |= {"tests/room/test_numbers.py": TEST, "tools/mutants_kept.toml": KEPT}
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    options = ["room", "--root", str(root), "--package", "tiny", "--tests", "tests"]
    options += ["--grace", "0.2", "--minimum", "99"]
    env = os.environ | {"PYTEST_ADDOPTS": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": ""}
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "mutants.py", *options], capture_output=True, text=True, env=env, timeout=120
    )
    assert done.returncode == 1, done.stderr
    assert (root / "src/tiny/room/numbers.py").read_text(encoding="utf-8") == SOURCE
    return done.stdout


def test_a_change_that_a_test_notices_is_killed(output: str):
    assert "numbers.py:5  a if a > b else b -> b if a > b else a  killed by tests/room/test_numbers.py::" in output
    assert "numbers.py:9  if not values: ... -> pass  killed by tests/room/test_numbers.py::test_is_pair" in output


def test_a_change_that_never_ends_is_killed(output: str):
    assert "numbers.py:15  n -= 1 -> n += 1  killed by the time limit" in output


def test_survivors_are_listed_with_their_line(output: str):
    survivors = output.partition("\nsurvivors: ")[2].partition("\nkept")[0]
    assert survivors.startswith("3\n")
    assert "numbers.py:19  a - 7 -> a + 7  no test covers it\n      return a - 7\n" in survivors
    assert "killed" not in survivors
    assert output.endswith("killed 8 of 11: 72.7 %\n")


def test_what_is_kept_is_reported_apart_and_what_is_stale_too(output: str):
    assert "a > b -> a >= b\n      return a if a > b else b\n      Of two equal numbers either is the larger." in output
    assert "no longer a change of src/tiny/room/numbers.py, so take it off the list: a > c -> a >= c" in output


def test_a_changed_file_keeps_its_place(tmp_path: Path) -> None:
    # Code that asks where it is called from, such as the line of the user in a log, would else be fooled by any change.
    change = next(changes_of("src/room/a.py", "def f():\n    return 1\n"))
    task_of("0", tmp_path, change, [], tmp_path / "0", 1.0)
    with open(tmp_path / "0.codes", "rb") as file:
        ((place, code),) = marshal.load(file).items()
    assert place == code.co_filename == str(tmp_path / "src/room/a.py")
