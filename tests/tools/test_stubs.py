"""The stubs are those of the table today, and what editors and type checkers see through them is what there is."""

import pytest

from tools.stubs import formatted

STUBS = formatted()


@pytest.mark.parametrize("path", STUBS, ids=lambda path: path.name)
def test_a_stub_is_current(path) -> None:
    assert path.read_text() == STUBS[path], "run python tools/stubs.py"
