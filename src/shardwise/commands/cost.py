"""`shardwise cost`: what a module of the `shard` dialect sends and holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO, TYPE_CHECKING

import click

from shardwise.commands.links import read_links
from shardwise.errors import ArgumentError, ShardwiseError

if TYPE_CHECKING:
    from shardwise.ir.passes.costing import Cost

HEAD = ("line", "collective", "over", "bytes per device", "bytes in all", "time")


@click.command()
@click.argument("file", type=click.File("rb"), default="-")
@click.option(
    "--link",
    "links",
    multiple=True,
    metavar="[AXIS=]SECONDS,BYTES",
    help="Latency and bytes per second of the links along a grid axis, or along all others.",
)
def cost(file: IO[bytes], links: Sequence[str]) -> None:
    """Show the collectives of the module in FILE (or `-`, standard input), with bytes, time and memory per device.

    A module on whole tensors is partitioned first.
    """
    try:
        from shardwise.ir import parse_module, verify
        from shardwise.ir.interpret.run import is_partitioned
        from shardwise.ir.passes import cost as costed
        from shardwise.ir.passes import propagate

        name = str(getattr(file, "name", "<stdin>"))
        module = parse_module(file.read(), "<stdin>" if name == "-" else name)
        verify(module)
        module = module if is_partitioned(module) else propagate(module)
        click.echo(shown(costed(module, read_links(links, "--link", "1=1e-6,400e9", _grid_axis))))
    except (ImportError, ShardwiseError) as error:
        raise click.ClickException(str(error)) from error


def _grid_axis(axis: str, text: str) -> str:
    if not axis.isdecimal():
        raise ArgumentError(f"--link names a grid axis by its number, got {axis!r} in {text!r}.")
    return f"axis{axis}"


def shown(found: Cost) -> str:
    """Return a cost as a table."""
    rows: list[tuple[str, ...]] = [HEAD]
    for line in found.lines:
        over = f"@{line.grid} {list(line.axes)}"
        numbers = _count(line.received), _count(line.total), _time(line.time)
        rows.append((str(line.place or "-"), line.name, over, *numbers))
    rows.append(("", "all", "", _count(found.received), _count(found.total), _time(found.time)))
    widths = [max(len(row[k]) for row in rows) for k in range(len(HEAD))]
    text = ["  ".join(_cell(k, cell, widths[k]) for k, cell in enumerate(row)).rstrip() for row in rows]
    return "\n".join([*text, f"memory per device: {_count(found.memory)} bytes"])


def _cell(column: int, cell: str, width: int) -> str:
    return cell.ljust(width) if column in (1, 2) else cell.rjust(width)


def _count(number: int | None) -> str:
    return "?" if number is None else str(number)


def _time(seconds: float | None) -> str:
    return "?" if seconds is None else f"{seconds * 1e6:.1f} us"
