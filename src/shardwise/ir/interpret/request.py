"""Requests: what a device waits for at a communication op."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from xdsl.ir import Operation

from shardwise.errors import seal
from shardwise.ir.module.program import op_text
from shardwise.ir.module.values import Value


@seal
@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """One device at one communication op."""

    op: Operation
    device: int


@seal
@dataclass(frozen=True, slots=True, eq=False)
class Collective(Request):
    """All devices of a group take part; `finish` makes their results of their values, in the order of the group."""

    group: tuple[int, ...]
    value: Value
    details: tuple[Any, ...]  # what all members must agree on, besides the name of the op
    finish: Callable[[Sequence[Value]], Sequence[Value]]

    @property
    def signature(self) -> tuple[Any, ...]:
        """What all members must agree on."""
        return self.op.name, self.details


@seal
@dataclass(frozen=True, slots=True, eq=False)
class Sending(Request):
    """A message to another device, which does not wait to be received."""

    target: int
    value: Value


@seal
@dataclass(frozen=True, slots=True, eq=False)
class Receiving(Request):
    """Waits for a message from one of some devices; only a receive that names no source has several."""

    sources: tuple[int, ...]
    nothing: Value  # the result if no message ever comes, for a receive without a source
    anyone: bool = False


def waiting_text(request: Request) -> str:
    """Return what a device waits for, as errors say it."""
    at = f"device {request.device} waits at {op_text(request.op)}"
    if isinstance(request, Receiving):
        return f"{at} for a message from {devices_text(request.sources)}"
    return at


def devices_text(devices: Sequence[int]) -> str:
    """Return devices in short.

    >>> devices_text([0]), devices_text([0, 1, 2])
    ('device 0', 'devices 0, 1, 2')
    """
    listed = ", ".join(map(str, devices[:16])) + (", ..." if len(devices) > 16 else "")
    return f"device{'s' * (len(devices) != 1)} {listed}"
