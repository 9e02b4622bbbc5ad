"""Every source file has a test file of its own, or stands in one small table with the test that covers it."""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
SOURCES = TESTS.parent / "src" / "shardwise"

# Source files without a test file of their own, and the test that covers them: ops are read, printed, checked and run
# together with all others of their dialect, pictures in text are those that stand beside the SVG of the same thing.
COVERED_BY = {
    "prim/random/series.py": "prim/random/test_draws.py",
    "ir/dialects/arith_ops.py": "ir/dialects/test_dialects.py",
    "ir/dialects/index_ops.py": "ir/dialects/test_dialects.py",
    "ir/dialects/linalg_elementwise.py": "ir/dialects/test_dialects.py",
    "ir/dialects/linalg_ops.py": "ir/dialects/test_dialects.py",
    "ir/dialects/linalg_text.py": "ir/dialects/test_dialects.py",
    "ir/dialects/llvm19.py": "ir/dialects/test_dialects.py",
    "ir/dialects/tosa_ops.py": "ir/dialects/test_dialects.py",
    "ir/passes/local_ops.py": "ir/passes/test_partitioning.py",
    "ir/shard/assembly.py": "ir/test_text.py",
    "ir/shard/attributes.py": "ir/test_text.py",
    "ir/shard/collective_ops.py": "ir/test_text.py",
    "ir/shard/grid_ops.py": "ir/test_text.py",
    "ir/shard/point_ops.py": "ir/test_text.py",
    "ir/shard/rooted_ops.py": "ir/test_text.py",
    "ir/shard/sharding19.py": "ir/test_text.py",
    "ir/shard/sharding_ops.py": "ir/test_text.py",
    "ir/verifier/collectives.py": "ir/verifier/test_verifier.py",
    "ir/verifier/grids.py": "ir/verifier/test_verifier.py",
    "ir/verifier/shardings.py": "ir/verifier/test_verifier.py",
    "ops/dtensors.py": "engines/test_dtensors.py",
    "ops/local_collectives.py": "ops/test_local_view.py",
    "pictures/explanation.py": "prim/test_explanation.py",
    "pictures/mesh_text.py": "pictures/test_text.py",
    "pictures/plan_text.py": "pictures/test_text.py",
}


def own_test(source: Path) -> Path:
    return TESTS / source.parent / f"test_{source.name}"


def named(source: str) -> str:
    return ".".join(["shardwise", *Path(source).with_suffix("").parts])


FILES = sorted(path.relative_to(SOURCES) for path in SOURCES.rglob("*.py") if path.name != "__init__.py")


def test_every_source_file_has_a_test_file_or_stands_in_the_table() -> None:
    missing = [str(path) for path in FILES if not own_test(path).exists() and str(path) not in COVERED_BY]
    assert not missing, f"write tests/{Path(missing[0]).parent}/test_{Path(missing[0]).name}: {missing} have none"


def test_the_table_has_no_stale_entries() -> None:
    known = set(map(str, FILES))
    for source, test in COVERED_BY.items():
        assert source in known, f"{source} is gone: take it out of the table"
        assert not own_test(Path(source)).exists(), f"{source} has a test file of its own: take it out of the table"
        assert (TESTS / test).exists(), f"tests/{test}, which is said to cover {source}, is gone"


def test_the_table_stays_small() -> None:
    assert len(COVERED_BY) <= 25


IMPORT = re.compile(r"^\s*from ((?:shardwise|tests)[\w.]*) import (\([^)]*\)|.*)$", re.MULTILINE)


def imports(path: Path) -> set[str]:
    """The modules of ours that a file names, wherever it does."""
    found: set[str] = set()
    for module, names in IMPORT.findall(path.read_text()):
        found |= {module, *(f"{module}.{name}" for name in re.findall(r"\w+", names))}
    return found


@pytest.fixture(scope="module")
def modules() -> dict[str, Path]:
    out = {}
    for path in SOURCES.rglob("*.py"):
        parts = path.relative_to(SOURCES).with_suffix("").parts
        out[".".join(["shardwise", *(p for p in parts if p != "__init__")])] = path
    for path in TESTS.rglob("*.py"):
        out[".".join(["tests", *path.relative_to(TESTS).with_suffix("").parts])] = path
    return out


def test_a_covering_test_reaches_what_it_covers(modules: dict[str, Path]) -> None:
    known: dict[str, set[str]] = {}

    def reached(start: Path) -> set[str]:
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            path = waiting.pop()
            if str(path) not in known:
                known[str(path)] = {name for name in imports(path) if name in modules}
            new = known[str(path)] - seen
            seen |= new
            waiting += [modules[name] for name in new]
        return seen

    for source, test in COVERED_BY.items():
        assert named(source) in reached(TESTS / test), f"tests/{test} never imports {source}"


def test_contributing_says_what_is_true() -> None:
    text = (TESTS.parent / "CONTRIBUTING.md").read_text()
    assert re.search(r"tests/\s+mirrors src: `a/b\.py` is tested by `tests/a/test_b\.py`", text)
    assert "COVERED_BY" in text
