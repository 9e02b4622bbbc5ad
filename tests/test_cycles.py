"""Imports point one way: no cycle among modules, however the import is written, and none hidden in a string."""

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCES = Path(__file__).parent.parent / "src" / "shardwise"


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCES.parent).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


TREES = {module_name(path): ast.parse(path.read_text(encoding="utf-8")) for path in SOURCES.rglob("*.py")}


def imported_modules(tree: ast.AST, modules: set[str]) -> Iterator[str]:
    """The modules that a file imports: at its top, inside of functions, and for annotations alone."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module in modules:
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in modules else node.module for name in inner)


def hidden_imports(tree: ast.AST) -> Iterator[str]:
    """The modules of ours that a file imports by a string."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        texts = [part.value for part in ast.walk(node.args[0]) if isinstance(part, ast.Constant)]
        if name in ("import_module", "__import__") and any(str(text).startswith("shardwise") for text in texts):
            yield str(texts[0])


def cycles(graph: dict[str, set[str]]) -> set[frozenset[str]]:
    """The largest sets of modules that reach each other: what is left of a graph after all that is no part of one."""
    reached: dict[str, set[str]] = {}
    for start in graph:
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            new = graph[waiting.pop()] - seen
            seen |= new
            waiting += new
        reached[start] = seen
    rings = (frozenset(b for b in reached[a] if a in reached[b]) for a in graph)
    return {ring for ring in rings if ring}


def graph_of(trees: dict[str, ast.Module]) -> dict[str, set[str]]:
    modules = set(trees)
    # A package is imported before its modules, whatever they say, so importing it says nothing.
    return {name: set(imported_modules(tree, modules)) - {"shardwise"} for name, tree in trees.items()}


def test_the_modules_have_no_cycle() -> None:
    assert cycles(graph_of(TREES)) == set(), "these modules import each other"


def test_no_import_hides_in_a_string() -> None:
    found = {name for name, tree in TREES.items() if any(hidden_imports(tree))}
    assert found == set(), "import the module, or give the lower room a slot"


def test_every_way_to_import_is_seen() -> None:
    top = "from shardwise.b import thing"
    lazy = "def f():\n    import shardwise.c"
    typed = "if TYPE_CHECKING:\n    from shardwise import a"
    trees = {f"shardwise.{k}": ast.parse(text) for k, text in zip("abc", (top, lazy, typed), strict=True)}
    trees["shardwise"] = ast.parse("")
    assert cycles(graph_of(trees)) == {frozenset({"shardwise.a", "shardwise.b", "shardwise.c"})}
    assert list(hidden_imports(ast.parse("importlib.import_module(f'shardwise.{room}')"))) == ["shardwise."]
    assert list(hidden_imports(ast.parse("__import__('torch')"))) == []
