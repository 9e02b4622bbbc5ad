"""The current engine: the one that new tensors live on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from shardwise.engine.abstract import AbstractEngine
from shardwise.engine.local import LocalEngine
from shardwise.errors import ArgumentError

Engine = LocalEngine | AbstractEngine

_local = LocalEngine()
_current: ContextVar[Engine] = ContextVar("engine", default=_local)


def current_engine() -> Engine:
    """Return the engine that new tensors live on; the local one unless another is in use.

    >>> current_engine().name
    'local'
    """
    return _current.get()


@contextmanager
def engine_context(engine: Engine) -> Iterator[Engine]:
    """Use another engine inside a `with` block."""
    if not isinstance(engine, LocalEngine | AbstractEngine):
        raise ArgumentError(f"engine_context needs an engine such as LocalEngine(), got {engine!r}.")
    token = _current.set(engine)
    try:
        yield engine
    finally:
        _current.reset(token)
