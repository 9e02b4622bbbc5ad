"""Fixed attributes: read as fast as any property, and never set."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from operator import attrgetter
from typing import Any, NoReturn


class Fixed(property):
    """A property of a value that does not change.

    >>> class Value:
    ...     __slots__ = ("_size",)
    ...     size = Fixed.slot("_size", "How large it is.")
    >>> value = Value()
    >>> value._size = 3
    >>> value.size
    3
    >>> value.size = 4
    Traceback (most recent call last):
    dataclasses.FrozenInstanceError: a Value does not change: 'size' cannot be set...
    """

    _name = ""

    @classmethod
    def slot(cls, slot: str, doc: str) -> Any:
        """Return the attribute that shows what a private slot holds."""
        shown = cls(attrgetter(slot))
        shown.__doc__ = doc  # given to a subclass of property, it would be hidden by the docstring of the class
        return shown

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __set__(self, instance: Any, value: Any) -> NoReturn:
        raise refusal(instance, self._name, "set")

    def __delete__(self, instance: Any) -> NoReturn:
        raise refusal(instance, self._name, "deleted")


def refusal(instance: Any, name: str, verb: str) -> FrozenInstanceError:
    """Return the error that says why an attribute stays as it is."""
    return FrozenInstanceError(
        f"a {type(instance).__name__} does not change: {name!r} cannot be {verb}.\n"
        "  reshape, astype and shard return new tensors, and x.at[...].set(value) one with other elements."
    )
