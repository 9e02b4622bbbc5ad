"""What CONTRIBUTING says of adding an elementwise op is true: its diff is made to a copy, and tests run."""

import os
import re
import subprocess
import sys
from pathlib import Path
from shutil import copytree, ignore_patterns

import pytest

ROOT = Path(__file__).parents[1]
HUNK = re.compile(r"^\+\+\+ b/(.+)\n@@.*@@\n((?:[ +-].*\n)+?)(?=---|\Z)", re.MULTILINE)
DIFF = re.search(r"```diff\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text("utf-8"), re.DOTALL)


def hunks() -> list[tuple[str, str, str]]:
    """The path of each hunk, and its lines before and after."""
    assert DIFF is not None
    found = []
    for path, lines in HUNK.findall(DIFF[1]):
        before, after = ("".join(n[1:] for n in lines.splitlines(True) if n[0] in some) for some in (" -", " +"))
        found.append((path, before, after))
    return found


def run(folder: Path, *args: str) -> str:
    env = {**os.environ, "PYTHONPATH": str(folder / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, *args], cwd=folder, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources with the change, and the stubs that follow from it."""
    folder = tmp_path_factory.mktemp("changed")
    for name in ("src", "tests", "tools", "docs"):
        copytree(ROOT / name, folder / name, ignore=ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md"):
        (folder / name).write_text((ROOT / name).read_text("utf-8"), "utf-8")
    for path, before, after in hunks():
        text = (folder / path).read_text("utf-8")
        assert text.count(before) == 1, f"{path} has changed: bring the diff in CONTRIBUTING.md up to date"
        (folder / path).write_text(text.replace(before, after), "utf-8")
    run(folder, "tools/stubs.py")
    return folder


def test_an_elementwise_op_is_a_line_of_the_table_and_one_of_its_test() -> None:
    added = {path: len(after.splitlines()) - len(before.splitlines()) for path, before, after in hunks()}
    assert added == {
        "src/shardwise/prim/arithmetic/elementwise.py": 1,
        "tests/prim/arithmetic/test_elementwise.py": 1,
    }


def test_the_op_is_a_function_a_method_a_local_form_and_a_program_and_has_derivatives(changed: Path) -> None:
    program = """
import numpy as np, shardwise as sw
from shardwise import DeviceMesh, P, shard
x = shard(np.arange(4.0), DeviceMesh((2,), ("x",)), P("x"))
want = 2 ** np.arange(4.0)
local = sw.shard_map(lambda a: sw.exp2(a), mesh=x.mesh, in_specs=P("x"), out_specs=P("x"))
from shardwise.ir import trace, execute
for got in (sw.exp2(x), x.exp2(), local(x), sw.vmap(sw.exp2)(x), execute(trace(sw.exp2, x), x.numpy())):
    np.testing.assert_allclose(np.asarray(got if isinstance(got, np.ndarray) else got.numpy()), want)
np.testing.assert_allclose(sw.grad(lambda x: sw.sum(sw.exp2(x)))(x).numpy(), np.log(2) * want)
print("exp2" in sw.__all__, "def exp2" in open("src/shardwise/__init__.pyi").read())
"""
    assert run(changed, "-c", program) == "True True\n"


def test_tests_find_the_op_by_themselves(changed: Path) -> None:
    tables = "test_every_public or test_what_tensors_have or test_every_function_of or test_every_integer"
    rooms = [
        "tests/ops",
        "tests/every/test_rows.py",
        "tests/every/test_functions.py",
        "tests/every/test_low_precision.py",
    ]
    rooms += ["tests/prim/arithmetic", "tests/ir/tracing", "tests/test_table.py", "tests/test_public.py"]
    how = ["-q", "-n", "0", "-p", "no:cacheprovider", "-o", "addopts=--import-mode=importlib"]
    out = run(changed, "-m", "pytest", *how, "-k", f"exp2 or {tables}", *rooms)
    passed = re.search(r"(\d+) passed", out)
    assert passed is not None, out
    assert int(passed[1]) >= 20, out
