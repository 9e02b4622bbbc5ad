"""Fixed attributes: read like any other, and refused in words when they are set or deleted."""

from dataclasses import FrozenInstanceError

import pytest

from shardwise.prim.fixed import Fixed, refusal


class Value:
    """Something with a slot that is shown and a value that is worked out."""

    __slots__ = ("_size",)
    size = Fixed.slot("_size", "How large it is.")

    def __init__(self, size: int) -> None:
        self._size = size

    @Fixed
    def double(self) -> int:
        """Twice the size."""
        return 2 * self._size


def test_it_is_read_as_any_property() -> None:
    value = Value(3)
    assert (value.size, value.double) == (3, 6)
    assert (Value.size.__doc__, Value.double.__doc__) == ("How large it is.", "Twice the size.")


@pytest.mark.parametrize("name", ["size", "double"])
def test_it_cannot_be_set_or_deleted_and_stays_as_it_is(name: str) -> None:
    value = Value(3)
    with pytest.raises(FrozenInstanceError, match=f"a Value does not change: '{name}' cannot be set"):
        setattr(value, name, 4)
    with pytest.raises(FrozenInstanceError, match=f"a Value does not change: '{name}' cannot be deleted"):
        delattr(value, name)
    assert (value.size, value.double) == (3, 6)


def test_the_refusal_names_the_functions_that_make_new_tensors() -> None:
    text = str(refusal(Value(1), "shape", "set"))
    assert text.startswith("a Value does not change: 'shape' cannot be set.")
    assert all(word in text for word in ("reshape", "astype", "shard", "x.at[...].set(value)"))


def test_each_slot_says_what_it_holds() -> None:
    class Pair:
        __slots__ = ("_left", "_right")
        left = Fixed.slot("_left", "What is on the left.")
        right = Fixed.slot("_right", "What is on the right.")

    pair = Pair()
    pair._left, pair._right = 1, 2
    assert (pair.left, pair.right) == (1, 2)
    assert (Pair.left.__doc__, Pair.right.__doc__) == ("What is on the left.", "What is on the right.")
    with pytest.raises(FrozenInstanceError, match="a Pair does not change: 'right' cannot be set"):
        pair.right = 3
