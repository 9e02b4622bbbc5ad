"""Every communication op does to the pictured inputs of the reference what it pictures.

Each test quotes the op as the reference writes it. Where an example there is incomplete or contradicts itself, the
test says so and takes the evident meaning.
"""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwise.errors import ProgramError
from shardwise.ir.interpret.run import execute, execute_on_devices
from shardwise.ir.module.values import Poisoned
from shardwise.ir.text import parse_module


def program(grid: str, body: str, source: str, result: str) -> Any:
    """A module with one function of one tensor, whose result is %1."""
    return parse_module(f"""
        shard.grid @grid0(shape = {grid})
        func.func @f(%0: {source}) -> {result} {{
          {body}
          return %1 : {result}
        }}""")


def run(grid: str, body: str, source: str, result: str, values: Any) -> list[Any]:
    return execute_on_devices(program(grid, body, source, result), list(values))


def i8(values: Any) -> np.ndarray:
    return np.array(values, "int8")


# What devices (0, 0), (0, 1), (1, 0), (1, 1) hold in most pictures.
SQUARE = i8([[[1, 2], [3, 4]], [[5, 6], [7, 8]], [[9, 10], [11, 12]], [[13, 14], [15, 16]]])
ROWS = i8([[[1, 2, 5, 6], [3, 4, 7, 8]], [[9, 10, 13, 14], [11, 12, 15, 16]]])
ANY = i8([[99, 99], [99, 99]])  # the `*` of the pictures


def test_all_gather_of_the_reference():
    body = "%1 = shard.all_gather %0 on @grid0 grid_axes = [1] gather_axis = 1 : tensor<2x2xi8> -> tensor<2x4xi8>"
    made = run("2x2", body, "tensor<2x2xi8>", "tensor<2x4xi8>", SQUARE)
    np.testing.assert_array_equal(made, [ROWS[0], ROWS[0], ROWS[1], ROWS[1]])


def test_all_slice_of_the_reference():
    body = "%1 = shard.all_slice %0 on @grid0 grid_axes = [1] slice_axis = 1 : tensor<2x4xi8> -> tensor<2x2xi8>"
    made = run("2x2", body, "tensor<2x4xi8>", "tensor<2x2xi8>", [ROWS[0], ROWS[0], ROWS[1], ROWS[1]])
    np.testing.assert_array_equal(made, SQUARE)


def test_all_reduce_of_the_reference():
    # The reference gives no picture and no grid: all devices of a 2x2 grid, in the order of axes 1 and 0.
    body = (
        "%1 = shard.all_reduce %0 on @grid0 grid_axes = [1, 0] reduction = <max> : tensor<3x4xf32> -> tensor<3x4xf64>"
    )
    values = np.random.default_rng(0).normal(size=(4, 3, 4)).astype("float32")
    made = run("2x2", body, "tensor<3x4xf32>", "tensor<3x4xf64>", values)
    for one in made:
        assert one.dtype == np.float64
        np.testing.assert_array_equal(one, values.max(axis=0))


def test_all_to_all_of_the_reference():
    body = """%1 = shard.all_to_all %0 on @grid0 grid_axes = [0] split_axis = 0 concat_axis = 0
        : tensor<3x2xi8> -> tensor<3x2xi8>"""
    values = i8([[[10 * d + 1, 10 * d + 2], [10 * d + 3, 10 * d + 4], [10 * d + 5, 10 * d + 6]] for d in (1, 2, 3)])
    made = run("3", body, "tensor<3x2xi8>", "tensor<3x2xi8>", values)
    pictured = [[[11, 12], [21, 22], [31, 32]], [[13, 14], [23, 24], [33, 34]], [[15, 16], [25, 26], [35, 36]]]
    np.testing.assert_array_equal(made, pictured)


def test_broadcast_of_the_reference():
    body = "%1 = shard.broadcast %0 on @grid0 grid_axes = [0] root = [0] : (tensor<2xi8>) -> tensor<2xi8>"
    made = run("2x2", body, "tensor<2xi8>", "tensor<2xi8>", [i8([1, 2]), i8([3, 4]), ANY[0], ANY[0]])
    np.testing.assert_array_equal(made, [[1, 2], [3, 4], [1, 2], [3, 4]])


