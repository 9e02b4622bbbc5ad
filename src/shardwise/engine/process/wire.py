"""The wire: every message between processes goes through here, by torch.distributed.

A guard may watch it: it is told of every call before any data moves, and waits for what was started.
"""

# torch has no public name for the store of its default group.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore

from shardwise.engine.call import Call
from shardwise.engine.process.groups import Groups
from shardwise.errors import CollectiveError

if TYPE_CHECKING:
    from torch import Tensor as Bytes  # one-dimensional, of uint8

Letter = tuple[int, "Bytes"]  # a rank, and what goes to or comes from it
Works = tuple[Sequence[Any], Sequence[Any]]  # pieces of work that bring something, and that only send


class Guard(Protocol):
    """Who watches the wire."""

    def before(self, sequence: int, call: Call) -> None:
        """Be told that this process is about to take part in a call; raise to stop it before any data moves."""
        ...

    def wait(self, work: Any, sequence: int, call: Call) -> None:
        """Wait for a piece of work that was started."""
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


class Pending:
    """What was started and is not done yet: pieces of work that bring something, and others that only send."""

    __slots__ = ("_arrived", "_bringing", "_call", "_guard", "_sending", "_sequence")

    def __init__(
        self, works: Works, guard: Guard | None, sequence: int, call: Call, arrived: Callable[[], None] | None = None
    ) -> None:
        """Remember the pieces of work of one call, and what to do when all that they bring has come, or is to come."""
        self._bringing, self._sending = works
        self._guard, self._sequence, self._call, self._arrived = guard, sequence, call, arrived

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

    def _wait(self, works: Sequence[Any]) -> None:
        for work in works:
            if self._guard is None:
                work.wait()
            else:
                self._guard.wait(work, self._sequence, self._call)


_wires = count()


class Wire:
    """Messages between the processes of a torch.distributed world, one call after the other.

    Process groups are made by their members alone, when they first need them, and are known by their ranks:
    `dist.new_group` numbers them instead, by what a process has made before, which differs between processes.
    """

    def __init__(self, timeout: float = 60.0) -> None:
        """Use the default process group, which must be there."""
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.timeout = timedelta(seconds=timeout)
        self.store = PrefixStore(f"shardwise/{next(_wires)}", dist.distributed_c10d._get_default_store())
        self.sequence = 0
        self.guard: Guard | None = None
        self.groups = Groups(self._make_group)
        self._accelerator: torch.device | None = None  # the last that was used

    def group(self, ranks: tuple[int, ...], device: str = "cpu") -> Any:
        """Return the process group of some ranks, in order: of gloo for the host, of NCCL for accelerators."""
        return self.groups.get(ranks, device)

    def _make_group(self, ranks: tuple[int, ...], device: str) -> Any:
        if len(ranks) == self.size:
            assert dist.group.WORLD is not None, "torch.distributed is initialized"
            return dist.group.WORLD._get_backend(torch.device(device))
        store = PrefixStore(f"{device}/{'_'.join(map(str, ranks))}", self.store)
        at = ranks.index(self.rank)
        if device == "cpu":
            return dist.ProcessGroupGloo(store, at, len(ranks), self.timeout)
        options = dist.ProcessGroupNCCL.Options()
        options._timeout = self.timeout
        return dist.ProcessGroupNCCL(store, at, len(ranks), options)

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
        """Send each member of the group its split of `outgoing`, in order, and take theirs: one library call."""

        def start() -> Works:
            group = self.group(call.ranks, outgoing.device.type)
            return [group.alltoall_base(out, outgoing, list(sizes), list(splits))], ()

        return self._begin(call, start, outgoing.device if outgoing.is_cuda else None)

    def gather(self, call: Call, out: Bytes, outgoing: Bytes) -> Pending:
        """Gather equally many bytes of every member of the group: one library call."""

        def start() -> Works:
            return [self.group(call.ranks, outgoing.device.type)._allgather_base(out, outgoing)], ()

        return self._begin(call, start, outgoing.device if outgoing.is_cuda else None)

    def send(
        self, call: Call, receives: Sequence[Letter], sends: Sequence[Letter], device: torch.device | None = None
    ) -> Pending:
        """Send and receive messages straight from and into memory, that of an accelerator if one is given.

        gloo does it without a group, and who has nothing to send or receive has nothing to do. NCCL has all of a group
        take part in one call.
        """

        def start() -> Works:
            if device is not None:
                return [self._exchange_letters(call, receives, sends, device)], ()
            world = self.group(tuple(range(self.size)))
            coming = [world.recv([letter], rank, 0) for rank, letter in receives]
            return coming, [world.send([letter], rank, 0) for rank, letter in sends]

        return self._begin(call, start, device)

    def _exchange_letters(
        self, call: Call, receives: Sequence[Letter], sends: Sequence[Letter], device: torch.device
    ) -> Any:
        none = torch.empty(0, dtype=torch.uint8, device=device)
        coming, going = dict(receives), dict(sends)
        outs, outgoing = [coming.get(rank, none) for rank in call.ranks], [going.get(rank, none) for rank in call.ranks]
        return self.group(call.ranks, "cuda").alltoall(outs, outgoing)

    def _begin(self, call: Call, start: Callable[[], Works], device: torch.device | None) -> Pending:
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
            return Pending(works, guard, sequence, call)
        self._accelerator = device
        return Pending(works, guard, sequence, call, lambda: self._track(sequence, call, device))

    def _track(self, sequence: int, call: Call, device: torch.device) -> None:
        # What comes is to be waited for on the accelerator from here on.
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(device))
        self.groups.track(sequence, call.ranks, event)
