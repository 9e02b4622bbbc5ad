"""The ground the library stands on: what it imports, what it depends on, what the repository holds."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]

CORE = {"array-api-compat", "click", "ml-dtypes", "numpy", "optree", "rich"}
TOOLS = {"hypothesis", "import-linter", "pyright", "pytest", "pytest-xdist", "ruff"}
OPTIONAL = ("torch", "jax", "mpi4py", "xdsl", "numba")


def package(requirement: str) -> str:
    """The normalized package name of a requirement line: `ml_dtypes>=0.5` is about ml-dtypes."""
    name = re.match(r"[\w.-]+", requirement)
    assert name is not None, f"not a requirement: {requirement!r}"
    return re.sub(r"[-_.]+", "-", name[0]).lower()


def test_import_loads_no_optional_library() -> None:
    script = f"import shardwise, sys; print(sorted(set({OPTIONAL!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_core_dependencies_are_few_and_extras_are_known() -> None:
    assert {package(line) for line in PROJECT["dependencies"]} == CORE
    packages = {extra: {package(line) for line in lines} for extra, lines in EXTRAS.items()}
    assert packages.pop("test") >= TOOLS
    assert packages.pop("docs") == {"mkdocs", "mkdocs-material", "mkdocstrings"}
    assert packages == {"torch": {"torch"}, "jax": {"jax"}, "mlir": {"xdsl"}, "fast": {"numba"}, "all": {"shardwise"}}
    assert EXTRAS["all"] == ["shardwise[torch,jax,mlir,fast]"]


def test_constraints_pin_every_named_package_exactly() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    inexact = [pin for pin in pins if not re.fullmatch(r"[\w.-]+==[\w.]+", pin)]
    assert inexact == [], "every line pins one public version, without a local suffix"
    named = {package(line) for group in (PROJECT["dependencies"], *EXTRAS.values()) for line in group}
    assert named - {package(pin) for pin in pins} == {"shardwise"}


def private_path(path: Path) -> str | None:
    """The first machine path in a text file; git's own test for text is no zero byte near the start."""
    data = path.read_bytes() if path.is_file() else b""
    # Assembled, so that this file does not match itself.
    folders = b"|".join([b"ho" + b"me", b"ro" + b"ot", b"Us" + b"ers"])
    hit = re.search(rb"(?<![\w.-])/(?:" + folders + rb")/", data)
    return hit[0].decode() if hit and b"\0" not in data[:8000] else None


def test_no_file_names_a_path_of_one_machine() -> None:
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("only a git checkout can list its own files")
    command = [git, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    files = [ROOT / name for name in listed.split("\0") if name]
    found = [f"{path.relative_to(ROOT)}: {hit}" for path in files if (hit := private_path(path))]
    assert found == []
