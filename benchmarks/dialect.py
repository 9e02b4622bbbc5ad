"""How long modules of the `shard` dialect take to read, propagate, partition, simplify and print, by their size.

python benchmarks/dialect.py [--quick] [--json results.json]
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import sys
from collections.abc import Callable
from importlib.metadata import version
from math import log
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

from rich.console import Console
from rich.table import Table

from shardwise.ir import parse_module, print_module
from shardwise.ir.passes import partition, propagate, simplify

SIZES = (100, 200, 400, 700, 1000)  # ops
STAGES = ("parse", "propagate", "partition", "simplify", "print")
SHARDINGS = """%s = shard.sharding @g split_axes = [[0], []] : !shard.sharding
%sw = shard.sharding @g split_axes = [[], [1]] : !shard.sharding
%zero = arith.constant 0.0 : f32
%h0 = shard.shard %x0 to %s : tensor<64x128xf32>"""


def dense(ops: int) -> str:
    """A stack of layers of ten ops each: the first product of each is annotated, and all else follows."""
    layers = max(1, ops // 10)
    weights = ", ".join(f"%w{i}: tensor<128x256xf32>, %v{i}: tensor<256x128xf32>" for i in range(layers))
    lines = [
        "shard.grid @g(shape = 2x4)",
        f"func.func @f(%x0: tensor<64x128xf32>, {weights}) -> tensor<64x128xf32> {{",
        SHARDINGS,
    ]
    for i in range(layers):
        lines.append(f"""%ws{i} = shard.shard %w{i} to %sw : tensor<128x256xf32>
%e{i} = tensor.empty() : tensor<64x256xf32>
%f{i} = linalg.fill ins(%zero : f32) outs(%e{i} : tensor<64x256xf32>) -> tensor<64x256xf32>
%a{i} = linalg.matmul ins(%h{i}, %ws{i} : tensor<64x128xf32>, tensor<128x256xf32>)
  outs(%f{i} : tensor<64x256xf32>) -> tensor<64x256xf32>
%b{i} = math.tanh %a{i} : tensor<64x256xf32>
%d{i} = tensor.empty() : tensor<64x128xf32>
%g{i} = linalg.fill ins(%zero : f32) outs(%d{i} : tensor<64x128xf32>) -> tensor<64x128xf32>
%c{i} = linalg.matmul ins(%b{i}, %v{i} : tensor<64x256xf32>, tensor<256x128xf32>)
  outs(%g{i} : tensor<64x128xf32>) -> tensor<64x128xf32>
%k{i} = arith.addf %c{i}, %h{i} : tensor<64x128xf32>
%h{i + 1} = arith.mulf %k{i}, %k{i} : tensor<64x128xf32>""")
    return "\n".join([*lines, f"return %h{layers} : tensor<64x128xf32>", "}"])


def turning(ops: int) -> str:
    """A chain in which every second op is a change of sharding: all-to-alls, gathers, slices, and exchanges."""
    kind = "tensor<24x36xf32>"
    splits = ("[[0], [1]]", "[[1], [0]]", "[[], [0]]", "[[0], []]", "[[1, 0], []]", "[[], [0, 1]]")
    lines = ["shard.grid @g(shape = 2x3)", f"func.func @f(%v0: {kind}) -> {kind} {{"]
    lines += [f"%s{k} = shard.sharding @g split_axes = {split} : !shard.sharding" for k, split in enumerate(splits)]
    for i in range(ops // 2):
        lines.append(f"%u{i} = shard.shard %v{i} to %s{i % len(splits)} : {kind}")
        lines.append(f"%v{i + 1} = arith.addf %u{i}, %u{i} : {kind}")
    return "\n".join([*lines, f"return %v{ops // 2} : {kind}", "}"])


PROGRAMS: dict[str, Callable[[int], str]] = {"dense layers": dense, "changes of sharding": turning}


def timed(text: str, repeats: int) -> dict[str, float]:
    """Return the median seconds of each stage, of this process alone: other work on the machine does not count."""
    found: dict[str, list[float]] = {stage: [] for stage in STAGES}
    for _ in range(repeats):
        value: Any = text
        for stage, step in zip(STAGES, (parse_module, propagate, partition, simplify, print_module), strict=True):
            gc.collect()
            start = process_time()
            value = step(value)
            found[stage].append(process_time() - start)
    return {stage: median(times) for stage, times in found.items()}


def growth(rows: list[dict[str, Any]]) -> float:
    """Return the power of the number of ops that the time grows with, from the smallest to the largest module."""
    first, last = rows[0], rows[-1]
    return log(last["seconds"] / first["seconds"]) / log(last["ops"] / first["ops"])


def measured(sizes: tuple[int, ...], repeats: int) -> dict[str, Any]:
    out = {}
    for name, program in PROGRAMS.items():
        timed(program(sizes[0]), 1)  # plans are made once for each change of layout, whatever the number of ops
        rows = []
        for size in sizes:
            text = program(size)
            stages = timed(text, repeats)
            ops = sum(1 for _ in parse_module(text).walk())
            rows.append({"ops": ops, "seconds": sum(stages.values()), "stages": stages})
        out[name] = {"rows": rows, "growth": growth(rows)}
    return out


def machine() -> dict[str, Any]:
    return {
        "cores": os.cpu_count(),
        "processor": platform.processor() or platform.machine(),
        "python": platform.python_version(),
        **{name: version(name) for name in ("shardwise", "xdsl")},
    }


def show(results: dict[str, Any]) -> None:
    console = Console(width=None if sys.stdout.isatty() else 110)
    for name, found in results["programs"].items():
        table = Table(title=f"{name}: seconds (grows with the power {found['growth']:.2f} of the ops)")
        for column in ("ops", *STAGES, "in all"):
            table.add_column(column, justify="right")
        for row in found["rows"]:
            stages = [f"{row['stages'][stage]:.3f}" for stage in STAGES]
            table.add_row(str(row["ops"]), *stages, f"{row['seconds']:.3f}")
        console.print(table)


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description="Passes over modules: time by size.")
    parser.add_argument("--quick", action="store_true", help="fewer sizes, in seconds")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    given = parser.parse_args(argv)
    programs = measured(SIZES[:2], 1) if given.quick else measured(SIZES, 3)
    results = {"machine": machine(), "programs": programs}
    show(results)
    if given.json:
        given.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
