"""The table: how to draw a call of each public function."""

from collections.abc import Callable

from tests.every.calls import Call, Setting

Row = Callable[[Setting], Call]
TABLE: dict[str, Row] = {}


def row(*names: str) -> Callable[[Callable[[Setting, str], Call]], Callable[[Setting, str], Call]]:
    """Add a way to draw calls of the functions of these names."""

    def add(draw: Callable[[Setting, str], Call]) -> Callable[[Setting, str], Call]:
        for name in names:
            assert name not in TABLE, name
            TABLE[name] = _bind(draw, name)
        return draw

    return add


def _bind(draw: Callable[[Setting, str], Call], name: str) -> Row:
    return lambda setting: draw(setting, name)