def test_gather_of_the_reference():
    body = (
        "%1 = shard.gather %0 on @grid0 grid_axes = [1] gather_axis = 1 root = [1] : (tensor<2x2xi8>) -> tensor<2x4xi8>"
    )
    made = run("2x2", body, "tensor<2x2xi8>", "tensor<2x4xi8>", SQUARE)
    np.testing.assert_array_equal([made[1], made[3]], ROWS)
    assert isinstance(made[0], Poisoned)  # "Devices (0, 0) and (1, 0) have undefined result."
    assert isinstance(made[2], Poisoned)


def test_reduce_of_the_reference():
    # The reference gives no grid; root [2, 3] of the groups of axes [1, 0] exists on a 4x3 grid: device (3, 2).
    body = """%1 = shard.reduce %0 on @grid0 grid_axes = [1, 0] reduction = <max> root = [2, 3]
        : (tensor<3x4xf32>) -> tensor<3x4xf64>"""
    values = np.random.default_rng(1).normal(size=(12, 3, 4)).astype("float32")
    made = run("4x3", body, "tensor<3x4xf32>", "tensor<3x4xf64>", values)
    np.testing.assert_array_equal(made[3 * 3 + 2], values.max(axis=0).astype("float64"))
    assert sum(isinstance(one, Poisoned) for one in made) == 11


def test_reduce_scatter_of_the_reference():
    # The picture shows ints, the types of the example are f32 and f64: the numbers are the same.
    body = """%1 = shard.reduce_scatter %0 on @grid0 grid_axes = [1] reduction = <max> scatter_axis = 0
        : tensor<2x2xf32> -> tensor<1x2xf64>"""
    made = run("2x2", body, "tensor<2x2xf32>", "tensor<1x2xf64>", SQUARE.astype("float32"))
    np.testing.assert_array_equal(made, [[[5, 6]], [[7, 8]], [[13, 14]], [[15, 16]]])


def test_scatter_of_the_reference():
    # In the picture the arrows of (0, 1) and (1, 1) point at the right column, as they must.
    body = """%1 = shard.scatter %0 on @grid0 grid_axes = [0] scatter_axis = 0 root = [1]
        : (tensor<2x2xi8>) -> tensor<1x2xi8>"""
    made = run("2x2", body, "tensor<2x2xi8>", "tensor<1x2xi8>", [ANY, ANY, SQUARE[0], SQUARE[1]])
    np.testing.assert_array_equal(made, [[[1, 2]], [[5, 6]], [[3, 4]], [[7, 8]]])


def test_shift_of_the_reference():
    # The example leaves out its operand, and its type has two elements where the picture has one.
    body = (
        "%1 = shard.shift %0 on @grid0 grid_axes = [1] shift_axis = 1 offset = 2 rotate : tensor<1xi8> -> tensor<1xi8>"
    )
    made = run("2x4", body, "tensor<1xi8>", "tensor<1xi8>", i8([[n] for n in range(1, 9)]))
    np.testing.assert_array_equal(np.ravel(made), [3, 4, 1, 2, 7, 8, 5, 6])


def test_shift_moves_towards_higher_positions_and_is_undefined_where_nothing_comes_from():
    body = "%1 = shard.shift %0 on @grid0 grid_axes = [0] shift_axis = 0 offset = 1 : tensor<1xi8> -> tensor<1xi8>"
    made = run("3", body, "tensor<1xi8>", "tensor<1xi8>", i8([[1], [2], [3]]))
    assert isinstance(made[0], Poisoned)
    np.testing.assert_array_equal(made[1:], [[1], [2]])


def test_shift_along_one_of_several_axes():
    body = """%1 = shard.shift %0 on @grid0 grid_axes = [1, 0] shift_axis = 0 offset = 1 rotate
        : tensor<1xi8> -> tensor<1xi8>"""
    made = run("2x3", body, "tensor<1xi8>", "tensor<1xi8>", i8([[n] for n in range(6)]))
    np.testing.assert_array_equal(np.ravel(made), [3, 4, 5, 0, 1, 2])


# -- point to point --------------------------------------------------------------------------------------

