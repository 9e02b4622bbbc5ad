"""Every public name has a docstring with an example that runs, and a place in the reference."""

import inspect
import re
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import shardwise
import shardwise.ir
import shardwise.ir.passes
import shardwise.ir.shard
from shardwise.names import origin
from shardwise.prim.primitive import Primitive

ROOMS: tuple[ModuleType, ...] = (
    shardwise,
    shardwise.graph_ops,
    shardwise.random,
    shardwise.ir,
    shardwise.ir.passes,
    shardwise.ir.shard,
)


def public(room: ModuleType) -> dict[str, Any]:
    """The functions and classes of a room that are for everybody."""
    listed = set(getattr(room, "__all__", ())) | {n for n in dir(room) if getattr(room, n) in PYTHONS}
    names = listed or {n for n, o in vars(room).items() if origin(o) == room.__name__}
    found = {n: getattr(room, n) for n in sorted(names) if not n.startswith("_")}
    ours = {n: o for n, o in found.items() if getattr(o, "__module__", "").startswith("shardwise")}
    return {n: o for n, o in ours.items() if inspect.isclass(o) or inspect.isfunction(o)}


# Names that Python has too are public, but not in `from shardwise import *`.
PYTHONS = [getattr(shardwise, n) for n in ("abs", "all", "any", "max", "min", "pow", "round", "sum")]
NAMES = [(f"{room.__name__}.{name}", thing) for room in ROOMS for name, thing in public(room).items()]


HOOKS = {"parse", "print", "parse_parameter", "print_parameter"}  # that xDSL's parser and printer call, never people


def members(cls: type) -> dict[str, Any]:
    """The public methods and properties of a class that we wrote, with those of our bases.

    Those that ops of the dialect have for their operands and attributes are generated, and shown by the text of the op.
    """
    out: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        for name, member in vars(base).items():
            function = getattr(member, "fget", None) or getattr(member, "func", None)  # of a property, plain or cached
            function = function or getattr(member, "__func__", member)
            if name.startswith("_") or name in HOOKS or not inspect.isfunction(function):
                continue
            if function.__module__.startswith("shardwise") and "<locals>" not in function.__qualname__:
                out[name] = function
    return out


def examples(thing: Any) -> str:
    """The lines of code in a docstring."""
    lines = (getattr(thing, "__doc__", None) or "").splitlines()
    return "\n".join(line for line in lines if line.lstrip().startswith((">>> ", "... ")))


REFERENCE = Path(__file__).parent.parent / "docs" / "reference"


def resolved(path: str) -> Any:
    """The module or the thing in one that a dotted path names."""
    try:
        return import_module(path)
    except ModuleNotFoundError:
        room, _, name = path.rpartition(".")
        return getattr(resolved(room), name)


def seen(room: ModuleType, name: str, text: str) -> bool:
    """Whether a page that shows a whole module shows a member; functions not written with `def` are named in it."""
    thing = getattr(room, name)
    if name not in getattr(room, "__all__", (name,)) or name.startswith("_"):
        return False
    if not hasattr(room, "__all__") and origin(thing) != room.__name__:
        return False
    code = getattr(thing, "__code__", None)
    return code is None or code.co_name == name or f"`{name}`" in text


def documented() -> dict[str, Any]:
    """What the pages of the reference show, by the path that they give; of a module, the members that are listed."""
    out: dict[str, Any] = {}
    for page in sorted(REFERENCE.glob("*.md")):
        text = page.read_text(encoding="utf-8") + "\n"
        for match in re.finditer(r"^::: (\S+)\n((?:    .*\n)*)", text, re.M):
            path, options = match.groups()
            thing = resolved(path)
            if not isinstance(thing, ModuleType):
                out[path] = thing
                continue
            listed = re.search(r"members: \[(.*?)\]", options, re.S)
            if rows := {
                n: row.function for n, row in vars(thing).items() if isinstance(row, Primitive) and row.function
            }:
                out |= {f"{path}.{name}": function for name, function in rows.items()}
                continue
            names = re.findall(r"\w+", listed[1]) if listed else [n for n in vars(thing) if seen(thing, n, text)]
            out |= {f"{path}.{name}": getattr(thing, name) for name in names}
    return out


# What is public, and what the reference shows beside it: the types of results.
SHOWN = NAMES + [
    (path, thing)
    for path, thing in documented().items()
    if getattr(thing, "__module__", "").startswith("shardwise")
    and (inspect.isclass(thing) or inspect.isfunction(thing))
    and id(thing) not in {id(known) for _, known in NAMES}
]


@pytest.mark.parametrize(("name", "thing"), SHOWN, ids=[name for name, _ in SHOWN])
def test_every_public_name_has_an_example(name: str, thing: Any) -> None:
    assert examples(thing), f"{name} has no example in its docstring"
    if not inspect.isclass(thing):
        return
    shown = "\n".join(examples(base) for base in thing.__mro__ if base.__module__.startswith("shardwise"))
    missing = [n for n, member in members(thing).items() if not examples(member) and not re.search(rf"\.{n}\b", shown)]
    assert not missing, f"{name} shows these nowhere: {', '.join(missing)}"


def test_the_reference_shows_every_public_name() -> None:
    shown = [id(thing) for thing in documented().values()]
    assert [name for name, thing in NAMES if id(thing) not in shown] == []


def test_the_reference_shows_no_name_twice() -> None:
    paths = re.findall(r"^::: (\S+)$", "\n".join(p.read_text(encoding="utf-8") for p in REFERENCE.glob("*.md")), re.M)
    assert len(paths) == len(set(paths))
