"""Doctests of public names run in the modules that define those, though they show as names of the package."""

import doctest
from types import FunctionType, ModuleType
from typing import Any

from shardwise.names import origin

_from_module = doctest.DocTestFinder._from_module  # type: ignore[attr-defined]


def from_module(finder: doctest.DocTestFinder, module: ModuleType, thing: Any) -> bool:
    """Whether a module defines what it has."""
    if isinstance(thing, type | FunctionType) and origin(thing).startswith("shardwise."):
        return module.__name__ == origin(thing)
    return _from_module(finder, module, thing)


doctest.DocTestFinder._from_module = from_module  # type: ignore[attr-defined]
