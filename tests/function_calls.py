"""How many functions a call enters: a cost that no busy machine changes."""

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from shardwise import caches


def calls_of(action: Callable[[], object], *events: str) -> int:
    """Count the functions that an action enters, those of Python unless `events` of `sys.setprofile` says others.

    What others left behind is not counted when it goes, nor the bytes of caches, which are added up now and then.
    """
    entered, kinds = [0], events or ("call",)

    def count(frame: FrameType, event: str, arg: Any) -> None:
        entered[0] += event in kinds

    gc.collect()
    gc.disable()
    every, caches.CHECKED_EVERY = caches.CHECKED_EVERY, 1 << 60
    sys.setprofile(count)
    try:
        action()
    finally:
        sys.setprofile(None)
        caches.CHECKED_EVERY = every
        gc.enable()
    return entered[0] - ("c_call" in kinds)  # that of the last `setprofile`
