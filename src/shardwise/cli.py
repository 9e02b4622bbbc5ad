"""The `shardwise` command."""

import click

from shardwise import __version__
from shardwise.commands.bench import bench
from shardwise.commands.calibrate import calibrate
from shardwise.commands.cost import cost
from shardwise.commands.execution import exec_
from shardwise.commands.opt import opt
from shardwise.commands.postmortem import postmortem
from shardwise.commands.run import run
from shardwise.commands.transition import explain


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def main() -> None:
    """Tensors spread over a mesh of devices: look at layouts, plans and traffic."""


@main.command()
def tour() -> None:
    """Show the main things at work on a 2x4 mesh of virtual devices."""
    from shardwise.tour import show

    if not show():
        raise click.ClickException("a result differs from plain NumPy's; please report this.")


main.add_command(opt)
main.add_command(exec_)
main.add_command(cost)
main.add_command(explain)
main.add_command(run)
main.add_command(calibrate)
main.add_command(postmortem)
main.add_command(bench)
