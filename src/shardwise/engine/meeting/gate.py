"""The gate of a process: where it listens, and admits whoever proves to belong to its job.

Each newcomer is heard in a thread of its own, for a few seconds at most: one that says nothing holds nobody up.
"""

from __future__ import annotations

import socket
from collections import deque
from contextlib import suppress
from queue import Empty, Queue
from threading import Thread
from time import monotonic, sleep
from typing import Any

from shardwise.engine.meeting.credentials import Credentials
from shardwise.engine.meeting.handshake import StrangerError, answer
from shardwise.errors import printable
from shardwise.locks import make_lock

DEADLINE = 5.0  # seconds for all of a handshake
PAUSE = 0.02
REMEMBERED = 8  # strangers who can be told of
ENDING = 1.0  # seconds in which a thread ends whose connection was shut

Newcomer = tuple[socket.socket, dict[str, Any]]


class Gate:
    """A socket that listens, and the newcomers who were admitted and not yet received."""

    def __init__(self, listener: socket.socket, credentials: Credentials, size: int) -> None:
        """Admit newcomers from here on; at most some more than `size` are heard at a time."""
        self.turned_away: deque[str] = deque(maxlen=REMEMBERED)  # the last strangers, and why
        self._listener, self._credentials, self._most = listener, credentials, 64 + 4 * size
        self._newcomers: Queue[Newcomer] = Queue()
        self._hearing: dict[socket.socket, Thread] = {}  # in the order in which they came
        self._lock = make_lock()
        self._is_open = True
        listener.settimeout(None)
        self._thread = Thread(target=self._stand, name="shardwise-gate", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """Where it listens."""
        return self._listener.getsockname()[1]

    def receive(self, seconds: float) -> Newcomer | None:
        """Return the connection of the next newcomer, and its greeting, if one comes in time."""
        with suppress(Empty):
            return self._newcomers.get(timeout=seconds)
        return None

    def close(self) -> None:
        """Admit nobody any more."""
        with self._lock:
            self._is_open = False
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # which ends the thread that accepts
        self._listener.close()
        self._thread.join(ENDING)
        with self._lock:
            threads = list(self._hearing.values())
            for connection in self._hearing:
                _shut(connection)
        while (newcomer := self.receive(0.0)) is not None:
            newcomer[0].close()
        end = monotonic() + ENDING
        for thread in threads:
            thread.join(max(0.0, end - monotonic()))

    def _stand(self) -> None:
        while self._is_open:
            try:
                connection, address = self._listener.accept()
            except OSError:
                if not self._is_open or self._listener.fileno() < 0:
                    return
                sleep(PAUSE)  # no files are left, or it was gone before it was heard
                continue
            try:
                self._let_speak(connection, str(address[0]))
            except (OSError, RuntimeError):  # it is gone, or no thread is left
                connection.close()
                sleep(PAUSE)

    def _let_speak(self, connection: socket.socket, address: str) -> None:
        connection = self._credentials.secure(connection)
        thread = Thread(target=self._hear, args=(connection, address), name="shardwise-gate", daemon=True)
        if len(self._hearing) >= self._most:
            self._send_oldest_away()
        try:
            with self._lock:
                thread.start()
                self._hearing[connection] = thread
        except RuntimeError:
            connection.close()
            raise

    def _send_oldest_away(self) -> None:
        # Who came first has had most time to say who it is.
        with self._lock:
            oldest = next(iter(self._hearing), None)
            thread = None if oldest is None else self._hearing.pop(oldest)
        if oldest is not None and thread is not None:
            _shut(oldest)
            thread.join(ENDING)

    def _hear(self, connection: socket.socket, address: str) -> None:
        try:
            end = monotonic() + DEADLINE
            greeting = answer(connection, self._credentials, end, lambda: self._admit(connection))
        except (StrangerError, OSError, ValueError) as error:
            self.turned_away.append(printable(f"{address}: {error}", keep=""))
            with self._lock:
                self._hearing.pop(connection, None)
            connection.close()
            return
        with self._lock:
            if self._is_open:
                self._newcomers.put((connection, greeting))
                return
        connection.close()

    def _admit(self, connection: socket.socket) -> bool:
        # From here on nobody shuts it to make room for others.
        with self._lock:
            return self._hearing.pop(connection, None) is not None and self._is_open


def _shut(connection: socket.socket) -> None:
    # Whoever waits for it is told; its thread closes it.
    with suppress(OSError):
        socket.socket.shutdown(connection, socket.SHUT_RDWR)  # under the encryption, if there is one
