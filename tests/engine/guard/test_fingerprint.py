"""What processes tell each other about their calls."""

import json
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwise.engine.call import Call
from shardwise.engine.guard.fingerprint import (
    HEAD,
    Fingerprint,
    _ranks_text,
    agree,
    decode,
    differences,
    encode,
    sequence_in,
)
from shardwise.engine.steps import Place

WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=8)
SOME = st.none() | st.integers(0, 9)
CALLS = st.builds(
    Call,
    step=WORDS,
    ranks=st.lists(st.integers(0, 9), max_size=4).map(tuple),
    shape=st.lists(st.integers(0, 1 << 40), max_size=4).map(tuple),
    dtype=WORDS,
    before=WORDS,
    after=WORDS,
    reduction=st.none() | WORDS,
    root=SOME,
    plan=WORDS,
    meshes=WORDS,
)
PLACES = st.builds(Place, st.integers(-(1 << 63), 1 << 63), st.integers(1, 9))
MARKS = st.builds(
    Fingerprint,
    CALLS,
    number=st.integers(1, 1 << 40),
    sequence=st.integers(1, 1 << 40),
    line=WORDS,
    path=st.lists(PLACES, max_size=2).map(tuple),
)


@given(MARKS)
def test_what_is_told_is_what_was_meant(mark: Fingerprint) -> None:
    body = encode(mark)
    assert decode(body) == mark
    assert sequence_in(body) == mark.sequence


@given(MARKS, MARKS)
def test_they_agree_where_call_and_number_are_equal(a: Fingerprint, b: Fingerprint) -> None:
    moved = a._replace(sequence=b.sequence, line=b.line)
    assert agree(encode(a), encode(moved))
    assert differences(a, moved) == []
    same = (a.call, a.number, a.path) == (b.call, b.number, b.path)
    assert agree(encode(a), encode(b)) == same == (not differences(a, b))
    assert agree(encode(b), encode(a)) == same


@pytest.mark.parametrize("field", Call._fields)
def test_every_field_counts(field: str) -> None:
    call = Call("all_gather", (0, 1), (8,), "float32", "[x]", "[-]", None, None, "ab12")
    values = {"ranks": (0, 1, 2), "shape": (9,), "root": 1}
    a, b = (Fingerprint(c, 1, 1, "") for c in (call, call._replace(**{field: values.get(field, "other")})))
    assert not agree(encode(a), encode(b))
    words = {"ranks": "group", "meshes": "mesh", "before": "layout before", "after": "layout after"}
    assert differences(a, b) == [words.get(field, field)]
    assert differences(a, b._replace(number=2))[1:] == ["number of calls of the group"]


def test_iterations_count_with_their_number_and_their_entry() -> None:
    mark = Fingerprint(Call("all_gather", (0, 1), (8,), "float32", "[x]", "[-]", None, None, "ab12"), 1, 1, "a.py:1")
    paths = [(), (Place(5, 1),), (Place(5, 2),), (Place(6, 1),), (Place(5, 1), Place(0, 1)), (Place(0, 1), Place(5, 1))]
    for one in paths:
        for other in paths:
            a, b = mark._replace(path=one), mark._replace(path=other, line="b.py:2", sequence=3)
            assert agree(encode(a), encode(b)) == (one == other)
            assert differences(a, b) == ["iteration"] * (one != other)
    assert "; in iteration 5 (entry 2), sequence 1, at a.py:1" in str(mark._replace(path=paths[2]))
    assert "; sequence 1, at a.py:1" in str(mark)


def test_whatever_comes_is_read_or_refused() -> None:
    mark = Fingerprint(Call("all_gather", (0, 1), (8,), "float32", "[x]", "[-]", None, None, "ab12"), 1, 1, "a.py:1")
    body = encode(mark._replace(path=(Place(5, 1),)))
    for size in range(len(body) - len(b"\na.py:1")):
        with pytest.raises(ValueError, match=r"\w"):
            decode(body[:size])
    head, texts = body[: HEAD.size - 4] + bytes(4), [*mark.call]
    wrong = [[*texts[:i], {}, *texts[i + 1 :]] for i in range(len(texts))]
    wrong += [[], None, 3, {}, texts[:-1], [*texts, ""], ["x", [None], *texts[2:]], ["x", [0], ["a"], *texts[3:]]]
    for values in wrong:
        with pytest.raises(ValueError, match=r"\w"):
            decode(head + json.dumps(values).encode() + b"\na.py:1")
    for rest in (b"[" * 100_000, b"\xff\n", json.dumps(texts).encode() + b"\n\xff"):
        with pytest.raises(ValueError, match=r"\w"):
            decode(head + rest)
    assert decode(head + json.dumps(texts).encode() + b"\na.py:1") == mark


def test_what_controls_a_terminal_is_escaped_where_it_is_shown_and_still_counts() -> None:
    call = Call("all_gather", (0, 1), (8,), "float32", "[x\x1b]", "[-]", None, None, "ab12", "DeviceMesh(a\x1b[2J=2)")
    mark = Fingerprint(call, 1, 1, "a\r\n.py:1")
    assert str(mark).isprintable()
    assert "[x\\x1b] -> [-]" in str(mark)
    assert "on DeviceMesh(a\\x1b[2J=2)" in str(mark)
    escaped = mark._replace(call=call._replace(before="[x\\x1b]"))
    assert differences(mark, escaped) == ["layout before"]


def test_the_text_names_everything() -> None:
    call = Call(
        "all_reduce", (0, 1, 2, 3), (8, 4), "float32", "[-|-] sum(x)", "[-|-]", "sum", 3, "ab12", "DeviceMesh(x=4)"
    )
    assert str(Fingerprint(call, 2, 5, "train.py:31")) == (
        "all_reduce of float32[8, 4] [-|-] sum(x) -> [-|-], reduction sum, root 3, group 0-3, call 2 of it, plan ab12, "
        "on DeviceMesh(x=4); sequence 5, at train.py:31"
    )


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ((), ""),
        ((3,), "3"),
        ((0, 1), "0,1"),
        ((0, 1, 2), "0-2"),
        ((4, 5, 6, 7), "4-7"),
        ((0, 1, 3), "0,1,3"),
        ((0, 2, 3), "0,2,3"),
        ((2, 1, 0), "2,1,0"),
    ],
)
def test_three_ranks_or_more_in_a_row_are_a_range(ranks: tuple[int, ...], text: str) -> None:
    assert _ranks_text(ranks) == text


def test_the_text_leaves_out_what_there_is_not() -> None:
    call = Call("halo_exchange", (1, 4), (), "int8", "[x]", "[x]", None, None, "ab12")
    assert str(Fingerprint(call, 1, 7, "")) == (
        "halo_exchange of int8[] [x], group 1,4, call 1 of it, plan ab12; sequence 7, at an unknown line"
    )
    assert "root 0," in str(Fingerprint(call._replace(root=0), 1, 7, ""))


def test_it_is_the_same_under_any_hash_seed() -> None:
    script = (
        "from shardwise.engine.guard.fingerprint import *; from shardwise.engine.call import Call;"
        "print(encode(Fingerprint(Call('permute', (0, 1), (8,), 'int8', 'a', 'b', None, 0, 'p'), 1, 2, 'l')).hex())"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", script], env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(found) == 1