RING = """
    %n = shard.grid_shape @grid0 : index
    %i = shard.process_linear_index on @grid0 : index
    %one = arith.constant 1 : index
    %up = arith.addi %i, %one : index
    %to = arith.remui %up, %n : index
    %last = arith.subi %n, %one : index
    %down = arith.addi %i, %last : index
    %from = arith.remui %down, %n : index
    %sent = shard.send %0 on @grid0 grid_axes = [0] destination = [%to] : (tensor<1xi8>, index) -> tensor<1xi8>
"""


def test_send_and_receive_around_a_ring():
    body = (
        RING + "%1 = shard.recv %0 on @grid0 grid_axes = [0] source = [%from] : (tensor<1xi8>, index) -> tensor<1xi8>"
    )
    made = run("4", body, "tensor<1xi8>", "tensor<1xi8>", i8([[1], [2], [3], [4]]))
    np.testing.assert_array_equal(np.ravel(made), [4, 1, 2, 3])


def test_receive_without_a_source_takes_what_was_sent():
    body = RING + "%1 = shard.recv %0 on @grid0 grid_axes = [0] : (tensor<1xi8>) -> tensor<1xi8>"
    made = run("4", body, "tensor<1xi8>", "tensor<1xi8>", i8([[1], [2], [3], [4]]))
    np.testing.assert_array_equal(np.ravel(made), [4, 1, 2, 3])


def test_receive_without_a_source_from_nobody_is_undefined():
    body = "%1 = shard.recv %0 on @grid0 grid_axes = [0] : (tensor<1xi8>) -> tensor<1xi8>"
    made = run("2", body, "tensor<1xi8>", "tensor<1xi8>", i8([[1], [2]]))
    assert all(isinstance(one, Poisoned) for one in made)


def test_below_zero_there_is_no_neighbour_to_send_to_or_receive_from():
    body = """
        %i = shard.process_linear_index on @grid0 : index
        %down, %up = shard.neighbors_linear_indices on @grid0[%i] split_axes = [0] : index, index
        %sent = shard.send %0 on @grid0 grid_axes = [0] destination = [%up] : (tensor<1xi8>, index) -> tensor<1xi8>
        %1 = shard.recv %0 on @grid0 grid_axes = [0] source = [%down] : (tensor<1xi8>, index) -> tensor<1xi8>"""
    made = run("3", body, "tensor<1xi8>", "tensor<1xi8>", i8([[1], [2], [3]]))
    assert isinstance(made[0], Poisoned)
    np.testing.assert_array_equal(np.ravel(made[1:]), [1, 2])


# -- roots from values -----------------------------------------------------------------------------------


def test_roots_may_be_values():
    body = """
        %r = arith.constant 1 : index
        %1 = shard.broadcast %0 on @grid0 grid_axes = [0, 1] root = [%r, 0] : (tensor<1xi8>, index) -> tensor<1xi8>"""
    made = run("2x2", body, "tensor<1xi8>", "tensor<1xi8>", i8([[1], [2], [3], [4]]))
    np.testing.assert_array_equal(np.ravel(made), [3, 3, 3, 3])


@pytest.mark.parametrize("root", [2, -1])
def test_a_root_outside_the_group_is_an_error(root):
    body = f"""
        %r = arith.constant {root} : index
        %1 = shard.broadcast %0 on @grid0 grid_axes = [0] root = [%r] : (tensor<1xi8>, index) -> tensor<1xi8>"""
    with pytest.raises(ProgramError, match=rf"shard.broadcast .* root \[{root}\] is not in its groups"):
        run("2", body, "tensor<1xi8>", "tensor<1xi8>", i8([[1], [2]]))


# -- reductions ------------------------------------------------------------------------------------------

KINDS = {
    "sum": np.add,
    "product": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
}


@pytest.mark.parametrize("kind", KINDS)
def test_ints_are_widened_before_they_are_reduced(kind):
    body = f"%1 = shard.all_reduce %0 on @grid0 grid_axes = [0] reduction = {kind} : tensor<2xi8> -> tensor<2xi32>"
    values = i8([[100, -3], [100, 5], [100, 7]])
    made = run("3", body, "tensor<2xi8>", "tensor<2xi32>", values)
    np.testing.assert_array_equal(made[0], KINDS[kind].reduce(values.astype("int32")))


