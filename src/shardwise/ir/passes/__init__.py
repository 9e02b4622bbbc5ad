"""Passes over modules: work out shardings, make the program of each device, simplify it."""

from shardwise.ir.passes.costing import cost
from shardwise.ir.passes.partitioning import partition
from shardwise.ir.passes.propagation import propagate
from shardwise.ir.passes.simplification import simplify

__all__ = ["cost", "partition", "propagate", "simplify"]
