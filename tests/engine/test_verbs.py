"""Verbs: every engine has all of them, called in the same way."""

import inspect
from types import SimpleNamespace
from typing import Any

import pytest

from shardwise import AbstractEngine, LocalEngine
from shardwise.engine.counters import Counters
from shardwise.engine.process.engine import DistributedEngine
from shardwise.engine.verbs import Engine

VERBS = [name for name, value in vars(Engine).items() if inspect.isfunction(value) and not name.startswith("_")]
WIRE: Any = SimpleNamespace(rank=0, size=1)
ENGINES = {"local": LocalEngine(), "abstract": AbstractEngine(), "torch": DistributedEngine(WIRE)}


def test_these_are_the_verbs() -> None:
    assert VERBS == ["addressable", "process", "read", "place", "empty", "work", "each", "apply", "run"]


@pytest.mark.parametrize("name", ENGINES)
def test_an_engine_has_every_verb_and_is_known_by_name(name: str) -> None:
    engine: Any = ENGINES[name]
    assert isinstance(engine, Engine)
    assert engine.name == name
    assert isinstance(engine.counters, Counters)
    for verb in VERBS:
        want = list(inspect.signature(getattr(Engine, verb)).parameters.values())[1:]
        got = list(inspect.signature(getattr(engine, verb)).parameters.values())
        assert [(p.name, p.default) for p in got[: len(want)]] == [(p.name, p.default) for p in want], verb
        assert all(p.default is not inspect.Parameter.empty for p in got[len(want) :])


def test_what_lacks_a_verb_is_no_engine() -> None:
    class Half:
        name = "half"
        counters = Counters()

        def run(self) -> None: ...

    assert not isinstance(Half(), Engine)
    assert not isinstance(object(), Engine)