def test_an_average_of_floats():
    body = "%1 = shard.all_reduce %0 on @grid0 grid_axes = [0] reduction = average : tensor<1xf32> -> tensor<1xf32>"
    made = run("2", body, "tensor<1xf32>", "tensor<1xf32>", np.array([[1], [2]], "float32"))
    np.testing.assert_array_equal(made, [[1.5], [1.5]])


@pytest.mark.parametrize(
    ("kind", "element", "message"),
    [
        ("generic", "f32", "the reduction generic does not say what to do; use sum, product, max, min or average"),
        ("average", "i32", "average is not defined for tensor<1xi32>; use sum, product, max, min, bitwise_and"),
        ("bitwise_or", "f32", "bitwise_or is not defined for tensor<1xf32>; use sum, product, max, min or average"),
    ],
)
def test_reductions_without_a_meaning_are_errors(kind, element, message):
    kinds = f"tensor<1x{element}>"
    body = f"%1 = shard.all_reduce %0 on @grid0 grid_axes = [0] reduction = {kind} : {kinds} -> {kinds}"
    values = np.ones((2, 1), "float32" if element == "f32" else "int32")
    with pytest.raises(ProgramError, match=message):
        run("2", body, kinds, kinds, values)


# -- positions -------------------------------------------------------------------------------------------


def test_process_linear_index_of_the_reference():
    body = """%i = shard.process_linear_index on @grid0 : index
        %1 = tensor.from_elements %i : tensor<1xindex>"""
    made = run("10x20x30", body, "tensor<1xindex>", "tensor<1xindex>", np.zeros((6000, 1), int))
    device = (1 * 20 + 2) * 30 + 3
    assert made[device][0] == 3 + 30 * 2 + 20 * 30 * 1


def test_neighbors_linear_indices_of_the_reference():
    # The example names @grid where it means @grid0, and one result type where there are two results.
    body = """%c1 = arith.constant 1 : index
        %c2 = arith.constant 2 : index
        %c3 = arith.constant 3 : index
        %down, %up = shard.neighbors_linear_indices on @grid0[%c1, %c2, %c3] split_axes = [1] : index, index
        %1 = tensor.from_elements %down, %up : tensor<2xindex>"""
    module = program("10x20x30", body, "tensor<1xindex>", "tensor<2xindex>")
    np.testing.assert_array_equal(execute(module, np.zeros(1, int)), [633, 693])


def test_neighbors_at_the_border_are_negative():
    body = """%c0 = arith.constant 0 : index
        %down, %up = shard.neighbors_linear_indices on @grid0[%c0, %c0] split_axes = [0, 1] : index, index
        %1 = tensor.from_elements %down, %up : tensor<2xindex>"""
    made = run("2x2", body, "tensor<1xindex>", "tensor<2xindex>", np.zeros((4, 1), int))
    np.testing.assert_array_equal(made[0], [-1, 1])


def test_process_multi_index_of_all_axes_or_some():
    body = """%i, %j = shard.process_multi_index on @grid0 : index, index
        %k = shard.process_multi_index on @grid0 axes = [1] : index
        %1 = tensor.from_elements %i, %j, %k : tensor<3xindex>"""
    made = run("2x3", body, "tensor<1xindex>", "tensor<3xindex>", np.zeros((6, 1), int))
    np.testing.assert_array_equal(made, [[i, j, j] for i in range(2) for j in range(3)])


# -- halos -----------------------------------------------------------------------------------------------


@given(st.integers(1, 4), st.integers(1, 3), st.integers(0, 3), st.integers(0, 3), st.integers(1, 3))
def test_update_halo_fills_what_the_neighbours_own(rows, columns, low, high, size):
    # One dim split over each grid axis; what lies outside the tensor keeps what it had.
    whole = np.arange(rows * size * columns * size).reshape(rows * size, columns * size).astype("int32")
    padded = np.pad(whole, ((low, high), (1, 1)), constant_values=-1)
    shape = (low + size + high, 1 + size + 1)
    body = f"""%1 = shard.update_halo %0 on @grid0 split_axes = [[0], [1]] halo_sizes = [{low}, {high}, 1, 1]
        : tensor<{shape[0]}x{shape[1]}xi32>"""
    given_, expected = [], []
    for i in range(rows):
        for j in range(columns):
            expected.append(padded[i * size : i * size + shape[0], j * size : j * size + shape[1]])
            start = np.full(shape, -1, "int32")
            start[low : low + size, 1 : 1 + size] = expected[-1][low : low + size, 1 : 1 + size]
            given_.append(start)
    kind = f"tensor<{shape[0]}x{shape[1]}xi32>"
    made = run(f"{rows}x{columns}", body, kind, kind, given_)
    np.testing.assert_array_equal(made, expected)


