"""Random changes to valid texts, for feeding the parser what nobody would write."""

from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from random import Random

from xdsl.printer import Printer

from shardwise.ir import parse_module

HERE = Path(__file__).parent

SHARD = """shard.grid "private" @g(shape = 2x?x4)
shard.grid @h(shape = 2x2)
func.func @f(%t: tensor<4x8xf32>, %i: index, %n: i64) -> tensor<4x8xf32> attributes {a = #shard.partial<max>} {
  %s = shard.sharding @h split_axes = [[0], [1]] halo_sizes = [1, %n, 0, 2] : !shard.sharding
  %o = shard.sharding @h split_axes = [[0]] sharded_dims_offsets = [0, %n, 4] : !shard.sharding
  %0 = shard.shard %t to %s annotate_for_users : tensor<4x8xf32>
  %1 = mesh.shard %t to <@h, [[0]], partial = max[1]> : tensor<4x8xf32>
  %2 = shard.all_reduce %0 on @h grid_axes = [1, 0] reduction = <max> : tensor<4x8xf32> -> tensor<4x8xf64>
  %3 = shard.broadcast %t on @h grid_axes = [0, 1] root = [0, %i] : (tensor<4x8xf32>, index) -> tensor<4x8xf32>
  %4 = shard.recv %t on @h grid_axes = [1] : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %5 = shard.shift %t on @h grid_axes = [1] shift_axis = 1 offset = -2 rotate : tensor<4x8xf32> -> tensor<4x8xf32>
  %6, %7 = shard.neighbors_linear_indices on @h[%i, %i] split_axes = [1] : index, index
  %8, %9 = shard.shard_shape dims = [4, %i] sharding = %s device = [0, %i] : index, index
  %10 = shard.update_halo %t on @h split_axes = [[0]] halo_sizes = [1, %n] : tensor<4x8xf32>
  %11 = "shard.all_gather"(%t) <{gather_axis = 1 : index, grid = @h}> : (tensor<4x8xf32>) -> tensor<4x8xf32>
  func.return %t : tensor<4x8xf32> loc("a b":3:4)
}
"""


def generic(text: str) -> str:
    """The text in the generic form, in which ops may have operands and attributes of any number and kind."""
    stream = StringIO()
    Printer(stream, print_generic_format=True).print_op(parse_module(text))
    return stream.getvalue()


SEEDS = [SHARD, *(HERE / "around.mlir").read_text().split("// -----"), (HERE / "newer.mlir").read_text()]
SEEDS += [generic(text) for text in SEEDS]

NASTY = [
    '"',
    "\\",
    '"\\"',
    "\x00",
    "\x7f",
    "é",
    "٣",
    "𝟙",
    "(" * 80,
    "[" * 500,
    "<" * 70,
    "{" * 70,
    "9" * 500,
    "-9223372036854775808",
    "18446744073709551616",
    "0x",
    "0xFFFFFFFFFFFFFFFFFFFFFF",
    "1e999",
    "dense<0.0> : tensor<99999999999xf32>",
    'dense<"0x00000000"> : tensor<9999999x9999999xi32>',
    "tensor<*xf32>",
    "tensor<?x?x0xf32>",
    "memref<4xf32>",
    "vector<4xf32>",
    "!shard.sharding",
    "#shard.partial<sum>",
    "%",
    "%0",
    "%0#7",
    "@",
    '@"g"',
    "^bb0",
    "^bb0(%a: index):",
    "!",
    "#",
    "->",
    "...",
    "// comment\n",
    "\r\n",
    "\v",
    "loc(unknown)",
    "{-#",
    "#-}",
    "affine_map<(d0) -> (d0 mod 0)>",
    "unit",
    "array<i16: 1>",
    "array<i64: 99999999999999999999>",
    "-",
    "true",
    "?",
    "*",
]


def mutated(random: Random, text: str) -> str:
    """The text after a few changes: pieces deleted, doubled, swapped or replaced by nasty ones."""
    for _ in range(random.randint(1, 4)):
        at = random.randint(0, len(text))
        end = min(len(text), at + random.choice([0, 1, 1, 2, 5, 20, 200]))
        kind = random.randint(0, 5)
        if kind == 0:
            text = text[:at] + text[end:]
        elif kind == 1:
            text = text[:at] + random.choice(NASTY) + text[end:]
        elif kind == 2:
            text = text[:at] + text[at:end] * random.choice([2, 3, 50]) + text[end:]
        elif kind == 3:
            to = random.randint(0, len(text))
            text = text[:to] + text[at:end] + text[to:]
        elif kind == 4:
            text = text[:at] + chr(random.choice([*range(32, 127), 0, 9, 10, 255, 0x2028])) + text[end:]
        else:
            other = random.choice(SEEDS)
            start = random.randint(0, len(other))
            text = text[:at] + other[start : start + 60] + text[end:]
    return text


def mutations(seed: int) -> Iterator[str]:
    """Endlessly many changed texts."""
    random = Random(seed)
    while True:
        yield mutated(random, random.choice(SEEDS))
