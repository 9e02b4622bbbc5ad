"""The scheduler: runs the coroutines of all devices, brings together those that communicate, and sees deadlocks."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from typing import Any

from shardwise.errors import ProgramError
from shardwise.ir.interpret.request import Collective, Receiving, Request, Sending, devices_text, waiting_text
from shardwise.ir.module.program import op_text
from shardwise.ir.module.values import Value

SHOWN = 8  # devices listed in an error


class Scheduler:
    """The devices of one run: who is ready, who waits for what, and which messages are on the way."""

    def __init__(self, runs: Sequence[Generator[Request, Value, list[Value]]]) -> None:
        """Take one coroutine per device."""
        self.runs = runs
        self.results: list[list[Value] | None] = [None] * len(runs)
        self.ready: deque[tuple[int, Any]] = deque((device, None) for device in range(len(runs)))
        self.waiting: dict[int, Request] = {}
        self.gathered: dict[tuple[int, ...], list[Collective]] = {}  # those of a group who have arrived
        self.messages: dict[tuple[int, int], deque[Sending]] = {}  # by source and target

    def finish(self) -> list[list[Value]]:
        """Run all devices to the end, and return what each returns."""
        while self.ready or self._anyone():
            device, value = self.ready.popleft()
            self._resume(device, value)
        if self.waiting:
            raise ProgramError(self._deadlock())
        if lost := [message for queue in self.messages.values() for message in queue]:
            raise ProgramError(_lost_text(lost))
        return [result if result is not None else [] for result in self.results]

    def _resume(self, device: int, value: Any) -> None:
        try:
            request = self.runs[device].send(value)
        except StopIteration as stop:
            self.results[device] = stop.value
            return
        except ProgramError as error:
            raise ProgramError(f"on device {device}: {error}" if len(self.runs) > 1 else str(error)) from None
        except MemoryError as error:
            raise ProgramError(f"on device {device}: there is not enough memory: {error}") from error
        if isinstance(request, Sending):
            self.messages.setdefault((device, request.target), deque()).append(request)
            self.ready.append((device, None))
            self._deliver(request.target)
            return
        self.waiting[device] = request
        if isinstance(request, Collective):
            self._join(request)
        else:
            self._deliver(device)

    # -- collectives -------------------------------------------------------------------------------

    def _join(self, request: Collective) -> None:
        here = self.gathered.setdefault(request.group, [])
        here.append(request)
        if here[0].signature != request.signature:
            raise ProgramError(_mismatch_text(here[0], request))
        if len(here) < len(request.group):
            return
        del self.gathered[request.group]
        by_device = {r.device: r for r in here}
        try:
            results = request.finish([by_device[d].value for d in request.group])
        except ValueError as error:  # NumPy's, where shapes do not fit together
            raise ProgramError(f"{op_text(request.op)} on {devices_text(request.group)}: {error}.") from None
        for device, value in zip(request.group, results, strict=True):
            self._give(device, value)

    # -- messages ----------------------------------------------------------------------------------

    def _deliver(self, device: int) -> None:
        request = self.waiting.get(device)
        if not isinstance(request, Receiving) or request.anyone:
            return
        queue = self.messages.get((request.sources[0], device))
        if queue:
            self._give(device, queue.popleft().value)

    def _give(self, device: int, value: Value) -> None:
        del self.waiting[device]
        self.ready.append((device, value))

    def _anyone(self) -> bool:
        # When nobody else can go on, a receive without a source takes what is there, from the first device that
        # sent anything, so that the outcome does not depend on who ran first; or it is left undefined.
        open_ = [r for _, r in sorted(self.waiting.items()) if isinstance(r, Receiving) and r.anyone]
        for request in open_:
            for source in request.sources:
                if queue := self.messages.get((source, request.device)):
                    self._give(request.device, queue.popleft().value)
                    return True
        if not open_:
            return False
        self._give(open_[0].device, open_[0].nothing)
        return True

    # -- errors ------------------------------------------------------------------------------------

    def _deadlock(self) -> str:
        lines = ["deadlock: no device can go on."]
        for _, request in sorted(self.waiting.items())[:SHOWN]:
            missing = [d for d in _members(request) if not self._is_at(d, request)]
            lines.append(f"  {waiting_text(request)}" + (f" for {devices_text(missing)}" if missing else ""))
        if len(self.waiting) > SHOWN:
            lines.append(f"  and {len(self.waiting) - SHOWN} more devices wait")
        ended = [d for d in range(len(self.runs)) if d not in self.waiting]
        if ended:
            lines.append(f"  {devices_text(ended)} {'has' if len(ended) == 1 else 'have'} returned")
        return "\n".join(lines)

    def _is_at(self, device: int, request: Request) -> bool:
        other = self.waiting.get(device)
        return isinstance(request, Collective) and isinstance(other, Collective) and other.group == request.group


def _members(request: Request) -> tuple[int, ...]:
    return request.group if isinstance(request, Collective) else ()


def _mismatch_text(first: Collective, second: Collective) -> str:
    lines = [f"mismatched collectives in the group of {devices_text(first.group)}:"]
    lines += [f"  {waiting_text(r)}{_details_text(r)}" for r in (first, second)]
    return "\n".join(lines)


def _details_text(request: Collective) -> str:
    grid, axes, *rest = request.details
    shown = f", {', '.join(map(str, rest))}" if rest else ""
    return f" (on @{grid}, axes {list(axes)}{shown})"


def _lost_text(lost: Sequence[Sending]) -> str:
    lines = ["messages were sent that no device receives:"]
    for message in lost[:SHOWN]:
        lines.append(f"  from device {message.device} to device {message.target} at {op_text(message.op)}")
    return "\n".join(lines)
