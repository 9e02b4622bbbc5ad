"""Traced programs, propagated, partitioned and simplified, give what eager gives, with no more collectives."""

from collections import Counter
from typing import Any

import numpy as np
import optree
import pytest
from xdsl.dialects.builtin import ModuleOp

from shardwise.ir import execute, execute_on_devices, parse_module, print_module, trace, verify
from shardwise.ir.interpret.shards import cut, join
from shardwise.ir.module.program import program_of
from shardwise.ir.passes import cost, partition, propagate, simplify
from shardwise.ir.passes.boundaries import boundary_of
from shardwise.ir.passes.layouts import Grids
from shardwise.ir.verifier import faults
from tests.ir.passes.test_llvm import accepted
from tests.ir.tracing.test_programs import PROGRAMS


def collectives(module: ModuleOp) -> Counter[str]:
    return Counter(op.name for op in module.walk() if op.name.startswith("shard."))


@pytest.mark.parametrize("name", PROGRAMS)
def test_traced_programs(name):
    fn, args = PROGRAMS[name]
    said = propagate(trace(fn, *args))
    assert print_module(propagate(said)) == print_module(said)
    local = partition(said)
    simple = simplify(local)
    verify(simple)
    assert print_module(simplify(simple)) == print_module(simple)
    assert collectives(simple) <= collectives(local)
    whole = program_of(said)
    boundary = boundary_of(whole.function(None), Grids(whole.grids))
    leaves: Any = optree.tree_leaves(args)
    inputs = [cut(np.asarray(x), layout, whole.devices) for x, layout in zip(leaves, boundary.arguments, strict=True)]
    made = [x if isinstance(x, tuple) else (x,) for x in execute_on_devices(simple, *inputs)]
    for i, (layout, wanted) in enumerate(zip(boundary.results, optree.tree_leaves(fn(*args)), strict=True)):
        got = join([values[i] for values in made], layout, f"result {i}")
        np.testing.assert_allclose(got, np.asarray(wanted), rtol=1e-9, atol=1e-12)


def test_an_mlp_needs_one_reduction():
    fn, args = PROGRAMS["mlp"]
    local = simplify(partition(propagate(trace(fn, *args))))
    assert collectives(local) == {"shard.grid": 1, "shard.all_reduce": 1}
    assert [line.name for line in cost(local).lines] == ["all_reduce"]


def test_llvm_accepts_traced_programs():
    said = [propagate(trace(fn, *args)) for fn, args in PROGRAMS.values()]
    accepted([print_module(m, "mesh19") for m in (*said, *(simplify(partition(m)) for m in said))])


# -- annotations -----------------------------------------------------------------------------------------

SHARDINGS = ["[[0]]", "[[1]]", "[[], [0]]", "[[0], [1]]", "[]"]


def annotated(seed: int) -> str:
    """The text of a module with many equal ops, some of them annotated, some with collectives around them."""
    rng = np.random.default_rng(seed)
    kind = "tensor<4x4xi32>"
    lines = [f"%s{i} = shard.sharding @g split_axes = {axes} : !shard.sharding" for i, axes in enumerate(SHARDINGS)]
    values = ["%x"]
    for i in range(int(rng.integers(3, 12))):
        a, b = (values[int(rng.integers(max(0, len(values) - 3), len(values)))] for _ in range(2))
        how = int(rng.integers(0, 8))
        if how < 3:
            lines.append(f"%v{i} = arith.{rng.choice(['addi', 'muli'])} {a}, {a if how else b} : {kind}")
        elif how == 3:
            axis = f"[{rng.integers(2, 4)}]"  # groups of one device, or of two
            lines.append(f"%v{i} = shard.all_reduce {a} on @g grid_axes = {axis} reduction = max : {kind} -> {kind}")
        elif how == 4:
            lines.append(f"%v{i} = tensor.cast {a} : {kind} to {kind}")
        else:
            users = " annotate_for_users" if how == 7 else ""
            lines.append(f"%v{i} = shard.shard {a} to %s{rng.integers(0, len(SHARDINGS))}{users} : {kind}")
        values.append(f"%v{i}")
    results = values[-3:]
    types = ", ".join([kind] * len(results))
    body = "\n".join(lines)
    return (
        f"shard.grid @g(shape = 2x2x1x2)\nfunc.func @f(%x: {kind}) -> ({types}) {{\n{body}\n"
        f"return {', '.join(results)} : {types}\n}}"
    )


@pytest.mark.parametrize("seeds", [range(20), pytest.param(range(20, 600), marks=pytest.mark.long)], ids=str)
def test_a_valid_module_stays_valid_and_computes_the_same(seeds):
    values = np.arange(16, dtype="int32").reshape(4, 4)
    tried = 0
    for seed in seeds:
        before = parse_module(annotated(seed))
        if any(True for _ in faults(before)):
            continue
        tried += 1
        after = simplify(before)
        assert [str(fault) for fault in faults(after)] == [], annotated(seed)
        assert print_module(simplify(after)) == print_module(after)
        if "all_reduce" not in annotated(seed):  # a module with both is valid, but runs neither whole nor on devices
            for a, b in zip(execute(before, values), execute(after, values), strict=True):
                assert np.array_equal(a, b), annotated(seed)
    assert tried > len(seeds) // 4


def test_equal_ops_that_are_annotated_differently_stay_apart_and_those_alike_are_shared():
    text = """
shard.grid @g(shape = 2x2)
func.func @f(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %s0 = shard.sharding @g split_axes = [[0]] : !shard.sharding
  %s1 = shard.sharding @g split_axes = [[1]] : !shard.sharding
  %a = arith.addf %x, %x : tensor<4xf32>
  %a1 = shard.shard %a to %s0 : tensor<4xf32>
  %b = arith.addf %x, %x : tensor<4xf32>
  %b1 = shard.shard %b to %s1 : tensor<4xf32>
  %c = arith.addf %x, %x : tensor<4xf32>
  %c1 = shard.shard %c to %s1 : tensor<4xf32>
  return %a1, %b1, %c1 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}"""
    before = parse_module(text)
    verify(before)
    after = simplify(before)
    verify(after)
    assert print_module(after).count("arith.addf") == 2


def test_what_is_isolated_does_not_use_what_is_outside():
    text = """
builtin.module {
  builtin.module {
    %c = arith.constant 1 : i32
    func.func @f() -> i32 {
      %d = arith.constant 1 : i32
      return %d : i32
    }
    "test.use"(%c) : (i32) -> ()
  }
}"""
    before = parse_module(text, allow_unregistered=True)
    after = simplify(before)
    assert print_module(after) == print_module(before)
