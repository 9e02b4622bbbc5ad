"""The watchdog: a thread that tells the other processes that this one lives, and knows how they are."""

from __future__ import annotations

import json
import os
import selectors
import socket
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from threading import Condition, Thread
from time import monotonic
from typing import Any

from shardwise.engine.channel import Channel
from shardwise.engine.log import PACKAGE

CUT = 4000  # characters of a text that is told to others


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
        self.changed = Condition()  # held to send, or to change what is known of a peer
        self._channels, self._ended = dict(channels), False
        self.woken, self._wakes = socket.socketpair()  # readable when the thread that communicates should look
        self._rouse, self._roused = socket.socketpair()
        for end in (self.woken, self._wakes, self._rouse, self._roused):
            end.setblocking(False)
        self._thread = Thread(target=self._run, name="shardwise-watchdog", daemon=True)
        self._thread.start()

    # -- by the thread that communicates -----------------------------------------------------------

    def stop(self, **said: Any) -> None:
        """Tell all others that this process cannot go on, and why."""
        if self.stopped is None:
            self.stopped = said
        self._tell(kind="stop", **said)

    def end(self, text: str, clean: bool) -> None:
        """Say goodbye, and end the thread."""
        follows = self.stopped is not None
        self._tell(kind="bye", text=text[:CUT], clean=clean, follows=follows, sequence=self.sequence)
        self._ended = True
        self._nudge(self._rouse)
        self._thread.join(2.0)
        self.forget()

    def forget(self) -> None:
        """Close this process's ends of everything; in a fork, which is not one of the processes, at once."""
        self._ended = True
        for channel in self._channels.values():
            channel.close()
        for end in (self.woken, self._wakes, self._rouse, self._roused):
            end.close()

    def gone(self, ranks: Iterable[int], patience: float) -> list[Peer]:
        """Return those of some ranks that are gone; before none is, wait a little for the news."""
        with self.changed:
            self.changed.wait_for(
                lambda: self.stopped is not None or any(self.peers[r].gone is not None for r in ranks), patience
            )
            return [self.peers[rank] for rank in ranks if self.peers[rank].gone is not None]

    def silent(self, rank: int) -> bool:
        """Whether heartbeats of a process have failed to come."""
        return monotonic() - self.peers[rank].heard > 2 * self.heartbeat + 0.5

    def _tell(self, **said: Any) -> None:
        body = json.dumps(said).encode()
        with self.changed:
            for rank, channel in self._channels.items():
                if self.peers[rank].gone is None:
                    channel.send(body)

    # -- the thread --------------------------------------------------------------------------------

    def _run(self) -> None:
        pid = os.getpid()
        with selectors.DefaultSelector() as selector:
            selector.register(self._roused, selectors.EVENT_READ)
            for channel in self._channels.values():
                selector.register(channel.socket, selectors.EVENT_READ, channel)
            due = monotonic()
            while not self._ended and os.getpid() == pid:
                if monotonic() >= due:
                    self._beat()
                    due = monotonic() + self.heartbeat
                for key, _ in selector.select(max(0.0, due - monotonic())):
                    if isinstance(key.data, Channel) and self._hear(key.data):
                        selector.unregister(key.fileobj)

    def _beat(self) -> None:
        body = json.dumps({"kind": "beat", "sequence": self.sequence, "line": self._line()}).encode()
        with self.changed:
            for rank, channel in self._channels.items():
                # One that does not read gets no more than it can take.
                if self.peers[rank].gone is None and channel.flush():
                    channel.send(body)

    def _line(self) -> str:
        frame = sys._current_frames().get(self.owner)
        while frame is not None and frame.f_code.co_filename.startswith(PACKAGE):
            frame = frame.f_back
        return "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"

    def _hear(self, channel: Channel) -> bool:
        # Take what a channel has; return whether it is closed.
        peer, news = self.peers[channel.rank], False
        while (body := channel.receive()) is not None:
            said = json.loads(body)
            peer.heard = monotonic()
            if said["kind"] != "stop":
                peer.sequence = max(peer.sequence, said["sequence"])  # calls tell it too, and sooner
            peer.line = said.get("line", peer.line)
            if said["kind"] == "bye":
                peer.gone, peer.clean, peer.follows, news = said["text"], said["clean"], said["follows"], True
            elif said["kind"] == "stop" and self.stopped is None:
                self.stopped, news = said | {"by": channel.rank}, True
        if channel.closed and peer.gone is None:
            peer.gone, news = "its connection closed without a goodbye: it was killed, or crashed", True
        if news:
            with self.changed:
                self.changed.notify_all()
            self._nudge(self._wakes)
        return channel.closed

    def _nudge(self, end: socket.socket) -> None:
        try:
            end.send(b"!")
        except OSError:
            return  # it has been nudged enough, or is closed
