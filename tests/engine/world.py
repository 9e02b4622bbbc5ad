"""A world of processes that are threads: engines between processes whose wire is a queue between each two of them."""

from collections.abc import Callable, Mapping, Sequence
from queue import Queue
from threading import Thread
from types import SimpleNamespace
from typing import Any

from shardwise.engine.arrays import dtype_of
from shardwise.engine.call import Call
from shardwise.engine.local_shards import LocalShards
from shardwise.engine.process.engine import DistributedEngine
from shardwise.engine.storage import storage_of
from shardwise.layout.layout import Layout

PATIENCE = 20.0  # seconds after which a message is taken to be lost


class Arrival:
    """What was started: messages that are taken from the queues when they are waited for."""

    def __init__(self, takes: Sequence[tuple[Queue, Any]]) -> None:
        self.takes = list(takes)

    def arrive(self) -> None:
        """Take everything that comes."""
        for queue, into in self.takes:
            came = queue.get(timeout=PATIENCE)
            assert came.numel() == into.numel(), "a message has another size than is expected"
            into.copy_(came)
        self.takes = []

    def wait(self) -> None:
        """Wait until all of it is done."""
        self.arrive()


class QueueWire:
    """The wire of one rank: it has what an engine asks of a `Wire`, and remembers every call."""

    def __init__(self, rank: int, queues: Mapping[tuple[int, int], Queue], size: int) -> None:
        self.rank, self.size, self.queues = rank, size, queues
        self.sequence = 0
        self.guard: Any = None
        self.groups = SimpleNamespace(on_accelerators=False)
        self.calls: list[tuple[str, Call]] = []
        self.sent: list[tuple[int, int]] = []  # to whom, bytes

    def check(self, sequence: int) -> None:
        """Raise if something never came: here everything comes."""

    def _post(self, rank: int, letter: Any) -> None:
        if letter.numel():
            self.sent.append((rank, letter.numel()))
            self.queues[self.rank, rank].put(letter.clone())

    def exchange(self, call: Call, out: Any, sizes: Sequence[int], given: Any, splits: Sequence[int]) -> Arrival:
        """Send every member its split, and take what they send."""
        self._told("exchange", call)
        assert sum(sizes) == out.numel()
        assert sum(splits) == given.numel()
        takes, at, start = [], 0, 0
        for rank, size, split in zip(call.ranks, sizes, splits, strict=True):
            self._post(rank, given[start : start + split])
            takes.append((rank, out[at : at + size]))
            at, start = at + size, start + split
        return self._arrival(takes)

    def gather(self, call: Call, out: Any, given: Any) -> Arrival:
        """Gather equally many bytes of every member."""
        self._told("gather", call)
        assert out.numel() == given.numel() * len(call.ranks)
        for rank in call.ranks:
            if rank != self.rank:
                self._post(rank, given)
        parts = zip(call.ranks, out.view(len(call.ranks), -1), strict=True)
        return self._arrival([(rank, part) for rank, part in parts if rank != self.rank])

    def send(self, call: Call, receives: Any, sends: Any, device: Any = None) -> Arrival:
        """Send and receive messages straight from and into memory."""
        self._told("send", call)
        assert device is None
        for rank, letter in sends:
            self._post(rank, letter)
        return self._arrival(receives)

    def _told(self, verb: str, call: Call) -> None:
        assert self.rank in call.ranks
        self.sequence += 1
        self.calls.append((verb, call))

    def _arrival(self, takes: Sequence[tuple[int, Any]]) -> Arrival:
        return Arrival([(self.queues[rank, self.rank], into) for rank, into in takes if into.numel()])


def engines(size: int) -> list[Any]:
    """An engine for each rank of a world."""
    queues: dict[tuple[int, int], Queue] = {(a, b): Queue() for a in range(size) for b in range(size)}
    wires: list[Any] = [QueueWire(rank, queues, size) for rank in range(size)]
    return [DistributedEngine(wire) for wire in wires]


def together(some: Sequence[Any], function: Callable[[Any], Any]) -> list[Any]:
    """What a function gives for each engine, all at once."""
    out: list[Any] = [None] * len(some)

    def run(at: int) -> None:
        try:
            out[at] = function(some[at])
        except BaseException as error:
            out[at] = error

    threads = [Thread(target=run, args=(at,), daemon=True) for at in range(len(some))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    for found in out:
        if isinstance(found, BaseException):
            raise found
    return out


def held(engine: Any, layout: Layout, shape: tuple[int, ...], arrays: Sequence[Any]) -> LocalShards:
    """The arrays of a tensor that are in the process of an engine, from those of all devices."""
    storage = storage_of(layout, shape)
    here = {storage.index(device): arrays[device] for device in engine.addressable(layout.mesh)}
    return LocalShards(storage, here, engine.rank, None if here else dtype_of(arrays[0]), arrays[0])
