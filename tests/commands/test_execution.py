"""`shardwise exec` runs files on arrays in files."""

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from shardwise.cli import main

WHOLE = """
func.func @f(%x: tensor<2xf32>, %y: tensor<2xf32>) -> tensor<2xf32> {
  %0 = arith.addf %x, %y : tensor<2xf32>
  return %0 : tensor<2xf32>
}
func.func @g(%x: tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>) {
  return %x, %x : tensor<2xf32>, tensor<2xf32>
}"""
LOCAL = """
shard.grid @g(shape = ?)
func.func @f(%x: tensor<1xi32>) -> (tensor<1xi32>, tensor<1xi32>) {
  %0 = shard.all_reduce %x on @g grid_axes = [0] : tensor<1xi32> -> tensor<1xi32>
  %1 = shard.reduce %x on @g grid_axes = [0] root = [0] : (tensor<1xi32>) -> tensor<1xi32>
  return %0, %1 : tensor<1xi32>, tensor<1xi32>
}"""


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    paths = {"whole": tmp_path / "whole.mlir", "local": tmp_path / "local.mlir"}
    paths["whole"].write_text(WHOLE)
    paths["local"].write_text(LOCAL)
    for name, array in {
        "x": np.array([1, 2], "float32"),
        "y": np.array([10, 20], "float32"),
        "n": np.array([[1], [2], [3]], "int32"),
    }.items():
        paths[name] = tmp_path / f"{name}.npy"
        np.save(paths[name], array)
    return {name: str(path) for name, path in paths.items()} | {"folder": str(tmp_path)}


def run(*args: str, status: int = 0) -> str:
    result = CliRunner().invoke(main, ["exec", *args])
    assert result.exit_code == status, result.output
    return result.output


def test_inputs_follow_one_option_or_several(files):
    expected = "result 0: float32[2]\n[11., 22.]\n"
    assert run(files["whole"], "--inputs", files["x"], files["y"]) == expected
    assert run(files["whole"], "--inputs", files["x"], "--inputs", files["y"], "--function", "f") == expected
    assert run("--inputs", files["x"], "--inputs", files["y"], "--function", "f", files["whole"]) == expected


def test_results_are_saved(files):
    out = f"{files['folder']}/out"
    run(files["whole"], "--inputs", files["x"], files["y"], "--output", f"{out}.npy")
    np.testing.assert_array_equal(np.load(f"{out}.npy"), [11, 22])
    run(files["whole"], "--function", "g", "--inputs", files["x"], "--output", f"{out}.npz")
    np.testing.assert_array_equal(np.load(f"{out}.npz")["result1"], [1, 2])
    text = run(files["whole"], "--function", "g", "--inputs", files["x"], "--output", f"{out}.npy", status=1)
    assert f"Error: there are 2 results, which {out}.npy cannot hold.\n  name it with .npz." in text


def test_a_partitioned_module_runs_as_it_is(files):
    assert run(files["local"], "--grid", "g=3", "--inputs", files["n"]) == (
        "result 0 on device 0: int32[1]\n[6]\n"
        "result 0 on device 1: int32[1]\n[6]\n"
        "result 0 on device 2: int32[1]\n[6]\n"
        "result 1 on device 0: int32[1]\n[6]\n"
        "result 1 on device 1: undefined, Poisoned(int32[1] of shard.reduce at line 5 (only the root has the result))\n"
        "result 1 on device 2: undefined, Poisoned(int32[1] of shard.reduce at line 5 (only the root has the result))\n"
    )
    text = run(files["local"], "--grid", "g=3", "--inputs", files["n"], "--output", files["x"], status=1)
    assert "result 1 on device 1 is undefined" in text


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["local", "--inputs", "n"], "Error: the grid @g is ?: say how large"),
        (["local", "--grid", "g:3", "--inputs", "n"], "Error: --grid is given as NAME=2x4, got 'g:3'."),
        (
            ["local", "--grid", "g=2", "--inputs", "n"],
            "Error: input 0 is tensor<1xi32> on each of 2 devices, got int32",
        ),
        (["local", "--grid", "g=3", "--check", "--inputs", "n"], "Error: the module is partitioned already, so"),
        (["whole", "--inputs", "x"], "Error: @f takes 2 inputs (tensor<2xf32>, tensor<2xf32>), got 1."),
        (["whole", "--inputs", "whole", "x"], "whole.mlir cannot be read as an array"),
        (["x"], "Error: "),
    ],
)
def test_mistakes_are_explained(files, args, message):
    assert message in run(*(files.get(arg, arg) for arg in args), status=1)
