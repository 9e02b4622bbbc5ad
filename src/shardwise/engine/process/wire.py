"""The wire: every message between processes goes through here, by torch.distributed.

A guard may watch it: it is told of every call before any data moves, and waits for what was started.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import torch

from shardwise.engine.call import Call
from shardwise.engine.process.groups import Groups
from shardwise.errors import CollectiveError

if TYPE_CHECKING:
    from torch import Tensor as Bytes  # one-dimensional, of uint8

Letter = tuple[int, "Bytes"]  # a rank, and what goes to or comes from it
Work = tuple[Any, int | None]  # a piece of work of the library, and the one rank it is with
Works = tuple[Sequence[Work], Sequence[Work]]  # pieces of work that bring something, and that only send

TAG = 0x5357  # of our messages, which no program's own `dist.send` has by chance


class Guard(Protocol):
    """Who watches the wire."""

    slot: int  # the place in its records of the call that this process came to last

    def before(self, sequence: int, call: Call) -> None:
        """Be told that this process is about to take part in a call; raise to stop it before any data moves."""
        ...

    def wait(self, work: Any, sequence: int, call: Call, rank: int | None = None) -> None:
        """Wait for a piece of work that was started, with one rank if it is with one."""
        ...

    def failure(self, error: Exception, sequence: int, call: Call) -> Exception:
        """Return the error that tells why the library could not start a call."""
        ...

    def explain_unfinished(self, sequence: int) -> Exception:
        """Return the error that tells why what was under way from a call on never came."""
        ...

    def give_up(self, error: BaseException) -> None:
        """Be told that this process cannot go on with what it has begun."""
        ...

    def end(self, slot: int, received: int, sent: int) -> None:
        """Be told that a call is done, and how many bytes this process received and sent in it."""
        ...


class Pending:
    """What was started and is not done yet: pieces of work that bring something, and others that only send."""

    __slots__ = ("_arrived", "_bringing", "_call", "_guard", "_sending", "_sequence", "_sizes", "_slot")

    def __init__(
        self,
        works: Works,
        guard: Guard | None,
        sequence: int,
        call: Call,
        sizes: tuple[int, int],
        arrived: Callable[[], None] | None = None,
    ) -> None:
        """Remember the pieces of work of one call, the bytes that come and go, and what to do when all has come."""
        self._bringing, self._sending = works
        self._guard, self._sequence, self._call, self._arrived = guard, sequence, call, arrived
        self._sizes, self._slot = sizes, 0 if guard is None else guard.slot

    def arrive(self) -> None:
        """Wait until everything has come; what is sent may still be read."""
        works, self._bringing = self._bringing, ()
        self._wait(works)
        if self._arrived is not None:
            self._arrived()
            self._arrived = None

    def wait(self) -> None:
        """Wait until all of it is done."""
        self.arrive()
        works, self._sending = self._sending, ()
        self._wait(works)
        if self._guard is not None:
            self._guard.end(self._slot, *self._sizes)
            self._guard = None

    def _wait(self, works: Sequence[Work]) -> None:
        for work, rank in works:
            if self._guard is None:
                work.wait()
            else:
                self._guard.wait(work, self._sequence, self._call, rank)


class Wire:
    """Messages between the processes of a world, one call after the other.

    On the host all of them go over the connections of one group of gloo, that of all: who sends names the receiver.
    So a program makes no connection after its start, and needs as many files and threads as then, however many groups
    its meshes have. NCCL has a group for every set of ranks, made by its members when they first need it.
    """

    def __init__(self, rank: int, size: int, world: Any, groups: Groups) -> None:
        """Use the group of gloo of all processes, and the groups of NCCL."""
        self.rank, self.size = rank, size
        self.sequence = 0
        self.guard: Guard | None = None
        self.world, self.groups = world, groups
        self._accelerator: torch.device | None = None  # the last that was used

    def close(self) -> None:
        """Give back the groups of NCCL that were made here; torch itself sees to the one of all processes."""
        self.groups.close(keep=lambda ranks: len(ranks) == self.size)

    def settle(self) -> None:
        """Wait until the accelerator has sent what others wait for."""
        if self._accelerator is not None:
            torch.cuda.synchronize(self._accelerator)

    def check(self, sequence: int) -> None:
        """Raise if what this process made after a call may depend on something that never came."""
        if sequence >= self.groups.torn and self.guard is not None:
            raise self.guard.explain_unfinished(int(self.groups.torn))

    def exchange(self, call: Call, out: Bytes, sizes: Sequence[int], outgoing: Bytes, splits: Sequence[int]) -> Pending:
        """Send each member of the group its split of `outgoing`, in order, and take theirs."""

        def start() -> Works:
            if not outgoing.is_cuda:
                return self._start_letters(_split(call.ranks, out, sizes), _split(call.ranks, outgoing, splits))
            group = self.groups.get(call.ranks, outgoing.device)
            return [(group.alltoall_base(out, outgoing, list(sizes), list(splits)), None)], ()

        device = outgoing.device if outgoing.is_cuda else None
        return self._begin(call, start, device, (len(out), len(outgoing)))

    def gather(self, call: Call, out: Bytes, outgoing: Bytes) -> Pending:
        """Gather equally many bytes of every member of the group; on accelerators it is one call of the library."""

        def start() -> Works:
            if outgoing.is_cuda:
                return [(self.groups.get(call.ranks, outgoing.device)._allgather_base(out, outgoing), None)], ()
            receives = dict(_split(call.ranks, out, [len(outgoing)] * len(call.ranks)))
            receives.pop(self.rank).copy_(outgoing)
            return self._start_letters(receives.items(), [(rank, outgoing) for rank in receives])

        device, others = outgoing.device if outgoing.is_cuda else None, len(call.ranks) - 1
        return self._begin(call, start, device, (others * len(outgoing), others * len(outgoing)))

    def send(
        self, call: Call, receives: Sequence[Letter], sends: Sequence[Letter], device: torch.device | None = None
    ) -> Pending:
        """Send and receive messages straight from and into memory, that of an accelerator if one is given.

        On the host who has nothing to send or receive has nothing to do. NCCL has all of a group take part in one call.
        """

        def start() -> Works:
            if device is not None:
                return [(self._exchange_letters(call, receives, sends, device), None)], ()
            return self._start_letters(receives, sends)

        sizes = sum(len(letter) for _, letter in receives), sum(len(letter) for _, letter in sends)
        return self._begin(call, start, device, sizes)

    def _start_letters(self, receives: Iterable[Letter], sends: Iterable[Letter]) -> Works:
        world = self.world
        coming = [(world.recv([letter], rank, TAG), rank) for rank, letter in receives]
        return coming, [(world.send([letter], rank, TAG), rank) for rank, letter in sends]

    def _exchange_letters(
        self, call: Call, receives: Sequence[Letter], sends: Sequence[Letter], device: torch.device
    ) -> Any:
        none = torch.empty(0, dtype=torch.uint8, device=device)
        coming, going = dict(receives), dict(sends)
        outs, outgoing = [coming.get(rank, none) for rank in call.ranks], [going.get(rank, none) for rank in call.ranks]
        return self.groups.get(call.ranks, device).alltoall(outs, outgoing)

    def _begin(
        self, call: Call, start: Callable[[], Works], device: torch.device | None, sizes: tuple[int, int]
    ) -> Pending:
        self.sequence += 1
        sequence, guard = self.sequence, self.guard
        if guard is not None:
            try:
                guard.before(sequence, call)
            except CollectiveError:
                self.groups.abandon()
                raise
        try:
            works = start()
        except RuntimeError as error:
            if guard is None:
                raise
            raise guard.failure(error, sequence, call) from error
        if device is None or guard is None:
            return Pending(works, guard, sequence, call, sizes)
        self._accelerator = device
        return Pending(works, guard, sequence, call, sizes, lambda: self._track(sequence, call, device))

    def _track(self, sequence: int, call: Call, device: torch.device) -> None:
        # What comes is to be waited for on the accelerator from here on.
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(device))
        self.groups.track(sequence, call.ranks, event)


def _split(ranks: Sequence[int], whole: Bytes, sizes: Sequence[int]) -> list[Letter]:
    # The pieces of what goes to, or comes from, each rank; most ranks of a large group have none.
    letters: list[Letter] = []
    at = 0
    for rank, size in zip(ranks, sizes, strict=True):
        if size:
            letters.append((rank, whole[at : at + size]))
            at += size
    return letters
