"""The reference shows the examples of docstrings as code."""

import sys
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import cast

import pytest


@pytest.fixture
def reference(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The tool, which needs griffe for nothing that is tested here."""
    monkeypatch.setitem(sys.modules, "griffe", cast(ModuleType, SimpleNamespace(Extension=object)))
    monkeypatch.delitem(sys.modules, "tools.reference", raising=False)
    return import_module("tools.reference")


def test_examples_are_fenced_up_to_a_blank_line(reference: ModuleType) -> None:
    text = "Return one.\n\n>>> x = one(\n...     1)\n>>> x\n1\n\nNever two:\n\n>>> two()\nTraceback\n  error"
    assert reference.fenced(text) == (
        "Return one.\n\n```pycon\n>>> x = one(\n...     1)\n>>> x\n1\n```\n\nNever two:\n\n"
        "```pycon\n>>> two()\nTraceback\n  error\n```"
    )
    assert reference.fenced("No example.") == "No example."


def test_a_row_is_described_as_the_function_describes_itself(reference: ModuleType) -> None:
    from shardwise import add

    row = 'binary("add", "the sum", "[1, 2], 3 -> [4, 5]", 1, 1, linear="joint")'
    said = "\n".join(line.strip() for line in (add.__doc__ or "").strip().splitlines())
    assert reference.described(row) == said
