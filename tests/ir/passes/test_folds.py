"""Each rule of simplification: what it makes, that devices compute the same, and where it does not apply."""

import numpy as np
import pytest

from shardwise.ir import execute_on_devices, parse_module, print_module, verify
from shardwise.ir.module.program import program_of
from shardwise.ir.module.values import Poisoned, dtype_of, sizes_of
from shardwise.ir.passes import simplify

RNG = np.random.default_rng(0)


def simplified(body: str, kind: str = "tensor<4x8xi32>", out: str = "", grid: str = "2x2x1") -> list[str]:
    """Simplify a function of one argument %x, and run it before and after on every device; return its ops."""
    result = out or kind
    text = f"shard.grid @g(shape = {grid})\nfunc.func @f(%x: {kind}) -> {result} {{\n{body}\nreturn %r : {result}\n}}"
    before = parse_module(text)
    verify(before)
    after = simplify(before)
    verify(after)
    assert print_module(simplify(after)) == print_module(after)
    program = program_of(before)
    given = program.function(None).function_type.inputs.data[0]
    arrays = RNG.integers(-9, 10, (program.devices, *sizes_of(given))).astype(dtype_of(given))
    for a, b in zip(*(execute_on_devices(m, list(arrays)) for m in (before, after)), strict=True):
        if isinstance(a, Poisoned):
            assert isinstance(b, Poisoned)
        else:
            np.testing.assert_allclose(a, b, rtol=1e-6)
    lines = [line.strip() for line in print_module(after).splitlines()]
    start = next(k for k, line in enumerate(lines) if line.startswith("func.func"))
    return lines[start + 1 : -3]


def op(name: str, axes: str, rest: str, types: str, source: str = "%x") -> str:
    return f"shard.{name} {source} on @g grid_axes = {axes}{rest} : {types}"


A = "tensor<4x8xi32>"
HALF = "tensor<2x8xi32>"
QUARTER = "tensor<1x8xi32>"
TWICE = "tensor<8x8xi32>"
FOUR = "tensor<16x8xi32>"


