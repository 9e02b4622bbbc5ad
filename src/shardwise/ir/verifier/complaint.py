"""What a check yields: sentences about an op, without its place, its name and its grid."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from xdsl.dialects.builtin import DYNAMIC_INDEX, DenseArrayBase
from xdsl.ir import SSAValue

from shardwise.ir.types import is_shaped

Complaints: TypeAlias = Iterator[str]
Check: TypeAlias = Callable[[Any, Any], Complaints]
Sizes: TypeAlias = tuple[int | None, ...]


def shape_of(value: SSAValue) -> Sizes:
    """Return the sizes of a tensor's dims, None where they are not known."""
    if not is_shaped(value.type):
        return ()
    return tuple(None if size == DYNAMIC_INDEX else size for size in value.type.get_shape())


def sizes_text(sizes: Sequence[int | None]) -> str:
    """Return sizes as text.

    >>> sizes_text((2, None, 4))
    '2x?x4'
    """
    return "x".join("?" if size is None else str(size) for size in sizes)


def count_text(count: int, noun: str) -> str:
    """Return a count with its noun.

    >>> count_text(1, "axis"), count_text(2, "value")
    ('1 axis', '2 values')
    """
    plural = {"axis": "axes", "index": "indices"}.get(noun, f"{noun}s")
    return f"{count} {noun if count == 1 else plural}"


def mixed_complaints(static: DenseArrayBase[Any], dynamic: Sequence[SSAValue], what: str) -> Complaints:
    """Complain unless a list has one value for each place that stands for one."""
    places = static.get_values().count(DYNAMIC_INDEX)
    if places != len(dynamic):
        yield f"{what} has {count_text(places, 'place')} for values, but {count_text(len(dynamic), 'value')}."


def static_sizes(static: DenseArrayBase[Any]) -> Sizes:
    """Return the ints of a list, None for those that are values."""
    return tuple(None if number == DYNAMIC_INDEX else int(number) for number in static.get_values())
