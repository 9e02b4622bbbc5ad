"""The links between devices as they are given on the command line."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shardwise.errors import ArgumentError
from shardwise.plan.cost import Link, Links


def read_links(texts: Sequence[str], option: str, example: str, axis_name: Callable[[str, str], str]) -> Links:
    """Return the links that texts `[AXIS=]SECONDS,BYTES` give; `axis_name` makes a name of what is before the `=`."""
    axes: dict[str, Link] = {}
    default = None
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
    return Links(axes, default)
