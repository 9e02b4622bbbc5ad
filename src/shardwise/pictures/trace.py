"""Communication logs as traces, in the JSON that Perfetto and chrome://tracing open."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from shardwise.plan.record import Record

Event = dict[str, Any]


def trace(log: Iterable[Record]) -> dict[str, Any]:
    """Return a log in the trace event format: a process per rank, a track per kind of step, a curve of the bytes."""
    kinds = list(dict.fromkeys(record.kind for record in log))
    ranks = sorted({record.rank for record in log})
    events = [_name("process_name", rank, 0, f"rank {rank}") for rank in ranks]
    events += [_name("thread_name", rank, 1 + k, kind) for rank in ranks for k, kind in enumerate(kinds)]
    totals = dict.fromkeys(ranks, 0)
    for record in log:
        events.append(_step(record, 1 + kinds.index(record.kind)))
        totals[record.rank] += record.bytes
        curve = _event("bytes between devices", "C", record.rank, 0, (record.start + record.seconds) * 1e6)
        events.append(curve | {"args": {"bytes": totals[record.rank]}})
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _step(record: Record, track: int) -> Event:
    over = f" over {', '.join(record.axes)}" if record.axes else ""
    args = {
        "bytes": record.bytes,
        "busiest device receives": record.busiest,
        "from": record.before,
        "to": record.after,
        "over": list(record.axes),
        "line": record.line,
    }
    event = _event(f"{record.kind}{over}", "X", record.rank, track, record.start * 1e6)
    return event | {"cat": "communication", "dur": record.seconds * 1e6, "args": args}


def _name(what: str, rank: int, track: int, name: str) -> Event:
    return _event(what, "M", rank, track, 0.0) | {"args": {"name": name}}


def _event(name: str, phase: str, rank: int, track: int, microseconds: float) -> Event:
    return {"name": name, "ph": phase, "pid": rank, "tid": track, "ts": microseconds}
