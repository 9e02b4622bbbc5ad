"""`shardwise opt`: read modules of the `shard` dialect, transform them, and print them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import IO, TYPE_CHECKING, Any

import click

from shardwise.commands.module_file import failures, read
from shardwise.errors import ParseError, ShardwiseError, VerifyError

if TYPE_CHECKING:
    from shardwise.ir.passes.propagation import Direction

SEPARATOR = re.compile(rb"^// -----[^\n]*$", re.MULTILINE)


def _note(context: click.Context, parameter: click.Parameter, is_given: bool) -> None:
    # Passes run in the order in which they are written, as in mlir-opt.
    if is_given:
        context.meta.setdefault("passes", []).append(parameter.name)


def _pass(name: str, text: str) -> Any:
    return click.option(f"--{name}", is_flag=True, expose_value=False, callback=_note, help=text)


@click.command()
@click.argument("file", default="-")
@_pass("propagate", "Work out the shardings of all values from those that are annotated.")
@_pass("partition", "Turn the program on global values into the program of each device.")
@_pass("simplify", "Merge, cancel and remove collectives.")
@click.option(
    "--direction",
    type=click.Choice(["both", "forward", "backward"]),
    default="both",
    help="Where propagation goes: from operands to results, back, or both.",
)
@click.option("--verify/--no-verify", default=True, help="Check each module, before and after each pass (the default).")
@click.option("--dialect", type=click.Choice(["shard", "mesh19"]), default="shard", help="The words to print.")
@click.option("--split-input-file", is_flag=True, help="Treat each part between `// -----` lines as a module.")
@click.option("--allow-unregistered", is_flag=True, help="Read ops of dialects that are not known.")
@click.option("-o", "--output", type=click.File("w", lazy=True), default="-", help="Where to print to.")
@click.pass_context
def opt(
    context: click.Context,
    file: str,
    direction: Direction,
    verify: bool,
    dialect: str,
    split_input_file: bool,
    allow_unregistered: bool,
    output: IO[str],
) -> None:
    """Read modules from FILE (or `-`, standard input), run the passes in the order given, and print the result."""
    data, name = read(file)
    passes = context.meta.get("passes", [])
    texts: list[str] = []
    has_failed = False
    for part in _parts(data) if split_input_file else [data]:
        try:
            with failures():
                texts.append(_transform(part, name, passes, direction, verify, dialect, allow_unregistered))
        except click.ClickException as error:
            if not isinstance(error.__cause__, ShardwiseError):
                raise
            has_failed = True
            click.echo(_error_text(error.__cause__), err=True)
    if texts:
        output.write("\n// -----\n\n".join(texts))
    if has_failed:
        context.exit(1)


def _parts(data: bytes) -> Iterator[bytes]:
    """Yield the modules of a file, each after as many empty lines as precede it, so that places hold."""
    start = 0
    for match in [*SEPARATOR.finditer(data), None]:
        end = len(data) if match is None else match.start()
        if data[start:end].strip():
            yield b"\n" * data.count(b"\n", 0, start) + data[start:end]
        start = end if match is None else match.end()


def _transform(
    data: bytes,
    name: str,
    passes: Sequence[str],
    direction: Direction,
    verify: bool,
    dialect: str,
    allow_unregistered: bool,
) -> str:
    from shardwise.ir import parse_module, print_module
    from shardwise.ir import verify as check
    from shardwise.ir.passes import partition, propagate, simplify

    module = parse_module(data, name, allow_unregistered=allow_unregistered)
    if verify:
        check(module)
    steps = {"propagate": partial(propagate, direction=direction), "partition": partition, "simplify": simplify}
    for step in passes:
        module = steps[step](module)
        if verify:
            check(module)
    return print_module(module, "mesh19" if dialect == "mesh19" else "shard") + "\n"


def _error_text(error: ShardwiseError) -> str:
    if isinstance(error, ParseError | VerifyError):
        place, what = f"{error.name}:{error.line}:{error.column}", str(error)
        return f"{place}: error:{what.removeprefix(f'{place}:')}"
    return f"error: {error}"
