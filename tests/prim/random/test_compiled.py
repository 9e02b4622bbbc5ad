"""Compiled draws give the bits that NumPy gives, for all positions, keys and dtypes; without numba nothing differs."""

import subprocess
import sys
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwise import DeviceMesh, P, asarray, random
from shardwise.prim.random import draws
from shardwise.prim.random.compiled import schedule
from shardwise.prim.random.draws import POSITIONS, load_compiled, workspace
from shardwise.prim.random.generator import Key

LAST = 2**64 - 1
WORDS = st.integers(0, 2**32 - 1)
DRAWS: dict[str, Callable[[Key, np.ndarray], np.ndarray]] = {
    "bits": draws.bits,
    "wide bits": draws.wide_bits,
    "unit": partial(draws.unit, digits=24),
    "wide unit": partial(draws.unit, digits=53),
    "whole": partial(draws.whole, count=1000),
    "normal": partial(draws.normal, wide=False),
    "wide normal": partial(draws.normal, wide=True),
    "complex": partial(draws.complex_normal, wide=True),
    "below": partial(draws.below, chance=2**63 + 1),
}


def both(monkeypatch: pytest.MonkeyPatch, draw: Callable[[], np.ndarray]) -> list[np.ndarray]:
    """What NumPy makes, and what compiled draws make."""
    out: list[np.ndarray] = []
    for many in (LAST, 1):
        with monkeypatch.context() as patch:
            patch.setattr(draws, "MANY", many)
            out.append(draw().copy())
    return out


@pytest.mark.parametrize("name", DRAWS)
@given(key=st.builds(Key, WORDS, WORDS), seed=WORDS, ends=st.lists(st.sampled_from([0, 1, 2**32 - 1, 2**32, LAST])))
def test_bits_are_those_of_numpy(name: str, key: Key, seed: int, ends: list[int]) -> None:
    some = np.random.default_rng(seed).integers(0, LAST, 700, dtype=np.uint64)
    positions = np.concatenate([some, np.arange(seed, seed + 300, dtype=np.uint64), np.array(ends, np.uint64)])

    def draw() -> np.ndarray:
        work = workspace(positions.size)
        work[POSITIONS] = positions
        return DRAWS[name](key, work)

    with pytest.MonkeyPatch.context() as patch:
        plain, compiled = both(patch, draw)
    assert plain.dtype == compiled.dtype
    assert plain.tobytes() == compiled.tobytes()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"])
def test_tensors_are_those_of_numpy(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mesh = DeviceMesh((2, 3), ("x", "y"))
    plain, compiled = both(
        monkeypatch, lambda: random.normal(random.key(7), (101, 203), dtype, mesh=mesh, layout=P("x", "y")).numpy()
    )
    assert plain.tobytes() == compiled.tobytes()
    plain, compiled = both(monkeypatch, lambda: random.dropout(random.key(8), asarray(plain), 0.3).numpy())
    assert plain.tobytes() == compiled.tobytes()


def test_few_draws_load_no_compiler_and_many_do() -> None:
    program = """
import sys
from shardwise import random
random.normal(random.key(1), 4095)
print("numba" in sys.modules)
random.normal(random.key(1), 4096)
print("numba" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


def test_without_numba_draws_are_those_of_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    want = random.normal(random.key(3), 5000).numpy()
    monkeypatch.setitem(sys.modules, "shardwise.prim.random.compiled", None)
    monkeypatch.delattr("shardwise.prim.random.compiled")
    load_compiled.cache_clear()
    try:
        assert load_compiled() is None
        np.testing.assert_array_equal(random.normal(random.key(3), 5000).numpy(), want)
    finally:
        load_compiled.cache_clear()


def test_the_schedule_of_a_key_is_its_words_and_their_parity() -> None:
    assert schedule(Key(5, 9)) == (5, 9, 5 ^ 9 ^ 0x1BD11BDA)
