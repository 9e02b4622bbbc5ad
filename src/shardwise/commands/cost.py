"""`shardwise cost`: what a module of the `shard` dialect sends and holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from shardwise.commands.links import read_links
from shardwise.commands.module_file import failures, read
from shardwise.errors import ArgumentError

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from shardwise.ir.passes.costing import Cost
    from shardwise.plan.cost import Links

HEAD = ("line", "collective", "over", "bytes per device", "bytes in all", "time")


@click.command()
@click.argument("file", default="-")
@click.option(
    "--link",
    "links",
    multiple=True,
    metavar="[AXIS=]SECONDS,BYTES",
    help="Latency and bytes per second of the links along a grid axis, or along all others.",
)
@click.option(
    "--links",
    "links_file",
    metavar="FILE",
    help="A file that shardwise calibrate wrote; its axes are axis0, axis1, ...",
)
def cost(file: str, links: Sequence[str], links_file: str | None) -> None:
    """Show the collectives of the module in FILE (or `-`, standard input), with bytes, time and memory per device.

    A module on whole tensors is partitioned first.
    """
    with failures():
        from shardwise.ir import is_partitioned, parse_module, verify
        from shardwise.ir.passes import cost as costed
        from shardwise.ir.passes import propagate

        module = parse_module(*read(file))
        verify(module)
        model = _links(links, _rank(module), links_file)
        module = module if is_partitioned(module) else propagate(module)
        click.echo(cost_table(costed(module, model)))


def _rank(module: ModuleOp) -> int:
    from shardwise.ir.shard import GridOp

    return max((len(op.shape.get_values()) for op in module.walk() if isinstance(op, GridOp)), default=0)


def _links(texts: Sequence[str], rank: int, file: str | None) -> Links:
    from shardwise.plan.cost import Links

    base = Links() if file is None else Links.load(file)
    grid_axes = [f"axis{number}" for number in range(rank)]
    if unknown := [name for name, _ in base.axes if name.partition(":")[0] not in grid_axes]:
        sizes = ",".join(f"{name}=2" for name in grid_axes)
        raise ArgumentError(
            f"{file} has links along {unknown[0]!r}, but the axes of grids here are {', '.join(grid_axes) or 'none'}.\n"
            f"  measure them with shardwise calibrate --mesh {sizes}, or without --mesh, for one link along all axes."
        )

    def link_of(axis: str, text: str) -> str:
        if not axis.isdecimal():
            raise ArgumentError(f"--link names a grid axis by its number, got {axis!r} in {text!r}.")
        if int(axis) >= rank:
            raise ArgumentError(f"--link names grid axis {axis} in {text!r}, but grids here have {rank} at most.")
        return f"axis{int(axis)}"

    return read_links(texts, "--link", "1=1e-6,400e9", link_of, base)


def cost_table(costs: Cost) -> str:
    """Return a cost as a table."""
    rows: list[tuple[str, ...]] = [HEAD]
    for line in costs.lines:
        over = f"@{line.grid} {list(line.axes)}"
        numbers = _count(line.received), _count(line.total), _time(line.time)
        rows.append((str(line.place or "-"), line.name, over, *numbers))
    rows.append(("", "all", "", _count(costs.received), _count(costs.total), _time(costs.time)))
    widths = [max(len(row[k]) for row in rows) for k in range(len(HEAD))]
    text = ["  ".join(_cell(k, cell, widths[k]) for k, cell in enumerate(row)).rstrip() for row in rows]
    return "\n".join([*text, f"memory per device: {_count(costs.memory)} bytes"])


def _cell(column: int, cell: str, width: int) -> str:
    return cell.ljust(width) if column in (1, 2) else cell.rjust(width)


def _count(number: int | None) -> str:
    return "?" if number is None else str(number)


def _time(seconds: float | None) -> str:
    return "?" if seconds is None else f"{seconds * 1e6:.1f} us"
