"""Traced programs, propagated, partitioned and simplified, give what eager gives, with no more collectives."""

from collections import Counter
from typing import Any

import numpy as np
import optree
import pytest
from xdsl.dialects.builtin import ModuleOp

from shardwise.ir import execute_on_devices, print_module, trace, verify
from shardwise.ir.interpret.boundary import boundary_of, cut, joined
from shardwise.ir.interpret.program import program_of
from shardwise.ir.passes import cost, partition, propagate, simplify
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
    boundary = boundary_of(whole, whole.function(None))
    leaves: Any = optree.tree_leaves(args)
    inputs = [cut(np.asarray(x), s, whole.devices) for x, s in zip(leaves, boundary.arguments, strict=True)]
    made = [x if isinstance(x, tuple) else (x,) for x in execute_on_devices(simple, *inputs)]
    for i, (sharding, wanted) in enumerate(zip(boundary.results, optree.tree_leaves(fn(*args)), strict=True)):
        got = joined([values[i] for values in made], sharding, f"result {i}")
        np.testing.assert_allclose(got, np.asarray(wanted), rtol=1e-9, atol=1e-12)


def test_an_mlp_needs_one_reduction():
    fn, args = PROGRAMS["mlp"]
    local = simplify(partition(propagate(trace(fn, *args))))
    assert collectives(local) == {"shard.grid": 1, "shard.all_reduce": 1}
    assert [line.name for line in cost(local).lines] == ["all_reduce"]


def test_llvm_accepts_traced_programs():
    said = [propagate(trace(fn, *args)) for fn, args in PROGRAMS.values()]
    accepted([print_module(m, "mesh19") for m in (*said, *(simplify(partition(m)) for m in said))])
