"""The verifier: every complaint, word by word, at its line and column; and nothing to say about valid modules."""

import time

import pytest
from hypothesis import given
from xdsl.dialects.builtin import IndexType

from shardwise.errors import VerifyError
from shardwise.ir import parse_module, print_module, shard, verify
from shardwise.ir.verifier import CHECKS, faults
from tests.ir.cases import Case, modules

HEADER = """shard.grid @g(shape = 2x4)
shard.grid @d(shape = 2x?)
%t = "test.op"() : () -> tensor<8x12xf32>
%q = "test.op"() : () -> tensor<?x12xf32>
%z = "test.op"() : () -> tensor<f32>
%i = "test.op"() : () -> index
%n = "test.op"() : () -> i64
%s = shard.sharding @g split_axes = [[0], [1]] : !shard.sharding
%o = shard.sharding @g split_axes = [[1]] : !shard.sharding
"""
LINE = HEADER.count("\n") + 1
T, Q = "tensor<8x12xf32>", "tensor<?x12xf32>"
G = "on @g (2x4)"


def gather(options: str, result: str = T, source: str = "%t", kind: str = T) -> str:
    return f"%r = shard.all_gather {source} on {options} : {kind} -> {result}"


def rooted(op: str, options: str, result: str = T, kinds: str = T) -> str:
    return f"%r = shard.{op} %t on {options} : ({kinds}) -> {result}"