@pytest.mark.parametrize(
    ("body", "out", "expected"),
    [
        # One device in a group.
        (f"%r = {op('all_gather', '[2]', ' gather_axis = 0', f'{A} -> {A}')}", A, []),
        (f"%r = {op('all_reduce', '[2]', '', f'{A} -> {A}')}", A, []),
        (f"%r = {op('all_slice', '[]', ' slice_axis = 0', f'{A} -> {A}')}", A, []),
        (f"%r = {op('all_to_all', '[2]', ' split_axis = 0 concat_axis = 1', f'{A} -> {A}')}", A, []),
        (f"%r = {op('reduce_scatter', '[2]', ' scatter_axis = 0', f'{A} -> {A}')}", A, []),
        (f"%r = {op('broadcast', '[2]', ' root = [0]', f'({A}) -> {A}')}", A, []),
        # Merged over axes.
        (
            f"%0 = {op('all_gather', '[1]', ' gather_axis = 0', f'{A} -> {TWICE}')}\n"
            f"%r = {op('all_gather', '[0]', ' gather_axis = 0', f'{TWICE} -> {FOUR}', '%0')}",
            FOUR,
            [f"%r = {op('all_gather', '[0, 1]', ' gather_axis = 0', f'{A} -> {FOUR}')}"],
        ),
        (
            f"%0 = {op('all_slice', '[1]', ' slice_axis = 0', f'{A} -> {HALF}')}\n"
            f"%r = {op('all_slice', '[0]', ' slice_axis = 0', f'{HALF} -> {QUARTER}', '%0')}",
            QUARTER,
            [f"%r = {op('all_slice', '[1, 0]', ' slice_axis = 0', f'{A} -> {QUARTER}')}"],
        ),
        (
            f"%0 = {op('all_reduce', '[1]', ' reduction = max', f'{A} -> {A}')}\n"
            f"%r = {op('all_reduce', '[0]', ' reduction = max', f'{A} -> {A}', '%0')}",
            A,
            [f"%r = {op('all_reduce', '[0, 1]', ' reduction = max', f'{A} -> {A}')}"],
        ),
        # Cancelled.
        (
            f"%0 = {op('all_gather', '[1]', ' gather_axis = 0', f'{A} -> {TWICE}')}\n"
            f"%r = {op('all_slice', '[1]', ' slice_axis = 0', f'{TWICE} -> {A}', '%0')}",
            A,
            [],
        ),
        (
            f"%0 = {op('all_gather', '[1, 0]', ' gather_axis = 0', f'{A} -> {FOUR}')}\n"
            f"%r = {op('all_slice', '[1]', ' slice_axis = 0', f'{FOUR} -> {TWICE}', '%0')}",
            TWICE,
            [f"%r = {op('all_gather', '[0]', ' gather_axis = 0', f'{A} -> {TWICE}')}"],
        ),
        (
            f"%0 = {op('all_to_all', '[1]', ' split_axis = 0 concat_axis = 1', f'{A} -> tensor<2x16xi32>')}\n"
            f"%r = {op('all_to_all', '[1]', ' split_axis = 1 concat_axis = 0', f'tensor<2x16xi32> -> {A}', '%0')}",
            A,
            [],
        ),
        # Reduced and sliced.
        (
            f"%0 = {op('all_reduce', '[1]', ' reduction = min', f'{A} -> {A}')}\n"
            f"%r = {op('all_slice', '[1]', ' slice_axis = 0', f'{A} -> {HALF}', '%0')}",
            HALF,
            [f"%r = {op('reduce_scatter', '[1]', ' reduction = min scatter_axis = 0', f'{A} -> {HALF}')}"],
        ),
        (
            f"%0 = {op('all_reduce', '[0, 1]', '', f'{A} -> {A}')}\n"
            f"%r = {op('all_slice', '[1]', ' slice_axis = 0', f'{A} -> {HALF}', '%0')}",
            HALF,
            [
                f"%0 = {op('reduce_scatter', '[1]', ' scatter_axis = 0', f'{A} -> {HALF}')}",
                f"%r = {op('all_reduce', '[0]', '', f'{HALF} -> {HALF}', '%0')}",
            ],
        ),
        (
            f"%0 = {op('reduce_scatter', '[1]', ' scatter_axis = 0', f'{A} -> {HALF}')}\n"
            f"%r = {op('all_gather', '[1]', ' gather_axis = 0', f'{HALF} -> {A}', '%0')}",
            A,
            [f"%r = {op('all_reduce', '[1]', '', f'{A} -> {A}')}"],
        ),
        # The same everywhere.
        (
            f"%0 = {op('all_reduce', '[1]', '', f'{A} -> {A}')}\n%1 = arith.addi %0, %0 : {A}\n"
            f"%2 = {op('all_slice', '[1]', ' slice_axis = 0', f'{A} -> {HALF}', '%1')}\n"
            f"%r = {op('all_gather', '[1]', ' gather_axis = 0', f'{HALF} -> {A}', '%2')}",
            A,
            [f"%0 = {op('all_reduce', '[1]', '', f'{A} -> {A}')}", f"%r = arith.addi %0, %0 : {A}"],
        ),
        (
            f"%0 = {op('all_reduce', '[1]', '', f'{A} -> {A}')}\n"
            f"%r = {op('all_reduce', '[1]', ' reduction = max', f'{A} -> {A}', '%0')}",
            A,
            [f"%r = {op('all_reduce', '[1]', '', f'{A} -> {A}')}"],
        ),
        # Combined before they are reduced.
        (
            f"%y = arith.muli %x, %x : {A}\n%0 = {op('all_reduce', '[1]', '', f'{A} -> {A}')}\n"
            f"%1 = {op('all_reduce', '[1]', '', f'{A} -> {A}', '%y')}\n%r = arith.addi %0, %1 : {A}",
            A,
            [
                f"%y = arith.muli %x, %x : {A}",
                f"%0 = arith.addi %x, %y : {A}",
                f"%r = {op('all_reduce', '[1]', '', f'{A} -> {A}', '%0')}",
            ],
        ),
        # Once for all, and not at all.
        (
            f"%0 = {op('all_reduce', '[1]', ' reduction = max', f'{A} -> {A}')}\n"
            f"%1 = {op('all_reduce', '[1]', ' reduction = max', f'{A} -> {A}')}\n"
            f"%2 = {op('all_reduce', '[0]', '', f'{A} -> {A}')}\n%r = arith.muli %0, %1 : {A}",
            A,
            [f"%0 = {op('all_reduce', '[1]', ' reduction = max', f'{A} -> {A}')}", f"%r = arith.muli %0, %0 : {A}"],
        ),
        # Shifts.
        (f"%r = {op('shift', '[1]', ' shift_axis = 1 offset = 0', f'{A} -> {A}')}", A, []),
        (f"%r = {op('shift', '[1]', ' shift_axis = 1 offset = 2 rotate', f'{A} -> {A}')}", A, []),
        # Constants.
        (
            "%c = arith.constant 1 : index\n"
            f"%r = shard.broadcast %x on @g grid_axes = [1] root = [%c] : ({A}, index) -> {A}",
            A,
            [f"%r = {op('broadcast', '[1]', ' root = [1]', f'({A}) -> {A}')}"],
        ),
        (f"%r = shard.update_halo %x on @g split_axes = [[0]] halo_sizes = [0, 0] : {A}", A, []),
        (
            "%c = arith.constant 1 : i64\n%z = arith.constant 0 : i64\n"
            f"%r = shard.update_halo %x on @g split_axes = [[0]] halo_sizes = [%c, %z] : {A}",
            A,
            [f"%r = shard.update_halo %x on @g split_axes = [[0]] halo_sizes = [1, 0] : {A}"],
        ),
        (f"%0 = tensor.cast %x : {A} to tensor<?x8xi32>\n%r = tensor.cast %0 : tensor<?x8xi32> to {A}", A, []),
    ],
)  # fmt: skip
def test_rules(body, out, expected):
    assert simplified(body, out=out) == expected


