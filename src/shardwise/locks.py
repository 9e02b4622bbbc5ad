"""Locks: what threads take in turn; free again in a forked child, where the threads that held them are not.

All locks of the package are made here. What they protect is right at every moment for who reads it without them, or is
made anew in a child (`call_in_child`): it starts with whatever another thread had half done.
"""

# Python has no public name for freeing a lock in a forked child; its own modules do it so.
# pyright: reportPrivateUsage=false, reportAttributeAccessIssue=false, reportUnknownMemberType=false

from __future__ import annotations

import os
from collections.abc import Callable
from threading import Condition, RLock
from types import MethodType
from typing import TypeVar
from weakref import WeakKeyDictionary, WeakSet

Held = TypeVar("Held", Condition, RLock)


def make_lock() -> RLock:
    """Make a lock, which the thread that holds it may take again: a finalizer or a signal can come at any moment.

    >>> lock = make_lock()
    >>> with lock, lock:
    ...     pass
    """
    return _free_in_children(RLock())


def make_condition() -> Condition:
    """Make a lock whose holder can wait for what other threads change.

    >>> changed = make_condition()
    >>> with changed:
    ...     changed.notify_all()
    """
    return _free_in_children(Condition())


def call_in_child(method: MethodType) -> None:
    """Call a method in every forked child, as long as its object is there; one method of each object.

    >>> class Kept:
    ...     def forget(self):
    ...         print("in a child")
    >>> kept = Kept()
    >>> call_in_child(kept.forget)
    """
    _methods[method.__self__] = method.__func__


_locks: WeakSet[Condition | RLock] = WeakSet()
_methods: WeakKeyDictionary[object, Callable[[object], None]] = WeakKeyDictionary()  # by the object


def _free_in_children(lock: Held) -> Held:
    _locks.add(lock)
    return lock


def _start_child() -> None:
    for lock in list(_locks):
        if not lock._is_owned():  # the thread that forked goes on, and gives back what it holds
            lock._at_fork_reinit()
    for value, method in list(_methods.items()):
        method(value)


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_start_child)
