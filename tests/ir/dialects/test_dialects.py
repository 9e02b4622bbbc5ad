"""The ops around the dialect: what LLVM's tool reads we read, and what we print it reads, with one meaning."""

import subprocess
from pathlib import Path

import pytest

from shardwise.errors import ConversionError, ParseError, VerifyError
from shardwise.ir import parse_module, print_module, verify
from shardwise.ir.dialects.linalg_elementwise import BODIES
from shardwise.ir.dialects.tosa_ops import BINARY, COMPARISONS, UNARY

HERE = Path(__file__).parents[1]
AROUND = (HERE / "around.mlir").read_text().split("// -----")
NEWER = (HERE / "newer.mlir").read_text()
T = "tensor<4x8xf32>"


def mlir(tool: str, text: str, *options: str) -> str:
    done = subprocess.run([tool, *options], input=text, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"{done.stderr}\n{text}"
    return done.stdout


@pytest.mark.parametrize("text", AROUND, ids=lambda text: text.split("@")[1].split("(")[0])
def test_our_text_means_to_mlir_opt_what_its_own_does(mlir_opt: str, text: str):
    printed = mlir(mlir_opt, text)
    for source in (text, printed, mlir(mlir_opt, text, "--mlir-print-op-generic")):
        module = parse_module(source)
        verify(module)
        ours = print_module(module)
        assert print_module(parse_module(ours)) == ours
        assert mlir(mlir_opt, print_module(module, "mesh19")) == printed


def test_newer_forms_are_printed_as_llvm_19_reads_them(mlir_opt: str):
    module = parse_module(NEWER)
    verify(module)
    assert print_module(parse_module(print_module(module))) == print_module(module)
    old = mlir(mlir_opt, print_module(module, "mesh19"))
    assert old.count("linalg.generic") == 4
    assert "tosa.mul %arg0, %arg0 {shift = 0 : i8}" in old
    assert "tosa.negate %arg0 :" in old
    assert "max_fp = 0x7F800000 : f32, max_int = 9223372036854775807 : i64, min_fp = 0.000000e+00 : f32" in old
    assert "max_fp = 3.000000e+00 : f32, max_int = 3 : i64, min_fp = -3.000000e+00 : f32, min_int = -3 : i64" in old
    assert "tosa.int_div" in old
    assert ": (tensor<1x4x8xf32>, tensor<1x8x3xf32>) -> tensor<1x4x3xf32>" in old
    verify(parse_module(old))


@pytest.mark.parametrize("kind", BODIES)
def test_each_kind_of_elementwise_has_a_body_that_mlir_opt_accepts(mlir_opt: str, kind: str):
    arity = BODIES[kind][0]
    names, kinds = ", ".join(["%c", "%a", "%a"][-arity:]), ", ".join([T.replace("f32", "i1"), T, T][-arity:])
    unsigned = "unsigned" in kind
    text = f"""func.func @f(%a: {T}, %c: tensor<4x8xi1>) -> {T} {{
      %0 = linalg.elementwise kind=#linalg.elementwise_kind<{kind}> ins({names} : {kinds}) outs(%a : {T}) -> {T}
      func.return %0 : {T}
    }}"""
    module = parse_module(text.replace("f32", "i32") if unsigned else text)
    verify(module)
    assert print_module(parse_module(print_module(module))) == print_module(module)
    assert "linalg.generic" in mlir(mlir_opt, print_module(module, "mesh19"))


TOSA = [
    (count, takes, name) for count, rows in ((1, UNARY), (2, BINARY)) for takes in rows for name in rows[takes].split()
]
ELEMENTS = {"any": ("f32", "i32", "i1"), "float": ("f32", "f16"), "int": ("i32", "i8", "i1"), "i1": ("i1",)}


def tosa(name: str, count: int, element: str, made: str) -> str:
    kinds = ", ".join([f"tensor<4x{element}>"] * count)
    op = f"%0 = tosa.{name} {', '.join(['%a'] * count)} : ({kinds}) -> tensor<4x{made}>"
    return f"func.func @f(%a: tensor<4x{element}>) {{\n  {op}\n  func.return\n}}"


@pytest.mark.parametrize(("count", "takes", "name"), TOSA)
def test_each_elementwise_tosa_op_is_read_and_printed(count: int, takes: str, name: str):
    for element in ELEMENTS[takes]:
        text = tosa(name, count, element, "i1" if f"tosa.{name}" in COMPARISONS else element)
        module = parse_module(text)
        verify(module)
        assert text.splitlines()[1].strip() in print_module(module)


@pytest.mark.parametrize(("count", "takes", "name"), TOSA)
def test_each_elementwise_tosa_op_refuses_other_elements(count: int, takes: str, name: str):
    for element in {"f32", "i32", "i1"} - {*ELEMENTS[takes]}:
        with pytest.raises(VerifyError, match=rf"tosa\.{name} takes elements of type {takes}, got "):
            verify(parse_module(tosa(name, count, element, element)))
    if name != "cast":
        with pytest.raises(VerifyError, match=rf"tosa\.{name} of \w+ does not make f64"):
            verify(parse_module(tosa(name, count, ELEMENTS[takes][0], "f64")))


VERIFY_ERRORS = [
    (f"%0 = tosa.abs %a : ({T}) -> tensor<4x9xf32>", f"tosa.abs cannot spread {T} to tensor<4x9xf32>"),
    (f"%0 = tosa.maximum %a, %a : ({T}, {T}) -> tensor<8xf32>", f"tosa.maximum cannot spread {T} to tensor<8xf32>"),
    (
        f"%0 = tosa.add %a, %i : ({T}, tensor<4x8xi32>) -> {T}",
        "tosa.add combines elements of one type, got f32, i32",
    ),
    (f"%0 = tosa.select %a, %a, %a : ({T}, {T}, {T}) -> {T}", "tosa.select chooses by i1, got f32"),
    ("%0 = tosa.mul %i, %i : (tensor<4x8xi32>, tensor<4x8xi32>) -> tensor<4x8xi8>", "tosa.mul of i32 does not make i8"),
    (
        f"%0 = tosa.clamp %a {{min_val = 0 : i32, max_val = 1 : i32}} : ({T}) -> {T}",
        "tosa.clamp of f32 has limits of that type, got 0 : i32",
    ),
    (f"%0 = tosa.negate %a, %a : ({T}, {T}) -> {T}", "tosa.negate has two zero points or none, got 1"),
    (f"%0 = tosa.matmul %a, %a, %a : ({T}, {T}, {T}) -> {T}", "tosa.matmul has two zero points or none, got 1"),
    (f"%0 = tosa.matmul %a, %a : ({T}, {T}) -> {T}", "tosa.matmul multiplies stacks of matrices"),
    (f"%0 = tosa.mul %a, %a, %a {{shift = 1 : i8}} : ({T}, {T}, {T}) -> {T}", "tosa.mul has one shift"),
    (f"%0 = tosa.clamp %a {{min_val = 0.0 : f32}} : ({T}) -> {T}", "tosa.clamp needs min_val and max_val"),
    ('%0 = "tosa.const"() : () -> tensor<1xf32>', "tosa.const has one constant"),
    (
        '%0 = "tosa.const"() <{values = dense<0.0> : tensor<1xf32>}> : () -> tensor<2xf32>',
        "tosa.const makes tensor<1xf32>, but its result is tensor<2xf32>",
    ),
    (f"%0 = arith.extf %a : {T} to tensor<4x9xf64>", f"arith.extf keeps the shape, got {T} to tensor<4x9xf64>"),
    (f"%0 = arith.extf %a : {T} to tensor<4x8xf16>", f"arith.extf widens elements, got {T} to tensor<4x8xf16>"),
    (f"%0 = arith.truncf %a : {T} to {T}", f"arith.truncf narrows elements, got {T} to {T}"),
    ("%0 = arith.extsi %i : tensor<4x8xi32> to tensor<4x8xi8>", "arith.extsi widens elements, got tensor<4x8xi32> to"),
    ("%0 = arith.trunci %n : index to i8", "arith.trunci narrows elements, got index to i8"),
    ("%0 = arith.index_cast %n : index to index", "arith.index_cast converts between ints and indices, got index"),
    ("%0 = arith.sitofp %n : index to f32", "arith.sitofp has no indices, got index to f32"),
    (f"%0 = arith.bitcast %a : {T} to tensor<4x8xi64>", "arith.bitcast keeps the bits of elements, got"),
    (
        f"%0 = tensor.reshape %a(%s) : ({T}, tensor<1xindex>) -> tensor<4xf32>",
        "tensor.reshape keeps the number of elements",
    ),
    (
        f"%0 = tensor.reshape %a(%s) : ({T}, tensor<1xindex>) -> tensor<8x4xf32>",
        "tensor.reshape to tensor<8x4xf32> needs a shape of 2 sizes",
    ),
    (
        f"%0 = tensor.reshape %a(%s) : ({T}, tensor<1xindex>) -> tensor<32xf64>",
        "tensor.reshape keeps the element type",
    ),
]


@pytest.mark.parametrize(("line", "message"), VERIFY_ERRORS)
def test_wrong_types_are_reported_at_their_place(line: str, message: str):
    arguments = f"%a: {T}, %i: tensor<4x8xi32>, %s: tensor<1xindex>, %n: index"
    text = f"func.func @f({arguments}) {{\n  {line}\n  func.return\n}}"
    with pytest.raises(VerifyError) as caught:
        verify(parse_module(text, "m.mlir"))
    assert str(caught.value).startswith("m.mlir:2:3: ")
    assert message in str(caught.value)


PARSE_ERRORS = [
    ("%0 = index.cmp below(%i, %i)", "expected one of eq, ne, slt, sle, sgt, sge, ult, ule, ugt, uge."),
    ("%0 = index.cmp slt(%i)", "expected two indices, got 1."),
    (
        f"%0 = linalg.elementwise kind=#linalg.elementwise_kind<most> ins(%a : {T}) outs(%a : {T}) -> {T}",
        "unknown kind",
    ),
    (f"%0 = linalg.elementwise kind=unit ins(%a : {T}) outs(%a : {T}) -> {T}", "kind is `#linalg.elementwise_kind"),
    (
        f"%0 = linalg.elementwise kind=#linalg.elementwise_kind<add> ins(%a : {T}) outs(%a : {T}) -> {T}",
        "add has 2 inputs and one output, got 1 and 1",
    ),
    (f"%0 = linalg.matmul ins(%a : {T}) outs(%a : {T}) -> {T}", "a product has two inputs and one output"),
    (f"%0 = linalg.matmul indexing_maps = [1] ins(%a, %a : {T}, {T}) outs(%a : {T}) -> {T}", "a list of affine maps"),
    (f"%0 = linalg.reduce {{ no.op }} ins(%a : {T}) outs(%a : {T}) dimensions = [1]", "no.op is not registered"),
    (
        f"%0 = linalg.reduce {{ arith.addf }} ins(%a, %a : {T}, {T}) outs(%a : {T}) dimensions = [1]",
        "linalg.reduce is read with one input and one output",
    ),
    (f"%0 = linalg.generic ins(%a : {T}) {{}} -> {T}", "linalg.generic needs indexing_maps, a list of affine maps"),
    (f"%0 = linalg.generic {{indexing_maps = []}} ins(%a : {T}) {{}}", "needs iterator_types, a list of names"),
    (
        f'%0 = linalg.generic {{indexing_maps = [], iterator_types = ["round"]}} ins(%a : {T}) {{}}',
        'unknown iterator type "round"; parallel, reduction and window are known',
    ),
    (
        f"%0 = linalg.generic {{indexing_maps = [], iterator_types = [], doc = 1}} ins(%a : {T}) {{}}",
        "doc and library_call are strings",
    ),
]


@pytest.mark.parametrize(("line", "message"), PARSE_ERRORS)
def test_wrong_texts_are_reported_at_their_line(line: str, message: str):
    text = f"func.func @f(%a: {T}, %i: index) {{\n  {line}\n  func.return\n}}"
    with pytest.raises(ParseError) as caught:
        parse_module(text, "m.mlir")
    assert caught.value.line in (2, 3)
    assert message in str(caught.value)


REFUSED = [
    (
        f"%0 = tosa.mul %a, %a, %s : ({T}, {T}, tensor<1xi8>) -> {T}",
        "tosa.mul: LLVM 19 has the shift as an attribute, and this one is not a constant.",
    ),
    (f"%0 = tosa.negate %a, %z, %z : ({T}, tensor<1xf32>, tensor<1xf32>) -> {T}", "tosa.negate: LLVM 19 has no zero"),
    (
        "%0 = tosa.clamp %a {min_val = 0.0 : f32, max_val = 1.0 : f32, nan_mode = #tosa.nan_mode<IGNORE>}"
        f" : ({T}) -> {T}",
        "tosa.clamp: LLVM 19 has no nan_mode.",
    ),
    (
        f'%0 = tosa.clamp %a {{min_val = "a", max_val = 1.0 : f32}} : ({T}) -> {T}',
        'tosa.clamp: a limit is a number, got "a".',
    ),
]


@pytest.mark.parametrize(("line", "message"), REFUSED)
def test_what_llvm_19_cannot_say_is_refused(line: str, message: str):
    text = f"func.func @f(%a: {T}, %s: tensor<1xi8>, %z: tensor<1xf32>) {{\n  {line}\n  func.return\n}}"
    with pytest.raises(ConversionError) as caught:
        print_module(parse_module(text, "m.mlir"), "mesh19")
    assert str(caught.value).startswith(f"m.mlir:2:3: {message}")


@pytest.mark.parametrize(
    ("literal", "numbers"),
    [
        ("dense<0x7F800000> : tensor<2xf32>", (float("inf"),) * 2),
        ("dense<[0xFF800000, 1.5]> : tensor<2xf32>", (float("-inf"), 1.5)),
        ("dense<0x3C00> : tensor<1xf16>", (1.0,)),
        ("dense<-1> : tensor<3xi8>", (-1,) * 3),
        ("dense<0xFF> : tensor<2xi32>", (255,) * 2),
    ],
)
def test_dense_constants_hold_what_mlir_means(literal: str, numbers: tuple[float, ...]):
    module = parse_module(f"%0 = arith.constant {literal}")
    (op,) = module.body.block.ops
    assert op.properties["value"].get_values() == numbers  # type: ignore[attr-defined]
    assert print_module(parse_module(print_module(module))) == print_module(module)


def test_bits_that_do_not_fit_a_float_are_refused():
    with pytest.raises(ParseError, match="the bits do not fit f16"):
        parse_module("%0 = arith.constant dense<0x17C00> : tensor<2xf16>")
