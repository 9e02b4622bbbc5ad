"""The `shard` dialect of MLIR: read, verify, transform and run it. Needs the extra `mlir`."""

from importlib.util import find_spec

if find_spec("xdsl") is None:
    raise ImportError(
        "shardwise.ir needs xDSL, which is not installed.\n  install it with: pip install 'shardwise[mlir]'",
        name="xdsl",
    )

from shardwise.ir.interpret.run import execute, execute_on_devices
from shardwise.ir.module.program import is_partitioned
from shardwise.ir.module.values import Poisoned
from shardwise.ir.partitioned import Comparison, Difference, check_partition, execute_partitioned
from shardwise.ir.passes import cost, partition, propagate, simplify
from shardwise.ir.text import parse_module, print_module
from shardwise.ir.tracing.tracer import trace
from shardwise.ir.verifier import verify

__all__ = [
    "Comparison",
    "Difference",
    "Poisoned",
    "check_partition",
    "cost",
    "execute",
    "execute_on_devices",
    "execute_partitioned",
    "is_partitioned",
    "parse_module",
    "partition",
    "print_module",
    "propagate",
    "simplify",
    "trace",
    "verify",
]
