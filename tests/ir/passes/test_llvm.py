"""LLVM's own tool accepts what partitioning and simplification make, where its version has the ops."""

import subprocess

from shardwise.ir import parse_module, print_module
from shardwise.ir.passes import partition, propagate, simplify
from tests.ir.passes.programs import program
from tests.ir.passes.transitions import GRIDS, module_of, shape_for, transitions


def accepted(modules: list[str]) -> None:
    """Have LLVM read and verify modules."""
    command = ["mlir-opt-19", "--split-input-file", "-"]
    done = subprocess.run(command, input="\n// -----\n".join(modules), text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr[:2000]


def test_transitions_are_accepted():
    modules = []
    for grid in GRIDS:
        for rank in (1, 2, 3):
            for even in (True, False):
                shape = shape_for(grid, rank, even)
                for src, dst in list(transitions(grid, rank))[:: 301 if len(grid) == 3 else 17]:
                    local = partition(module_of(grid, shape, src, dst))
                    modules += [print_module(m, "mesh19") for m in (local, simplify(local))]
    assert len(modules) > 150
    accepted(modules)


def test_chains_are_accepted():
    cases = [
        ((2, 2), (4, 4, 4), ((0,), (), (1,)), ((), (0,), ())),
        ((2, 2), (4, 4), ((0, 1), ()), ((), (0,))),
        ((4, 2), (8, 8), ((0,), ()), ((), (0, 1))),
        ((2, 2, 3), (8, 8, 7), ((0, 1), (), (2,)), ((), (0,), (2,))),
        ((2, 2, 2), (4, 4, 5), ((0, 1), (), (2,)), ((), (1, 0), (2,))),
        ((4, 4), (17, 17), ((0, 1), ()), ((), (0, 1))),
    ]
    modules = [partition(module_of(*case)) for case in cases]
    accepted([print_module(m, "mesh19") for module in modules for m in (module, simplify(module))])


def test_programs_are_accepted():
    modules = []
    for seed in range(0, 60, 2):
        said = propagate(parse_module(program(seed, details=False)[0]))
        modules += [print_module(m, "mesh19") for m in (said, simplify(partition(said)))]
    accepted(modules)
