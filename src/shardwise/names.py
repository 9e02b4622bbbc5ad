"""Names: what is public shows by the name that users call it by, and not by where it is defined."""

from __future__ import annotations

from collections.abc import Iterable
from types import FunctionType

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
