"""The current engine follows `engine_context`."""

from contextvars import copy_context
from threading import Thread
from typing import Any

import pytest

from shardwise.engine import current
from shardwise.engine.abstract import AbstractEngine
from shardwise.engine.current import Engine, current_engine, engine_context, local_engine, use
from shardwise.engine.local.engine import LocalEngine
from shardwise.engine.local.strict import StrictEngine
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


@pytest.mark.parametrize(("strict", "kind"), [(None, LocalEngine), ("0", LocalEngine), ("1", StrictEngine)])
def test_a_process_begins_with_the_engine_that_the_environment_asks_for(
    monkeypatch: pytest.MonkeyPatch, strict: str | None, kind: type[LocalEngine]
) -> None:
    if strict is None:
        monkeypatch.delenv("SHARDWISE_STRICT", raising=False)
    else:
        monkeypatch.setenv("SHARDWISE_STRICT", strict)
    loader: Any = current.__loader__
    names: dict[str, Any] = vars(current) | {"__name__": "another_current"}
    exec(loader.get_code("shardwise.engine.current"), names)  # as it is when a process imports it
    assert type(names["current_engine"]()) is kind
    assert (names["current_engine"]() is names["local_engine"]()) == (kind is LocalEngine)


def test_the_engine_of_the_process_is_that_of_every_thread() -> None:
    before, found = current_engine(), list[Engine]()
    used = StrictEngine()
    use(used)
    try:
        thread = Thread(target=lambda: found.append(current_engine()))
        thread.start()
        thread.join()
        assert found == [used]
        assert local_engine(strict=True) is used
        assert type(local_engine()) is LocalEngine
        with engine_context(AbstractEngine()) as inside:
            assert current_engine() is inside
    finally:
        use(before)
    assert current_engine() is before
    assert local_engine(strict=True) is not local_engine(strict=True)
    assert isinstance(local_engine(strict=True), StrictEngine)
