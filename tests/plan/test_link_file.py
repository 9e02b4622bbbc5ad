"""Files of links: what is saved is loaded again, and what is wrong with a file is an error that says where."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwise import ArgumentError, DeviceMesh, Link, Links, P, PlanError, plan_reshard
from shardwise.plan.link_file import MOST_BYTES, Origin

NUMBER = st.floats(0, 1e30, allow_nan=False)
ABOVE = st.floats(1e-30, 1e30)
LINK = st.builds(Link, NUMBER, ABOVE, NUMBER)
TEXT = st.text(max_size=20).filter(str.isprintable)
ORIGIN = st.builds(
    Origin, TEXT, st.lists(TEXT, max_size=3).map(tuple), TEXT, TEXT,
    st.lists(st.integers(1, 2**40), max_size=3).map(tuple), st.integers(1, 99), ABOVE,
)  # fmt: skip
AXES = st.dictionaries(st.sampled_from(["x", "dp", "ü", "x:(1)2", "gpu:(4)8", "a.b"]), LINK, max_size=4)


@given(AXES, LINK, ABOVE, st.none() | ORIGIN)
def test_what_is_saved_is_loaded_again(tmp_path_factory, axes, default, compute, origin) -> None:
    path = tmp_path_factory.mktemp("links") / "links.json"
    links = Links(axes, default, compute, origin)
    links.save(path)
    assert Links.load(path) == Links.load(str(path)) == links
    assert Links.load(path).origin == origin


def test_where_links_come_from_changes_nothing() -> None:
    links = Links({"x": Link(1e-3, 1e9)})
    origin = Origin("2026-01-02T03:04:05Z", ("host",), "0.1.0", "x=4", (1024,), 7, 1.2)
    known = Links({"x": Link(1e-3, 1e9)}, origin=origin)
    assert (known, hash(known), repr(known)) == (links, hash(links), repr(links))
    assert known.among([DeviceMesh((2,), ("y",))]).origin is origin


def test_links_are_used_only_where_they_are_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    mesh = DeviceMesh((4,), ("x",))

    def plan(**more: Any) -> Any:
        return plan_reshard(P("x"), P(), (64,), "float32", mesh=mesh, **more)

    before = plan()
    Links({"x": Link(1.0, 1.0)}).save("links.json")
    loaded = Links.load("links.json")
    assert plan() == before
    assert plan().time == before.time
    assert plan(links=loaded).time == 1 + 48 * 4


GOOD: dict[str, Any] = {
    "format": "shardwise links",
    "version": 1,
    "origin": {
        "when": "2026-01-02T03:04:05Z",
        "hosts": ["a"],
        "shardwise": "0.1.0",
        "mesh": "x=4",
        "sizes": [1024],
        "repeats": 7,
        "factor": 1.2,
    },
    "axes": {"x": {"latency": 1e-3, "bandwidth": 1e9, "overhead": 1e-4}},
    "default": {"latency": 1e-3, "bandwidth": 1e9},
    "compute": 1e10,
}


def but(*path: str, value: Any = None, gone: bool = False) -> bytes:
    """A good file in which one field is another, or gone."""
    content = json.loads(json.dumps(GOOD))
    table = content
    for name in path[:-1]:
        table = table[name]
    if gone:
        del table[path[-1]]
    else:
        table[path[-1]] = value
    return json.dumps(content).encode()


WHOLE = json.dumps(GOOD).encode()
HOSTILE = [
    (b"", ", line 1, column 1: this is not JSON: Expecting value."),
    (b"{\n  \"format\": 'x'\n}", ", line 2, column 13: this is not JSON: Expecting value."),
    (WHOLE[:-1], f", line 1, column {len(WHOLE)}: this is not JSON: "),
    (b"\xef\xbb\xbf" + WHOLE, ", line 1, column 1: this is not JSON: "),
    (b'{"a":\n"\xff"}', ", line 2: this is not UTF-8."),
    (b"[]", ": an object with fields is expected, got []."),
    (b"3", ": an object with fields is expected, got 3."),
    (b"{}", ": this is no file of links: its format is not 'shardwise links', got None."),
    (b'{"format": "shardwise-bench"}', ": this is no file of links: its format is not 'shardwise links', got"),
    (b"[" * 100_000, ": this is no file of links: it is nested too deeply."),
    (b'{"a": ' * 100_000, ": this is no file of links: it is nested too deeply."),
    (b" " * (MOST_BYTES + 1), f": a file of links has at most {MOST_BYTES} bytes."),
    (b'{"format": 1, "format": 2}', ": the field 'format' is there twice."),
    (b'{"\\u001b[2J": 1, "\\u001b[2J": 2}', ": the field '\\x1b[2J' is there twice."),
    (WHOLE.replace(b"0.0001", b"NaN"), ": NaN is no number of a file of links."),
    (WHOLE.replace(b"0.0001", b"-Infinity"), ": -Infinity is no number of a file of links."),
    (WHOLE.replace(b"0.0001", b"1" * 5000), ": Exceeds the limit"),
    (WHOLE.replace(b"0.0001", b"1" * 400), ", axes.x.overhead: a number of seconds, 0 or more is expected, got 1111"),
    (WHOLE.replace(b"0.0001", b"1e999"), ", axes.x.overhead: a number of seconds, 0 or more is expected, got inf."),
    (but("version", value=2), ", version: this shardwise reads version 1 of the format; measure again with shardwise"),
    (but("version", value=True), ", version: this shardwise reads version 1 of the format; "),
    (but("version", gone=True), ", version: this shardwise reads version 1 of the format; "),
    (but("axes", gone=True), ": the field 'axes' is missing."),
    (but("default", gone=True), ": the field 'default' is missing."),
    (but("compute", gone=True), ": the field 'compute' is missing."),
    (but("axis", value={}), ": unknown field 'axis'.\n  fields: format, version, axes, default, compute, origin\n  "),
    (but("axes", value=[]), ", axes: an object with fields is expected, got []."),
    (but("axes", "", value={}), ", axes: a mesh axis is named as in its mesh, a sub-axis 'name:(pre)size', got ''."),
    (but("axes", "a b", value={}), ", axes: a mesh axis is named as in its mesh, "),
    (but("axes", "x:(1", value={}), ", axes: a mesh axis is named as in its mesh, "),
    (but("axes", "x", value=3), ", axes.x: an object with fields is expected, got 3."),
    (but("axes", "x", "latency", gone=True), ": the field 'axes.x.latency' is missing."),
    (but("axes", "x", "bandwith", value=3), ": unknown field 'axes.x.bandwith'.\n  fields: latency, bandwidth, "),
    (but("axes", "x", "latency", value="fast"), ", axes.x.latency: a number of seconds, 0 or more is expected, got 'f"),
    (but("axes", "x", "latency", value=True), ", axes.x.latency: a number of seconds, 0 or more is expected, got T"),
    (but("axes", "x", "latency", value=-1), ", axes.x.latency: a number of seconds, 0 or more is expected, got -1."),
    (but("axes", "x", "bandwidth", value=0), ", axes.x.bandwidth: a number of bytes per second above 0 is expected, "),
    (but("default", "bandwidth", value=None), ", default.bandwidth: a number of bytes per second above 0 is expected"),
    (but("compute", value=0), ", compute: a number above 0 is expected, got 0."),
    (but("compute", value={"a": "b" * 500}), ", compute: a number above 0 is expected, got {'a': 'bbb"),
    (but("origin", value=None), ", origin: an object with fields is expected, got None."),
    (but("origin", "when", value=3), ", origin.when: a text is expected, got 3."),
    (but("origin", "hosts", value="a"), ", origin.hosts: a list is expected, got 'a'."),
    (but("origin", "hosts", value=[3]), ", origin.hosts: a text is expected, got 3."),
    (but("origin", "sizes", value=[0]), ", origin.sizes: a whole number above 0 is expected, got 0."),
    (but("origin", "repeats", value=1.5), ", origin.repeats: a whole number above 0 is expected, got 1.5."),
    (but("origin", "factor", gone=True), ": the field 'origin.factor' is missing."),
    (but("origin", "who", value=""), ": unknown field 'origin.who'.\n  fields: when, hosts, shardwise, mesh, sizes, "),
]  # fmt: skip


def test_a_good_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "links.json"
    path.write_bytes(WHOLE)
    links = Links.load(path)
    assert links == Links({"x": Link(1e-3, 1e9, 1e-4)}, Link(1e-3, 1e9), 1e10)
    assert links.origin == Origin("2026-01-02T03:04:05Z", ("a",), "0.1.0", "x=4", (1024,), 7, 1.2)
    path.write_bytes(but("origin", gone=True))
    assert Links.load(path).origin is None


@pytest.mark.parametrize(("content", "message"), HOSTILE, ids=range(len(HOSTILE)))
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "links.json"
    path.write_bytes(content)
    with pytest.raises(PlanError) as caught:
        Links.load(path)
    text = str(caught.value)
    assert text.startswith(f"{path}{message}")
    assert "\x1b" not in text
    assert len(text) < 400 + len(str(path))


@given(st.data())
def test_a_damaged_file_is_read_or_refused(tmp_path_factory, data) -> None:
    content = bytearray(WHOLE)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(content) - 1))
        how = data.draw(st.sampled_from(["cut", "set", "gone", "twice"]))
        if how == "cut":
            content = content[: max(1, at)]
        elif how == "set":
            content[at] = data.draw(st.sampled_from(list(b'{}[]",:-09eE.x\\\x00\xff')))
        elif how == "gone":
            del content[at : at + data.draw(st.integers(1, 9))]
            content = content or bytearray(b"0")
        else:
            content[at:at] = content[at : at + data.draw(st.integers(1, 40))]
    path = tmp_path_factory.mktemp("links") / "links.json"
    path.write_bytes(content)
    links, message = None, ""
    try:
        links = Links.load(path)
    except PlanError as error:
        message = str(error)
    if links is None:
        assert message.startswith(str(path))
    else:
        links.save(path)
        assert Links.load(path) == links


def test_files_that_cannot_be_read_or_written(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"none\.json cannot be read: No such file or directory\.$"):
        Links.load(tmp_path / "none.json")
    with pytest.raises(PlanError, match=r"cannot be read: Is a directory\.$"):
        Links.load(tmp_path)
    with pytest.raises(PlanError, match=r"links\.json cannot be written: No such file or directory\.$"):
        Links().save(tmp_path / "none" / "links.json")
    with pytest.raises(PlanError, match="cannot be read: embedded null byte"):
        Links.load("a\0b")
    for call in (Links.load, Links().save):
        with pytest.raises(ArgumentError, match=r"a file of links is given by its path, got 3\."):
            call(3)  # type: ignore[arg-type]


def test_links_without_end_are_not_saved(tmp_path: Path) -> None:
    path = tmp_path / "links.json"
    with pytest.raises(PlanError, match="links with infinite numbers cannot be saved"):
        Links({"x": Link(0, float("inf"))}).save(path)
    assert not path.exists()
