"""The watchdog: a thread that tells the other processes that this one lives, and knows how they are.

Who leaves says why, and if it was stopped by what happened to others, what that was: nobody has to have heard it from
them before. It stays until the others have closed their ends, so that nothing it said is lost.
"""

# Python has no public name for the frames of another thread.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import json
import os
import selectors
import socket
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from threading import Condition, Thread
from time import monotonic
from typing import Any

from shardwise.engine.guard.channel import Channel
from shardwise.engine.log import leave_package, line_of

CUT = 4000  # characters of a text that is told to others
LINGER = 1.0  # seconds that one who leaves stays at most for others to hear why
CLOSED = "its connection closed without a goodbye: it was killed, or crashed"


@dataclass(slots=True)
class Peer:
    """What is known of another process."""

    rank: int
    heard: float  # when, by this process's clock
    sequence: int = 0  # of the last call that it came to
    line: str = ""  # where it was
    gone: str | None = None  # how it went
    clean: bool = False  # whether it said that it goes, and not because of an error
    follows: bool = False  # whether it had been stopped by what happened to another

    def __str__(self) -> str:
        if self.gone is not None:
            return f"rank {self.rank}: {self.gone}; last sequence {self.sequence}"
        where = f" at {self.line}" if self.line else ""
        return f"rank {self.rank}: last sequence {self.sequence}, heartbeat {monotonic() - self.heard:.1f} s ago{where}"


class Watchdog:
    """Heartbeats to and from all others, with the last sequence number; and the end, when one of them tells of it."""

    def __init__(self, channels: Mapping[int, Channel], heartbeat: float) -> None:
        """Use channels that nobody else reads."""
        self.heartbeat, self.sequence, self.owner = heartbeat, 0, 0
        self.peers = {rank: Peer(rank, monotonic()) for rank in channels}
        self.stopped: dict[str, Any] | None = None  # what a process said that could not go on
        self.changed = Condition()  # held to send, and to change what is known: all that is heard at once
        self.on_loss: Callable[[Sequence[int] | None], None] = lambda lost: None  # which ranks; None: nothing is shared
        self._channels, self._open = dict(channels), dict(channels)
        self._ended, self._until = False, float("inf")  # when this process leaves, whatever others do
        self.woken, self._wakes = socket.socketpair()  # readable when the thread that communicates should look
        self._rouse, self._roused = socket.socketpair()
        for end in (self.woken, self._wakes, self._rouse, self._roused):
            end.setblocking(False)
        self._thread = Thread(target=self._run, name="shardwise-watchdog", daemon=True)
        self._thread.start()

    # -- by the thread that communicates -----------------------------------------------------------

    def stop(self, **report: Any) -> None:
        """Tell all others that this process cannot go on, and why."""
        with self.changed:
            self.stopped = self.stopped or report
        self._tell(kind="stop", **report)

    def end(self, text: str, clean: bool) -> None:
        """Say goodbye, and end the thread when the others have heard it."""
        self._tell(kind="bye", text=text[:CUT], clean=clean, cause=self.stopped, sequence=self.sequence)
        for channel in self._channels.values():
            channel.finish()
        self._until = monotonic() + LINGER
        self._nudge(self._rouse)
        self._thread.join(LINGER + 1.0)
        self.forget()

    def forget(self) -> None:
        """Close this process's ends of everything; in a fork, which is not one of the processes, at once."""
        self._ended = True
        for channel in self._channels.values():
            channel.close()
        for end in (self.woken, self._wakes, self._rouse, self._roused):
            end.close()

    def find_gone(self, ranks: Iterable[int], patience: float) -> list[Peer]:
        """Return those of some ranks that are gone; before none is, wait a little for the news."""
        with self.changed:
            self.changed.wait_for(
                lambda: self.stopped is not None or any(self.peers[r].gone is not None for r in ranks), patience
            )
            return [self.peers[rank] for rank in ranks if self.peers[rank].gone is not None]

    def silent(self, rank: int) -> bool:
        """Whether heartbeats of a process have failed to come."""
        return monotonic() - self.peers[rank].heard > 2 * self.heartbeat + 0.5

    def _tell(self, **message: Any) -> None:
        body = json.dumps(message).encode()
        with self.changed:
            for rank, channel in self._channels.items():
                if self.peers[rank].gone is None:
                    channel.send(body)

    # -- the thread --------------------------------------------------------------------------------

    def _run(self) -> None:
        pid = os.getpid()
        with selectors.DefaultSelector() as selector:
            selector.register(self._roused, selectors.EVENT_READ)
            for channel in self._open.values():
                selector.register(channel.socket, selectors.EVENT_READ, channel)
            due = monotonic()
            while not self._ended and os.getpid() == pid:
                now = monotonic()
                if self._until <= now or (self._until < float("inf") and not self._open):
                    return
                if due <= now:
                    self._beat()
                    due = monotonic() + self.heartbeat
                keys = [key for key, _ in selector.select(max(0.0, min(due, self._until) - monotonic()))]
                if any(key.data is None for key in keys):
                    self._roused.recv(1 << 12)
                for channel in self._hear([key.data for key in keys if key.data is not None]):
                    selector.unregister(channel.socket)
                    channel.close()

    def _beat(self) -> None:
        body = json.dumps({"kind": "beat", "sequence": self.sequence, "line": self._line()}).encode()
        with self.changed:
            for rank, channel in self._channels.items():
                # One that does not read gets no more than it can take.
                if self.peers[rank].gone is None and channel.flush():
                    channel.send(body)

    def _line(self) -> str:
        frame = sys._current_frames().get(self.owner)
        return line_of(leave_package(frame)[0])

    def _hear(self, ready: list[Channel]) -> list[Channel]:
        # Take what channels have; return those that are closed.
        messages = [(channel.rank, body) for channel in ready for body in channel.messages()]
        if any(channel.closed for channel in ready):
            # One that is gone may have been stopped by another: what that one said before is here by now.
            messages += [(channel.rank, body) for channel in self._open.values() for body in channel.messages()]
        closed = [channel for channel in self._open.values() if channel.closed]
        with self.changed:
            news = [self._note(self.peers[rank], json.loads(body)) for rank, body in messages]
            news += [self._miss(self.peers[self._open.pop(channel.rank).rank]) for channel in closed]
            if any(news):
                self.changed.notify_all()
        if any(news):
            self._nudge(self._wakes)
            lost = [rank for rank, peer in self.peers.items() if peer.gone is not None and not peer.clean]
            if lost or self.stopped is not None:
                self.on_loss(lost if self.stopped is None else None)
        return closed

    def _note(self, peer: Peer, message: dict[str, Any]) -> bool:
        # Change what is known by what a process said; return whether it is news for the thread that communicates.
        peer.heard, peer.line = monotonic(), message.get("line", peer.line)
        if message["kind"] != "stop":
            peer.sequence = max(peer.sequence, message["sequence"])  # calls tell it too, and sooner
        cause = message if message["kind"] == "stop" else message.get("cause")
        if cause is not None and self.stopped is None:
            self.stopped = {"by": peer.rank} | cause
        if message["kind"] == "bye":
            peer.gone, peer.clean, peer.follows = message["text"], message["clean"], cause is not None
        return message["kind"] != "beat"

    def _miss(self, peer: Peer) -> bool:
        if peer.gone is not None:
            return False
        peer.gone = CLOSED
        return True

    def _nudge(self, end: socket.socket) -> None:
        try:
            end.send(b"!")
        except OSError:
            return  # it has been nudged enough, or is closed
