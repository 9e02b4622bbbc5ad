"""Farewells: how a process ends, as far as it can be known when it says goodbye.

Python tells of an error that ends it, but of nothing else. So whoever has others to tell watches `sys.exit`, and what
errors reached the user and did not end the program: they may be why it came to fewer calls than others.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import Empty
from typing import Any, NoReturn

from shardwise import errors
from shardwise.engine.log import PACKAGE, user_line
from shardwise.errors import CollectiveError, ShardwiseError

AT_THE_END = "it came to the end of its program, or raised SystemExit"
CUT = 500  # characters of an error's text
ENDS = (StopIteration, StopAsyncIteration, Empty)  # that something is at its end, which may be as it should


@dataclass(slots=True)
class Notes:
    """What happened that a goodbye should tell."""

    exit: str | None = None  # the call of sys.exit that was to end the process
    error: str | None = None  # the last error that did not end it
    watchers: list[Callable[[str], None]] = field(default_factory=list[Callable[[str], None]])  # told of such errors


notes = Notes()


def brief(error: BaseException) -> str:
    """Return an error in one line or few.

    >>> brief(ValueError("bad luck")), brief(KeyboardInterrupt())
    ('ValueError: bad luck', 'KeyboardInterrupt')
    """
    return f"{type(error).__name__}: {str(error)[:CUT]}".rstrip(": ")


def last_words() -> tuple[str, bool]:
    """Return how this process ends, where no error ends it, and whether that is as programs should end."""
    after = "" if notes.error is None else f"; it had gone on after {notes.error}"
    return f"{notes.exit or AT_THE_END}{after}", notes.exit is None


def note_error(error: BaseException, where: str = "") -> None:
    """Remember an error that leaves a block of the user's, or a call of ours; it may be caught, or end the program."""
    if isinstance(error, SystemExit):
        _note_exit(error.code)
        return
    if isinstance(error, CollectiveError | GeneratorExit) or not notes.watchers:
        return  # the others know the first, and the second is none
    if isinstance(error, ENDS) and notes.error is not None:
        return  # it comes at the end of every loop, and is no reason to forget what came before
    line = _line_of_error(error)
    text = f"{brief(error)}{f' at {line}' * bool(line)}"
    if notes.error is None or not notes.error.startswith(text):
        notes.error = text + where
        for tell in list(notes.watchers):
            tell(notes.error)


def note_call() -> None:
    """Note that this process has come to a call: what was to end it before has not."""
    notes.exit = None


def watch(tell: Callable[[str], None]) -> None:
    """Begin to note what a goodbye should tell, for one who wants to hear of such errors at once."""
    if not notes.watchers:
        notes.exit = notes.error = None
        sys.exit, errors.on_discard = _exit, _note_discard
    notes.watchers.append(tell)


def unwatch(tell: Callable[[str], None]) -> None:
    """Note nothing any more, when nobody is left who wants to hear."""
    if tell in notes.watchers:
        notes.watchers.remove(tell)
    if not notes.watchers:
        notes.exit = notes.error = errors.on_discard = None
        if sys.exit is _exit:
            sys.exit = _plain_exit


_plain_exit: Any = sys.exit


def _exit(status: Any = None, /) -> NoReturn:
    """Exit the interpreter by raising SystemExit(status); shardwise notes the status, for its goodbye."""
    _note_exit(status)
    _plain_exit(status)
    raise AssertionError  # which is never reached


def _note_exit(status: Any) -> None:
    # In another thread it ends that thread only.
    if threading.current_thread() is not threading.main_thread():
        return
    line = user_line()
    notes.exit = None if status in (None, 0) else f"it ended after sys.exit({repr(status)[:CUT]}) at {line}"


def _note_discard(error: ShardwiseError) -> None:
    # Nobody has the error any more. Its traceback begins where it was caught: by the user, or by this package itself.
    trace = error.__traceback__
    if trace is not None and not trace.tb_frame.f_code.co_filename.startswith(PACKAGE):
        note_error(error)


def _line_of_error(error: BaseException) -> str:
    # The innermost line of the user's.
    line, trace = "", error.__traceback__
    while trace is not None:
        if not trace.tb_frame.f_code.co_filename.startswith(PACKAGE):
            line = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
        trace = trace.tb_next
    return line
