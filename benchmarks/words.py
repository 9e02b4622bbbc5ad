"""Words: how numbers and rows are written, in tables and on pages."""

from __future__ import annotations

from benchmarks.row import Measure, Row

SCALES = {
    "seconds": ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")),
    "bytes": ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B")),
    "times the bound": ((1.0, "×"),),
    "transitions": ((1.0, ""),),
}


def digits(value: float) -> str:
    """Return three digits, never in powers of ten.

    >>> digits(0.01234), digits(12.34), digits(1234.0), digits(1.0)
    ('0.0123', '12.3', '1234', '1')
    """
    if not value:
        return "0"
    if value >= 100:
        return f"{value:.0f}"
    text = f"{value:.3g}"
    return text if "e" not in text else f"{value:.9f}".rstrip("0")


def amount(value: float, unit: str) -> str:
    """Return a value with its unit, in the scale in which it is at least one.

    >>> amount(0.00123, "seconds"), amount(3 * 2**20, "bytes"), amount(0, "transitions")
    ('1.23 ms', '3 MiB', '0')
    """
    scales = SCALES[unit]
    scale, name = next((s for s in scales if value >= s[0]), scales[-1])
    return f"{digits(value / scale)} {name}".rstrip()


def measure(found: Measure | None, unit: str) -> str:
    """Return a median, with half the distance between the quartiles where there is any.

    >>> measure(Measure(0.002, 0.0019, 0.0021, 9), "seconds"), measure(None, "seconds")
    ('2 ms ±5%', '–')
    """
    if found is None:
        return "–"
    text = amount(found.median, unit)
    return f"{text} ±{100 * found.spread / found.median:.0f}%" if found.spread and found.median else text


def times(value: float | None) -> str:
    """Return a ratio.

    >>> times(1.5), times(None)
    ('1.5×', '–')
    """
    return "–" if value is None else f"{digits(value)}×"


def verdict(row: Row) -> str:
    """Return how a row ended, against the best peer.

    >>> from benchmarks.row import counted
    >>> verdict(Row("traffic", "in all", "", "2x2", "count", "bytes", counted(2), {"A": counted(3)}))
    'won 1.5× (A)'
    """
    if row.failed or row.best_peer is None:
        return row.verdict
    versus = row.versus(row.best_peer)
    if versus is None:  # ours is nothing
        return row.verdict
    if row.verdict == "lost":
        return f"lost {times(1 / versus)} ({row.best_peer})" if versus else f"lost ({row.best_peer})"
    return f"{row.verdict} {times(versus)} ({row.best_peer})"
