"""A record is a value: equal by what it says, and not to be changed."""

import dataclasses

import pytest

from shardwise.plan.record import Record


def test_a_record_is_a_value() -> None:
    record = Record("permute", ("x",), "[x]", "[x]", 64, 128, 0.5, "train.py:3")
    assert record == dataclasses.replace(record)
    assert hash(record) == hash(dataclasses.replace(record))
    assert (record.start, record.rank) == (0.0, 0)
    with pytest.raises(AttributeError, match="a Record does not change"):
        record.bytes = 1  # type: ignore[misc]
