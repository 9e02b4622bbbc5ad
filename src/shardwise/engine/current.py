"""The current engine: the one that new tensors live on."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

from shardwise.engine.local.engine import LocalEngine
from shardwise.engine.local.strict import StrictEngine
from shardwise.engine.settings import is_strict
from shardwise.engine.verbs import Engine
from shardwise.errors import ArgumentError

_local = LocalEngine()
# The last is that of the process; in every thread, so not in a context.
_used: list[Engine] = [StrictEngine() if is_strict() else _local]
_current: ContextVar[Engine | None] = ContextVar("engine", default=None)


def current_engine() -> Engine:
    """Return the engine that new tensors live on; the local one unless another is in use.

    >>> current_engine().name
    'local'
    """
    return _current.get() or _used[-1]


def local_engine(strict: bool = False) -> LocalEngine:
    """Return the local engine that is used where no other is asked for; the strict one is that in use, or a new one."""
    if not strict:
        return _local
    used = _used[-1]
    return used if isinstance(used, StrictEngine) else StrictEngine()


def use(engine: Engine) -> None:
    """Make an engine that of the whole process."""
    _used[:] = [engine]


@contextmanager
def engine_context(engine: Engine) -> Generator[Engine]:
    """Use another engine inside a `with` block.

    >>> from shardwise import AbstractEngine, zeros
    >>> with engine_context(AbstractEngine()):
    ...     zeros((1 << 20, 1 << 20))
    Tensor(float64[1048576, 1048576] on cpu:0, abstract)
    """
    if not isinstance(engine, Engine):
        raise ArgumentError(f"engine_context needs an engine such as LocalEngine(), got {engine!r}.")
    token = _current.set(engine)
    try:
        yield engine
    finally:
        _current.reset(token)
