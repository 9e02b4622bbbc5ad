"""`shardwise calibrate`: links measured by processes on this host, and written into a file."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from shardwise.errors import MeshError, ShardwiseError
from shardwise.layout.notation import read_mesh

if TYPE_CHECKING:
    from shardwise.plan.cost import Links
    from shardwise.plan.link import Link

REPEATS, LARGEST = 9, 64
MEBIBYTE = 1 << 20


@click.command()
@click.option("-n", "--processes", type=click.IntRange(min=2), required=True, help="How many: one per device.")
@click.option("--mesh", metavar="dp=2,tp=2", help="The axes to measure one by one; without, one link for all axes.")
@click.option("-o", "--output", default="links.json", show_default=True, help="The file to write.")
@click.option(
    "--largest",
    type=click.IntRange(1, 4096),
    default=LARGEST,
    show_default=True,
    help="The most MiB that a device receives in one round; the least is 1 KiB.",
)
@click.option("--repeats", type=click.IntRange(min=1), default=REPEATS, show_default=True, help="Rounds of each size.")
def calibrate(processes: int, mesh: str | None, output: str, largest: int, repeats: int) -> None:
    """Measure the links between processes on this host, as reshards use them, and write them into a file.

    The processes are started as by shardwise run. Along every axis of the mesh, in all its groups at once, all-gathers,
    reduce-scatters, all-to-alls and ring shifts of several sizes are timed in turn; the numbers of a link are those
    that predict the medians best. Nobody uses them unasked: give the file to shardwise explain --links FILE, or to
    Links.load(FILE).
    """
    from shardwise.engine.launch.launcher import launch
    from shardwise.plan.cost import Links

    try:
        grid = None if mesh is None else read_mesh(mesh)
        if grid is not None and grid.num_devices != processes:
            raise MeshError(f"--mesh {mesh} has {grid.num_devices} devices, but there are {processes} processes.")
        _check_output(output)
        command = [sys.executable, "-m", "shardwise.commands.calibrate"]
        command += ["" if grid is None else str(grid), str(largest), str(repeats), output]
        if code := launch(command, processes, live=False):
            raise SystemExit(code)
        links = Links.load(output)
    except ShardwiseError as error:
        raise click.ClickException(str(error)) from None
    click.echo(link_table(links))
    click.echo(f"written: {output}")


def _check_output(output: str) -> None:
    # Before minutes are gone.
    folder = os.path.dirname(output) or "."
    if not os.path.isdir(folder):
        raise click.ClickException(f"there is no folder {folder!r} to write {os.path.basename(output)!r} into.")
    if os.path.isdir(output):
        raise click.ClickException(f"-o names the file to write, and {output!r} is a folder.")


def link_table(links: Links) -> str:
    """Return measured links as a table, and how they were measured.

    >>> from shardwise import Link, Links
    >>> print(link_table(Links({"x": Link(1e-3, 1e9)})))
    axis        latency  a further message  bandwidth
    x              1 ms                  -     1 GB/s
    all others    10 us                  -    25 GB/s
    """
    rest = "all others" if links.axes else "all"
    rows = [("axis", "latency", "a further message", "bandwidth"), *(_row(name, link) for name, link in links.axes)]
    rows.append(_row(rest, links.default))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(_cell, row, widths, range(len(row)))).rstrip() for row in rows]
    if (origin := links.origin) is not None:
        from shardwise.pictures.plan import size_text

        least, most = size_text(min(origin.sizes)), size_text(max(origin.sizes))
        lines.append(
            f"{len(origin.sizes)} sizes, {least} to {most} a device, {origin.repeats} times each, on {origin.mesh}"
        )
        lines.append(f"predicted times are off by a factor of {origin.factor:.2f} (geometric mean)")
    return "\n".join(lines)


def _cell(text: str, width: int, column: int) -> str:
    return text.rjust(width) if column else text.ljust(width)


def _row(name: str, link: Link) -> tuple[str, ...]:
    from shardwise.pictures.plan import time_text

    further = time_text(link.overhead) if link.overhead else "-"
    return name, time_text(link.latency), further, f"{link.bandwidth / 1e9:.3g} GB/s"


# -- in each process -------------------------------------------------------------------------------------


def work(mesh: str, largest: str, repeats: str, output: str) -> None:
    """Measure in this process, which is one of several; the first says how far all are, and writes the file."""
    from shardwise.engine.calibration import SIZES, measure
    from shardwise.engine.start import init

    init("torch")
    grid = read_mesh(mesh) if mesh else None
    is_first = os.environ["RANK"] == "0"

    def tell(done: int, rounds: int) -> None:
        if is_first:
            print(f"round {done} of {rounds}", flush=True)

    most = int(largest) * MEBIBYTE
    sizes = sorted({size for size in SIZES if size < most} | {most})
    links = measure(grid, sizes, int(repeats), tell)
    if is_first:
        links.save(output)


if __name__ == "__main__":
    work(*sys.argv[1:])
