"""Dialect: how long modules of the `shard` dialect take to read, propagate, partition, simplify and print, by size."""

from __future__ import annotations

import gc
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.clock import Effort
from benchmarks.row import EQUAL, Measure, Row
from shardwise.ir import check_partition, parse_module, print_module
from shardwise.ir.passes import partition, propagate, simplify

SIZES = {"tiny": (20,), "quick": (100, 200, 400), "full": (100, 200, 400, 700, 1000)}  # ops, about
STAGES: dict[str, Callable[[Any], Any]] = {
    "parse": parse_module,
    "propagate": propagate,
    "partition": partition,
    "simplify": simplify,
    "print": print_module,
}
MLIR = "mlir-opt-19"
TIMED = {"parse": "Parser", "print back": "Output"}  # what it times itself
ROWS = ("parse", "print back", "propagate", "partition", "simplify", "print")
SHARDINGS = """%s = shard.sharding @g split_axes = [[0], []] : !shard.sharding
%sw = shard.sharding @g split_axes = [[], [1]] : !shard.sharding
%zero = arith.constant 0.0 : f32
%h0 = shard.shard %x0 to %s : tensor<64x128xf32>"""


def dense(ops: int) -> str:
    """Return a stack of layers of ten ops each: the first product of each is annotated, and all else follows."""
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
    """Return a chain in which every second op is a change of sharding: all-to-alls, gathers, slices, and exchanges."""
    kind = "tensor<24x36xf32>"
    splits = ("[[0], [1]]", "[[1], [0]]", "[[], [0]]", "[[0], []]", "[[1, 0], []]", "[[], [0, 1]]")
    lines = ["shard.grid @g(shape = 2x3)", f"func.func @f(%v0: {kind}) -> {kind} {{"]
    lines += [f"%s{k} = shard.sharding @g split_axes = {split} : !shard.sharding" for k, split in enumerate(splits)]
    for i in range(ops // 2):
        lines.append(f"%u{i} = shard.shard %v{i} to %s{i % len(splits)} : {kind}")
        lines.append(f"%v{i + 1} = arith.addf %u{i}, %u{i} : {kind}")
    return "\n".join([*lines, f"return %v{ops // 2} : {kind}", "}"])


PROGRAMS: dict[str, Callable[[int], str]] = {"dense layers": dense, "changes of sharding": turning}


def count(effort: Effort) -> int:
    """Return how many rows there will be."""
    return len(PROGRAMS) * (1 + len(SIZES[effort.name]) * (1 + len(ROWS)))


def rows(effort: Effort) -> Iterator[Row]:
    """Measure, and yield the rows."""
    for name, program in PROGRAMS.items():
        smallest = program(SIZES[effort.name][0])
        first = staged(smallest)  # plans are made once for each change of layout, whatever the number of ops
        checked = _checked(smallest)
        where = ("dialect", f"{name}: in all", f"{_ops(smallest)} ops", "")
        yield Row(*where, "cold", "seconds", Measure.of([_whole(first)]), checked=checked)
        for size in SIZES[effort.name]:
            yield from _sized(name, program(size), checked, effort)


def _sized(name: str, text: str, checked: str, effort: Effort) -> Iterator[Row]:
    ops, spent, theirs, start = _ops(text), [], [], perf_counter()
    words = print_module(parse_module(text), "mesh19")
    while len(spent) < effort.least or (len(spent) < effort.most and perf_counter() < start + effort.seconds):
        spent.append(staged(text))
        theirs.append(mlir_times(words))
    if theirs[0] and not checked.startswith("failed"):
        checked = EQUAL if mlir_agrees(words) else f"failed: {MLIR} prints another module"
    at = {"ops": float(ops)}
    where = (f"{ops} ops", "", "warm", "seconds")
    for stage in ROWS:
        ours = Measure.of([times[stage] for times in spent])
        peers = {MLIR: Measure.of([times[stage] for times in theirs])} if theirs[0] and stage in TIMED else {}
        rejects = "its passes reject arith and math: sharding interface is not implemented"
        missing = {} if peers else {MLIR: rejects if stage not in TIMED else "is not installed"}
        yield Row("dialect", f"{name}: {stage}", *where, ours, peers, checked=checked, missing=missing, at=at)
    whole = Measure.of([_whole(times) for times in spent])
    yield Row("dialect", f"{name}: in all", *where, whole, checked=checked, at=at)


def staged(text: str) -> dict[str, float]:
    """Return the seconds of each stage, from text to text; and of printing what was read as it was."""
    found: dict[str, float] = {}
    value: Any = text
    for stage, step in STAGES.items():
        found[stage], value = _timed(step, value)
        if stage == "parse":
            found["print back"], _ = _timed(print_module, value)
    return found


def _timed(step: Callable[[Any], Any], value: Any) -> tuple[float, Any]:
    gc.collect()
    start = perf_counter()
    result = step(value)
    return perf_counter() - start, result


def _whole(times: dict[str, float]) -> float:
    return sum(times[stage] for stage in STAGES)


def mlir_times(words: str) -> dict[str, float]:
    """Return the seconds of MLIR's own parser and printer, as it times them itself; nothing where it is not there."""
    timed = _mlir(words, "--mlir-timing", "--mlir-timing-display=list")
    if timed is None:
        return {}
    found = {name: re.search(rf"([0-9.]+) \(.*\)  {name}$", timed.stderr, re.MULTILINE) for name in TIMED.values()}
    return {stage: float(match[1]) for stage, name in TIMED.items() if (match := found[name])}


def mlir_agrees(words: str) -> bool:
    """Whether MLIR, too, reads the module and prints what is the same to us."""
    done = _mlir(words)
    return done is not None and _nameless(done.stdout) == _nameless(words)


def _nameless(text: str) -> str:
    module = parse_module(text)
    for op in module.walk():
        for value in (*op.results, *(arg for region in op.regions for block in region.blocks for arg in block.args)):
            value.name_hint = None
    return print_module(module)


def _mlir(words: str, *options: str) -> subprocess.CompletedProcess[str] | None:
    if shutil.which(MLIR) is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "module.mlir"
        path.write_text(words, encoding="utf-8")
        return subprocess.run([MLIR, str(path), *options], capture_output=True, text=True, check=True)


def _checked(text: str) -> str:
    """Run a module on whole tensors, and partitioned on all devices, and compare."""
    shapes = [[int(n) for n in found.split("x")] for found in re.findall(r"%\w+: tensor<([0-9x]+)xf32>", text)]
    rng = np.random.default_rng(0)
    found = check_partition(parse_module(text), *(rng.standard_normal(s).astype(np.float32) / 16 for s in shapes))
    return EQUAL if found.agree else f"failed: {found}"


def _ops(text: str) -> int:
    return sum(1 for _ in parse_module(text).walk())