def test_halo_sizes_may_be_values():
    module = parse_module("""
        shard.grid @g(shape = 2)
        func.func @f(%x: tensor<?xi32>, %h: i64) -> tensor<?xi32> {
          %y = shard.update_halo %x on @g split_axes = [[0]] halo_sizes = [%h, 1] : tensor<?xi32>
          return %y : tensor<?xi32>
        }""")
    values = [np.array([0, 0, 1, 2, 0], "int32"), np.array([0, 0, 3, 0], "int32")]  # shards of two and one
    made = execute_on_devices(module, values, [2, 2])
    np.testing.assert_array_equal(made[0], [0, 0, 1, 2, 3])
    np.testing.assert_array_equal(made[1], [1, 2, 3, 0])


# -- groups ----------------------------------------------------------------------------------------------


@given(st.permutations([0, 1, 2]), st.integers(0, 3), st.integers(0, 1))
def test_the_order_inside_a_group_follows_the_axes(order, count, dim):
    axes, shape = order[:count], (2, 3, 2)
    values = np.arange(12 * 4).reshape(12, 2, 2).astype("int32")
    parts = int(np.prod([shape[a] for a in axes]))
    out = [2, 2]
    out[dim] *= parts
    body = f"""%1 = shard.all_gather %0 on @grid0 grid_axes = {axes} gather_axis = {dim}
        : tensor<2x2xi32> -> tensor<{out[0]}x{out[1]}xi32>"""
    made = run("2x3x2", body, "tensor<2x2xi32>", f"tensor<{out[0]}x{out[1]}xi32>", values)
    grid = values.reshape(*shape, 2, 2)
    for device in range(12):
        place: list[Any] = list(np.unravel_index(device, shape))
        members = []
        for index in np.ndindex(*[shape[a] for a in axes]):
            at = list(place)
            for a, i in zip(axes, index, strict=True):
                at[a] = i
            members.append(grid[tuple(at)])
        np.testing.assert_array_equal(made[device], np.concatenate(members, axis=dim))


@given(st.integers(1, 5), st.integers(0, 9), st.integers(0, 9))
def test_uneven_pieces_go_there_and_back(parts, rows, columns):
    # all_to_all, all_slice and all_gather with open sizes: the larger pieces first, nothing lost.
    module = parse_module(f"""
        shard.grid @g(shape = {parts})
        func.func @f(%0: tensor<{rows}x{columns}xi32>) -> tensor<{rows}x{columns}xi32> {{
          %1 = shard.all_slice %0 on @g grid_axes = [0] slice_axis = 0
            : tensor<{rows}x{columns}xi32> -> tensor<?x{columns}xi32>
          %2 = shard.all_to_all %1 on @g grid_axes = [0] split_axis = 1 concat_axis = 0
            : tensor<?x{columns}xi32> -> tensor<{rows}x?xi32>
          %3 = shard.all_gather %2 on @g grid_axes = [0] gather_axis = 1
            : tensor<{rows}x?xi32> -> tensor<{rows}x{columns}xi32>
          return %3 : tensor<{rows}x{columns}xi32>
        }}""")
    value = np.arange(rows * columns).reshape(rows, columns).astype("int32")
    for made in execute_on_devices(module, [value] * parts):
        np.testing.assert_array_equal(made, value)


def test_a_result_that_does_not_fit_its_type_is_an_error():
    body = "%1 = shard.all_gather %0 on @grid0 grid_axes = [0] gather_axis = 0 : tensor<?xi8> -> tensor<3xi8>"
    with pytest.raises(ProgramError, match=r"on device 0: shard.all_gather at line 4 makes int8\[4\], but its type"):
        run("2", body, "tensor<?xi8>", "tensor<3xi8>", i8([[1, 2], [3, 4]]))
