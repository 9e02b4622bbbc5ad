"""A hook for imports: files whose code is taken from elsewhere, in this process and in those it starts."""

from __future__ import annotations

import importlib
import marshal
import mmap
import os
import sys
from collections.abc import Iterable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType
from typing import Any

CODES = "MUTANTS_CODES"  # the file with the codes, by the path of their source
MARKS = "MUTANTS_MARKS"  # the file in which marked code says that it ran; processes share it


class _Loader(SourceFileLoader):
    def __init__(self, name: str, path: str, code: CodeType, marks: mmap.mmap | None) -> None:
        super().__init__(name, path)
        self._code, self._marks = code, marks

    def get_code(self, fullname: str) -> CodeType:
        return self._code

    def exec_module(self, module: ModuleType) -> None:
        if self._marks is not None:
            module.__dict__["__marks__"] = self._marks
        super().exec_module(module)


class _Finder(MetaPathFinder):
    def __init__(self, codes: dict[str, CodeType], marks: mmap.mmap | None) -> None:
        self._codes, self._marks = codes, marks

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: Any = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path)
        if spec is None or spec.origin not in self._codes:
            return None
        spec.loader = _Loader(fullname, spec.origin, self._codes[spec.origin], self._marks)
        return spec


def import_files(root: str, files: Iterable[str]) -> None:
    """Import those of the files that are sources, by their names.

    pytest would import a file whose examples it is asked to run by itself, and not by this hook.
    """
    for file in files:
        inside = os.path.relpath(file, os.path.join(root, "src"))
        if not inside.startswith(os.pardir):
            importlib.import_module(inside.removesuffix(".py").replace(os.sep, ".").removesuffix(".__init__"))


def write_codes(path: str, codes: dict[str, CodeType]) -> None:
    """Write codes for `install` to read."""
    with open(path, "wb") as file:
        marshal.dump(codes, file)


def install() -> mmap.mmap | None:
    """Take the codes that the environment names from now on; return the marks, where it names some."""
    if CODES not in os.environ:
        return None
    with open(os.environ[CODES], "rb") as file:
        codes = marshal.load(file)
    marks = None
    if MARKS in os.environ:
        with open(os.environ[MARKS], "r+b") as file:
            marks = mmap.mmap(file.fileno(), 0)
    sys.meta_path.insert(0, _Finder(codes, marks))
    return marks