COMPLAINTS = [
    # grids
    ("shard.grid @h(shape = [])", "shard.grid on @h (): a grid has at least one axis."),
    (
        "shard.grid @h(shape = 2x0)",
        "shard.grid on @h (2x0): size 0 of axis 1: a grid has at least one device along each axis.",
    ),
    ("shard.grid @g(shape = 3)", "shard.grid on @g (3): the name @g is taken by the shard.grid before it."),
    (
        "%r = shard.process_linear_index on @gg : index",
        "shard.process_linear_index: unknown grid @gg.\n  grids: @g, @d\n  did you mean 'g'?",
    ),
    ("func.func private @f()\n%r = shard.process_linear_index on @f : index", "@f is a func.func, not a grid."),
    (
        "%r = shard.grid_shape @g axes = [2] : index",
        f"shard.grid_shape {G}: axes [2] names axis 2, but the grid has 2 axes, 0 to 1.",
    ),
    (
        "%r, %r2 = shard.grid_shape @g axes = [0] : index, index",
        f"shard.grid_shape {G}: 1 axis give as many results, got 2.",
    ),
    (
        "%r, %r2 = shard.process_multi_index on @g axes = [1, 1] : index, index",
        f"shard.process_multi_index {G}: axes [1, 1] names axis 1 twice.",
    ),
    (
        "%r = shard.process_multi_index on @g : index",
        f"shard.process_multi_index {G}: 2 axes give as many results, got 1.",
    ),
    (
        "%r, %r2 = shard.neighbors_linear_indices on @g[%i, %i] split_axes = [-1] : index, index",
        f"shard.neighbors_linear_indices {G}: split_axes [-1] names axis -1, but the grid has 2 axes, 0 to 1.",
    ),
    (
        "%r, %r2 = shard.neighbors_linear_indices on @g[%i, %i] split_axes = [] : index, index",
        f"shard.neighbors_linear_indices {G}: split_axes is empty, but neighbours lie along at least one axis.",
    ),
    (
        "%r, %r2 = shard.neighbors_linear_indices on @g[%i] split_axes = [0] : index, index",
        f"shard.neighbors_linear_indices {G}: device has 1 index, but the grid has 2 axes.",
    ),
    # groups and shapes
    (
        gather("@g grid_axes = [0, 2] gather_axis = 0"),
        f"shard.all_gather {G}: grid_axes [0, 2] names axis 2, but the grid has 2 axes, 0 to 1.",
    ),
    (
        gather("@g grid_axes = [0, 0] gather_axis = 0"),
        f"shard.all_gather {G}: grid_axes [0, 0] names axis 0 twice.",
    ),
    (
        gather("@g gather_axis = 2"),
        f"shard.all_gather {G}: gather_axis 2 is not a dim of {T}, which has 2 dims.",
    ),
    (
        gather("@g gather_axis = -1"),
        f"shard.all_gather {G}: gather_axis -1 is not a dim of {T}, which has 2 dims.",
    ),
    (
        gather("@g grid_axes = [0] gather_axis = 0"),
        f"shard.all_gather {G}: dim 0 of the result {T} is 8, expected 16.",
    ),
    (
        gather("@g gather_axis = 0", "tensor<8x13xf32>"),
        f"shard.all_gather {G}: dim 1 of the result tensor<8x13xf32> is 13, expected 12.",
    ),
    (
        gather("@d grid_axes = [1] gather_axis = 0"),
        f"shard.all_gather on @d (2x?): dim 0 of the result {T} is 8, expected ? (not known before it runs).",
    ),
    (
        gather("@g gather_axis = 0", T, "%q", Q),
        f"shard.all_gather {G}: dim 0 of the result {T} is 8, expected ? (not known before it runs).",
    ),
    (
        gather("@g gather_axis = 0", "tensor<8xf32>"),
        f"shard.all_gather {G}: the result has 1 dim, but the input has 2.",
    ),
    (
        gather("@g gather_axis = 0", "tensor<8x12xf64>"),
        f"shard.all_gather {G}: the result has elements of f64, the input of f32; they must be the same.",
    ),
    (
        gather("@g gather_axis = 0", "index"),
        f"shard.all_gather {G}: the result is a ranked tensor, got index.",
    ),
    (
        f"%r = shard.all_reduce %t on @g : {T} -> tensor<8x13xf32>",
        f"shard.all_reduce {G}: the result is tensor<8x13xf32>, but it has the shape of the input, {T}.",
    ),
    (
        f"%r = shard.all_slice %t on @g grid_axes = [0] slice_axis = 3 : {T} -> {T}",
        f"shard.all_slice {G}: slice_axis 3 is not a dim of {T}, which has 2 dims.",
    ),
    (
        f"%r = shard.all_slice %t on @g grid_axes = [0, 1] slice_axis = 1 : {T} -> {T}",
        f"shard.all_slice {G}: dim 1 of {T} has size 12, which 8 devices cannot share evenly.",
    ),
    (
        f"%r = shard.all_slice %t on @g grid_axes = [0] slice_axis = 1 : {T} -> {T}",
        f"shard.all_slice {G}: dim 1 of the result {T} is 12, expected 6.",
    ),
    (
        f"%r = shard.reduce_scatter %t on @g grid_axes = [0] scatter_axis = 2 : {T} -> {T}",
        f"shard.reduce_scatter {G}: scatter_axis 2 is not a dim of {T}, which has 2 dims.",
    ),
    (
        f"%r = shard.all_to_all %t on @g grid_axes = [0] split_axis = 2 concat_axis = 0 : {T} -> {T}",
        f"shard.all_to_all {G}: split_axis 2 is not a dim of {T}, which has 2 dims.",
    ),
    (
        f"%r = shard.all_to_all %t on @g grid_axes = [0] split_axis = 0 concat_axis = 2 : {T} -> {T}",
        f"shard.all_to_all {G}: concat_axis 2 is not a dim of {T}, which has 2 dims.",
    ),
    (
        f"%r = shard.all_to_all %t on @g grid_axes = [0] split_axis = 0 concat_axis = 1 : {T} -> {T}",
        f"shard.all_to_all {G}: dim 0 of the result {T} is 8, expected 4.",
    ),
    # roots and partners
    (
        rooted("broadcast", "@g grid_axes = [0] root = [0, 1]"),
        f"shard.broadcast {G}: root has 2 indices, but the group has 1 axis.",
    ),
    (
        rooted("broadcast", "@g grid_axes = [0] root = [2]"),
        f"shard.broadcast {G}: root index 2 is outside of axis 0, which has 2 devices.",
    ),
    (
        rooted("gather", "@g grid_axes = [0] gather_axis = 0 root = [-1]"),
        f"shard.gather {G}: root index -1 is outside of axis 0, which has 2 devices.",
    ),
    (
        rooted("reduce", "@d grid_axes = [1] root = [-3]"),
        "shard.reduce on @d (2x?): root index -3 is outside of axis 1.",
    ),
    (
        rooted("scatter", "@g grid_axes = [0] scatter_axis = 0 root = [9]", "tensor<4x12xf32>"),
        f"shard.scatter {G}: root index 9 is outside of axis 0, which has 2 devices.",
    ),
    (
        rooted("scatter", "@g grid_axes = [1] scatter_axis = 5 root = [0]"),
        f"shard.scatter {G}: scatter_axis 5 is not a dim of {T}, which has 2 dims.",
    ),
    (
        rooted("send", "@g grid_axes = [1] destination = [4]"),
        f"shard.send {G}: destination index 4 is outside of axis 1, which has 4 devices.",
    ),
    (
        rooted("recv", "@g grid_axes = [1, 0] source = [3, 2]"),
        f"shard.recv {G}: source index 2 is outside of axis 0, which has 2 devices.",
    ),
    (
        "%r = shard.recv %z on @g : (tensor<f32>) -> tensor<f32>",
        f"shard.recv {G}: the input is tensor<f32>, expected a tensor of at least one dim.",
    ),
    (
        '%r = "shard.recv"(%t, %i) <{grid = @g}> : (tensor<8x12xf32>, index) -> tensor<8x12xf32>',
        f"shard.recv {G}: source is absent, but has 1 value.",
    ),
    (
        '%r = "shard.broadcast"(%t, %i) <{grid = @g, grid_axes = array<i16: 0>, root = array<i64: 1>}>'
        f" : ({T}, index) -> {T}",
        f"shard.broadcast {G}: root has 0 places for values, but 1 value.",
    ),
    (
        f'%r = "shard.broadcast"(%t) <{{grid = @g}}> : ({T}) -> {T}',
        f"shard.broadcast {G}: lacks root.",
    ),
    (
        f"%r = shard.shift %t on @g grid_axes = [0] shift_axis = 1 offset = 1 : {T} -> {T}",
        f"shard.shift {G}: shift_axis 1 is not among grid_axes [0].",
    ),
    (
        f"%r = shard.shift %t on @g grid_axes = [0] shift_axis = 0 offset = 1 : {T} -> tensor<8x13xf32>",
        f"shard.shift {G}: the result is tensor<8x13xf32>, but it has the shape of the input, {T}.",
    ),
    # shardings
    (
        "%r = shard.sharding @g split_axes = [[0], [2]] : !shard.sharding",
        f"shard.sharding {G}: split_axes [0, 2] names axis 2, but the grid has 2 axes, 0 to 1.",
    ),
    (
        "%r = shard.sharding @g split_axes = [[0], [0]] : !shard.sharding",
        f"shard.sharding {G}: split_axes [0, 0] names axis 0 twice.",
    ),
    (
        "%r = shard.sharding @g split_axes = [[0]] halo_sizes = [1, 1] sharded_dims_offsets = [0, 4, 8]",
        f"shard.sharding {G}: halo_sizes and sharded_dims_offsets exclude each other.",
    ),
    (
        "%r = shard.sharding @g split_axes = [[0], []] halo_sizes = [1, 1, 1] : !shard.sharding",
        f"shard.sharding {G}: halo_sizes has 3 values, expected 2: two for each of 1 split dim.",
    ),
    (
        "%r = shard.sharding @g split_axes = [[0]] halo_sizes = [1, -1] : !shard.sharding",
        f"shard.sharding {G}: halo size -1 is negative.",
    ),
    (
        '%r = "shard.sharding"() <{grid = @g, split_axes = #shard<axisarray[[0]]>, '
        "static_halo_sizes = array<i64: 1, -9223372036854775808>, operandSegmentSizes = array<i32: 0, 0>}>"
        " : () -> !shard.sharding",
        f"shard.sharding {G}: halo_sizes has 1 place for values, but 0 values.",
    ),
    (
        "%r = shard.sharding @d split_axes = [[0]] sharded_dims_offsets = [0, 4, 8] : !shard.sharding",
        "shard.sharding on @d (2x?): sharded_dims_offsets needs a grid whose sizes are known.",
    ),
    # the product of the axis sizes, 8 shards, not their sum
    (
        "%r = shard.sharding @g split_axes = [[0, 1]] sharded_dims_offsets = [0, 1, 2, 3, 4, 5, 6] : !shard.sharding",
        f"shard.sharding {G}: sharded_dims_offsets has 7 values, expected 9:"
        " for each split dim one per shard and the end.",
    ),
    (
        "%r = shard.sharding @g split_axes = [[0], [1]] sharded_dims_offsets = [0, 4, 8] : !shard.sharding",
        f"shard.sharding {G}: sharded_dims_offsets has 3 values, expected 3 + 5:"
        " for each split dim one per shard and the end.",
    ),
    (
        "%r = shard.sharding @g split_axes = [[0]] sharded_dims_offsets = [1, 4, 8] : !shard.sharding",
        f"shard.sharding {G}: the offsets of dim 0 begin with 1, expected 0.",
    ),
    (
        "%r = shard.sharding @g split_axes = [[], [0]] sharded_dims_offsets = [0, 9, 8] : !shard.sharding",
        f"shard.sharding {G}: the offsets of dim 1 go down from 9 to 8.",
    ),
    (
        "%r = shard.sharding @g split_axes = [[0]] sharded_dims_offsets = [%n, -4, 8] : !shard.sharding",
        f"shard.sharding {G}: an offset of dim 0 is negative.",
    ),
    (
        "%r = shard.sharding @g split_axes = [[0]] {partial_axes = array<i16: 1>} : !shard.sharding",
        f"shard.sharding {G}: partial_axes is `array<i16: ...>` and partial_type is `#shard.partial<...>`;"
        " both or neither.",
    ),
    (
        "%r = mesh.shard %t to <@g, [[0]], partial = sum[0]> : tensor<8x12xf32>",
        f"shard.sharding {G}: axis 0 splits a dim and is partial; it can be one of them.",
    ),
    # annotations
    (
        f"%p = shard.sharding @g split_axes = [[0], [], [1]] : !shard.sharding\n%r = shard.shard %t to %p : {T}",
        f"shard.shard {G}: split_axes has 3 dims, but {T} has 2.",
    ),
    (
        "%p = shard.sharding @g split_axes = [[0]] sharded_dims_offsets = [0, 4, 9] : !shard.sharding\n"
        f"%r = shard.shard %t to %p : {T}",
        f"shard.shard {G}: the offsets of dim 0 end with 9, but the dim of {T} has size 8.",
    ),
    (
        f'%r = "shard.shard"(%t, %s) : ({T}, !shard.sharding) -> tensor<8xf32>',
        f"shard.shard {G}: the result is tensor<8xf32>, but it is the input, {T}.",
    ),
    (
        f"%p = shard.shard %t to %s : {T}\n%r = shard.shard %p to %o : {T}",
        f"shard.shard {G}: says how the value is made, but it has another already;"
        " annotate the value itself, or add annotate_for_users.",
    ),
    (
        f"%p = shard.shard %t to %s annotate_for_users : {T}\n%r = shard.shard %p to %o : {T}",
        f"shard.shard {G}: says how the value is made, but users are told another;"
        " annotate the value itself, or add annotate_for_users.",
    ),
    (
        f"%p = shard.shard %t to %s annotate_for_users : {T}\n%r = shard.shard %p to %o annotate_for_users : {T}",
        f"shard.shard {G}: tells users another sharding than the annotation it follows; annotate the value itself.",
    ),
    (
        f"%p = shard.shard %t to %s : {T}\n%r = shard.shard %t to %o : {T}",
        f"shard.shard {G}: says how the value is made, but another annotation of the value says otherwise.",
    ),
    # shapes of shards and halos
    (
        "%r = shard.shard_shape dims = [8, 12] sharding = %s device = [0, 0] : index",
        f"shard.shard_shape {G}: 2 dims give as many results, got 1.",
    ),
    (
        "%r = shard.shard_shape dims = [8] sharding = %s device = [0, 0] : index",
        f"shard.shard_shape {G}: split_axes has 2 dims, but dims has 1.",
    ),
    (
        "%r, %r2 = shard.shard_shape dims = [8, -2] sharding = %s device = [0, 0] : index, index",
        f"shard.shard_shape {G}: size -2 in dims is negative.",
    ),
    (
        "%r, %r2 = shard.shard_shape dims = [8, 12] sharding = %s device = [0] : index, index",
        f"shard.shard_shape {G}: device has 1 index, but the grid has 2 axes.",
    ),
    (
        "%r, %r2 = shard.shard_shape dims = [8, 12] sharding = %s device = [0, 4] : index, index",
        f"shard.shard_shape {G}: device index 4 is outside of axis 1, which has 4 devices.",
    ),
    (
        f"%r = shard.update_halo %t on @g split_axes = [[2]] halo_sizes = [1, 1] : {T}",
        f"shard.update_halo {G}: split_axes [2] names axis 2, but the grid has 2 axes, 0 to 1.",
    ),
    (
        f"%r = shard.update_halo %t on @g split_axes = [[0], [], [1]] halo_sizes = [1, 1, 1, 1] : {T}",
        f"shard.update_halo {G}: split_axes has 3 dims, but {T} has 2.",
    ),
    (
        f"%r = shard.update_halo %t on @g split_axes = [[0]] halo_sizes = [1] : {T}",
        f"shard.update_halo {G}: halo_sizes has 1 value, expected 2: two for each of 1 split dim.",
    ),
    (
        f"%r = shard.update_halo %t on @g split_axes = [[0]] halo_sizes = [5, 4] : {T}",
        f"shard.update_halo {G}: halos of 5 and 4 do not fit in dim 0, which has size 8.",
    ),
    (
        f'%r = "shard.update_halo"(%t) <{{grid = @g, split_axes = #shard<axisarray[[0]]>}}> : ({T}) -> tensor<9xf32>',
        f"shard.update_halo {G}: the result is tensor<9xf32>, but it is the shard, {T}.",
    ),
    # order
    (
        f"%r = shard.all_reduce %later on @g : {T} -> {T}\n%later = shard.all_reduce %t on @g : {T} -> {T}",
        f"shard.all_reduce {G}: operand 0 is used before it is made, or where it cannot be seen.",
    ),
]


