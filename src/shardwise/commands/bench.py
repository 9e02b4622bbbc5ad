"""`shardwise bench`: benchmarks side by side with peers, as one report."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from shardwise.commands.several import taking_several

CHECKOUT = Path(__file__).parents[3]


@click.command(cls=taking_several("--only"))
@click.option("--quick", is_flag=True, help="Fewer sizes and rounds: 3 minutes on two cores instead of 20.")
@click.option("--only", multiple=True, metavar="AREA ...", help="Only these areas.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write the report as JSON.")
@click.option("--html", "html_file", type=click.Path(dir_okay=False, path_type=Path), help="Write it as one page.")
@click.option("--list", "listed", is_flag=True, help="Say what the areas are, and measure nothing.")
def bench(quick: bool, only: tuple[str, ...], json_file: Path | None, html_file: Path | None, listed: bool) -> None:
    """Measure shardwise beside DTensor, JAX and plain NumPy, in one run on this machine.

    Every result is checked; the exit status is 1 where one differs. A row that is lost is shown as lost.
    """
    areas, clock, report, running, tables, page = map(_benchmark, ("areas", "clock", "report", "run", "tables", "page"))
    try:
        selection = areas.chosen(only)
        if listed:
            for area in selection:
                click.echo(f"{area.name:10} {area.title}")
            return
        for path in (json_file, html_file):  # before twenty minutes are gone
            if path is not None and not path.absolute().parent.is_dir():
                raise click.ClickException(f"there is no folder {str(path.parent)!r} to write {path.name!r} into.")
        results = running.run(selection, clock.EFFORTS["quick" if quick else "full"])
    except areas.AreaError as error:
        raise click.ClickException(str(error)) from None
    tables.show(results, Console(width=None if sys.stdout.isatty() else 160))
    if json_file is not None:
        report.write(results, json_file)
    if html_file is not None:
        html_file.write_text(page.page(results), encoding="utf-8")
    if results.failed:
        raise click.exceptions.Exit(1)


def _benchmark(name: str) -> Any:
    # They are no part of the installed package: they need a checkout, in which src/ and benchmarks/ are neighbours.
    if not (CHECKOUT / "benchmarks" / "areas.py").is_file():
        raise click.ClickException(
            "the benchmarks are part of a checkout of shardwise, and this one was installed without.\n"
            "  in a checkout: make bench, or pip install --editable '.[all]' and shardwise bench"
        )
    if str(CHECKOUT) not in sys.path:
        sys.path.insert(0, str(CHECKOUT))
    return import_module(f"benchmarks.{name}")
