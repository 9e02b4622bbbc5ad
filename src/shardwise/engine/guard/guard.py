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

from shardwise.engine import farewell
from shardwise.engine.call import Call, full_text
from shardwise.engine.guard.fingerprint import Fingerprint, agree, decode, differences, encode_call, sequence_in
from shardwise.engine.guard.message import CUT
from shardwise.engine.guard.stragglers import NEW, Pace, Wait
from shardwise.engine.guard.vital_signs import VitalSigns
from shardwise.engine.guard.watchdog import UNREADABLE, Watchdog
from shardwise.engine.log import user_line
from shardwise.engine.meeting.channel import Channel
from shardwise.engine.recording.recorder import Recorder
from shardwise.engine.settings import Settings
from shardwise.engine.steps import current_path, current_text
from shardwise.errors import CollectiveError, CollectiveMismatch, CollectiveTimeout, EngineError, RankLost

EARLY = 0.02  # seconds in which most processes come
RUMOUR = 0.3  # seconds until an error that was caught is heard of
NEWS = 1.2  # seconds until it must be known why a connection closed; a launcher stops those that stay behind after 2
ERRORS: dict[str, type[CollectiveError]] = {kind.__name__: kind for kind in CollectiveError.__subclasses__()}
KEPT = "\n  this process still has what it holds: x.shards and x.local(i) can be read and saved."


