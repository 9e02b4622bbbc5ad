"""The generator: word for word that of JAX, and of those who published it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwise import ArgumentError, BindingError
from shardwise.prim.random.generator import Key, check_key, threefry
from tests.prim.cases import jax_of_eight

WORDS = st.integers(0, 2**32 - 1)


def generated(key: Key, positions: list[int]) -> list[tuple[int, int]]:
    high = np.array([p >> 32 for p in positions], np.uint32)
    low = np.array([p % 2**32 for p in positions], np.uint32)
    threefry(key, high, low)
    return list(zip(high.tolist(), low.tolist(), strict=True))


@pytest.mark.parametrize(
    ("key", "counter", "words"),
    [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_the_known_answers_of_its_authors(key, counter, words):
    assert generated(Key(*key), [counter[0] << 32 | counter[1]]) == [words]


@given(WORDS, WORDS, st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=8))
def test_words_are_those_of_jax_bit_by_bit(high: int, low: int, positions: list[int]):
    jax_of_eight()
    from jax.extend.random import threefry_2x32

    counts = np.array([p >> 32 for p in positions] + [p % 2**32 for p in positions], np.uint32)
    want = np.asarray(threefry_2x32(np.array([high, low], np.uint32), counts)).reshape(2, -1)
    assert generated(Key(high, low), positions) == list(zip(*want.tolist(), strict=True))


def test_a_key_is_a_value():
    assert Key(1, 2) == Key(np.uint32(1), 2)  # type: ignore[arg-type]
    assert len({Key(1, 2), Key(1, 2), Key(2, 1)}) == 2
    assert eval(repr(Key(1, 2))) == Key(1, 2)
    with pytest.raises(AttributeError):
        Key(1, 2).high = 3  # type: ignore[misc]


def test_keys_beside_a_key_differ_from_it_and_from_each_other():
    key = Key(0, 7)
    assert len({key, key.child(0), key.beside(), key.beside(1), key.beside().beside()}) == 5
    assert key.beside() == key.child(2**64 - 1)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: Key(0.5, 1), ArgumentError, "two words of 32 bits, got 0.5.\n  random.key"),  # type: ignore[arg-type]
        (lambda: Key(2**32, 1), BindingError, r"below 2\*\*32, got 4294967296"),
        (lambda: check_key(7), ArgumentError, "a Key was expected, got 7.\n  random.key"),
    ],
)
def test_what_is_no_key_says_so(call, error, text):
    with pytest.raises(error, match=text):
        call()
