"""Texts that would make a careless parser hang, overflow or run out of memory; run as a script, it measures them."""

import json
import sys
import time
from pathlib import Path

from shardwise.errors import ParseError
from shardwise.ir import parse_module, print_module

DEEP = 10_000
DIGITS = "9" * 5_000
SPLAT = "tensor<100000x100000xf64>"


def peak_megabytes() -> float:
    """The most memory that this program held; unlike what the parent's `getrusage` says, without that of the parent."""
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) / 1024


def constant(attribute: str) -> str:
    return f"func.func @f() {{\n  %0 = arith.constant {attribute}\n  func.return\n}}"


def aliases(kind: str, doubled: str) -> str:
    rows = [f"{kind}a0 = {doubled.replace('ALIAS', 'i1' if kind == '!' else 'unit')}"]
    rows += [f"{kind}a{n} = {doubled.replace('ALIAS', f'{kind}a{n - 1}')}" for n in range(1, 60)]
    return "\n".join([*rows, f'"test.op"() {{a = {kind}a59}} : () -> ()'])


HOSTILE: dict[str, str | bytes] = {
    "string": 'func.func @f() attributes {a = "' + "x" * 100_000,
    "string with escapes": '"' + "\\\\" * 50_000 + '\\"',
    "string of pairs": '%0 = "' + "ab" * 20_000 + "\n",
    "symbol": 'shard.grid @"g(shape = 2)',
    "round brackets": '"a"' + "(" * DEEP + ")" * DEEP,
    "square brackets": '"a"() {a = ' + "[" * DEEP + "]" * DEEP + "} : () -> ()",
    "angle brackets": '"a"() : () -> ' + "tuple<" * DEEP + ">" * DEEP,
    "braces": '"a"() ' + "({" * DEEP + "})" * DEEP + " : () -> ()",
    "modules": "builtin.module {\n" * DEEP + "}" * DEEP,
    "ifs": "func.func @f(%c: i1) {\n" + "scf.if %c {\n" * DEEP + "}" * DEEP + "\nfunc.return\n}",
    "function types": '"a"() : () -> (' + "() -> (" * DEEP,
    "minus signs": constant("affine_map<(d0) -> (" + "-" * DEEP + "d0)> : index"),
    "int": constant(f"{DIGITS} : i32"),
    "hex int": constant(f"0x{DIGITS} : i32"),
    "float": constant(f"{DIGITS}.5 : f32"),
    "size": f"func.func @f(%t: tensor<{DIGITS}xf32>) {{\nfunc.return\n}}",
    "width": f"func.func @f(%t: i{DIGITS}) {{\nfunc.return\n}}",
    "grid": f"shard.grid @g(shape = 2x{DIGITS})",
    "axis": f"%0 = shard.grid_shape @g axes = [{DIGITS}] : index",
    "location": f'shard.grid @g(shape = 2) loc("a":{DIGITS}:1)',
    "result count": f"%0:{DIGITS} = shard.grid_shape @g : index",
    "result number": f"func.func @f(%a: index) {{\nfunc.return %a#{DIGITS} : index\n}}",
    "dims": f"func.func @f(%t: tensor<{'1x' * 50_000}f32>) {{\nfunc.return\n}}",
    "axes": f"shard.grid @g(shape = {'x'.join(['2'] * 50_000)})",
    "affine sums": '"a"() {m = affine_map<(d0) -> (d0' + " + d0" * 5_000 + ")>} : () -> ()",
    "arrows": "affine_map<" + "->=" * 300,
    "NUL": "shard.grid @g(shape = 2)\n\x00",
    "NUL in a string": 'shard.grid @"a\x00(shape = 2)',
    "only NULs": "\x00" * 100_000,
    "bad UTF-8": b"shard.grid @g(shape = 2)\n // \xff",
    "cut UTF-8": 'shard.grid @"é'.encode()[:-1],
    "UTF-16": "shard.grid @g(shape = 2)".encode("utf-16"),
    "surrogates": b"shard.grid @g(shape = 2)" + b"\xed\xa0\x80",
    "digits of other scripts": "shard.grid @g(shape = ٣)",
    "letters of other scripts": "é",
    "type aliases": aliases("!", "tuple<ALIAS, ALIAS>"),
    "attribute aliases": aliases("#", "[ALIAS, ALIAS]"),
    "comment": "//" + "x" * 1_000_000,
    "spaces": " " * 1_000_000,
    "quotes": '"' * 100_001,
    "commas": '"a"(' + "," * 100_000,
    "dots": "." * 100_000,
    "ats": "@" * 100_000,
    "percents": "%" * 100_000,
    "dashes": "-" * 100_000,
    "slashes": "/ " * 100_000,
    "empty": "",
}

LARGE: dict[str, str | bytes] = {  # constants of equal elements are small, whatever their size
    "splat": constant(f"dense<0.0> : {SPLAT}"),
    "hex splat": constant(f'dense<"0x0000000000000000"> : {SPLAT}'),
    "complex splat": constant("dense<(1.0, 2.0)> : tensor<100000x100000xcomplex<f32>>"),
    "truths": constant("dense<true> : tensor<100000x100000xi1>"),
    "hex truths": constant('dense<"0xFF"> : tensor<100000x100000xi1>'),
    "odd ints": constant("dense<3> : tensor<100000x100000xi4>"),
    "many splats": "".join(f"%{n} = arith.constant dense<1> : tensor<1000000xi64>\n" for n in range(100)),
    "tosa splat": f'%0 = "tosa.const"() <{{values = dense<0.0> : {SPLAT}}}> : () -> {SPLAT}',
    "overflowing splat": constant("dense<0> : tensor<" + "9223372036854775807x" * 20 + "i1>"),
}


def measured(text: str | bytes) -> tuple[int, int, float]:
    """Line and column of the error, and the seconds it took."""
    start = time.process_time()
    try:
        parse_module(text, "m.mlir", allow_unregistered=True)
    except ParseError as error:
        return error.line, error.column, time.process_time() - start
    return 0, 0, time.process_time() - start


if __name__ == "__main__":
    found = {name: measured(text) for name, text in HOSTILE.items()}
    for text in LARGE.values():
        print_module(parse_module(text))
    memory = peak_megabytes()
    json.dump({"found": found, "megabytes": memory}, sys.stdout)