class CollectiveGuard:
    """Compares calls before any data moves; its watchdog knows how the other processes are."""

    def __init__(
        self,
        rank: int,
        channels: Mapping[str, Mapping[int, Channel]],
        settings: Settings,
        who: Mapping[int, str] | None = None,
        listens: bool = True,
    ) -> None:
        """Use the channels of this rank to all others, and the host and number of every process, `host:number`.

        Its watchdog hears them at once, or when it is told to.
        """
        self.rank, self.settings = rank, settings
        self.slot = 0  # of the recorder, for the call that this process is in
        self._recorder: Recorder | None = None
        self._pace, self._line = Pace(), ""
        self.watchdog = Watchdog(channels["beats"], settings.heartbeat, VitalSigns(who or {}), listens)
        farewell.watch(self.watchdog.tell_trouble)
        self._channels = dict(channels["calls"])
        self._counts: Counter[tuple[int, ...]] = Counter()
        self._error: CollectiveError | None = None  # why nothing can be shared any more
        self._pid, self._thread = os.getpid(), 0
        os.register_at_fork(after_in_child=self._forget)

    @property
    def is_here(self) -> bool:
        """Whether this is the process that was started, and not a fork of it."""
        return self._pid == os.getpid()

    @property
    def recorder(self) -> Recorder | None:
        """Who keeps what this process did last, if anybody does."""
        return self._recorder

    @recorder.setter
    def recorder(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.watchdog.on_event, self.watchdog.on_beat = recorder.note, recorder.beat

    # -- what the wire asks ------------------------------------------------------------------------

    def before(self, sequence: int, call: Call) -> None:
        """Return when all processes of the group have come to this call; no data has moved until then."""
        if self._thread != threading.get_ident() or not self.is_here:
            self._refuse(call)
        self._check()
        farewell.note_call()
        self.watchdog.sequence = sequence
        self._counts[call.ranks] = number = self._counts[call.ranks] + 1
        line = self._line = user_line()
        mine = encode_call(call, number, sequence, line, current_text())
        recorder = self._recorder
        if recorder is not None:
            self._record(recorder, sequence, number, call, line)
        waiting = [self._channels[rank] for rank in call.ranks if rank != self.rank]
        for channel in waiting:
            channel.send(mine)
        if waiting := self._still_waiting(waiting, mine, sequence, call):
            self._wait_for(waiting, mine, sequence, call)
        if recorder is not None:
            recorder.agree(self.slot)
        self._pace.arrive(line, call.plan, monotonic())

    def _wait_for(self, waiting: Sequence[Channel], mine: bytes, sequence: int, call: Call) -> None:
        start, timeout, stragglers = monotonic(), self.settings.timeout, self.watchdog.stragglers
        try:
            while waiting:
                left = start + timeout - monotonic()
                if left <= 0:
                    late = [channel.rank for channel in waiting]
                    raise self._timeout_error(*self._timeout_text(late, sequence, call, self._line), sequence, call)
                # At first wait for one alone: when it has come, others have too, and each need not wake this process.
                early = timeout - left < EARLY
                if not early:
                    wait = stragglers.wait = stragglers.wait or self._pace.wait(
                        call, sequence, self._line, start, timeout
                    )
                    self._note_missing(wait, [channel.rank for channel in waiting])
                self._look(waiting[:1] if early else waiting, EARLY if early else left)
                waiting = self._still_waiting(waiting, mine, sequence, call)
        finally:
            stragglers.wait = None

    def _note_missing(self, wait: Wait, ranks: Sequence[int]) -> None:
        wait.ranks = ranks
        # Of those who wait, one writes who is late.
        wait.tells = self.rank == min(rank for rank in wait.call.ranks if rank not in ranks)
        if self._recorder is not None:
            self._recorder.wait_for(self.slot, ranks)

    def _record(self, recorder: Recorder, sequence: int, number: int, call: Call, line: str) -> None:
        path = current_path()
        self.slot = recorder.begin(
            sequence, number, full_text(call), line, path[0].number if path else None, call.ranks
        )

    def wait(self, work: Any, sequence: int, call: Call, rank: int | None = None) -> None:
        """Wait for a piece of work of torch.distributed, with one rank if that is known; say who is to blame."""
        stragglers = self.watchdog.stragglers
        if rank is not None:
            now, timeout = monotonic(), self.settings.timeout
            stragglers.wait = Wait(call, sequence, self._line, now, now + NEW * timeout, now + timeout, (rank,))
        try:
            work.wait()
        except RuntimeError as error:
            raise self.failure(error, sequence, call, rank) from error
        finally:
            stragglers.wait = None

    def failure(self, error: Exception, sequence: int, call: Call, rank: int | None = None) -> EngineError:
        """Return the error that tells why an operation of torch.distributed failed, with one rank if that is known."""
        others = [other for other in call.ranks if other != self.rank]
        if "imed out" in str(error):
            # Nobody waits for news now: one that did not come in time may come back, and would not look late any more.
            silent = [other for other in others if self.watchdog.silent(other)]
            late = silent or [r for r in others if self.watchdog.peers[r].sequence < sequence] or others
            timeout = self._timeout_text(late if rank is None else [rank], sequence, call, user_line())
            return self._departure_error(others, sequence, call, 0.0) or self._timeout_error(*timeout, sequence, call)
        departure = self._departure_error(others, sequence, call, NEWS)
        if departure is not None:
            return departure
        with_whom = "" if rank is None else f" with {self.watchdog.peers[rank]}"
        text = f"{call.step} (sequence {sequence}, at {user_line()}) failed in torch.distributed{with_whom}:\n  {error}"
        ranks = call.ranks if rank is None else (rank,)
        return self._stop(CollectiveError(text + KEPT, ranks=ranks, step=call.step, sequence=sequence))

    def explain_unfinished(self, sequence: int) -> CollectiveError:
        """Return the error that tells why what was under way from a call on never came."""
        reading = Call("reading", (self.rank, *self.watchdog.peers), (), "", "", "", None, None, "")
        error = self._error or self._departure_error(reading.ranks[1:], self.watchdog.sequence, reading, NEWS)
        if error is None:
            error = CollectiveError("NCCL was stopped.", ranks=(self.rank,), step="", sequence=sequence)
        return _like(error, f"a value that was under way at sequence {sequence}, or made of it, never came:\n  {error}")

    def end(self, slot: int, received: int, sent: int) -> None:
        """Be told that the call of a slot is done, and how many bytes this process received and sent in it."""
        if self._recorder is not None:
            self._recorder.end(slot, received, sent)

    def begin_start(self, size: int) -> None:
        """Be told that this process begins to connect with all others."""
        if self._recorder is not None:
            self.slot = self._recorder.begin(0, 0, "init", user_line(), None, tuple(range(size)))

    def end_start(self) -> None:
        """Be told that it is connected with all others."""
        if self._recorder is not None:
            self._recorder.agree(self.slot)
            self._recorder.end(self.slot, 0, 0)

    def start_failure(self, error: Exception, size: int) -> EngineError:
        """Return the error that tells why torch.distributed could not start."""
        return self.failure(error, 0, Call("init", tuple(range(size)), (), "", "", "", None, None, ""))

    def give_up(self, error: BaseException) -> None:
        """Tell the others that this process cannot take part in what it has begun."""
        if self._error is not None or not self.is_here:
            return
        text = f"rank {self.rank} gave up at sequence {self.watchdog.sequence}: {farewell.brief(error)}"
        self._stop(RankLost(text + KEPT, ranks=(self.rank,), sequence=self.watchdog.sequence))

    def close(self, error: BaseException | None = None) -> tuple[bool, str]:
        """Say goodbye to the others, and why; return whether it is a clean end, and what was said."""
        text, clean = farewell.last_words() if error is None else (f"it left with {farewell.brief(error)}", False)
        if not self.is_here:
            return clean, text
        farewell.unwatch(self.watchdog.tell_trouble)
        self.watchdog.end(text, clean)
        self._forget()
        return clean, text

    # -- comparing ---------------------------------------------------------------------------------

    def _still_waiting(self, waiting: Sequence[Channel], mine: bytes, sequence: int, call: Call) -> list[Channel]:
        # Those that have not come yet; others than the one expected are errors.
        out: list[Channel] = []
        for channel in waiting:
            peer, theirs = self.watchdog.peers[channel.rank], channel.receive()
            if peer.gone == UNREADABLE:  # what else it says is not to be relied on
                raise self._loss_error(channel.rank, sequence, call)
            if theirs is not None and not agree(mine, theirs):
                raise self._disagreement_error(channel, mine, theirs, call)
            if theirs is None and channel.is_garbled:
                self.watchdog.refuse(channel.rank)
                raise self._loss_error(channel.rank, sequence, call)
            if theirs is None and channel.closed:
                error = self._departure_error([channel.rank], sequence, call, NEWS)
                raise error or self._loss_error(channel.rank, sequence, call)
            if theirs is None:
                out.append(channel)
                continue
            peer.sequence, peer.heard, peer.call = sequence_in(theirs), monotonic(), theirs
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

    def _departure_error(
        self, ranks: Sequence[int], sequence: int, call: Call, patience: float
    ) -> CollectiveError | None:
        # Who went by itself is to blame, unless it went after something else had happened, of which all were told.
        gone = [peer for peer in self.watchdog.find_gone(ranks, patience) if not peer.follows]
        first = min(gone, key=lambda peer: peer.clean, default=None)
        cause = self.watchdog.stopped
        if cause is not None and (first is None or not _is_loss(cause, first.rank)):
            return self._reported_error()
        return None if first is None else self._loss_error(first.rank, sequence, call)

    def _loss_error(self, rank: int, sequence: int, call: Call) -> CollectiveError:
        peer = self.watchdog.peers[rank]
        where = f", at {peer.place}" if peer.place else ""
        text = (
            f"rank {rank} was lost: rank {self.rank} came to {call.step} (sequence {sequence}) at {user_line()}.\n"
            f"  rank {rank}: {peer.gone or 'its connection closed'}; its last sequence was {peer.sequence}{where}."
        )
        text += "" if peer.clean else f"\n  look at the output of rank {rank} first."
        return self._stop(RankLost(text + KEPT, ranks=(rank,), step=call.step, sequence=sequence))

    def _timeout_text(self, ranks: Sequence[int], sequence: int, call: Call, line: str) -> tuple[Sequence[int], str]:
        last = self._follow_waits(ranks)
        shown = [*ranks, *(rank for rank in last if rank not in ranks)]
        rows = [f"\n  {self.watchdog.peers[rank]}: {self.watchdog.state(rank)}" for rank in shown]
        rows += [f"\n  in the end all of them wait for {_name(last)}."] * (set(last) != set(ranks))
        return last, (
            f"{call.step} (sequence {sequence}, at {line}) waited {self.settings.timeout:g} s for {_name(ranks)}."
            f"{''.join(rows)}\n  init(timeout=...) or SHARDWISE_TIMEOUT gives more seconds."
        )

    def _follow_waits(self, ranks: Sequence[int]) -> list[int]:
        # Whoever waits is late because of others, perhaps of another group: return those at the ends of all waits. Of
        # one that says nothing it is not known for whom it waits now; in a circle all are to blame.
        ends, seen, waiting = set[int](), set[int](), list(ranks)
        while waiting:
            rank = waiting.pop()
            peer = self.watchdog.peers[rank]
            is_end = peer.gone is not None or self.watchdog.silent(rank) or not peer.awaits
            onwards = [] if is_end else [other for other in peer.awaits if other in self.watchdog.peers]
            ends |= {rank} if is_end else set()
            waiting += [other for other in onwards if other not in seen]
            seen |= {rank, *onwards}
        return sorted(ends) or list(ranks)

    def _timeout_error(self, ranks: Sequence[int], text: str, sequence: int, call: Call) -> CollectiveError:
        return self._stop(CollectiveTimeout(text + KEPT, ranks=ranks, step=call.step, sequence=sequence))

    def _disagreement_error(self, channel: Channel, mine: bytes, theirs: bytes, call: Call) -> CollectiveError:
        own = decode(mine)
        try:
            other = decode(theirs)
        except ValueError:
            self.watchdog.refuse(channel.rank)
            return self._loss_error(channel.rank, own.sequence, call)
        return self._mismatch_error(channel.rank, own, other)

    def _mismatch_error(self, rank: int, mine: Fingerprint, theirs: Fingerprint) -> CollectiveError:
        (first, one), (second, other) = sorted([(self.rank, mine), (rank, theirs)])
        different = differences(one, other)
        text = (
            f"ranks {first} and {second} came to different calls; no data was moved.\n"
            f"  rank {first}: {one}\n  rank {second}: {other}\n  different: {', '.join(different)}\n"
            "  all processes of a group run the same functions on the same meshes, in the same order."
        )
        if "iteration" in different:
            text += self._iteration_text(rank, len(one.path) == len(other.path))
        if "mesh" in different:
            text += "\n  meshes are the same if their axes, devices and names are."
            text += "\n  init(mesh=...) compares them at the start."
        error = CollectiveMismatch(text + KEPT, ranks=(first, second), step=mine.call.step, sequence=mine.sequence)
        return self._stop(error)

    def _iteration_text(self, rank: int, is_as_deep: bool) -> str:
        # What each had caught may be why; the other may be about to say so.
        peer = self.watchdog.peers[rank]
        with self.watchdog.changed:
            self.watchdog.changed.wait_for(lambda: bool(peer.trouble), RUMOUR)
        pairs = [(self.rank, farewell.notes.error), (rank, peer.trouble)]
        rows = [f"\n  rank {one} had gone on after {trouble}" for one, trouble in sorted(pairs) if trouble]
        how = "skipped an iteration, or entered it again" if is_as_deep else "is in a step that the other is not in"
        return f"\n  one of them {how}.{''.join(rows)}"

    def _reported_error(self) -> CollectiveError:
        report = dict(self.watchdog.stopped or {})
        kind = ERRORS.get(report.get("error", ""), CollectiveError)
        self._error = kind(report["text"], ranks=report["ranks"], step=report["step"], sequence=report["sequence"])
        # If it waits in vain itself, whom it waits for tells more than whom another has waited for.
        waits = kind is CollectiveTimeout and self.watchdog.stragglers.wait is not None
        self._record_failure(self._error, () if waits else self._error.ranks)
        by = report.get("by", self.rank)
        return _like(self._error, f"rank {by} stopped, and this is rank {self.rank}: {report['text']}")

    def _stop(self, error: CollectiveError) -> CollectiveError:
        self._error = error
        self._record_failure(error, error.ranks)
        report = {"error": type(error).__name__, "text": str(error)[:CUT], "ranks": error.ranks}
        self.watchdog.stop(**report, step=error.step, sequence=error.sequence)
        return error

    def _record_failure(self, error: CollectiveError, ranks: Sequence[int]) -> None:
        if self._recorder is not None:
            self._recorder.fail(self.slot, f"{type(error).__name__}: {error}", ranks)
            self._recorder.dump(str(error).partition("\n")[0])

    def _forget(self) -> None:
        for channel in self._channels.values():
            channel.close()
        if not self.is_here:
            farewell.unwatch(self.watchdog.tell_trouble)
            self.watchdog.forget()


def _is_loss(report: Mapping[str, Any], rank: int) -> bool:
    return report["error"] == RankLost.__name__ and rank in report["ranks"]


def _name(ranks: Sequence[int]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"


def _like(error: CollectiveError, text: str) -> CollectiveError:
    return type(error)(text, ranks=error.ranks, step=error.step, sequence=error.sequence)
