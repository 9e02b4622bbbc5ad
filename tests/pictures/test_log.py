"""Tables of communication logs."""

from rich.console import Console

from shardwise.engine.log import CommunicationLog, Record
from shardwise.pictures.log import log_table, log_text

LOG = CommunicationLog(
    [
        Record("all_to_all", ("x", "y"), "[x|-]", "[-|x]", 1 << 20, 3 << 20, 0.0012, "some/where/train.py:12"),
        Record("permute", (), "[x]", "[x]", 0, 0, 0.0, "train.py:7"),
    ]
)


def test_a_row_per_step_and_the_sum_below() -> None:
    head, first, second, last = log_text(LOG).splitlines()
    assert head.split() == ["step", "over", "from", "to", "bytes", "time", "line"]
    assert first.split() == ["all_to_all", "x,", "y", "[x|-]", "[-|x]", "3", "MiB", "1.2", "ms", "where/train.py:12"]
    assert second.split()[0] == "permute"
    assert second.endswith("train.py:7")
    assert last == "2 steps, 3 MiB between devices"


def test_an_empty_log_is_a_table_without_rows() -> None:
    assert log_text(CommunicationLog()).splitlines()[-1].startswith("0 steps, 0 B")


def test_layouts_in_brackets_are_not_taken_for_markup() -> None:
    console = Console(width=120, color_system=None)
    with console.capture() as capture:
        console.print(LOG)
        console.print(log_table(LOG))
    assert capture.get().count("[x|-]") == 2


def test_one_step_is_one_step() -> None:
    log = CommunicationLog()
    log.records.append(Record("slice", ("x",), "[-]", "[x]", 0, 0, 0.0, "a.py:1"))
    assert log_text(log).splitlines()[-1] == "1 step, 0 B between devices"
