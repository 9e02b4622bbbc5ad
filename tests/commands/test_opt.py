"""The opt command: like mlir-opt, on modules of the dialect."""

import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import cast

import pytest
from click.testing import CliRunner
from xdsl.dialects.builtin import ModuleOp, StringAttr

from shardwise.cli import main

GRID = "shard.grid @g(shape = 2x4)\n"
PRINTED = "builtin.module {\n  shard.grid @g(shape = 2x4)\n}\n"


def run(*arguments: str, text: str | bytes = ""):
    return CliRunner().invoke(main, ["opt", *arguments], input=text)


def test_standard_input_is_read_and_standard_output_written():
    assert run(text=GRID).output == PRINTED
    assert run("-", text=GRID).output == PRINTED


def test_a_file_is_read_and_another_written(tmp_path: Path):
    source, target = tmp_path / "a.mlir", tmp_path / "b.mlir"
    source.write_text(GRID)
    assert run(str(source), "-o", str(target)).exit_code == 0
    assert target.read_text() == PRINTED


def test_llvm_19_reads_what_is_printed_for_it(mlir_opt: str):
    printed = run("--dialect=mesh19", text=GRID).output
    assert "mesh.mesh @g(shape = 2x4)" in printed
    subprocess.run([mlir_opt], input=printed, text=True, check=True, capture_output=True)


def test_a_fault_is_an_error_with_its_place_and_exit_code_one(tmp_path: Path):
    source = tmp_path / "a.mlir"
    source.write_text("shard.grid @g(shape = 0)\n")
    result = run(str(source))
    assert result.exit_code == 1
    assert result.stderr == (
        f"{source}:1:1: error: shard.grid on @g (0): size 0 of axis 0:"
        " a grid has at least one device along each axis.\n"
    )
    assert run("--no-verify", str(source)).exit_code == 0
    assert run("--verify", str(source)).exit_code == 1


def test_parse_errors_show_the_line():
    result = run(text="shard.grid @g(shape = 2\n")
    assert result.exit_code == 1
    assert result.stderr.startswith("<stdin>:2:1: error: ")
    assert run(text=b"\xff").stderr.startswith("<stdin>:1:1: error: byte 0xff is not UTF-8.")


def test_what_llvm_19_cannot_say_is_an_error():
    text = GRID + "%s = shard.sharding @g split_axes = [[0]]"
    result = run("--dialect=mesh19", text=text)
    assert result.exit_code == 1
    assert "error: <stdin>:2:1: shard.sharding: LLVM 19 has no shardings as values." in result.stderr


def test_parts_of_a_file_are_modules_of_their_own_with_lines_of_the_file():
    text = f"{GRID}// -----\nshard.grid @g(shape = 0)\n// -----\n{GRID}// -----\n\n"
    result = run("--split-input-file", text=text)
    assert result.exit_code == 1
    assert result.stdout == f"{PRINTED}\n// -----\n\n{PRINTED}"
    assert result.stderr.startswith("<stdin>:3:1: error: ")


def test_unregistered_ops_are_read_when_allowed():
    text = '"op0"() : () -> ()'
    assert run(text=text).exit_code == 1
    assert '"op0"() : () -> ()' in run("--allow-unregistered", text=text).output


@pytest.mark.parametrize(
    "order", [["simplify", "propagate"], ["propagate", "partition", "simplify"], ["partition", "simplify"]]
)
def test_passes_run_in_the_order_in_which_they_are_written(monkeypatch: pytest.MonkeyPatch, order: list[str]):
    ran: list[str] = []

    def note(name: str):
        def step(module: ModuleOp, **_: str) -> ModuleOp:
            ran.append(name)
            module.attributes["ran"] = StringAttr(name)
            return module

        return step

    class Passes:
        propagate, partition, simplify = map(note, ("propagate", "partition", "simplify"))

    monkeypatch.setitem(sys.modules, "shardwise.ir.passes", cast(ModuleType, Passes))
    result = run(*(f"--{name}" for name in order), text=GRID)
    assert result.exit_code == 0, result.output
    assert ran == order
    assert f'ran = "{order[-1]}"' in result.output


def test_help_lists_the_passes():
    text = run("--help").output
    for word in ("--propagate", "--partition", "--simplify", "--verify", "--dialect", "--split-input-file"):
        assert word in text


PROGRAM = """shard.grid @g(shape = 2)
func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %s = shard.sharding @g split_axes = [[0]] : !shard.sharding
  %0 = shard.shard %x to %s : tensor<4xf32>
  %1 = arith.negf %0 : tensor<4xf32>
  return %1 : tensor<4xf32>
}"""


def test_the_passes_themselves():
    result = run("--propagate", "--partition", "--simplify", text=PROGRAM)
    assert result.exit_code == 0, result.output
    assert "func.func @f(%x: tensor<2xf32>) -> tensor<2xf32>" in result.output
    again = run("--partition", "--simplify", text=result.output)
    assert again.output == result.output
    assert "mesh.mesh @g(shape = 2)" in run("--partition", "--dialect=mesh19", text=PROGRAM).output


def test_propagation_goes_where_it_is_told():
    assert run("--propagate", text=PROGRAM).output.count("shard.shard ") == 2
    assert run("--propagate", "--direction=forward", text=PROGRAM).output.count("shard.shard ") == 2
    assert run("--propagate", "--direction=backward", text=PROGRAM).output.count("shard.shard ") == 1
