"""`shardwise exec`: run a module of the `shard` dialect."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from zipfile import BadZipFile

import click
import numpy as np

from shardwise.commands.module_file import failures, read
from shardwise.commands.several import taking_several
from shardwise.errors import ArgumentError

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from shardwise.ir import Poisoned


@click.command("exec", cls=taking_several("--inputs"))
@click.argument("file")
@click.option("--inputs", multiple=True, metavar="X.npy ...", help="One array per argument, as numpy.save writes it.")
@click.option("--check", is_flag=True, help="Run on whole tensors too, and fail if a device holds anything else.")
@click.option("--output", type=click.Path(dir_okay=False), help="Where to save: .npy for one result, .npz for several.")
@click.option("--function", help="Which function to run; by default main, or the first.")
@click.option("--grid", "grids", multiple=True, metavar="NAME=2x4", help="The shape of a grid with open sizes.")
def exec_(
    file: str,
    inputs: Sequence[str],
    check: bool,
    output: str | None,
    function: str | None,
    grids: Sequence[str],
) -> None:
    """Run the module in FILE (or `-`, standard input), given before the inputs, on every device of its grid.

    A module on whole tensors is partitioned first; inputs and results are whole. A module that is partitioned already
    takes and gives what the devices hold: arrays with a leading dim of one entry per device, or one array for all.
    """
    with failures():
        if output is not None and Path(output).suffix not in (".npy", ".npz"):
            raise ArgumentError(f"--output is the name of a .npy or .npz file, got {output!r}.")
        results = _results(file, inputs, check, function, grids)
        _show(results)
        if output is not None:
            _save([_stack(i, result) for i, result in enumerate(results)], output)


# The whole of a result, or what each device has of it.
Whole: TypeAlias = "np.ndarray | np.generic | Poisoned"
Result: TypeAlias = "list[Any] | Whole"


def _results(file: str, inputs: Sequence[str], check: bool, function: str | None, grids: Sequence[str]) -> list[Result]:
    from shardwise.ir import check_partition, execute, execute_partitioned, is_partitioned, parse_module, verify

    module = parse_module(*read(file))
    verify(module)
    arrays = [_load(path) for path in inputs]
    options: dict[str, Any] = {"function": function, "grids": dict(map(_grid, grids))}
    if is_partitioned(module):
        if check:
            raise ArgumentError("the module is partitioned already, so there is no whole to check it against.")
        return _on_devices(module, arrays, options)
    if not any(op.name == "shard.grid" for op in module.body.block.ops):  # there is nothing to partition
        return _as_list(execute(module, *arrays, **options))
    if not check:
        return _as_list(execute_partitioned(module, *arrays, **options))
    comparison = check_partition(module, *arrays, **options)
    if not comparison.agree:
        raise click.ClickException(str(comparison))
    click.echo(str(comparison))
    return list(comparison.results)


def _on_devices(module: ModuleOp, arrays: Sequence[np.ndarray], options: dict[str, Any]) -> list[Result]:
    from shardwise.ir import execute_on_devices
    from shardwise.ir.interpret.stacks import unstack_inputs

    stacks = unstack_inputs(module, arrays, **options)
    results = [_as_list(values) for values in execute_on_devices(module, *stacks, **options)]
    return [list(values) for values in zip(*results, strict=True)]


def _stack(index: int, result: Result) -> np.ndarray:
    from shardwise.ir.interpret.stacks import stack_result

    return stack_result(index, result) if isinstance(result, list) else np.asarray(result)


def _as_list(values: tuple[Any, ...] | Whole | None) -> list[Any]:
    return [] if values is None else list(values) if isinstance(values, tuple) else [values]


def _load(path: str) -> np.ndarray:
    try:
        with Path(path).open("rb") as file:
            array = np.load(file, allow_pickle=False)
    # An empty file ends too early, and what begins like an archive may be none.
    except (OSError, ValueError, EOFError, BadZipFile) as error:
        what = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise ArgumentError(f"{path} cannot be read as an array: {what}") from None
    if isinstance(array, np.lib.npyio.NpzFile):
        raise ArgumentError(
            f"{path} holds several arrays ({', '.join(array.files)}); save the one to use with numpy.save."
        )
    return array


def _grid(text: str) -> tuple[str, tuple[int, ...]]:
    name, equals, shape = text.partition("=")
    sizes = shape.split("x")
    if not equals or not all(size.isdecimal() for size in sizes):
        raise ArgumentError(f"--grid is given as NAME=2x4, got {text!r}.")
    return name.removeprefix("@"), tuple(map(int, sizes))


def _show(results: Sequence[Result]) -> None:
    for i, result in enumerate(results):
        if not isinstance(result, list):
            click.echo(f"result {i}: {_text(result)}")
            continue
        for device, value in enumerate(result):
            click.echo(f"result {i} on device {device}: {_text(value)}")


def _text(value: Whole) -> str:
    if not isinstance(value, np.ndarray | np.generic):
        return f"undefined, {value!r}"
    values = np.array2string(np.asarray(value), separator=", ", threshold=50, edgeitems=2)
    return f"{value.dtype}{list(value.shape)}\n{values}"


def _save(results: Sequence[np.ndarray], output: str) -> None:
    is_archive = Path(output).suffix == ".npz"
    if not is_archive and len(results) != 1:
        raise ArgumentError(f"there are {len(results)} results, which {output} cannot hold.\n  name it with .npz.")
    try:
        if is_archive:
            named: dict[str, Any] = {f"result{i}": result for i, result in enumerate(results)}
            np.savez(output, **named)
        else:
            np.save(output, results[0])
    except OSError as error:
        raise ArgumentError(f"{output} cannot be written: {error.strerror}.") from None