@pytest.mark.parametrize(("text", "complaint"), COMPLAINTS)
def test_each_complaint_names_place_op_and_grid(text: str, complaint: str):
    module = parse_module(HEADER + text, "m.mlir", allow_unregistered=True)
    with pytest.raises(VerifyError) as caught:
        verify(module)
    error = caught.value
    assert complaint in str(error)
    place = str(error).partition(": ")[0]
    assert place == f"m.mlir:{error.line}:{error.column}"
    assert LINE <= error.line <= LINE + text.count("\n")
    assert error.column == 1


def test_every_op_has_its_checks():
    assert set(CHECKS) == set(shard.OPERATIONS)


@given(modules())
def test_valid_modules_have_no_faults(case: Case):
    assert [*faults(case.module)] == []


def test_all_faults_are_found_in_the_order_of_the_text():
    text = "shard.grid @a(shape = [])\nshard.grid @b(shape = 0)\n%r = shard.process_linear_index on @c : index"
    assert [fault.line for fault in faults(parse_module(text))] == [1, 2, 3]


def test_what_xdsl_finds_is_reported_with_place_and_op():
    text = "func.func @f(%a: f32) -> f32 {\n  func.return\n}"
    with pytest.raises(VerifyError, match=r"^m\.mlir:2:3: func\.return: "):
        verify(parse_module(text, "m.mlir"))


