"""The examples in processes: each checks itself there, and gives what it gives on the local engine."""

import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from importlib import import_module
from io import StringIO
from typing import Any

import pytest

from examples import fsdp, megatron_attention, megatron_mlp, ring_attention, sequence_parallel, stencil
from examples import vocabulary_parallel as vocabulary
from shardwise import DeviceMesh, P, grad, shard, vjp
from shardwise import sum as total
from tests.engines.cases import check
from tests.engines.pool import ROOT, Pool
from tests.faults.job import environment

NAMES = sorted(path.stem for path in (ROOT / "examples").glob("*.py"))
GRID = {4: (2, 2), 8: (2, 4)}  # the mesh of the stencil, by how many processes there are


def forth_and_back(function: Callable[..., Any], *tensors: Any) -> Any:
    y, back = vjp(function, *tensors)
    return y, back(y)


def spread_ring() -> list[Any]:
    return [shard(a, ring_attention.MESH, P(None, "sp")) for a in ring_attention.values()]


def of_vocabulary() -> Any:
    table, tokens, labels = vocabulary.values()
    return forth_and_back(lambda t: vocabulary.loss(t, tokens, labels), shard(table, vocabulary.MESH, P("tp")))


def of_stencil(size: int) -> Any:
    heat = shard(stencil.plate(), DeviceMesh(GRID[size], ("y", "x")), P("y", "x"))
    influence = grad(lambda heat: total(stencil.diffuse(heat, 2)[:4, :4]))(heat)
    return stencil.diffuse(heat, 3), influence, stencil.step_by_hand(heat)


VALUES: dict[str, Callable[[int], Any]] = {
    "fsdp": lambda size: fsdp.train(*fsdp.spread(*fsdp.values()), steps=3)[0],
    "megatron_attention": lambda size: forth_and_back(
        megatron_attention.block, *megatron_attention.spread(*megatron_attention.values())
    ),
    "megatron_mlp": lambda size: forth_and_back(megatron_mlp.block, *megatron_mlp.spread(*megatron_mlp.values())),
    "ring_attention": lambda size: forth_and_back(ring_attention.ring_attention, *spread_ring()),
    "sequence_parallel": lambda size: forth_and_back(
        sequence_parallel.block, *sequence_parallel.spread(*sequence_parallel.values())
    ),
    "stencil": of_stencil,
    "vocabulary_parallel": lambda size: of_vocabulary(),
}


def values_of(name: str, size: int) -> Any:
    return VALUES[name](size)


def printed(name: str, size: int) -> str:
    """Run an example in this process, as its script does, and return what it prints."""
    given = [DeviceMesh(GRID[size], ("y", "x"))] if name == "stencil" else []
    out = StringIO()
    with redirect_stdout(out):
        import_module(f"examples.{name}").main(*given)
    return out.getvalue()


@pytest.mark.parametrize("name", NAMES)
def test_every_example_gives_in_processes_what_it_gives_here(four: Pool, name: str) -> None:
    check(four, values_of, name, 4, exact=False)


@pytest.mark.parametrize("name", NAMES)
def test_every_example_runs_in_processes_and_checks_itself(four: Pool, name: str) -> None:
    said = four.run(printed, name, 4, timeout=120)
    assert len(said) == 4
    assert all("between devices" in text for text in said)
    ends = {text.splitlines()[-1] for text in said}
    assert len(ends) == 1


@pytest.mark.long
def test_the_stencil_on_its_own_mesh(pools: Callable[[int], Pool]) -> None:
    check(pools(8), values_of, "stencil", 8, exact=False)
    assert all("is right" in text for text in pools(8).run(printed, "stencil", 8, timeout=120))


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_the_command_that_every_example_names_runs_it(name: str) -> None:
    """The line in its docstring: shardwise run -n 4 examples/x.py."""
    text = (ROOT / "examples" / f"{name}.py").read_text(encoding="utf-8")
    (words,) = [line.split("shardwise run ")[1].split() for line in text.splitlines() if f"{name}.py, or on" in line]
    assert words[2] == f"examples/{name}.py"
    command = [sys.executable, "-c", "from shardwise.cli import main; main()", "run", *words]
    done = subprocess.run(
        command, cwd=ROOT, env=environment(SHARDWISE_TIMEOUT="120"), capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    for rank in range(int(words[1])):
        assert any(line.startswith(f"[{rank}] ") and "between devices" in line for line in done.stdout.splitlines())
