"""`shardwise explain`: how a tensor gets from one layout to another, and why so."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from shardwise.commands.links import is_file, read_links
from shardwise.errors import ArgumentError, ShardwiseError
from shardwise.layout.notation import read_layout, read_mesh, read_shape

if TYPE_CHECKING:
    from shardwise.layout.mesh import DeviceMesh
    from shardwise.plan.cost import Links


@click.command()
@click.option("--mesh", required=True, metavar="dp=2,tp=4", help="The axes of the mesh and their sizes.")
@click.option("--shape", required=True, metavar="1024x4096", help="The shape of the tensor.")
@click.option("--from", "src", required=True, metavar="LAYOUT", help="The layout it has.")
@click.option("--to", "dst", required=True, metavar="LAYOUT", help="The layout it shall have.")
@click.option("--dtype", default="float32", show_default=True, help="The dtype of the tensor.")
@click.option(
    "--links",
    multiple=True,
    metavar="[AXIS=]SECONDS,BYTES|FILE",
    help="Latency and bytes per second of the links along a mesh axis or sub-axis, or along all others; or a file that "
    "shardwise calibrate wrote.",
)
@click.option("--cluster", metavar="NAME", help="The links of a cluster of this name, such as dgx-h100.")
@click.option("--html", type=click.Path(dir_okay=False), help="Write the same as one page that needs nothing else.")
@click.option("--svg", type=click.Path(dir_okay=False), help="Write the drawing of the plan.")
def explain(
    mesh: str,
    shape: str,
    src: str,
    dst: str,
    dtype: str,
    links: Sequence[str],
    cluster: str | None,
    html: str | None,
    svg: str | None,
) -> None:
    """Show the plan that takes a tensor from one layout to another: layouts, steps, alternatives and cost.

    A layout names per dim the mesh axes that split it, major to minor, as the library prints it: dims are separated
    by commas or bars, the axes of one dim by spaces, and - is a whole dim. A reduction that is pending follows.

    \b
      dp,tp              rows over dp, columns over tp
      [tp dp|-]          rows over tp, then dp
      [dp|-] sum(tp)     rows over dp; each device along tp holds a term of the sum
      tp/chunk           chunks as in PyTorch; /offsets(0,3,8,8,10) for explicit ones
      [tp+-(1,1)|-]      rows over tp, and one row of each neighbour
    """
    from rich.console import Console

    from shardwise.pictures.report import report
    from shardwise.plan.plan import plan_reshard

    try:
        grid, sizes = read_mesh(mesh), read_shape(shape)
        before, after = (read_layout(text, grid, len(sizes)) for text in (src, dst))
        model = _links(links, cluster, grid)
        drawing = report(plan_reshard(before, after, sizes, dtype, links=model))
        Console().print(drawing)
        if html is not None:
            _write(html, drawing.html, "--html")
        if svg is not None:
            _write(svg, drawing.svg + "\n", "--svg")
    except ShardwiseError as error:
        raise click.ClickException(str(error)) from error


def _links(given: Sequence[str], cluster: str | None, mesh: DeviceMesh) -> Links:
    from shardwise.plan.cost import Links

    files = [text for text in given if is_file(text)]
    if len(files) + (cluster is not None) > 1:
        names = ", ".join([*(["--cluster"] if cluster is not None else []), *(f"--links {file}" for file in files)])
        raise ArgumentError(f"links come from one file or one cluster, got {names}.")
    base = Links.load(files[0]) if files else None if cluster is None else Links.cluster(cluster, mesh)
    texts = [text for several in given if several not in files for text in several.replace(";", " ").split()]

    def axis_name(axis: str, text: str) -> str:
        return str(mesh.axis(axis, f"--links {text}"))

    return read_links(texts, "--links", "dp=1e-6,400e9", axis_name, base)


def _write(path: str, text: str, option: str) -> None:
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"{option} {shlex.quote(path)} cannot be written: {error.strerror}.") from error
