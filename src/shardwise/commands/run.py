"""`shardwise run`: a program as several processes on this host."""

from __future__ import annotations

import sys

import click

from shardwise.engine.launch.launcher import launch
from shardwise.errors import ShardwiseError


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("-n", "--processes", type=click.IntRange(min=1), required=True, help="How many: one per device.")
@click.option("--engine", type=click.Choice(["torch"]), default="torch", help="The engine that connects them.")
@click.option("-m", "--module", is_flag=True, help="SCRIPT is the name of a module, as for python -m.")
@click.option("--port", type=click.IntRange(1, 65535), help="MASTER_PORT; a free one unless given.")
@click.option("--grace", type=click.FloatRange(min=0), default=2.0, help="Seconds to leave in after one fails (2).")
@click.option("--live/--no-live", default=True, help="On a terminal, a line that says how far all are.")
@click.argument("script")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def run(
    processes: int,
    engine: str,
    module: bool,
    port: int | None,
    grace: float,
    live: bool,
    script: str,
    args: tuple[str, ...],
) -> None:
    """Run SCRIPT with ARGS as several processes on this host, of which shardwise.init() makes one engine.

    Lines of output have the rank before them; on a terminal a live line says how far all are, and who is late. When one
    process fails, its traceback comes first, and all end; so they do within 5 seconds of Ctrl-C or SIGTERM, whether
    anybody reads the output or not. The exit code is that of the first that failed, or 128 plus the signal's number.

    After a failure it says how to ask what every process did last (shardwise postmortem); SIGUSR2 to this
    process writes the stacks of all.
    """
    command = [sys.executable, *(["-m"] if module else []), script, *args]
    try:
        sys.exit(launch(command, processes, port=port, grace=grace, live=live, exits=True))
    except ShardwiseError as error:
        raise click.ClickException(str(error)) from None