@pytest.mark.parametrize(
    ("body", "out"),
    [
        # The argument may differ from device to device.
        (
            f"%0 = {op('all_slice', '[1]', ' slice_axis = 0', f'{A} -> {HALF}')}\n"
            f"%r = {op('all_gather', '[1]', ' gather_axis = 0', f'{HALF} -> {A}', '%0')}",
            A,
        ),
        # It is the same along another axis.
        (
            f"%0 = {op('all_reduce', '[0]', '', f'{A} -> {A}')}\n"
            f"%1 = {op('all_slice', '[1]', ' slice_axis = 0', f'{A} -> {HALF}', '%0')}\n"
            f"%r = {op('all_gather', '[1]', ' gather_axis = 0', f'{HALF} -> {A}', '%1')}",
            A,
        ),
        # A sum of equal values is not the value.
        (
            f"%0 = {op('all_gather', '[1]', ' gather_axis = 0', f'{A} -> {TWICE}')}\n"
            f"%r = {op('all_reduce', '[1]', '', f'{TWICE} -> {TWICE}', '%0')}",
            TWICE,
        ),
        # Another order, another dim, another kind.
        (
            f"%0 = {op('all_gather', '[1, 0]', ' gather_axis = 0', f'{A} -> {FOUR}')}\n"
            f"%r = {op('all_slice', '[0]', ' slice_axis = 0', f'{FOUR} -> {TWICE}', '%0')}",
            TWICE,
        ),
        (
            f"%0 = {op('all_gather', '[1]', ' gather_axis = 0', f'{A} -> {TWICE}')}\n"
            f"%r = {op('all_slice', '[1]', ' slice_axis = 1', f'{TWICE} -> tensor<8x4xi32>', '%0')}",
            "tensor<8x4xi32>",
        ),
        (
            f"%0 = {op('all_reduce', '[1]', ' reduction = max', f'{A} -> {A}')}\n"
            f"%r = {op('all_reduce', '[0]', '', f'{A} -> {A}', '%0')}",
            A,
        ),
        (
            f"%y = arith.muli %x, %x : {A}\n%0 = {op('all_reduce', '[1]', '', f'{A} -> {A}')}\n"
            f"%1 = {op('all_reduce', '[0]', '', f'{A} -> {A}', '%y')}\n%r = arith.addi %0, %1 : {A}",
            A,
        ),
        # Someone else needs the whole sum.
        (
            f"%0 = {op('all_reduce', '[1]', '', f'{A} -> {A}')}\n"
            f"%1 = {op('all_slice', '[1]', ' slice_axis = 0', f'{A} -> {HALF}', '%0')}\n"
            f"%2 = {op('all_gather', '[0]', ' gather_axis = 0', f'{HALF} -> {A}', '%1')}\n"
            f"%r = arith.muli %0, %2 : {A}",
            A,
        ),
        (f"%r = {op('shift', '[1]', ' shift_axis = 1 offset = 1 rotate', f'{A} -> {A}')}", A),
    ],
)  # fmt: skip
def test_what_is_left_alone(body, out):
    assert simplified(body, out=out) == body.splitlines()


