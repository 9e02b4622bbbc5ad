"""Reads the five reference documents and writes the names they make public to names.json.

python tests/reference/extract.py DIRECTORY
"""

import ast
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

Parameter = dict[str, Any]
Names = dict[str, Any]


def parameters(signature: str) -> list[Parameter]:
    """The parameters of `name(...)`, in order: name, kind, and the default as written, if there is one."""
    function = ast.parse(f"def {signature}: ...").body[0]
    assert isinstance(function, ast.FunctionDef)
    given = function.args
    assert not given.posonlyargs
    rows: list[Parameter] = [{"name": arg.arg, "kind": "positional"} for arg in given.args]
    for row, default in zip(reversed(rows), reversed(given.defaults), strict=False):
        row["default"] = ast.unparse(default)
    if given.vararg:
        rows.append({"name": given.vararg.arg, "kind": "var_positional"})
    for arg, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        row = {"name": arg.arg, "kind": "keyword_only"}
        rows.append(row if default is None else row | {"default": ast.unparse(default)})
    if given.kwarg:
        rows.append({"name": given.kwarg.arg, "kind": "var_keyword"})
    return rows


def communication_ops(text: str) -> Names:
    """Both versions: each function is one `def name(...):` line."""
    signatures = re.findall(r"^def ((\w+)\(.*\).*):$", text, re.MULTILINE)
    return {"functions": {name: {"parameters": parameters(signature)} for signature, name in signatures}}


def graph_ops(text: str) -> Names:
    """One section per function: a heading, the dotted signature, prose, and perhaps `Raises:`."""
    functions: Names = {}
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        signature, name = re.findall(r"^max\.graph\.ops\.((\w+)\(.*\))$", section, re.MULTILINE)[0]
        raised = re.findall(r"^Raises:\n\n((?:\w+ – .*\n)+)", section, re.MULTILINE)
        exceptions = [line.split(" – ")[0] for line in "".join(raised).splitlines()]
        functions[name] = {"parameters": parameters(signature), "raises": exceptions}
    return {"functions": functions}


def sharding_package(text: str) -> Names:
    """Sections of lines in which the name runs into its description: `PartialEvery device holds ...`."""
    kinds = {"Exceptions": "exception", "Functions": "function"}
    names: Names = {}
    section = "Device mesh"
    for line in filter(None, text[text.index(f"\n{section}\n") :].splitlines()):
        glued = re.match(r"(\w+?)([A-Z][a-z]*(?:-\w+)*) ", line)
        if glued is None:
            section = line
            continue
        is_union = "union type" in line
        names[glued[1]] = {"kind": "union" if is_union else kinds.get(section, "class"), "section": section}
    return {"names": names}


def shard_dialect(text: str) -> Names:
    """Sphinx directives: classes with attributes and methods nested in them, functions and data."""
    found: Names = {"data": [], "classes": {}, "functions": {}}
    members: Names = {}
    attribute = ""
    for line in text.splitlines():
        if match := re.match(r"\.\. py:data:: (\w+)", line):
            found["data"].append(match[1])
        elif match := re.match(r"\.\. py:class:: ((\w+)\(.*\))", line):
            members = {"parameters": parameters(match[1]), "attributes": {}, "accessors": []}
            found["classes"][match[2]] = members
        elif match := re.match(r"\.\. py:function:: ((\w+)\(.*\).*)", line):
            found["functions"][match[2]] = {"parameters": parameters(match[1])}
        elif match := re.match(r" +\.\. py:attribute:: (\w+)", line):
            attribute = match[1]
            members["attributes"][attribute] = None
        elif match := re.match(r" +:value: (.+)", line):
            members["attributes"][attribute] = ast.literal_eval(match[1])
        elif match := re.match(r" +\.\. py:method:: (\w+)\(", line):
            members["accessors"].append(match[1])
    return found


DOCUMENTS: dict[str, Callable[[str], Names]] = {
    "communication-ops-v1.md": communication_ops,
    "communication-ops-v2.txt": communication_ops,
    "graph-ops.md": graph_ops,
    "sharding-package.txt": sharding_package,
    "shard-dialect.rst": shard_dialect,
}


def main(directory: Path) -> None:
    names = {Path(file).stem: read((directory / file).read_text(encoding="utf-8")) for file, read in DOCUMENTS.items()}
    target = Path(__file__).with_name("names.json")
    target.write_text(json.dumps(names, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
