"""The watchdog: a thread that tells the other processes that this one lives, and knows how they are.

Who leaves says why, and if it was stopped by what happened to others, what that was: nobody has to have heard it from
them before. It stays until the others have closed their ends, so that nothing it said is lost.
"""

# Python has no public name for the frames of another thread.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import os
import selectors
import socket
import sys
import sysconfig
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from threading import Thread, get_ident
from time import monotonic
from typing import Any

from shardwise.engine.guard.fingerprint import line_in
from shardwise.engine.guard.message import CUT, Message, read, write
from shardwise.engine.guard.stragglers import ANSWER, Stragglers, log, logger
from shardwise.engine.guard.vital_signs import VitalSigns
from shardwise.engine.log import leave_package, line_of
from shardwise.engine.meeting.channel import Channel
from shardwise.locks import make_condition

# What the user wrote is elsewhere, and tells more than the line of a library that it waits in.
LIBRARIES = (*(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")), "<frozen ")
TICK = 0.25  # seconds between looks at who is late
LINGER = 1.0  # seconds that one who leaves stays at most for others to hear why
CLOSED = "its connection closed without a goodbye: it was killed, crashed, or called os._exit"
UNREADABLE = "it sent what cannot be read"


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
    awaits: tuple[int, ...] = ()  # for whom it waited
    asked: float | None = None  # since when it has not answered
    trouble: str = ""  # the last error that did not end it
    call: bytes = b""  # its fingerprint, if it came to one since it said where it was

    @property
    def place(self) -> str:
        """Where it was when it was last heard of."""
        return line_in(self.call) if self.call else self.line

    def __str__(self) -> str:
        if self.gone is not None:
            return f"rank {self.rank}: {self.gone}; last sequence {self.sequence}"
        where = f" at {self.place}" if self.place else ""
        return f"rank {self.rank}: last sequence {self.sequence}, heartbeat {monotonic() - self.heard:.1f} s ago{where}"


class Watchdog:
    """Heartbeats to and from all others, with the last sequence number; and the end, when one of them tells of it."""

    def __init__(
        self, channels: Mapping[int, Channel], heartbeat: float, signs: VitalSigns | None = None, listens: bool = True
    ) -> None:
        """Use channels that nobody else reads; hear what comes over them at once, or when it is told to `listen`."""
        self.signs = signs or VitalSigns({})
        self.heartbeat, self.sequence, self.owner = heartbeat, 0, get_ident()
        self.peers = {rank: Peer(rank, monotonic()) for rank in channels}
        self.stopped: dict[str, Any] | None = None  # what a process said that could not go on
        self.changed = make_condition()  # held to send, and to change what is known: all that is heard at once
        self.on_loss: Callable[[Sequence[int] | None], None] = lambda lost: None  # which ranks; None: nothing is shared
        self.handlers: dict[str, Callable[[int, dict[str, Any]], None]] = {}  # of more kinds of messages
        self.on_event: Callable[[str], None] = lambda text: None  # what happened to others, in words
        self.on_beat: Callable[[str], None] = lambda line: None  # where this process is
        self.stragglers = Stragglers(self._ask, lambda rank, moment: self.peers[rank].heard > moment)
        self._channels, self._open = dict(channels), dict(channels)
        self._troubles = deque[str]()  # that others have yet to hear of
        self._ended, self._until = False, float("inf")  # when this process leaves, whatever others do
        self.woken, self._wakes = socket.socketpair()  # readable when the thread that communicates should look
        self._rouse, self._roused = socket.socketpair()
        for end in (self.woken, self._wakes, self._rouse, self._roused):
            end.setblocking(False)
        self._thread = Thread(target=self._run, name="shardwise-watchdog", daemon=True)
        if listens:
            self.listen()

    # -- by the thread that communicates -----------------------------------------------------------

    def listen(self) -> None:
        """Hear the others from here on; whatever kinds of messages they send have their handlers."""
        self._thread.start()

    def stop(self, **report: Any) -> None:
        """Tell all others that this process cannot go on, and why."""
        with self.changed:
            self.stopped = self.stopped or report
        self.stragglers.forget()
        self._tell(kind="stop", **report)
        self.on_loss(None)

    def refuse(self, rank: int) -> None:
        """Count a process as lost that has sent what cannot be read, wherever it came, and tell it so."""
        with self.changed:
            self._refuse(self.peers[rank])

    def tell_trouble(self, text: str) -> None:
        """Tell all others of an error that did not end this process.

        The thread does it: an error may be given up at any moment, also in the middle of sending something else.
        """
        self._troubles.append(text[:CUT])
        self._nudge(self._rouse)

    def end(self, text: str, clean: bool) -> None:
        """Say goodbye, and end the thread when the others have heard it."""
        self._tell_troubles()
        self._until = monotonic() + LINGER
        self._tell(kind="bye", text=text[:CUT], clean=clean, cause=self.stopped, sequence=self.sequence)
        for channel in self._channels.values():
            channel.finish()
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

    def tell(self, rank: int, **message: Any) -> None:
        """Send a message to one other process."""
        body = write(message)
        with self.changed:
            if self.peers[rank].gone is None:
                self._channels[rank].send(body)

    def find_gone(self, ranks: Iterable[int], patience: float) -> list[Peer]:
        """Return those of some ranks that are gone; before none is, wait a little for the news."""
        with self.changed:
            self.changed.wait_for(
                lambda: self.stopped is not None or any(self.peers[r].gone is not None for r in ranks), patience
            )
            return [self.peers[rank] for rank in ranks if self.peers[rank].gone is not None]

    def silent(self, rank: int) -> bool:
        """Whether heartbeats of a process have failed to come, or it was asked and does not answer."""
        peer, now = self.peers[rank], monotonic()
        return now - peer.heard > 2 * self.heartbeat + 0.5 or (peer.asked is not None and now - peer.asked > ANSWER)

    def state(self, rank: int) -> str:
        """Return what is known of a process that has not come."""
        if self.silent(rank):
            return self.signs.look(rank, self._channels[rank].socket)
        awaits = self.peers[rank].awaits
        if awaits:
            return f"it waits for rank{'s' * (len(awaits) > 1)} {', '.join(map(str, awaits))} itself"
        return "busy elsewhere"

    def _tell(self, **message: Any) -> None:
        body = write(message)
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
                self._look_for_late(now)
                seconds = min(due, self._until, now + TICK) - monotonic()
                keys = [key for key, _ in selector.select(max(0.0, seconds))]
                if any(key.data is None for key in keys):
                    self._roused.recv(1 << 12)
                self._tell_troubles()
                for channel in self._hear([key.data for key in keys if key.data is not None]):
                    selector.unregister(channel.socket)
                    channel.close()

    def _beat(self) -> None:
        body, line = self._say("beat"), self._line()
        self.on_beat(line)
        with self.changed:
            for rank in self._channels:
                self._send(rank, body)

    def _ask(self, ranks: Sequence[int]) -> None:
        # Ask some where they are, and tell them where this process is.
        body, now = self._say("ask"), monotonic()
        with self.changed:
            for rank in ranks:
                peer = self.peers[rank]
                peer.asked = peer.asked or now
                self._send(rank, body)

    def _say(self, kind: str) -> bytes:
        wait = self.stragglers.wait
        awaits = [] if wait is None else list(wait.ranks)
        return write({"kind": kind, "sequence": self.sequence, "line": self._line(), "awaits": awaits})

    def _send(self, rank: int, body: bytes) -> None:
        # One that does not read gets no more than it can take.
        channel = self._channels[rank]
        if self.peers[rank].gone is None and channel.flush():
            channel.send(body)

    def _tell_troubles(self) -> None:
        with self.changed:  # by this thread, or at the end by the one that says goodbye
            while self._troubles:
                self._tell(kind="note", text=self._troubles.popleft())

    def _look_for_late(self, now: float) -> None:
        if self.stopped is None:
            for text in self.stragglers.look(now, self._describe):
                self.on_event(text)

    def _describe(self, rank: int) -> str:
        if self.peers[rank].gone is not None:
            return str(self.peers[rank].gone)
        state, line = self.state(rank), self.peers[rank].place
        where = f", {'last seen ' if self.silent(rank) else ''}at {line}" if line else ""
        return f"{state}{where}"

    def _line(self) -> str:
        first = frame = leave_package(sys._current_frames().get(self.owner))[0]
        while frame is not None and frame.f_code.co_filename.startswith(LIBRARIES):
            frame = leave_package(frame.f_back)[0]
        return line_of(frame or first)

    def _hear(self, ready: list[Channel]) -> list[Channel]:
        # Take what channels have; return those that are closed.
        messages = [(channel.rank, message) for channel in ready for message in self._read(channel)]
        if any(channel.closed for channel in ready):
            # One that is gone may have been stopped by another: what that one said before is here by now.
            messages += [(c.rank, message) for c in self._open.values() for message in self._read(c)]
        closed = [channel for channel in self._open.values() if channel.closed]
        with self.changed:
            news = [self._note(self.peers[rank], message) for rank, message in messages]
            news += [self._miss(self.peers[self._open.pop(channel.rank).rank]) for channel in closed]
            if any(news):
                self.changed.notify_all()
        for rank in {rank for rank, message in messages if message is not None and message["kind"] == "ask"}:
            with self.changed:
                self._send(rank, self._say("beat"))
        if self._until == float("inf"):  # while this process leaves, others close their ends without a word
            for text in filter(None, news):
                self.on_event(text)
        if any(news):
            self._nudge(self._wakes)
            lost = [rank for rank, peer in self.peers.items() if peer.gone is not None and not peer.clean]
            if lost or self.stopped is not None:
                self._report_loss(lost if self.stopped is None else None)
        return closed

    def _report_loss(self, lost: Sequence[int] | None) -> None:
        try:
            self.on_loss(lost)
        except Exception as error:  # this thread goes on, whatever happens to those it tells
            log(logger.error, f"what was under way could not be stopped: {error!r}")

    def _read(self, channel: Channel) -> Iterator[Message | None]:
        # What a process said; None, and its connection counts as closed, if it cannot be read.
        for body in channel.messages():
            try:
                yield read(body, self.handlers)
            except ValueError:
                channel.closed = channel.is_garbled = True
                break
        if channel.is_garbled:
            yield None

    def _note(self, peer: Peer, message: Message | None) -> str:
        # Change what is known by what a process said; return what is news for the thread that communicates.
        if message is None or peer.gone == UNREADABLE:
            return self._refuse(peer)
        kind = message["kind"]
        peer.heard, peer.asked = monotonic(), None
        if kind in self.handlers:
            try:
                self.handlers[kind](peer.rank, message)
            except Exception:  # whatever is amiss with a message, this thread goes on
                return self._refuse(peer)
            return ""
        if "line" in message:
            peer.line, peer.call = message["line"], b""
        if kind == "note":
            peer.trouble = message["text"]
            return f"rank {peer.rank} goes on after {peer.trouble}"
        if kind != "stop":
            peer.sequence = max(peer.sequence, message["sequence"])  # calls tell it too, and sooner
        peer.awaits = tuple(message.get("awaits", ()))
        cause = message if kind == "stop" else message.get("cause")
        if cause is not None and self.stopped is None:
            self.stopped = {"by": peer.rank} | cause
        if kind == "bye":
            peer.gone, peer.clean, peer.follows = message["text"], message["clean"], cause is not None
            return f"rank {peer.rank}: {peer.gone}"
        return f"rank {peer.rank} stopped: {message['text']}" if kind == "stop" else ""

    def _refuse(self, peer: Peer) -> str:
        # Who sends what cannot be read is told so: it would take the closed connection for the end of this process.
        if peer.gone is None:
            report = {"error": "RankLost", "text": f"rank {peer.rank} was lost: {UNREADABLE}.", "ranks": [peer.rank]}
            self._channels[peer.rank].send(write({"kind": "stop", **report, "step": "", "sequence": self.sequence}))
        return self._miss(peer, UNREADABLE)

    def _miss(self, peer: Peer, how: str = CLOSED) -> str:
        if peer.gone is not None:
            return ""
        peer.gone = how
        return f"rank {peer.rank}: {how}"

    def _nudge(self, end: socket.socket) -> None:
        try:
            end.send(b"!")
        except OSError:
            return  # it has been nudged enough, or is closed
