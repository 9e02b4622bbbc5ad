"""Slots: functions that a lower room calls and an upper room supplies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, ParamSpec, TypeVar

from shardwise.errors import ShardwiseError

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class Slot(Generic[Arguments, Result]):
    """A function of a lower room whose body an upper room supplies when `shardwise` is imported.

    >>> double: Slot[[int], int] = Slot("double")
    >>> double(3)
    Traceback (most recent call last):
    shardwise.ShardwiseError: nothing fills the slot 'double'; `import shardwise` fills all of its own.
    >>> double.fill(lambda x: 2 * x)
    >>> double(3)
    6
    """

    __slots__ = ("_function", "name")

    def __init__(self, name: str) -> None:
        """Name the slot for the error of a call before it is filled."""
        self.name = name
        self._function: Callable[Arguments, Result] | None = None

    def fill(self, function: Callable[Arguments, Result]) -> None:
        """Make calls of the slot calls of this function."""
        self._function = function

    def __call__(self, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        """Call the function that fills the slot."""
        if self._function is None:
            raise ShardwiseError(f"nothing fills the slot {self.name!r}; `import shardwise` fills all of its own.")
        return self._function(*args, **kwargs)
