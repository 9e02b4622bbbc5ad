"""Feeds changed texts to all that reads, checks and prints; as a script, for some seconds of CPU time with a seed.

    python -m tests.ir.survival SECONDS SEED

Each cause is printed once, with a text that shows it.
"""

import re
import resource
import signal
import sys
import time
import traceback
from itertools import zip_longest
from types import FrameType

from shardwise.errors import ConversionError, ParseError, VerifyError
from shardwise.ir import parse_module, print_module, verify
from tests.ir.hostile import peak_megabytes
from tests.ir.mutations import mutations

MEMORY = 2 << 30


def accepts(text: str, allow_unregistered: bool) -> bool:
    """Whether a text is read; it is an error where anything but the errors of the project comes of it."""
    try:
        module = parse_module(text, "m.mlir", allow_unregistered=allow_unregistered)
    except ParseError as error:
        if min(error.line, error.column) < 1:
            raise
        return False
    printed = print_module(module)
    try:
        verify(module)
        print_module(module, "mesh19")
    except VerifyError:
        return True
    except ConversionError:
        pass
    # What verifies can be read again.
    again = print_module(parse_module(printed, allow_unregistered=allow_unregistered))
    if again != printed:
        raise AssertionError(first_difference(printed, again))
    return True


def first_difference(one: str, other: str) -> str:
    """The first line that differs."""
    lines = zip_longest(one.splitlines(), other.splitlines(), fillvalue="nothing")
    return next(f"{a.strip()} is read as {b.strip()}" for a, b in lines if a != b)


def survive(seconds: float, seed: int) -> int:
    """Feed changed texts for some seconds of CPU time, and return how many were read."""
    texts, read = mutations(seed), 0
    next(texts)  # the seeds are made before the first
    end = time.process_time() + seconds
    for number, text in enumerate(texts):
        start = time.process_time()
        if start > end:
            break
        read += accepts(text, allow_unregistered=number % 2 == 0)
        assert time.process_time() - start < 1 or not is_slow(text, number % 2 == 0), text
    return read


def is_slow(text: str, allow_unregistered: bool) -> bool:
    """Whether a text takes more than a second of CPU time again: a busy machine may count what it did for others."""
    start = time.process_time()
    accepts(text, allow_unregistered)
    return time.process_time() - start > 1


def explore(seconds: float, seed: int) -> int:
    """Print each cause of an error that is not the project's, and return how many there were."""
    causes: set[str] = set()
    texts, read, tried, slowest = mutations(seed), 0, 0, 0.0
    next(texts)  # the seeds are made before the first
    end = time.process_time() + seconds
    while (start := time.process_time()) < end:
        text = next(texts)
        tried += 1
        cause = shown = ""
        signal.setitimer(signal.ITIMER_VIRTUAL, 5)
        try:
            read += accepts(text, allow_unregistered=tried % 2 == 0)
        except Exception as error:  # every one is a fault, and all are wanted
            cause, shown = _cause(error), traceback.format_exc()
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        slowest = max(slowest, time.process_time() - start)
        # The reader takes the alarm, too, for a fault of the text.
        if not cause and time.process_time() - start > 1 and is_slow(text, tried % 2 == 0):
            cause = "slow"
        if cause and cause not in causes:
            print(f"==== {cause}, allowed {tried % 2 == 0}\n{text}\n---- {shown}", flush=True)
            causes.add(cause)
    print(
        f"seed {seed}: {tried} texts, {read} read, {len(causes)} causes, slowest {slowest:.2f} s,"
        f" peak {peak_megabytes():.0f} MB"
    )
    return len(causes)


def _cause(error: Exception) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    said = " ".join(re.findall(r"[a-z_.]{3,}", str(error))[:8])
    return f"{type(error).__name__} at {last.filename}:{last.lineno} {said}"


def _late(signum: int, frame: FrameType | None) -> None:
    raise TimeoutError("more than five seconds for one text")


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGVTALRM, _late)
    sys.exit(min(1, explore(float(sys.argv[1]), int(sys.argv[2]))))
