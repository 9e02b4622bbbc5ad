"""Plans as tables: golden texts, and that rich shows the same."""

from io import StringIO
from textwrap import dedent

import pytest
from hypothesis import given
from rich.console import Console

from shardwise import CPU, DeviceMesh, Layout, P, plan_reshard
from shardwise.pictures.plan import size_text, time_text
from tests.plan.cases import Transition, transitions

MESH = DeviceMesh((2, 4), ("dp", "tp"))
BIG = DeviceMesh((64, 64, 256), ("x", "y", "z"))
OTHER = DeviceMesh((3,), ("y",), [CPU(i) for i in (1, 2, 3)])


def plan(src: P, dst: P, shape: tuple[int, ...], **more):
    return plan_reshard(src.to_layout(len(shape), MESH), dst.to_layout(len(shape), MESH), shape, "float32", **more)


TABLES = [
    (
        plan(P("dp", "tp"), P(None, "dp"), (1024, 4096)),
        """
        [dp|tp] -> [-|dp]  float32[1024x4096] on dp=2, tp=4
        step      over    to      receives  sends  staging  chunks    time
        exchange  dp, tp  [-|dp]     8 MiB  8 MiB    8 MiB       1  346 us
        receives at most 8 MiB a device (the least possible), time 346 us
        """,
    ),
    (
        plan(P("dp", None), P(None, ("tp", "dp")), (1024, 4096), memory_limit=2**20),
        """
        [dp|-] -> [-|tp dp]  float32[1024x4096] on dp=2, tp=4
        step        over  to         receives  sends  staging  chunks     time
        slice       tp    [dp|tp]           -      -        -       -        -
        all_to_all  dp    [-|tp dp]     1 MiB  1 MiB    1 MiB       2  51.9 us
        receives at most 1 MiB a device (the least possible), time 51.9 us
        """,
    ),
    (
        plan(P("tp", unreduced=["dp"]), P("dp"), (1024, 1024)),
        """
        [tp|-] sum(dp) -> [dp|-]  float32[1024x1024] on dp=2, tp=4
        step            over    to                receives  sends  staging  chunks     time
        reduce_scatter  dp, tp  shares of [dp|-]     1 MiB  1 MiB    4 MiB       1  51.9 us
        all_gather      tp      [dp|-]               2 MiB  3 MiB    8 MiB       1   136 us
        receives at most 2 MiB a device, 16 MiB in all (the least possible), time 188 us
        """,
    ),
    (
        plan(P("dp"), P("dp"), (8,)),
        """
        [dp] -> [dp]  float32[8] on dp=2, tp=4
        nothing to do
        """,
    ),
    (
        plan(P(), P(), ()),
        """
        [] -> []  float32[0-d] on dp=2, tp=4
        nothing to do
        """,
    ),
    (
        plan_reshard(Layout(BIG, ["z", None]), Layout(BIG, [None, "z"]), (2**14, 2**14), "bfloat16"),
        """
        [z|-] -> [-|z]  bfloat16[16384x16384] on x=64, y=64, z=256
        step        over  to      receives  sends  staging  chunks     time
        all_to_all  z     [-|z]  ~1.99 MiB      -    2 MiB       1  93.6 us
        time 93.6 us, staging 2 MiB a device
        """,
    ),
    (
        plan_reshard(Layout(DeviceMesh((2,), ("x",)), ["x"]), Layout(OTHER, ["y"]), (12,), "int8"),
        """
        [x] -> [y]  int8[12] from x=2 to y=3
        step      over  to   receives  sends  staging  chunks   time
        exchange  all   [y]       4 B    6 B      8 B       1  10 us
        receives at most 4 B a device (the least possible), time 10 us
        """,
    ),
]


@pytest.mark.parametrize(("found", "want"), TABLES, ids=[table.split("\n")[1].strip() for _, table in TABLES])
def test_a_plan_is_a_table(found, want):
    assert str(found) == dedent(want).strip()


EXPLANATION = """
way                  steps                                   receives at most  all devices  memory    time
this plan            exchange over dp, tp                               8 MiB       56 MiB  18 MiB  346 us
gather, then slice   all_gather over dp, tp, slice over dp             14 MiB      112 MiB  34 MiB  597 us
axis by axis         all_gather over tp, all_to_all over dp            10 MiB       80 MiB  24 MiB  439 us
one direct exchange  exchange                                           8 MiB       56 MiB  18 MiB  346 us
gather, then slice would move 2 times the bytes; axis by axis would move 1.43 times the bytes; \
one direct exchange comes
to the same.
"""


def test_an_explanation_is_a_table_with_the_reason_below():
    found = plan(P("dp", "tp"), P(None, "dp"), (1024, 4096)).explain()
    assert str(found) == EXPLANATION.strip()


def test_rich_shows_the_same():
    found = plan(P("dp", "tp"), P(None, "dp"), (1024, 4096))
    console = Console(width=120, color_system=None, record=True, file=StringIO())
    console.print(found)
    console.print(found.explain())
    lines = [line.rstrip() for line in console.export_text().splitlines()]
    assert lines == [*str(found).splitlines(), *str(found.explain()).splitlines()]


def test_the_chosen_way_stands_out():
    console = Console(width=120, force_terminal=True, color_system="standard", record=True, file=StringIO())
    console.print(plan(P("dp"), P(), (8,)).explain())
    (chosen,) = [line for line in console.export_text(styles=True).splitlines() if "this plan" in line]
    assert "\x1b[32m" in chosen


@given(transitions(partial=True))
def test_every_plan_can_be_shown(case: Transition):
    found = plan_reshard(*case, "int8")
    lines = str(found).splitlines()
    assert "".join(str(found).split()).startswith("".join(f"{case.src}->{case.dst}".split()))
    assert len(lines) >= (3 + len(found.steps) if found.steps else 2)  # a long title is wrapped
    if not case.src.partial and not case.dst.partial and found.steps:
        assert "(the least possible)" in lines[-1]


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1 KiB"), (1536, "1.5 KiB"), (2**40, "1 TiB"), (2**60, "1024 PiB")],
)
def test_sizes_are_short(size, text):
    assert size_text(size) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 us"), (2.5e-5, "25 us"), (0.0123, "12.3 ms"), (75, "75 s"), (7500, "7500 s")]
)
def test_times_are_short(seconds, text):
    assert time_text(seconds) == text
