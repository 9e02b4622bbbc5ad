"""The machine that a report was made on."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("shardwise", "numpy", "torch", "jax", "xdsl")


@dataclass(frozen=True, slots=True)
class Machine:
    """A processor, how many of its cores this process may use, memory in GiB, and what is installed."""

    processor: str
    cores: int
    memory: float
    system: str
    python: str
    packages: dict[str, str]

    def __str__(self) -> str:
        packages = ", ".join(f"{name} {version}" for name, version in self.packages.items())
        cores = f"{self.cores} core{'s' * (self.cores != 1)}"
        return f"{self.processor}, {cores}, {self.memory:.0f} GiB, {self.system}, Python {self.python}, {packages}"


def this_machine() -> Machine:
    """Return the machine that this process runs on."""
    return Machine(
        _processor(),
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        round(_memory() / 2**30, 1),
        f"{platform.system()} {platform.release().split('-')[0]} {platform.machine()}",
        platform.python_version(),
        {name: found for name in PACKAGES if (found := _version(name)) is not None},
    )


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())


def _memory() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 0


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
