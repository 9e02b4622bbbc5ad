"""Stubs: the types of what the table makes at run time, written down for editors and type checkers.

python tools/stubs.py            write src/shardwise/__init__.pyi and src/shardwise/prim/methods.pyi
python tools/stubs.py --check    say what is not current, and write nothing
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import indent
from typing import Any

import shardwise
from shardwise.names import origin
from shardwise.prim.face import BINARY, COMPARISONS, UNARY
from shardwise.prim.fixed import Fixed
from shardwise.table import EVERY, FUNCTIONS, METHODS

SOURCES = Path(shardwise.__file__).parent
HEAD = '"""{}"""\n\n# Written by tools/stubs.py from the table of functions.\n\n'
REFLECTED = {f"__r{word}__" for word in BINARY.values()}
OPERATORS = {f"__{word}__" for word in (UNARY | BINARY | COMPARISONS).values()} | REFLECTED
EQUALITIES = ("__eq__", "__ne__")  # which are those of `object` to a type checker


def stubs() -> dict[Path, str]:
    """Return the text of every stub, by its path."""
    return {SOURCES / "__init__.pyi": face_stub(), SOURCES / "prim" / "methods.pyi": methods_stub()}


def face_stub() -> str:
    """Return the public names: those that sources define, and the functions that are made at run time."""
    tree = ast.parse((SOURCES / "__init__.py").read_text())
    lines = []
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("shardwise"):
            names = [alias.name for alias in node.names if not (alias.asname or "").startswith("_")]
            lines += [f"from {node.module} import {name} as {name}" for name in names]
    definitions = []
    for name, function in sorted(FUNCTIONS.items()):
        if is_tree(function):
            definitions.append(overloads(name, function))
        elif is_made(function):
            definitions.append(definition(name, function, inspect.signature(function)))
        else:
            lines.append(f"from {origin(function)} import {name} as {name}")
    needed = names_in(definitions)
    shown = {line.rpartition(" ")[2] for line in lines}
    lines += [line for line in imports(FUNCTIONS.values(), needed) if line.rpartition(" ")[2] not in shown]
    version = f"__version__: str\n__all__ = {sorted(shardwise.__all__)!r}\n"
    return HEAD.format(doc_of(shardwise)) + "\n".join([*sorted(lines), version, *definitions])


def methods_stub() -> str:
    """Return the class that the table fills: operators, methods and attributes of tensors."""
    own = {name: function for function in EVERY for name in attribute_names(function)}
    definitions = []
    for name, attribute in sorted(METHODS.items()):
        function = own[name]
        if isinstance(attribute, Fixed):
            text = definition(name, function, bound(inspect.signature(function), 1))
            definitions.append("@property\n" + text)
        elif name in OPERATORS:
            definitions.append(operator(name, function))
        else:
            definitions.append(definition(name, function, bound(inspect.signature(function), 1)))
    lines = imports(own.values(), names_in(definitions))
    body = "\n".join([doc("What can be done to a tensor with operators and methods."), "__slots__ = ()", *definitions])
    body += "\ndef __hash__(self) -> int: ...\n"
    title = "Methods of tensors: the operators, methods and attributes of the table."
    return HEAD.format(title) + "\n".join(lines) + "\n\nclass Methods:\n" + indent(body, "    ")


def attribute_names(function: Callable[..., Any]) -> Iterator[str]:
    """Yield the names that a function has on tensors."""
    from shardwise.prim.face import attributes_of

    for name, _ in attributes_of(function):
        yield name


# -- signatures ------------------------------------------------------------------------------------------


def is_made(function: Any) -> bool:
    """Whether a function is made at run time, so that no source has its signature."""
    return origin(function) in ("shardwise.prim.arithmetic.by_element", "shardwise.prim.arithmetic.activations")


def is_tree(function: Any) -> bool:
    """Whether a function of one tensor takes trees of them too."""
    return hasattr(function, "__wrapped__")


def bound(signature: inspect.Signature, count: int) -> inspect.Signature:
    """Return a signature with `self` in place of its first parameters."""
    rest = list(signature.parameters.values())[count:]
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if any(p.kind is p.POSITIONAL_ONLY for p in rest):
        own = own.replace(kind=inspect.Parameter.POSITIONAL_ONLY)
    return signature.replace(parameters=[own, *rest])


def text_of(signature: inspect.Signature) -> str:
    """Return a signature as source, its annotations as they are written there."""
    parts, mark = [], False
    kinds = [p.kind for p in signature.parameters.values()]
    for k, p in enumerate(signature.parameters.values()):
        if p.kind is p.KEYWORD_ONLY and not mark and p.VAR_POSITIONAL not in kinds:
            parts.append("*")
            mark = True
        star = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        text = f"{star}{p.name}" + (f": {p.annotation}" if p.annotation is not p.empty else "")
        parts.append(text + (f" = {p.default!r}" if p.default is not p.empty else ""))
        after = kinds[k + 1] if k + 1 < len(kinds) else None
        if p.kind is p.POSITIONAL_ONLY and after is not p.POSITIONAL_ONLY:
            parts.append("/")
    return f"({', '.join(parts)}) -> {signature.return_annotation}"


def definition(name: str, function: Any, signature: inspect.Signature) -> str:
    """Return a function with its documentation and no body."""
    return f"def {name}{text_of(signature)}:\n{indent(doc(doc_of(function)), '    ')}\n    ...\n"


def operator(name: str, function: Any) -> str:
    """Return an operator: of this tensor and of another operand, if there is one."""
    other = "" if len(inspect.signature(function).parameters) == 1 else ", other: Any, /"
    if name in EQUALITIES:
        return f"def {name}(self, other: object, /) -> Tensor: ...  # type: ignore[override]\n"
    return f"def {name}(self{other}) -> Tensor: ...\n"


def overloads(name: str, function: Any) -> str:
    """Return a function of one tensor, of whatever can be made one, and of trees of them, which keep their type."""
    signature = inspect.signature(function)
    first, *rest = signature.parameters.values()
    one = signature.replace(parameters=[first.replace(annotation="ArrayLike"), *rest], return_annotation="Tensor")
    many = signature.replace(parameters=[first.replace(annotation="Tree"), *rest], return_annotation="Tree")
    return "\n".join(["@overload", definition(name, function, one), "@overload", f"def {name}{text_of(many)}: ...\n"])


def doc_of(thing: Any) -> str:
    """Return the first sentence of a documentation, and what follows up to the example."""
    return inspect.cleandoc(thing.__doc__ or "").split("\n\n>>>")[0].strip()


def doc(text: str) -> str:
    """Return a documentation as source."""
    return f'"""{text}"""' if "\n" not in text else f'"""{text}\n"""'


# -- imports ---------------------------------------------------------------------------------------------


def names_in(definitions: list[str]) -> set[str]:
    """Return the names that signatures use."""
    found: set[str] = set()
    for node in ast.walk(ast.parse("\n".join(definitions))):
        if isinstance(node, ast.Name):
            found.add(node.id)
    return found


def imports(functions: Any, needed: set[str]) -> list[str]:
    """Return the lines that import names, each from a module whose function uses it."""
    ours = {"Tensor": "shardwise.prim.tensor", "ArrayLike": "shardwise.prim.tensor", "Tree": "shardwise.prim.tensor"}
    ours |= {"Any": "typing", "overload": "typing"}
    lines = {f"from {ours[name]} import {name}" for name in needed & set(ours)}
    builtin = set(dir(__builtins__)) if not isinstance(__builtins__, dict) else set(__builtins__)
    for name in needed - set(ours) - builtin:
        uses = re.compile(rf"\b{name}\b")
        for function in functions:
            scope = inspect.unwrap(function).__globals__
            if name in scope and uses.search(str(inspect.signature(function))):
                home = origin(scope[name])
                defined = home and hasattr(sys.modules.get(home), name)
                lines.add(f"from {home if defined else scope['__name__']} import {name}")
                break
        else:
            raise NameError(f"{name} stands in a signature, but no module of the table has it")
    return sorted(lines)


def main() -> int:
    """Write the stubs, or say which are not current."""
    stale = {path: text for path, text in formatted().items() if not path.exists() or path.read_text() != text}
    for path, text in stale.items():
        if "--check" in sys.argv:
            print(f"{path.name} is not current: run python tools/stubs.py")
        else:
            path.write_text(text)
    return int(bool(stale) and "--check" in sys.argv)


def formatted() -> dict[Path, str]:
    """Return the stubs as the formatter leaves them."""
    import subprocess

    out = {}
    for path, text in stubs().items():
        run = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(path), "-"]
        out[path] = subprocess.run(run, input=text, capture_output=True, text=True, check=True).stdout
    return out


if __name__ == "__main__":
    raise SystemExit(main())
