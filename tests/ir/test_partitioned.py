"""Runs of partitioned modules from whole inputs to whole results, and what is said where they differ."""

import numpy as np
import pytest
from click.testing import CliRunner

from shardwise.cli import main
from shardwise.errors import ProgramError
from shardwise.ir import check_partition, execute_partitioned, parse_module, partitioned, print_module

WHOLE = """
shard.grid @g(shape = 2x2)
func.func @f(%x: tensor<5x4xf32>, %y: tensor<5x4xf32>) -> (tensor<5x4xf32>, tensor<4xf32>) {
  %rows = shard.sharding @g split_axes = [[0], []] : !shard.sharding
  %both = shard.sharding @g split_axes = [[0], [1]] : !shard.sharding
  %one = shard.sharding @g split_axes = [[1]] : !shard.sharding
  %a = shard.shard %x to %rows : tensor<5x4xf32>
  %b = shard.shard %a to %both annotate_for_users : tensor<5x4xf32>
  %c = shard.shard %y to %both : tensor<5x4xf32>
  %p = arith.mulf %b, %c : tensor<5x4xf32>
  %q = shard.shard %p to %both : tensor<5x4xf32>
  %zero = arith.constant dense<0.0> : tensor<4xf32>
  %s = linalg.reduce { arith.addf } ins(%q : tensor<5x4xf32>) outs(%zero : tensor<4xf32>) dimensions = [0]
  %t = shard.shard %s to %one : tensor<4xf32>
  return %q, %t : tensor<5x4xf32>, tensor<4xf32>
}"""

# What a device of it does.
LOCAL = """
shard.grid @g(shape = 2x2)
func.func @f(%x: tensor<?x4xf32>, %y: tensor<?x2xf32>) -> (tensor<?x2xf32>, tensor<2xf32>) {
  %b = shard.all_slice %x on @g grid_axes = [1] slice_axis = 1 : tensor<?x4xf32> -> tensor<?x2xf32>
  %p = arith.mulf %b, %y : tensor<?x2xf32>
  %zero = arith.constant dense<0.0> : tensor<2xf32>
  %s = linalg.reduce { arith.addf } ins(%p : tensor<?x2xf32>) outs(%zero : tensor<2xf32>) dimensions = [0]
  %t = shard.all_reduce %s on @g grid_axes = [0] : tensor<2xf32> -> tensor<2xf32>
  return %p, %t : tensor<?x2xf32>, tensor<2xf32>
}"""

RNG = np.random.default_rng(0)
X, Y = (RNG.normal(size=(5, 4)).astype("float32") for _ in range(2))


def use(monkeypatch: pytest.MonkeyPatch, local: str) -> None:
    """Let this be what partitioning gives."""
    monkeypatch.setattr(partitioned, "propagate", lambda module, grids: module)
    monkeypatch.setattr(partitioned, "partition", lambda module, grids: parse_module(local))


@pytest.mark.parametrize("by_hand", [True, False])
def test_whole_in_whole_out(monkeypatch, by_hand):
    if by_hand:
        use(monkeypatch, LOCAL)
    module = parse_module(WHOLE)
    before = print_module(module)
    product, total = execute_partitioned(module, X, Y)
    np.testing.assert_array_equal(product, X * Y)
    np.testing.assert_allclose(total, (X * Y).sum(axis=0), rtol=1e-6)
    comparison = check_partition(module, X, Y)
    assert comparison.agree
    assert str(comparison) == "2 results agree on 4 devices"
    assert print_module(module) == before


def test_grids_with_open_sizes_are_partitioned_once_they_are_known():
    module = parse_module(WHOLE.replace("shape = 2x2", "shape = ?x2"))
    for rows in (1, 2, 4):
        assert check_partition(module, X, Y, grids={"g": (rows, 2)}).agree


