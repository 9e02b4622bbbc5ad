"""Sources: tensors that every device makes by itself, in any layout."""

import numpy as np
import pytest
from xdsl.dialects.builtin import i32
from xdsl.ir import Operation

from shardwise.ir import parse_module
from shardwise.ir.passes.sources import is_source, make_source, splat_value
from shardwise.ir.passes.writer import Writer
from shardwise.layout.layout import Layout
from tests.ir.passes.devices import mesh_named, module_written, run_written

MESH = mesh_named(2, 3)
SEVEN = "arith.constant 7 : i32"


def ops(body: str) -> dict[str, Operation]:
    module = parse_module(f"func.func @f(%n: i32, %t: tensor<6x5xi32>) {{\n{body}\nreturn\n}}")
    return {op.results[0].name_hint or "": op for op in module.walk() if op.results}


TEXT = """
%splat = tensor.splat %n : tensor<6x5xi32>
%open = tensor.splat %n[%size] : tensor<?x5xi32>
%size = arith.constant 3 : index
%empty = tensor.empty() : tensor<6x5xi32>
%same = arith.constant dense<4> : tensor<6x5xi32>
%many = arith.constant dense<[1, 2, 3, 4, 5, 6]> : tensor<6xi32>
%sum = arith.addi %t, %t : tensor<6x5xi32>
"""


def test_what_is_made_of_nothing_is_a_source() -> None:
    lines = TEXT.strip().splitlines()
    found = ops("\n".join([lines[2], lines[0], lines[1], *lines[3:]]))
    want = {"splat": True, "open": False, "size": False, "empty": True, "same": True, "many": True, "sum": False}
    assert {name: is_source(found[name]) for name in want} == want


def test_the_number_that_a_tensor_has_everywhere() -> None:
    found = ops(
        f"%c = {SEVEN}\n%s = tensor.splat %c : tensor<2xi32>\n%d = arith.constant dense<1.5> : tensor<2xf32>\n"
        "%m = arith.constant dense<[1, 2]> : tensor<2xi32>\n%e = tensor.empty() : tensor<2xi32>\n"
        "%f = linalg.fill ins(%c : i32) outs(%e : tensor<2xi32>) -> tensor<2xi32>\n"
        "%k = tensor.cast %s : tensor<2xi32> to tensor<?xi32>\n%u = tensor.splat %n : tensor<2xi32>"
    )
    values = {name: splat_value(op.results[0]) for name, op in found.items()}
    assert values["c"] == values["s"] == values["k"] == 7
    assert values["d"] == 1.5
    assert values["m"] is values["e"] is values["u"] is None
    assert values["f"] == 7


@pytest.mark.parametrize("dims", [[None, None], ["axis0", None], [None, "axis1"], [("axis1", "axis0"), None]], ids=str)
@pytest.mark.parametrize("text", ["dense<4>", "dense<[[0, 1, 2, 3, 4]]>", "splat"])
def test_each_device_has_its_part(dims, text: str) -> None:
    layout, shape = Layout(MESH, dims), (6, 5)
    whole = np.full(shape, 4, "int32")
    if text.startswith("dense<[["):
        whole = np.arange(30, dtype="int32").reshape(shape)
        text = f"dense<{whole.tolist()}>"

    def write(w: Writer) -> list:
        if text == "splat":
            body = "%c = arith.constant 4 : i32\n%x = tensor.splat %c : tensor<6x5xi32>"
            return [make_source(w, ops(body)["x"], [w.scalar(4, i32)], layout)]
        return [make_source(w, ops(f"%x = arith.constant {text} : tensor<6x5xi32>")["x"], [], layout)]

    for device, got in enumerate(run_written(MESH, write)):
        np.testing.assert_array_equal(got, whole[tuple(slice(*s) for s in layout.box(shape, device))])


def test_an_empty_tensor_is_as_large_as_its_part() -> None:
    layout = Layout(MESH, ["axis0", "axis1"])
    module, _ = module_written(
        MESH,
        lambda w: [make_source(w, ops("%x = tensor.empty() : tensor<6x5xi32>")["x"], [], layout)],
    )
    kinds = [str(op.results[0].type) for op in module.walk() if op.name == "tensor.empty"]
    assert kinds == ["tensor<3x?xi32>"]


def test_equal_parts_of_one_number_stay_a_constant() -> None:
    for dims, name in ((["axis0", None], "arith.constant"), ([None, "axis1"], "tensor.splat")):
        layout = Layout(MESH, dims)
        module, _ = module_written(
            MESH,
            lambda w, layout=layout: [
                make_source(w, ops("%x = arith.constant dense<4> : tensor<6x5xi32>")["x"], [], layout)
            ],
        )
        tensors = [op.name for op in module.walk() if op.results and str(op.results[0].type).startswith("tensor")]
        assert tensors == [name]
