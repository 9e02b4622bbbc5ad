"""Counters add up."""

from shardwise.engine.counters import Counters


def counted(times: int) -> Counters:
    out = Counters()
    for _ in range(times):
        out.count_moved("all_gather", 8)
        out.count_moved("permute", 1)
        out.bytes_sent += 4
        out.copies += 1
        out.bytes_copied += 16
        out.kernel_calls += 2
        out.bytes_allocated += 32
    return out


def test_kinds_are_counted_apart_and_in_all() -> None:
    assert counted(2).bytes_moved == {"all_gather": 16, "permute": 2}
    assert counted(2).total == 18


def test_what_threads_counted_is_added() -> None:
    both = counted(2)
    both.add(counted(3))
    assert both == counted(5)


def test_reset_starts_from_zero() -> None:
    some = counted(4)
    some.reset()
    assert some == Counters()
    assert some.total == 0