def test_the_command_partitions_if_need_be(tmp_path):
    for name, array in {"x": X, "y": Y}.items():
        np.save(tmp_path / f"{name}.npy", array)
    (tmp_path / "m.mlir").write_text(WHOLE)
    args = ["exec", str(tmp_path / "m.mlir"), "--inputs", *(str(tmp_path / f"{n}.npy") for n in "xy")]
    result = CliRunner().invoke(main, [*args, "--output", str(tmp_path / "out.npz")])
    assert result.exit_code == 0, result.output
    np.testing.assert_array_equal(np.load(tmp_path / "out.npz")["result0"], X * Y)
    checked = CliRunner().invoke(main, [*args, "--check"])
    assert checked.exit_code == 0, checked.output
    assert checked.output.startswith("2 results agree on 4 devices\nresult 0: float32[5, 4]\n")


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        (
            "%t = shard.all_reduce %s on @g grid_axes = [0]",
            "%t = shard.all_reduce %s on @g grid_axes = [0] reduction = max",
            "4 of 8 shards differ:\n  result 1 on device 0: 2 of 2 elements differ, the first at (0,): ",
        ),
        (
            "grid_axes = [1] slice_axis = 1",
            "grid_axes = [0] slice_axis = 1",
            "6 of 8 shards differ:\n  result 0 on device 1: 6 of 6 elements differ, the first at (0, 0): ",
        ),
        (
            "%t = shard.all_reduce %s on @g grid_axes = [0] : tensor<2xf32>",
            "%t = shard.reduce %s on @g grid_axes = [0] root = [0] : (tensor<2xf32>)",
            "2 of 8 shards differ:\n"
            "  result 1 on device 2: undefined: shard.reduce (%t) at line 8 (only the root has the result) left it so\n"
            "  result 1 on device 3",
        ),
    ],
    ids=["another reduction", "another slice", "a root only"],
)
def test_differences_are_found_and_told(monkeypatch, tmp_path, old, new, text):
    assert old in LOCAL
    use(monkeypatch, LOCAL.replace(old, new))
    assert text in str(check_partition(parse_module(WHOLE), X, Y))
    for name, array in {"x": X, "y": Y}.items():
        np.save(tmp_path / f"{name}.npy", array)
    (tmp_path / "m.mlir").write_text(WHOLE)
    args = ["exec", str(tmp_path / "m.mlir"), "--inputs", *(str(tmp_path / f"{n}.npy") for n in "xy"), "--check"]
    result = CliRunner().invoke(main, args)
    assert result.exit_code == 1
    assert text in result.output


def test_shards_of_the_wrong_shape_are_an_error(monkeypatch):
    wrong = LOCAL.replace("tensor<2xf32>)", "tensor<4xf32>)").replace(
        "  return %p, %t : tensor<?x2xf32>, tensor<2xf32>",
        """  %u = shard.all_gather %t on @g grid_axes = [1] gather_axis = 0 : tensor<2xf32> -> tensor<4xf32>
  return %p, %u : tensor<?x2xf32>, tensor<4xf32>""",
    )
    use(monkeypatch, wrong.replace("outs(%zero : tensor<4xf32>)", "outs(%zero : tensor<2xf32>)"))
    with pytest.raises(ProgramError, match=r"device 0 returns float32\[4\], but its shard has the shape \[2\]"):
        check_partition(parse_module(WHOLE), X, Y)


def test_undefined_parts_of_a_result_are_an_error(monkeypatch):
    rooted = LOCAL.replace("grid_axes = [0] : tensor<2xf32>", "grid_axes = [0] root = [1] : (tensor<2xf32>)")
    use(monkeypatch, rooted.replace("all_reduce", "reduce"))
    with pytest.raises(ProgramError, match="result 1 on device 0 is undefined"):
        execute_partitioned(parse_module(WHOLE), X, Y)


def test_rounding_is_no_difference(monkeypatch):
    use(monkeypatch, LOCAL.replace("arith.mulf %b, %y", "arith.mulf %y, %b"))
    big = np.float32(1e6)
    assert check_partition(parse_module(WHOLE), X * big, Y).agree


@pytest.mark.parametrize("result", ["%y", "%x"])
def test_what_is_still_to_be_reduced_is_no_whole(result):
    module = parse_module(f"""
      shard.grid @g(shape = 2x2)
      func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {{
        %s = shard.sharding @g split_axes = [[0]] partial = sum [1] : !shard.sharding
        %y = shard.shard %x to %s : tensor<4xf32>
        return {result} : tensor<4xf32>
      }}""")
    with pytest.raises(ProgramError, match="tensor<4xf32> is still to be reduced, so no device holds its part of the"):
        execute_partitioned(module, np.zeros(4, "float32"))
