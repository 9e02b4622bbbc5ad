"""Reports that tests share."""

from benchmarks.machine import Machine
from benchmarks.report import Report
from benchmarks.row import Floor, Measure, Row, counted

MACHINE = Machine("a processor", 2, 24.0, "Linux", "3.11", {"numpy": "2.0"})


def times(median: float) -> Measure:
    return Measure(median, 0.9 * median, 1.1 * median, 7)


def rows() -> list[Row]:
    floor = Floor("NumPy by hand", times(1e-3))
    peers = {"DTensor": times(8e-3), "JAX jit": times(4e-3)}
    grown = [
        Row("growth", "S0 -> S1", f"{n} KiB", "8", "warm", "seconds", times(1e-6 * n), at={"bytes": 1024.0 * n})
        for n in (1, 10, 100)
    ]
    return [
        Row("traffic", "whole, in all", "72 transitions", "2x2", "count", "bytes", counted(2.0**30)),
        Row("local", "S0 -> S1", "4 MiB", "8", "warm", "seconds", times(2e-3), peers, floor),
        Row("local", "S0 -> S1", "4 MiB", "8", "cold", "seconds", times(9e-3), peers),
        Row("local", "[x|y] -> R", "4 MiB", "2x4", "warm", "seconds", times(2e-3), {}, floor, missing={"JAX jit": "?"}),
        *grown,
    ]


def report(*more: Row, failures: dict[str, str] | None = None) -> Report:
    return Report(MACHINE, "quick", "2025-01-01", 0.1, {"local": 1.0}, [*rows(), *more], failures or {})
