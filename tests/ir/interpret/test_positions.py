"""Positions, neighbours, shardings and slices, on every device of a grid."""

import numpy as np
import pytest

from shardwise.errors import ProgramError
from shardwise.ir import execute, execute_on_devices, parse_module
from shardwise.ir.interpret.positions import take_piece

PLACES = [(x, y) for x in range(2) for y in range(3)]


def run(body: str, results: str, kinds: str, *inputs: list) -> list:
    args = ", ".join(f"%x{k}: index" for k in range(len(inputs)))
    text = f"shard.grid @g(shape = 2x3)\nfunc.func @f({args}) -> ({kinds}) {{\n{body}\nreturn {results} : {kinds}\n}}"
    return execute_on_devices(parse_module(text), *inputs)


def test_where_a_device_is() -> None:
    got = run("%a, %b = shard.process_multi_index on @g : index, index", "%a, %b", "index, index")
    assert [tuple(map(int, pair)) for pair in got] == PLACES
    got = run("%a = shard.process_multi_index on @g axes = [1] : index", "%a", "index")
    assert [int(n) for n in got] == [y for _, y in PLACES]
    got = run("%b, %a = shard.process_multi_index on @g axes = [1, 0] : index, index", "%a, %b", "index, index")
    assert [tuple(map(int, pair)) for pair in got] == PLACES
    assert [int(n) for n in run("%a = shard.process_linear_index on @g : index", "%a", "index")] == list(range(6))
    got = run("%a, %b = shard.grid_shape @g : index, index", "%a, %b", "index, index")
    assert {tuple(map(int, pair)) for pair in got} == {(2, 3)}


@pytest.mark.parametrize(("axes", "step"), [([1], lambda x, y, d: (x, y + d)), ([0], lambda x, y, d: (x + d, y))])
def test_who_stands_beside(axes: list[int], step) -> None:
    body = (
        "%a, %b = shard.process_multi_index on @g : index, index\n"
        f"%down, %up = shard.neighbors_linear_indices on @g[%a, %b] split_axes = {axes} : index, index"
    )
    got = run(body, "%down, %up", "index, index")
    for (x, y), pair in zip(PLACES, got, strict=True):
        want = [PLACES.index(step(x, y, d)) if step(x, y, d) in PLACES else -1 for d in (-1, 1)]
        assert [int(n) for n in pair] == want


def test_neighbours_of_nobody_are_refused() -> None:
    body = "%down, %up = shard.neighbors_linear_indices on @g[%x0, %x1] split_axes = [1] : index, index"
    for device in ((2, 0), (0, 3), (-1, 0)):
        inputs = [[np.int64(n)] * 6 for n in device]
        with pytest.raises(ProgramError, match=r"asks for device \[.*\] of a grid of shape \[2, 3\]"):
            run(body, "%down, %up", "index, index", *inputs)


def test_the_shape_of_the_shard_of_a_device() -> None:
    for device, want in (((0, 0), (3, 2)), ((1, 2), (2, 1)), ((0, 1), (3, 2))):
        body = (
            "%s = shard.sharding @g split_axes = [[0], [1]] : !shard.sharding\n"
            f"%a, %b = shard.shard_shape dims = [5, 5] sharding = %s device = {list(device)} : index, index"
        )
        assert {tuple(map(int, pair)) for pair in run(body, "%a, %b", "index, index")} == {want}
    body = body.replace("[0, 1] :", "[2, 0] :")
    with pytest.raises(ProgramError, match=r"asks for device \[2, 0\] of a grid of shape \[2, 3\]"):
        run(body, "%a, %b", "index, index")


def test_every_device_takes_its_slice() -> None:
    text = (
        "shard.grid @g(shape = 2x3)\nfunc.func @f(%x: tensor<6x4xi32>) -> tensor<2x4xi32> {\n"
        "%r = shard.all_slice %x on @g grid_axes = [1] slice_axis = 0 : tensor<6x4xi32> -> tensor<2x4xi32>\n"
        "return %r : tensor<2x4xi32>\n}"
    )
    whole = np.arange(24, dtype="int32").reshape(6, 4)
    for (_, y), got in zip(PLACES, execute_on_devices(parse_module(text), [whole] * 6), strict=True):
        np.testing.assert_array_equal(got, whole[2 * y : 2 * y + 2])
    assert take_piece(np.arange(5), 0, 1, 2).tolist() == [3, 4]
    assert take_piece(np.arange(6).reshape(2, 3), 1, 2, 3).tolist() == [[2], [5]]


SPREAD = (
    "shard.grid @g(shape = 2x3)\nfunc.func @f(%x: tensor<6xi32>) -> tensor<6xi32> {\n"
    "%s = shard.sharding @g split_axes = [[0]] : !shard.sharding\n"
    "%r = shard.shard %x to %s : tensor<6xi32>\nreturn %r : tensor<6xi32>\n}"
)


def test_an_annotation_is_for_whole_tensors() -> None:
    module = parse_module(SPREAD)
    np.testing.assert_array_equal(execute(module, np.arange(6, dtype="int32")), np.arange(6))
    with pytest.raises(ProgramError, match=r"but the module runs on devices\.\n  partition it first\.$"):
        execute_on_devices(module, [np.arange(6, dtype="int32")] * 6)


def test_positions_are_for_devices() -> None:
    text = (
        "shard.grid @g(shape = 2x3)\nfunc.func @f() -> index {\n"
        "%a = shard.process_linear_index on @g : index\nreturn %a : index\n}"
    )
    with pytest.raises(ProgramError, match="is for one device of a grid, but the module runs on global values"):
        execute(parse_module(text))
