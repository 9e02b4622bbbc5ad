"""Every name of the covered reference documents is there, with the parameters it was promised.

names.json is written by extract.py; a new document is covered by adding it to COVERED.
"""

import inspect
import json
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest

from tests.reference.extract import Parameter, parameters

NAMES = json.loads(Path(__file__).with_name("names.json").read_text(encoding="utf-8"))

COVERED = ["communication-ops-v1", "communication-ops-v2", "graph-ops", "sharding-package", "shard-dialect"]

# Where a document's names live. Two documents may give one name two meanings, hence the modules.
HOMES = {
    "communication-ops-v1": ["shardwise", "shardwise.ops"],
    "communication-ops-v2": ["shardwise", "shardwise.ops"],
    "graph-ops": ["shardwise.graph_ops"],
    "sharding-package": ["shardwise"],
    "shard-dialect": ["shardwise.ir.shard"],
}

# sharding-package lists names without parameters: these are the ones this project promises for it.
PROMISED = {
    "sharding-package": [
        "DeviceMesh(mesh_shape, axis_names, devices=None, *, name='mesh')",
        "Sharded(axis, *, split='balanced', offsets=None, halo=(0, 0))",
        "Partial(reduce_op='sum')",
        "PlacementMapping(mesh, placements)",
        "NamedMapping(mesh, spec, *, unreduced=())",
        "DimSpec(axes=[], is_open=False, priority=0)",
        "ShardingSpec(mesh, dim_specs, replicated_axes=set(), partial_axes={})",
        "shard_shape(global_shape, placements, mesh)",
        "local_shard_shape_from_global(global_shape, mesh, placements)",
        "global_shape_from_local(local, mesh, placements)",
        "DistributedTensorType(dtype, shape, mesh, placements)",
        "DistributedBufferType(dtype, shape, mesh, placements)",
        "TensorLayout(dtype, shape, mapping)",
        "CPU(id=0)",
        "Accelerator(id=0)",
    ]
}

MUTABLE = {"[]", "{}", "set()"}


def entries(document: str) -> dict[str, dict[str, Any]]:
    """The public names of a document, each with what the document, or the table above, says of it."""
    groups = {"names": {}, "classes": {"kind": "class"}, "functions": {"kind": "function"}}
    found = {
        name: kind | entry
        for group, kind in groups.items()
        for name, entry in NAMES[document].get(group, {}).items()
        if not name.startswith("_")
    }
    for signature in PROMISED.get(document, []):
        name = signature.partition("(")[0]
        found[name] = found.get(name, {}) | {"parameters": parameters(signature)}
    return found


def cases() -> list[Any]:
    return [
        pytest.param(home, name, entry, id=f"{home}.{name}")
        for document in COVERED
        for home in HOMES[document]
        for name, entry in entries(document).items()
    ]


def lookup(home: str, name: str) -> Any:
    module = resolve_name(home)
    assert hasattr(module, name), f"{home} lacks {name}"
    assert name in getattr(module, "__all__", [name]), f"{home}.__all__ lacks {name}"
    return getattr(module, name)


def is_of_kind(value: Any, kind: str | None) -> bool:
    if kind == "exception":
        return inspect.isclass(value) and issubclass(value, Exception)
    if kind == "class":
        return inspect.isclass(value)
    return kind != "function" or inspect.isroutine(value)


def same_default(got: Any, wanted: str) -> bool:
    if wanted in MUTABLE:  # a dataclass shows its factory instead
        return got is not inspect.Parameter.empty
    expected = eval(wanted, {})
    return got == expected or getattr(got, "value", got) == expected


def complaints(value: Any, wanted: list[Parameter]) -> list[str]:
    """What a caller who read the reference would trip over; further optional parameters are fine."""
    got = inspect.signature(value).parameters
    kinds = {parameter.kind for parameter in got.values()}
    found: list[str] = []
    positional = [name for name, p in got.items() if p.kind is p.POSITIONAL_OR_KEYWORD]
    expected = [row["name"] for row in wanted if row["kind"] == "positional"]
    if positional[: len(expected)] != expected:
        found.append(f"positional parameters are {positional}, expected {expected} first")
    for row in wanted:
        name = row["name"]
        if row["kind"] == "var_positional" and inspect.Parameter.VAR_POSITIONAL not in kinds:
            found.append(f"does not take *{name}")
        if row["kind"] == "var_keyword" and not kinds & {
            inspect.Parameter.VAR_KEYWORD,
            inspect.Parameter.KEYWORD_ONLY,
        }:
            found.append(f"takes no keywords for **{name}")
        if row["kind"].startswith("var_"):
            continue
        if name not in got:
            found.append(f"lacks parameter {name}")
        elif "default" in row and not same_default(got[name].default, row["default"]):
            found.append(f"default of {name} is {got[name].default!r}, expected {row['default']}")
    known = {row["name"] for row in wanted}
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    found += [
        f"requires {name}, which the reference does not know"
        for name, p in got.items()
        if name not in known and p.default is p.empty and p.kind not in variable
    ]
    return found


@pytest.mark.parametrize(("home", "name", "entry"), cases())
def test_name_is_there_as_documented(home: str, name: str, entry: dict[str, Any]) -> None:
    value = lookup(home, name)
    assert is_of_kind(value, entry.get("kind")), f"{home}.{name} is not a {entry['kind']}: {value!r}"
    if "parameters" in entry:
        assert complaints(value, entry["parameters"]) == []
    for attribute, wanted in entry.get("attributes", {}).items():
        if not attribute.startswith("_"):
            assert getattr(value, attribute) == wanted
    for accessor in entry.get("accessors", []):
        assert hasattr(value, accessor), f"{home}.{name} lacks {accessor}"


def test_names_json_holds_all_five_documents() -> None:
    assert set(NAMES) == set(HOMES)
    sizes = {document: len(entries(document)) for document in NAMES if document not in PROMISED}
    assert sizes == {
        "communication-ops-v1": 13,
        "communication-ops-v2": 13,
        "graph-ops": 4,
        "shard-dialect": 22 * 2,
    }
    assert len(NAMES["sharding-package"]["names"]) == 18


def test_each_dialect_class_has_its_builder() -> None:
    dialect = NAMES["shard-dialect"]
    operations = {entry["attributes"].get("OPERATION_NAME") for entry in dialect["classes"].values()}
    assert operations - {None} == {f"shard.{name}" for name in dialect["functions"]}


def test_complaints_name_what_is_wrong() -> None:
    def ours(x: int, *, device: None = None, strict: bool) -> None: ...

    def theirs(x: int, device: None = None, extra: int = 0) -> None: ...

    wanted = parameters("f(x, device=None, **kwargs)")
    assert complaints(ours, wanted) == [
        "positional parameters are ['x'], expected ['x', 'device'] first",
        "requires strict, which the reference does not know",
    ]
    assert complaints(theirs, wanted) == ["takes no keywords for **kwargs"]
    assert complaints(theirs, parameters("f(x, device=None, extra=1)")) == ["default of extra is 0, expected 1"]
