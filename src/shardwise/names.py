"""Names: what is public shows by the name that users call it by, and not by where it is defined."""

from __future__ import annotations

from collections.abc import Iterable
from types import FunctionType
from typing import Any
from warnings import warn

_origins: dict[object, str] = {}


def publish(package: str, things: Iterable[object]) -> None:
    """Let classes and functions say, in reprs, tracebacks and help, that they are of a package."""
    for thing in things:
        if isinstance(thing, type | FunctionType) and thing.__module__.startswith(f"{package}."):
            _origins[thing], thing.__module__ = thing.__module__, package


def origin(thing: object) -> str:
    """Return the name of the module that defines a class or a function.

    >>> from shardwise import P
    >>> P, origin(P)
    (<class 'shardwise.P'>, 'shardwise.layout.spec')
    """
    known = _origins.get(thing) if isinstance(thing, type | FunctionType) else None
    return known or getattr(thing, "__module__", None) or ""


class Renamed:
    """The name that an attribute had before: who asks by it is warned, and gets what it is called now.

    >>> import warnings
    >>> class Box:
    ...     size, length = 3, Renamed("size")
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     Box().length, str(caught[0].message)
    (3, 'Box.length is called size now.')
    """

    def __init__(self, new: str) -> None:
        self.new, self.old = new, ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.old = f"{owner.__name__}.{name}"

    def __get__(self, instance: object, owner: type) -> Any:
        if instance is None:
            return self
        warn(f"{self.old} is called {self.new} now.", DeprecationWarning, stacklevel=2)
        return getattr(instance, self.new)