def test_sums_in_a_wider_type_are_not_merged():
    lines = simplified(
        "%0 = shard.all_reduce %x on @g grid_axes = [1] : tensor<4x8xf32> -> tensor<4x8xf32>\n"
        "%r = shard.all_reduce %0 on @g grid_axes = [0] : tensor<4x8xf32> -> tensor<4x8xf64>",
        kind="tensor<4x8xf32>",
        out="tensor<4x8xf64>",
    )
    assert len(lines) == 2


@pytest.mark.parametrize(
    ("given", "left"),
    [
        ("[[0]] halo_sizes = [0, 0]", "[[0]]"),
        ("[[0]] sharded_dims_offsets = [0, 2, 4]", "[[0]]"),
        ("[[0]] sharded_dims_offsets = [0, 1, 4]", "[[0]] sharded_dims_offsets = [0, 1, 4]"),
        ("[[0]] halo_sizes = [%c, 0]", "[[0]] halo_sizes = [2, 0]"),
    ],
)
def test_shardings(given, left):
    module = parse_module(f"""
shard.grid @g(shape = 2)
func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {{
  %c = arith.constant 2 : i64
  %s = shard.sharding @g split_axes = {given} : !shard.sharding
  %0 = shard.shard %x to %s : tensor<4xf32>
  return %0 : tensor<4xf32>
}}""")
    text = print_module(simplify(module))
    assert f"%s = shard.sharding @g split_axes = {left} : !shard.sharding" in text
    assert "arith.constant" not in text


def test_sizes_and_positions():
    module = parse_module("""
shard.grid @g(shape = 3x1)
func.func @f() -> (index, index, index, index) {
  %a, %b = shard.grid_shape @g : index, index
  %c, %d = shard.process_multi_index on @g : index, index
  return %a, %b, %c, %d : index, index, index, index
}""")
    text = print_module(simplify(module))
    assert "grid_shape" not in text
    assert text.count("arith.constant") == 3
    before, after = (execute_on_devices(m) for m in (module, simplify(module)))
    assert before == after == [(3, 1, k, 0) for k in range(3)]


def test_annotations_stay():
    module = parse_module("""
shard.grid @g(shape = 2)
func.func @f(%x: tensor<4xf32>, %unused: tensor<4xf32>) -> tensor<4xf32> {
  %s = shard.sharding @g split_axes = [[0]] : !shard.sharding
  %0 = shard.shard %x to %s : tensor<4xf32>
  %1 = shard.shard %unused to %s : tensor<4xf32>
  return %x : tensor<4xf32>
}""")
    assert print_module(simplify(module)) == print_module(module)


def test_the_same_sharding_twice_is_folded_once():
    module = parse_module("""
shard.grid @g(shape = 2)
func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %s = shard.sharding @g split_axes = [[0]] halo_sizes = [0, 0] : !shard.sharding
  %0 = shard.shard %x to %s : tensor<4xf32>
  %t = shard.sharding @g split_axes = [[0]] halo_sizes = [0, 0] : !shard.sharding
  %1 = shard.shard %y to %t : tensor<4xf32>
  return %0, %1 : tensor<4xf32>, tensor<4xf32>
}""")
    made = simplify(module)
    verify(made)
    assert print_module(made).count("shard.sharding @g split_axes = [[0]] : !shard.sharding") == 1
