"""Communication logs as traces: the rules of the trace event format, and that nothing of the log is lost."""

import json
from itertools import pairwise
from time import perf_counter

import numpy as np
import pytest

from shardwise import AbstractEngine, ArgumentError, DeviceMesh, P, engine_context, shard, trace_communication
from shardwise.engine.log import CommunicationLog, Record
from shardwise.pictures.trace import trace

MESH = DeviceMesh((2, 4), ("dp", "tp"))


def steps() -> CommunicationLog:
    with trace_communication() as log:
        x = shard(np.zeros((8, 8), "float32"), MESH, P("dp", "tp"))
        x = shard(x, MESH, P("tp", "dp"))
        shard(x, MESH, P())
    return log


def check_format(events: list[dict]) -> None:
    """Check what the format asks of complete, metadata and counter events."""
    for event in events:
        assert isinstance(event["name"], str)
        assert event["name"]
        assert event["ph"] in {"X", "M", "C"}
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        assert event["ts"] >= 0
        if event["ph"] == "X":
            assert event["dur"] >= 0
            assert isinstance(event["cat"], str)
        if event["ph"] == "M":
            assert event["name"] in {"process_name", "thread_name"}
            assert isinstance(event["args"]["name"], str)
        if event["ph"] == "C":
            assert all(isinstance(value, int) for value in event["args"].values())
    named = {(event["pid"], event["tid"]) for event in events if event["name"] == "thread_name"}
    assert {(event["pid"], event["tid"]) for event in events if event["ph"] == "X"} <= named


def test_a_saved_log_follows_the_format_and_says_what_the_log_says(tmp_path):
    before = perf_counter()
    log = steps()
    after = perf_counter()
    log.save(tmp_path / "trace.json")
    found = json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"))
    assert found["displayTimeUnit"] == "ms"
    check_format(found["traceEvents"])
    shown = [event for event in found["traceEvents"] if event["ph"] == "X"]
    assert len(shown) == len(log) > 2
    for event, record in zip(shown, log, strict=True):
        assert event["name"].split(" over ")[0] == record.kind
        assert event["args"]["over"] == list(record.axes)
        assert (event["args"]["from"], event["args"]["to"]) == (record.before, record.after)
        assert event["args"]["bytes"] == record.bytes
        assert event["args"]["line"].startswith(__file__)
        assert event["dur"] == pytest.approx(record.seconds * 1e6)
        assert before * 1e6 <= event["ts"] <= event["ts"] + event["dur"] <= after * 1e6
    for one, two in pairwise(shown):
        assert one["ts"] + one["dur"] <= two["ts"] + 1e-3
    curve = [event["args"]["bytes"] for event in found["traceEvents"] if event["ph"] == "C"]
    assert curve[-1] == log.bytes


def test_there_is_a_track_per_kind_and_a_process_per_rank():
    records = [
        Record(kind, ("x",), "[x]", "[-]", 1, 2, 0.5, "a.py:1", float(k), rank)
        for k, (kind, rank) in enumerate([("all_gather", 0), ("slice", 0), ("all_gather", 1)])
    ]
    events = trace(CommunicationLog(records))["traceEvents"]
    check_format(events)
    tracks = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert [(e["pid"], tracks[e["pid"], e["tid"]]) for e in events if e["ph"] == "X"] == [
        (0, "all_gather"),
        (0, "slice"),
        (1, "all_gather"),
    ]
    assert [e["args"]["name"] for e in events if e["name"] == "process_name"] == ["rank 0", "rank 1"]


def test_what_did_not_run_takes_no_time(tmp_path):
    with engine_context(AbstractEngine()):
        log = steps()
    assert {event["dur"] for event in trace(log)["traceEvents"] if event["ph"] == "X"} == {0.0}


def test_an_empty_log_is_an_empty_trace(tmp_path):
    CommunicationLog().save(tmp_path / "trace.json")
    assert json.loads((tmp_path / "trace.json").read_text()) == {"traceEvents": [], "displayTimeUnit": "ms"}


def test_other_suffixes_are_refused(tmp_path):
    with pytest.raises(ArgumentError, match=r"a trace is saved as \.json, got '.*trace\.svg'\."):
        CommunicationLog().save(tmp_path / "trace.svg")
    assert not list(tmp_path.iterdir())
