"""The wire: every message between processes goes through here, by torch.distributed.

A guard may watch it: it is told of every call before any data moves, and waits for what was started.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol

import torch
import torch.distributed as dist

from shardwise.engine.route import Call

if TYPE_CHECKING:
    from torch import Tensor as Bytes  # one-dimensional, of uint8

Letter = tuple[int, "Bytes"]  # a rank, and what goes to or comes from it


class Guard(Protocol):
    """Who watches the wire."""

    def before(self, sequence: int, call: Call) -> None:
        """Be told that this process is about to take part in a call; raise to stop it before any data moves."""
        ...

    def wait(self, work: Any, sequence: int, call: Call) -> None:
        """Wait for a piece of work that was started."""
        ...


class Pending:
    """What was started and is not done yet."""

    __slots__ = ("_call", "_guard", "_sequence", "_works")

    def __init__(self, works: Sequence[Any], guard: Guard | None, sequence: int, call: Call) -> None:
        """Remember the pieces of work of one call."""
        self._works, self._guard, self._sequence, self._call = works, guard, sequence, call

    def wait(self) -> None:
        """Wait until all of it is done."""
        for work in self._works:
            if self._guard is None:
                work.wait()
            else:
                self._guard.wait(work, self._sequence, self._call)


class Wire:
    """Messages between the processes of a torch.distributed world, one call after the other."""

    def __init__(self, timeout: float = 60.0) -> None:
        """Use the default process group, which must be there."""
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.timeout = timeout
        self.sequence = 0
        self.guard: Guard | None = None
        self._groups: dict[tuple[int, ...], Any] = {tuple(range(self.size)): dist.group.WORLD}

    def group(self, ranks: tuple[int, ...]) -> Any:
        """Return the process group of some ranks, in order; made by its members when they first need it."""
        found = self._groups.get(ranks)
        if found is None:
            found = dist.new_group(
                list(ranks), timeout=timedelta(seconds=self.timeout), use_local_synchronization=True
            )
            self._groups[ranks] = found
        return found

    def exchange(self, call: Call, out: Bytes, sizes: Sequence[int], given: Bytes, splits: Sequence[int]) -> Pending:
        """Send every member of the group its split of `given`, in order, and take what they send: one library call."""
        sequence = self._begin(call)
        work = dist.all_to_all_single(out, given, list(sizes), list(splits), self.group(call.ranks), async_op=True)
        return Pending((work,), self.guard, sequence, call)

    def gather(self, call: Call, out: Bytes, given: Bytes) -> Pending:
        """Gather equally many bytes of every member of the group: one library call."""
        sequence = self._begin(call)
        work = _gather(out, given, group=self.group(call.ranks), async_op=True)
        return Pending((work,), self.guard, sequence, call)

    def send(self, call: Call, receives: Sequence[Letter], sends: Sequence[Letter]) -> Pending:
        """Send and receive messages straight from and into memory.

        gloo does it without a group, so that only those take part who have something to send or receive. NCCL has all
        of a group take part in one call.
        """
        sequence = self._begin(call)
        if any(letter.is_cuda for _, letter in (*receives, *sends)):
            return Pending((self._grouped(call, receives, sends),), self.guard, sequence, call)
        works = [dist.irecv(letter, rank) for rank, letter in receives]
        works += [dist.isend(letter, rank) for rank, letter in sends]
        return Pending(works, self.guard, sequence, call)

    def _grouped(self, call: Call, receives: Sequence[Letter], sends: Sequence[Letter]) -> Any:
        device = next(letter.device for _, letter in (*receives, *sends))
        none = torch.empty(0, dtype=torch.uint8, device=device)
        coming, going = dict(receives), dict(sends)
        return dist.all_to_all(
            [coming.get(rank, none) for rank in call.ranks],
            [going.get(rank, none) for rank in call.ranks],
            self.group(call.ranks),
            async_op=True,
        )

    def _begin(self, call: Call) -> int:
        self.sequence += 1
        if self.guard is not None:
            self.guard.before(self.sequence, call)
        return self.sequence


def _gather(out: Bytes, given: Bytes, **options: Any) -> Any:
    # Newer versions have renamed it, and warn about the old name.
    function = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    return function(out, given, **options)
