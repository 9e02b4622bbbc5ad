"""The generator: Threefry-2x32 with 20 rounds, a function of a key and a counter that gives two random words.

Counters are positions in the global tensor, so any part of a random tensor can be made by itself, and comes out
the same whatever the layout, mesh or engine. (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as
1, 2, 3; SC 2011.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shardwise.caches import cache
from shardwise.errors import ArgumentError, BindingError, as_int, seal

WORD = 1 << 32
PARITY = 0x1BD11BDA  # of the key schedule
ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
# Amounts to shift by as arrays, which NumPy need not convert at every call.
_SHIFTS = [[(np.array(r, np.uint32), np.array(32 - r, np.uint32)) for r in four] for four in ROTATIONS]
_LAST = 2**64 - 1  # here and just before are positions that no tensor, split or fold_in reaches


@seal
@dataclass(frozen=True, slots=True)
class Key:
    """What a random tensor is made from: 64 bits, as two words.

    It is a value, not a tensor: every process has it, it can be a constant of a program, and using it changes
    nothing. The same key gives the same numbers, so each is used once, and `split` or `fold_in` make new ones.

    >>> Key(0, 42)
    Key(0, 42)
    """

    high: int
    low: int

    def __post_init__(self) -> None:
        for name, value in (("high", self.high), ("low", self.low)):
            word = as_int(value)
            if word is None:
                raise ArgumentError(f"a Key has two words of 32 bits, got {value!r}.\n  random.key(seed) makes one.")
            if not 0 <= word < WORD:
                raise BindingError(f"the words of a Key are 0 or more and below 2**32, got {word}.")
            object.__setattr__(self, name, word)

    def __repr__(self) -> str:
        return f"Key({self.high}, {self.low})"

    def child(self, position: int) -> Key:
        """Return the key that the generator gives at a position below 2**64.

        >>> Key(0, 42).child(0)
        Key(1832780943, 270669613)
        """
        return _child(self, position)

    def beside(self, which: int = 0) -> Key:
        """Return a key for what needs more than the 64 bits that this one gives to an element.

        >>> Key(0, 1).beside() == Key(0, 1).beside(0), Key(0, 1).beside(0) == Key(0, 1).beside(1)
        (True, False)
        """
        return self.child(_LAST - which)


@cache()
def _child(key: Key, position: int) -> Key:
    high, low = np.array([position // WORD], np.uint32), np.array([position % WORD], np.uint32)
    threefry(key, high, low)
    return Key(int(high[0]), int(low[0]))


def check_key(key: object) -> Key:
    """Return a key, or raise an error that says where keys come from."""
    if not isinstance(key, Key):
        raise ArgumentError(f"a Key was expected, got {key!r}.\n  random.key(seed) makes one from an int.")
    return key


def threefry(key: Key, high: np.ndarray, low: np.ndarray, spare: np.ndarray | None = None) -> None:
    """Replace counters, given as arrays of their high and low words, by random words; `spare` may be overwritten.

    >>> high, low = np.zeros(1, "uint32"), np.zeros(1, "uint32")
    >>> threefry(Key(0, 0), high, low)
    >>> f"{high[0]:08x} {low[0]:08x}"
    '6b200159 99ba4efe'
    """
    words = (key.high, key.low, key.high ^ key.low ^ PARITY)
    spare = np.empty_like(low) if spare is None else spare
    high += np.uint32(words[0])
    low += np.uint32(words[1])
    for turn in range(5):
        for left, right in _SHIFTS[turn % 2]:
            np.add(high, low, out=high)
            np.left_shift(low, left, out=spare)
            np.right_shift(low, right, out=low)
            np.bitwise_or(low, spare, out=low)
            np.bitwise_xor(low, high, out=low)
        high += np.uint32(words[(turn + 1) % 3])
        low += np.uint32((words[(turn + 2) % 3] + turn + 1) % WORD)