MALFORMED = [
    f'%r = "shard.shard"(%t) : ({T}) -> {T}',
    '%r = "shard.shard"() : () -> index',
    f'%r = "shard.broadcast"(%t) <{{grid = @g, root = 7 : index}}> : ({T}) -> {T}',
    f'%r = "shard.all_gather"(%t) <{{grid = @g, gather_axis = "a"}}> : ({T}) -> {T}',
    '%r = "shard.all_gather"() <{grid = @g, gather_axis = 0 : index}> : () -> index',
    '%r = "shard.sharding"() <{grid = "g", split_axes = 1}> : () -> !shard.sharding',
    f'"shard.all_reduce"(%t) <{{grid = @g}}> : ({T}) -> ()',
    '"shard.grid"() <{sym_name = 3, shape = 4}> : () -> ()',
    f'%r = "shard.update_halo"(%t, %i) <{{grid = @g, split_axes = #shard<axisarray[[0]]>}}> : ({T}, index) -> {T}',
]


@pytest.mark.parametrize("text", MALFORMED)
def test_an_op_of_the_wrong_form_is_an_error_at_its_place(text: str):
    module = parse_module(HEADER + text, "m.mlir", allow_unregistered=True)
    with pytest.raises(VerifyError, match=rf"^m\.mlir:{LINE}:1: shard\."):
        verify(module)
    assert print_module(module)


