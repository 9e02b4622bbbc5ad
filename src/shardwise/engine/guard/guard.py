"""The guard: no data moves before all processes of a group have come to the same call, and who is missing is named.

Every two processes must come to the calls that they share in the same order. So each tells every other of a group the
fingerprint of its call, and compares: the next one that comes from a process must be of the same call.
"""

from __future__ import annotations

import os
import select
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Any

from shardwise.engine.call import Call
from shardwise.engine.guard.channel import Channel
from shardwise.engine.guard.fingerprint import Fingerprint, agree, decode, differences, encode, sequence_in
from shardwise.engine.guard.watchdog import CUT, Watchdog
from shardwise.engine.log import user_line
from shardwise.engine.settings import Settings
from shardwise.errors import CollectiveError, CollectiveMismatch, CollectiveTimeout, EngineError, RankLost

EARLY = 0.02  # seconds in which most processes come
NEWS = 5.0  # seconds until it must be known why a connection closed
ERRORS: dict[str, type[CollectiveError]] = {kind.__name__: kind for kind in CollectiveError.__subclasses__()}
KEPT = "\n  this process still has what it holds: x.shards and x.local(i) can be read and saved."


class CollectiveGuard:
    """Compares calls before any data moves; its watchdog knows how the other processes are."""

    def __init__(self, rank: int, channels: Mapping[str, Mapping[int, Channel]], settings: Settings) -> None:
        """Use the channels of this rank to all others."""
        self.rank, self.settings = rank, settings
        self.watchdog = Watchdog(channels["beats"], settings.heartbeat)
        self._channels = dict(channels["calls"])
        self._counts: Counter[tuple[int, ...]] = Counter()
        self._error: CollectiveError | None = None  # why nothing can be shared any more
        self._pid, self._thread = os.getpid(), 0
        os.register_at_fork(after_in_child=self._forget)

    @property
    def is_here(self) -> bool:
        """Whether this is the process that was started, and not a fork of it."""
        return self._pid == os.getpid()

    # -- what the wire asks ------------------------------------------------------------------------

    def before(self, sequence: int, call: Call) -> None:
        """Return when all processes of the group have come to this call; no data has moved until then."""
        if self._thread != threading.get_ident() or not self.is_here:
            self._refuse(call)
        self._check()
        self.watchdog.sequence = sequence
        self._counts[call.ranks] += 1
        line = user_line()
        mine = encode(Fingerprint(call, self._counts[call.ranks], sequence, line))
        waiting = [self._channels[rank] for rank in call.ranks if rank != self.rank]
        for channel in waiting:
            channel.send(mine)
        start = monotonic()
        while waiting := self._still_waiting(waiting, mine, sequence, call):
            left = start + self.settings.timeout - monotonic()
            if left <= 0:
                raise self._timeout_error([channel.rank for channel in waiting], sequence, call, line)
            # At first wait for one alone: when it has come, others have too, and each need not wake this process.
            early = self.settings.timeout - left < EARLY
            self._look(waiting[:1] if early else waiting, EARLY if early else left)

    def wait(self, work: Any, sequence: int, call: Call) -> None:
        """Wait for a piece of work of torch.distributed; say who is to blame if it fails."""
        try:
            work.wait()
        except RuntimeError as error:
            raise self.failure(error, sequence, call) from error

    def failure(self, error: Exception, sequence: int, call: Call) -> EngineError:
        """Return the error that tells why an operation of torch.distributed failed."""
        others = [rank for rank in call.ranks if rank != self.rank]
        departure = self._departure_error(others, sequence, call)
        if departure is not None:
            return departure
        if "imed out" in str(error):
            late = [rank for rank in others if self.watchdog.silent(rank)]
            late = late or [rank for rank in others if self.watchdog.peers[rank].sequence < sequence] or others
            return self._timeout_error(late, sequence, call, user_line())
        text = f"{call.step} (sequence {sequence}, at {user_line()}) failed in torch.distributed:\n  {error}"
        return self._stop(CollectiveError(text + KEPT, ranks=call.ranks, step=call.step, sequence=sequence))

    def explain_unfinished(self, sequence: int) -> CollectiveError:
        """Return the error that tells why what was under way from a call on never came."""
        reading = Call("reading", (self.rank, *self.watchdog.peers), (), "", "", "", None, None, "")
        error = self._error or self._departure_error(reading.ranks[1:], self.watchdog.sequence, reading)
        if error is None:
            error = CollectiveError("NCCL was stopped.", ranks=(self.rank,), step="", sequence=sequence)
        return _like(error, f"a value that was under way at sequence {sequence}, or made of it, never came:\n  {error}")

    def start_failure(self, error: Exception, size: int) -> EngineError:
        """Return the error that tells why torch.distributed could not start."""
        return self.failure(error, 0, Call("init", tuple(range(size)), (), "", "", "", None, None, ""))

    def give_up(self, error: BaseException) -> None:
        """Tell the others that this process cannot take part in what it has begun."""
        if self._error is not None or not self.is_here:
            return
        text = f"rank {self.rank} gave up at sequence {self.watchdog.sequence}: {_brief(error)}"
        self._stop(RankLost(text + KEPT, ranks=(self.rank,), sequence=self.watchdog.sequence))

    def close(self, error: BaseException | None = None) -> None:
        """Say goodbye to the others, and why."""
        if not self.is_here:
            return
        farewell = "it left, cleanly" if error is None else f"it left with {_brief(error)}"
        self.watchdog.end(farewell, clean=error is None)
        self._forget()

    # -- comparing ---------------------------------------------------------------------------------

    def _still_waiting(self, waiting: Sequence[Channel], mine: bytes, sequence: int, call: Call) -> list[Channel]:
        # Those that have not come yet; others than the one expected are errors.
        out: list[Channel] = []
        for channel in waiting:
            theirs = channel.receive()
            if theirs is not None and not agree(mine, theirs):
                raise self._mismatch_error(channel.rank, decode(mine), decode(theirs))
            if theirs is None and channel.closed:
                error = self._departure_error([channel.rank], sequence, call)
                raise error or self._loss_error(channel.rank, sequence, call)
            if theirs is None:
                out.append(channel)
                continue
            peer = self.watchdog.peers[channel.rank]
            peer.sequence, peer.heard = sequence_in(theirs), monotonic()
        if out:
            self._check()
        return out

    def _look(self, waiting: Sequence[Channel], seconds: float) -> None:
        poll = select.poll()
        poll.register(self.watchdog.woken, select.POLLIN)
        for channel in waiting:
            poll.register(channel.fd, select.POLLIN)
        for fd, _ in poll.poll(1000 * seconds):
            if fd == self.watchdog.woken.fileno():
                self.watchdog.woken.recv(1 << 12)

    def _check(self) -> None:
        if self._error is not None:
            again = f"nothing can be shared with other processes any more, since:\n  {self._error}"
            raise _like(self._error, again)
        if self.watchdog.stopped is not None:
            raise self._reported_error()

    def _refuse(self, call: Call) -> None:
        if not self.is_here:
            raise EngineError(
                f"{call.step}: this process was forked from rank {self.rank} after init, and is not one of the "
                "processes: it shares its parent's connections and would mix up its messages.\n"
                "  fork before init, start it with subprocess or by 'spawn', or communicate in the parent."
            )
        if self._thread and any(thread.ident == self._thread for thread in threading.enumerate()):
            raise EngineError(
                f"{call.step}: called in thread {threading.current_thread().name!r}, but another thread of this "
                "process has communicated and still runs. Calls of two threads come in no certain order, and other "
                "processes could not match them.\n  communicate from one thread."
            )
        self._thread = self.watchdog.owner = threading.get_ident()

    # -- errors ------------------------------------------------------------------------------------

    def _departure_error(self, ranks: Sequence[int], sequence: int, call: Call) -> CollectiveError | None:
        # Who went by itself is to blame, unless it went after something else had happened, of which all were told.
        gone = [peer for peer in self.watchdog.find_gone(ranks, NEWS) if not peer.follows]
        first = min(gone, key=lambda peer: peer.clean, default=None)
        cause = self.watchdog.stopped
        if cause is not None and (first is None or not _is_loss(cause, first.rank)):
            return self._reported_error()
        return None if first is None else self._loss_error(first.rank, sequence, call)

    def _loss_error(self, rank: int, sequence: int, call: Call) -> CollectiveError:
        peer = self.watchdog.peers[rank]
        where = f", at {peer.line}" if peer.line else ""
        text = (
            f"rank {rank} was lost: rank {self.rank} came to {call.step} (sequence {sequence}) at {user_line()}.\n"
            f"  rank {rank}: {peer.gone or 'its connection closed'}; its last sequence was {peer.sequence}{where}."
        )
        text += "" if peer.clean else f"\n  look at the output of rank {rank} first."
        return self._stop(RankLost(text + KEPT, ranks=(rank,), step=call.step, sequence=sequence))

    def _timeout_error(self, ranks: Sequence[int], sequence: int, call: Call, line: str) -> CollectiveError:
        seconds = self.settings.timeout
        names = f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"
        rows: list[str] = []
        for rank in ranks:
            silent = self.watchdog.silent(rank)
            rows.append(f"\n  {self.watchdog.peers[rank]}: {'stopped, or cut off' if silent else 'busy elsewhere'}")
        text = (
            f"{call.step} (sequence {sequence}, at {line}) waited {seconds:g} s for {names}."
            f"{''.join(rows)}\n  init(timeout=...) or SHARDWISE_TIMEOUT gives more seconds."
        )
        return self._stop(CollectiveTimeout(text + KEPT, ranks=ranks, step=call.step, sequence=sequence))

    def _mismatch_error(self, rank: int, mine: Fingerprint, theirs: Fingerprint) -> CollectiveError:
        (first, one), (second, other) = sorted([(self.rank, mine), (rank, theirs)])
        different = differences(one, other)
        text = (
            f"ranks {first} and {second} came to different calls; no data was moved.\n"
            f"  rank {first}: {one}\n  rank {second}: {other}\n  different: {', '.join(different)}\n"
            "  all processes of a group run the same functions on the same meshes, in the same order."
        )
        if "mesh" in different:
            text += "\n  meshes are the same if their axes, devices and names are."
            text += "\n  init(mesh=...) compares them at the start."
        error = CollectiveMismatch(text + KEPT, ranks=(first, second), step=mine.call.step, sequence=mine.sequence)
        return self._stop(error)

    def _reported_error(self) -> CollectiveError:
        report = dict(self.watchdog.stopped or {})
        kind = ERRORS.get(report.get("error", ""), CollectiveError)
        self._error = kind(report["text"], ranks=report["ranks"], step=report["step"], sequence=report["sequence"])
        by = report.get("by", self.rank)
        return _like(self._error, f"rank {by} stopped, and this is rank {self.rank}: {report['text']}")

    def _stop(self, error: CollectiveError) -> CollectiveError:
        self._error = error
        report = {"error": type(error).__name__, "text": str(error)[:CUT], "ranks": error.ranks}
        self.watchdog.stop(**report, step=error.step, sequence=error.sequence)
        return error

    def _forget(self) -> None:
        for channel in self._channels.values():
            channel.close()
        if not self.is_here:
            self.watchdog.forget()


def _is_loss(report: Mapping[str, Any], rank: int) -> bool:
    return report["error"] == RankLost.__name__ and rank in report["ranks"]


def _like(error: CollectiveError, text: str) -> CollectiveError:
    return type(error)(text, ranks=error.ranks, step=error.step, sequence=error.sequence)


def _brief(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error)[:500]}".rstrip(": ")
