"""Reading what LLVM's tool prints: locations with aliases, all sorts of attributes, and dense constants."""

import subprocess
from pathlib import Path
from random import Random

import pytest

from shardwise.errors import ParseError
from shardwise.ir import parse_module, print_module, verify
from shardwise.ir.place import place_of

MISC = (Path(__file__).parent / "misc.mlir").read_text()


def mlir(tool: str, text: str, *options: str) -> str:
    done = subprocess.run([tool, *options], input=text, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"{done.stderr}\n{text}"
    return done.stdout


@pytest.mark.parametrize("options", [[], ["--mlir-print-op-generic"], ["--mlir-print-debuginfo"]])
def test_blocks_calls_attributes_and_inner_modules_are_read_as_mlir_opt_prints_them(mlir_opt: str, options: list[str]):
    module = parse_module(mlir(mlir_opt, MISC, *options))
    verify(module)
    assert mlir(mlir_opt, print_module(module, "mesh19")) == mlir(mlir_opt, MISC)


def test_locations_come_from_aliases_at_the_end_of_the_text(mlir_opt: str):
    text = mlir(mlir_opt, MISC, "--mlir-print-debuginfo")
    places = [place_of(op) for op in parse_module(text).walk()]
    assert {place.name for place in places} == {"<stdin>"}
    assert [place.line for place in places][:4] == [1, 2, 3, 4]


def element(random: Random, kind: str) -> str:
    if kind == "i1":
        return random.choice(["true", "false"])
    if "f" in kind:
        return f"{random.uniform(-9, 9):.3f}"
    return str(random.randint(-8, 7))


KINDS = ["i1", "i4", "i8", "i16", "i32", "i64", "index", "f16", "bf16", "f32", "f64"]


def constants(shape: str, kinds: list[str]) -> str:
    random = Random(shape)
    sizes = [int(size) for size in shape.split("x")] if shape else []
    rows = []
    for number, kind in enumerate(kinds):
        literal = "" if 0 in sizes else nested(random, kind, sizes)
        rows.append(f"%c{number} = arith.constant dense<{literal}> : tensor<{'x'.join([*map(str, sizes), kind])}>")
    return "\n".join(rows)


@pytest.mark.parametrize("shape", ["3", "150", "10x5x4", "2x0", ""])
def test_dense_constants_of_every_kind_and_size_mean_the_same_to_mlir_opt(mlir_opt: str, shape: str):
    # Of unusual widths we print lists, and read nothing else.
    text = constants(shape, [*KINDS, "i33"])
    assert mlir(mlir_opt, print_module(parse_module(text), "mesh19")) == mlir(mlir_opt, text)
    # Many elements are written as bytes by MLIR.
    printed = mlir(mlir_opt, constants(shape, KINDS))
    assert mlir(mlir_opt, print_module(parse_module(printed), "mesh19")) == printed


def nested(random: Random, kind: str, sizes: list[int]) -> str:
    if not sizes:
        return element(random, kind)
    return f"[{', '.join(nested(random, kind, sizes[1:]) for _ in range(sizes[0]))}]"


@pytest.mark.parametrize(("bits", "splat"), [("FF", "true"), ("00", "false")])
def test_one_byte_of_truth_values_is_a_splat(bits: str, splat: str):
    module = parse_module(f'%0 = arith.constant dense<"0x{bits}"> : tensor<100xi1>')
    assert f"dense<{splat}> : tensor<100xi1>" in print_module(module)


def test_too_few_bits_are_an_error():
    with pytest.raises(ParseError, match="2 bytes do not hold 100 elements of i1"):
        parse_module('%0 = arith.constant dense<"0xFF00"> : tensor<100xi1>')
