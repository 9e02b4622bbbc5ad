"""The current engine follows `engine_context`."""

from contextvars import copy_context
from threading import Thread
from typing import Any

import pytest

from shardwise.engine.abstract import AbstractEngine
from shardwise.engine.current import Engine, current_engine, engine_context
from shardwise.engine.local import LocalEngine
from shardwise.errors import ArgumentError


def _fail(engine: Engine) -> None:
    assert current_engine() is engine
    raise ZeroDivisionError


def test_contexts_nest_and_end_even_with_an_error() -> None:
    first, second, third = current_engine(), LocalEngine(), AbstractEngine()
    with engine_context(second) as inside:
        assert current_engine() is inside is second
        with pytest.raises(ZeroDivisionError), engine_context(third):
            _fail(third)
        assert current_engine() is second
    assert current_engine() is first


def test_another_thread_has_its_own() -> None:
    found = []
    with engine_context(AbstractEngine()):
        thread = Thread(target=lambda: found.append(current_engine().name))
        thread.start()
        thread.join()
        assert copy_context().run(current_engine).name == "abstract"
    assert found == ["local"]


def test_what_is_no_engine_is_refused() -> None:
    name: Any = "local"
    with pytest.raises(ArgumentError, match=r"needs an engine such as LocalEngine\(\), got 'local'"):
        engine_context(name).__enter__()
