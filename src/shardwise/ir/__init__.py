"""The `shard` dialect of MLIR: read, verify, transform and run it. Needs the extra `mlir`."""

from importlib.util import find_spec

if find_spec("xdsl") is None:
    raise ImportError(
        "shardwise.ir needs xDSL, which is not installed.\n  install it with: pip install 'shardwise[mlir]'",
        name="xdsl",
    )

from shardwise.ir.text import parse_module, print_module
from shardwise.ir.verifier import verify

__all__ = ["parse_module", "print_module", "verify"]