def test_an_op_made_by_hand_has_the_place_of_what_is_around_it():
    module = parse_module("shard.grid @g(shape = 2)")
    made = shard.GridShapeOp([IndexType()] * 2, "g", ip=module.body.block)
    assert made.parent is module.body.block
    with pytest.raises(VerifyError, match=r"<text>:1:1: shard\.grid_shape on @g \(2\): 1 axis give as many"):
        verify(module)


def test_equal_annotations_are_no_contradiction():
    text = f"{HEADER}%u = shard.sharding @g split_axes = [[0], [1]] : !shard.sharding\n"
    text += f"%a = shard.shard %t to %s : {T}\n%b = shard.shard %a to %u : {T}\n%c = shard.shard %t to %u : {T}"
    verify(parse_module(text, allow_unregistered=True))


def test_many_annotations_of_one_value_take_linear_time():
    rows = [f"%s{n} = shard.sharding @g split_axes = [[0]]\n%r{n} = shard.shard %t to %s{n} : {T}" for n in range(1000)]
    module = parse_module(HEADER + "\n".join(rows), allow_unregistered=True)
    start = time.process_time()
    verify(module)
    assert time.process_time() - start < 5


def test_a_reshard_point_and_several_users_are_fine():
    text = f"{HEADER}%a = shard.shard %t to %s : {T}\n"
    text += f"%b = shard.shard %a to %o annotate_for_users : {T}\n%c = shard.shard %a to %s annotate_for_users : {T}"
    verify(parse_module(text, allow_unregistered=True))


def test_grids_of_an_inner_module_are_its_own():
    text = "shard.grid @g(shape = 2)\nbuiltin.module {\n  %i = shard.process_linear_index on @g : index\n}"
    with pytest.raises(VerifyError, match=r"3:3: shard\.process_linear_index: unknown grid @g"):
        verify(parse_module(text))


def test_a_grid_without_devices_is_one_fault_whoever_is_cut_along_it():
    text = f'%t = "test.op"() : () -> {T}\n%r = shard.all_slice %t on @g grid_axes = [0] slice_axis = 0 : {T} -> {T}\n'
    (fault,) = faults(parse_module(f"{text}shard.grid @g(shape = 0)", allow_unregistered=True))
    assert fault.line == 3
