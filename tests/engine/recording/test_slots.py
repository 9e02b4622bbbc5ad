"""Slots: the fields stand where their names say, and texts are cut between characters."""

import struct

from hypothesis import given
from hypothesis import strategies as st

from shardwise.engine.recording import slots as at


def test_what_is_known_at_the_beginning_stands_where_the_whole_call_has_it():
    data = at.BEGIN.pack(7, 1, 2, 3, 4.5, 5, 6, b"what", b"line", b"group", 7)
    call = at.CALL.unpack(data)
    assert call[:8] == (7, 1, 2, 3, 4.5, 0.0, 0.0, 0)
    assert call[9:12] == (5, 6, 0)
    assert [text.rstrip(b"\0") for text in call[-4:-1]] == [b"what", b"line", b"group"]
    assert call[-1] == 7
    assert struct.unpack_from("=d", data, at.BEGAN) == (4.5,)


def test_fields_that_change_later_have_their_places():
    data = bytearray(at.CALL.size)
    for place, form, value in [
        (at.AGREED, "=d", 1.5),
        (at.CALL_ENDED, "=d", 2.5),
        (at.BYTES, "=QQ", 11),
        (at.FAILURE, "=I", 13),
        (at.WAITS, "=I", 14),
    ]:
        struct.pack_into(form, data, place, value, *[12] * (form == "=QQ"))
    call = at.CALL.unpack(data)
    assert (call[5], call[6], call[7], call[8], call[11], call[12]) == (1.5, 2.5, 11, 12, 13, 14)


def test_no_two_parts_of_a_record_overlap():
    shape = at.Shape(3, 2)
    assert at.HEAD.size <= at.OFFSET < at.STATE + 8 <= at.PLACE
    assert at.PLACE + at.PLACE_SIZE <= at.CAUSE < at.CAUSE + at.CAUSE_SIZE <= at.HEAD_SIZE
    starts = [shape.call(n) for n in (1, 2, 3)] + [shape.event(n) for n in (1, 2)]
    assert starts == [at.HEAD_SIZE + 512 * k for k in range(5)]
    assert shape.size == at.HEAD_SIZE + 512 * 5
    assert (shape.call(4), shape.event(3)) == (shape.call(1), shape.event(1))


@given(st.text(), st.integers(4, 40))
def test_a_text_is_cut_between_characters(text: str, size: int):
    whole = text.encode(errors="replace").decode()
    head, tail = at.head_of(text, size), at.tail_of(text, size)
    assert len(head) <= size
    assert len(tail) <= size
    assert whole.startswith(head.decode())
    assert whole.endswith(tail.decode().removeprefix("...") if len(whole.encode()) > size else whole)
