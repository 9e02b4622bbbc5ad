"""Random changes to valid texts, for feeding the parser what nobody would write."""

import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from io import StringIO
from pathlib import Path
from random import Random

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.printer import Printer
from xdsl.traits import IsTerminator

from shardwise.ir import parse_module, partition, print_module, propagate, simplify, trace
from shardwise.ir.shard import GridOp, ShardingOp
from tests.ir.passes.programs import program

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


SEEDS = [
    SHARD,
    *(HERE / "around.mlir").read_text().split("// -----"),
    (HERE / "newer.mlir").read_text(),
    (HERE / "misc.mlir").read_text(),
]
SEEDS += [generic(text) for text in SEEDS]


@cache
def long_seeds() -> tuple[str, ...]:
    """Whole programs, traced or generated, before and after the passes."""
    from tests.ir.tracing.test_programs import PROGRAMS

    texts = [print_module(trace(fn, *args)) for fn, args in PROGRAMS.values()]
    texts += [program(number)[0] for number in range(8)]
    modules = [simplify(partition(propagate(parse_module(text)))) for text in texts]
    texts += [print_module(module) for module in modules]
    # Long ones take the time of many short ones, and find no more.
    return tuple(text for text in (*texts, *map(generic, texts[::4])) if len(text) < 8000)


def alone(op: Operation, grids: list[GridOp]) -> ModuleOp:
    """A function of one op, with its grids, whose operands are arguments or the shardings it names."""
    ops = [*(value.owner for value in op.operands if isinstance(value.owner, ShardingOp)), op]
    made = [result for each in ops for result in each.results]
    needed = [value for each in ops for value in each.operands if value not in made]
    block = Block(arg_types=[value.type for value in needed])
    values: dict[SSAValue, SSAValue] = dict(zip(needed, block.args, strict=True))
    block.add_ops([*(each.clone(values) for each in ops), ReturnOp()])
    return ModuleOp([*(grid.clone() for grid in grids), FuncOp("f", (block.arg_types, []), Region(block))])


def _stands_alone(op: Operation) -> bool:
    """Whether an op is one of a function's body, and uses nothing but its operands."""
    blocks = [block for inside in op.walk() for region in inside.regions for block in region.blocks]
    made = {
        value for block in blocks for value in (*block.args, *(result for each in block.ops for result in each.results))
    }
    used = {value for block in blocks for each in block.ops for value in each.operands}
    is_last = bool(op.successors) or op.has_trait(IsTerminator)
    return used <= made and not is_last and not isinstance(op, ModuleOp | FuncOp | GridOp)


@cache
def small_seeds() -> tuple[str, ...]:
    """Each op of the seeds alone, once with each set of attributes, in both forms."""
    found: dict[object, ModuleOp] = {}
    for module in map(parse_module, (*SEEDS, *long_seeds())):
        grids = [op for op in module.body.ops if isinstance(op, GridOp)]
        for op in filter(_stands_alone, module.walk()):
            key = op.name, *sorted(op.properties), len(op.operands), len(op.results)
            found[key] = found.get(key) or alone(op, grids)
    texts = [print_module(module) for module in found.values()]
    return (*texts, *map(generic, texts))


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


TOKEN = re.compile(r"""\s+|"(?:[^"\\\n]|\\.)*"|[%@#!^]?[A-Za-z_][\w$.]*|[%#^]?\d+(?:\.\d+)?|->|.""", re.DOTALL)
NUMBERS = ["0", "1", "2", "3", "7", "8", "-1", "-9223372036854775808", "65536", "4294967296", "1.5", "0x1F"]


def kind_of(token: str) -> str:
    """What a token is, by its first character: names, numbers, strings, values; other marks for themselves."""
    first = token[0]
    if first.isspace() or first in '"%@#!^':
        return " " if first.isspace() else first
    return "0" if first.isdigit() else "a" if first.isalpha() or first == "_" else token


@cache
def pool() -> dict[str, list[str]]:
    """The tokens of all seeds, by their kinds."""
    found: dict[str, set[str]] = defaultdict(set)
    for text in (*SEEDS, *long_seeds()):
        for token in TOKEN.findall(text):
            found[kind_of(token)].add(token)
    return {kind: sorted(tokens) for kind, tokens in sorted(found.items())}


def scrambled(random: Random, text: str) -> str:
    """The text after a few changes to its tokens or lines, most of which leave a text that reads well."""
    tokens = TOKEN.findall(text)
    for _ in range(random.choice([1, 1, 1, 2, 3, 6])):
        if not tokens:
            break
        at, to = (random.randrange(len(tokens)) for _ in range(2))
        kind = random.randint(0, 9)
        if kind == 0:
            del tokens[at]
        elif kind == 1:
            tokens.insert(to, tokens[at])
        elif kind == 2:
            tokens[at], tokens[to] = tokens[to], tokens[at]
        elif kind == 3:
            tokens[at] = random.choice(NUMBERS)
        elif kind == 4:
            tokens[at] = random.choice(pool()[random.choice(sorted(pool()))])
        elif kind == 5:
            lines = "".join(tokens).split("\n")
            first, second = (random.randrange(len(lines)) for _ in range(2))
            lines[first] = random.choice([lines[second], "", lines[first] + "\n" + lines[second]])
            tokens = TOKEN.findall("\n".join(lines))
        else:  # another token of the same kind, from here or from anywhere
            like = [token for token in tokens if kind_of(token) == kind_of(tokens[at])]
            tokens[at] = random.choice(like if random.random() < 0.5 else pool().get(kind_of(tokens[at]), NUMBERS))
    return "".join(tokens)


def mutations(seed: int) -> Iterator[str]:
    """Endlessly many changed texts; before the first, all seeds are made."""
    random = Random(seed)
    kinds = [SEEDS, long_seeds(), small_seeds(), small_seeds(), small_seeds()]
    pool()
    while True:
        text = random.choice(random.choice(kinds))
        yield random.choice([mutated, scrambled])(random, text)
