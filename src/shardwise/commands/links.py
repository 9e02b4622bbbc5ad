"""The links between devices as they are given on the command line: as numbers, or in a file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from shardwise.errors import ArgumentError
from shardwise.plan.cost import Link, Links


def is_file(text: str) -> bool:
    """Whether a text is the name of a file of links rather than links themselves.

    >>> is_file("links.json"), is_file("dp=1e-6,400e9")
    (True, False)
    """
    return text.endswith(".json") or Path(text).is_file()


def read_links(
    texts: Sequence[str],
    option: str,
    example: str,
    axis_name: Callable[[str, str], str],
    base: Links | None = None,
) -> Links:
    """Return the links that texts `[AXIS=]SECONDS,BYTES` give; `axis_name` makes a name of what is before the `=`.

    What they do not give is as in `base`.
    """
    base = base or Links()
    axes: dict[str, Link] = dict(base.axes)
    default = base.default
    for text in texts:
        axis, equals, numbers = text.rpartition("=")
        try:
            latency, bandwidth = map(float, numbers.split(","))
        except ValueError:
            raise ArgumentError(
                f"{option} is given as SECONDS,BYTES or AXIS=SECONDS,BYTES, such as {example}, got {text!r}."
            ) from None
        if equals:
            axes[axis_name(axis, text)] = Link(latency, bandwidth)
        else:
            default = Link(latency, bandwidth)
    return Links(axes, default, base.compute, base.origin)
