"""The communication log: what was run, by which line, and nothing where nobody listens."""

import gc
import json
import sys
from pathlib import Path
from weakref import finalize

import numpy as np
import pytest

from shardwise import ArgumentError, DeviceMesh, P, shard, trace_communication
from shardwise.engine import log
from shardwise.engine.local import engine as local
from shardwise.engine.log import CommunicationLog, Record, active_logs, calls, user_line
from shardwise.pictures.trace import trace

MESH = DeviceMesh((4,), ("x",))


def tensor():
    return shard(np.zeros((8, 8), "float32"), MESH, P("x"))


def test_a_record_says_kind_axes_layouts_bytes_time_and_the_users_line() -> None:
    x = tensor()
    with trace_communication() as found:
        shard(x, MESH, P(None, "x"))
        line = sys._getframe().f_lineno - 1
    (record,) = found
    assert (record.kind, record.axes, record.before, record.after) == ("all_to_all", ("x",), "[x|-]", "[-|x]")
    assert record.bytes == found.bytes == 8 * 8 * 4 * 3 // 4
    assert 0 < record.seconds < 1
    assert record.line == f"{__file__}:{line}"
    assert len(found) == 1


def test_steps_that_are_run_as_one_have_their_own_bytes_and_share_the_time() -> None:
    mesh = DeviceMesh((2, 2), ("x", "y"))
    x = shard(np.zeros((8, 8), "float32"), mesh, P("x"), partial_axes=["y"])
    with trace_communication() as found:
        shard(x, mesh, P(None, "x"))
    assert len(found) > 1
    assert all(record.bytes for record in found)
    assert [record.seconds > 0 for record in found] == [True, *[False] * (len(found) - 1)]


def test_logs_nest() -> None:
    x = tensor()
    with trace_communication() as outer:
        shard(x, MESH, P())
        with trace_communication() as inner:
            shard(x, MESH, P(None, "x"))
        shard(x, MESH, P())
    assert [record.kind for record in inner] == ["all_to_all"]
    assert [record.kind for record in outer] == ["all_gather", "all_to_all", "all_gather"]
    assert active_logs() == ()


def test_a_log_ends_with_an_error() -> None:
    with pytest.raises(ZeroDivisionError), trace_communication():
        _ = 1 // len(active_logs()[1:])
    assert active_logs() == ()


def test_nothing_is_recorded_or_looked_up_where_no_log_is_active(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*args):
        raise AssertionError("this costs time")

    x = tensor()
    for module, name in ((log, "Record"), (log, "user_line"), (local, "log_steps"), (local, "perf_counter")):
        monkeypatch.setattr(module, name, never)
    shard(x, MESH, P())
    with pytest.raises(AssertionError, match="this costs time"), trace_communication():
        shard(x, MESH, P())


def test_the_users_line_is_the_innermost_outside_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    assert user_line() == f"{__file__}:{sys._getframe().f_lineno}"
    monkeypatch.setattr(log, "PACKAGE", "")
    assert user_line() == ""


def test_a_log_prints_as_a_table() -> None:
    found = CommunicationLog([Record("permute", ("x",), "[x]", "[x]", 64, 64, 0.5, "a/b/c.py:3")])
    assert "permute" in str(found)
    assert "b/c.py:3" in str(found)
    assert [record.bytes for record in found] == [64]


def test_a_record_is_of_rank_0_at_the_start_unless_it_says_more() -> None:
    record = Record("permute", ("x",), "[x]", "[x]", 64, 64, 0.5, "train.py:3")
    assert (record.start, record.rank) == (0.0, 0)
    log_ = CommunicationLog([record, Record("slice", (), "[-]", "[x]", 0, 8, 0.0, "", 1.5, 3)])
    assert (log_.bytes, len(log_), CommunicationLog().bytes, len(CommunicationLog())) == (72, 2, 0, 0)


def test_a_log_is_saved_as_json_only(tmp_path: Path) -> None:
    found = CommunicationLog([Record("permute", ("x",), "[x]", "[ü]", 64, 64, 0.5, "train.py:3", 2.0)])
    found.save(tmp_path / "trace.json")
    text = (tmp_path / "trace.json").read_text(encoding="utf-8")
    assert text.endswith("}\n")
    assert "[ü]" in text
    assert json.loads(text) == json.loads(json.dumps(trace(found)))
    for name in ("trace", "trace.txt", "json"):
        with pytest.raises(ArgumentError, match=f"^a trace is saved as .json, got '.*{name}'.$"):
            found.save(tmp_path / name)
        assert not (tmp_path / name).exists()


def test_frames_are_told_apart_by_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    assert calls() == (sys._getframe(), None)
    monkeypatch.setattr(log, "PACKAGE", __file__)
    frame, inner = calls()
    assert frame is sys._getframe().f_back
    assert inner is sys._getframe()


def test_who_asks_for_a_line_holds_nothing_of_what_called_it() -> None:
    gone: list[str] = []
    gc.disable()
    try:
        for ask in (user_line, calls):
            held = np.zeros(1)
            finalize(held, gone.append, ask.__name__)
            ask()
            del held
    finally:
        gc.enable()
    assert gone == ["user_line", "calls"]
