"""What follows from annotations, before and after; and that nothing more follows from that."""

import re
from typing import Any

import pytest

from shardwise.errors import ArgumentError
from shardwise.ir import parse_module, print_module, verify
from shardwise.ir.passes import propagate


def propagated(body: str, direction: Any = "both", grid: str = "2x4") -> dict[str, str]:
    """Propagate a function; return what is said of each value: `made` where it is made, `seen by` others."""
    module = propagate(parse_module(f"shard.grid @g(shape = {grid})\n{body}"), direction)
    verify(module)
    text = print_module(module)
    assert print_module(propagate(parse_module(text), direction)) == text  # nothing more follows
    shardings = dict(re.findall(r"(%\S+) = shard.sharding @g split_axes = (.*) : !shard.sharding", text))
    found = {}
    for result, value, sharding, users in re.findall(r"(%\S+) = shard.shard (%\S+) to (%\S+)( annotate\S*)? :", text):
        name = re.sub(r"_\d+$", "", value)
        found[f"{name} seen" if users else name] = shardings[sharding]
        assert result
    return found


ELEMENTWISE = """func.func @f(%x: tensor<8x8xf32>, %y: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %s = shard.sharding @g split_axes = [[0], [1]] : !shard.sharding
  %xs = shard.shard %x to %s : tensor<8x8xf32>
  %a = arith.addf %xs, %y : tensor<8x8xf32>
  %b = math.exp %a : tensor<8x8xf32>
  return %b : tensor<8x8xf32>
}"""


@pytest.mark.parametrize(
    ("direction", "expected"),
    [
        ("forward", {"%x", "%a", "%b"}),
        ("backward", {"%x", "%y"}),
        ("both", {"%x", "%y", "%a", "%b"}),
    ],
)
def test_directions(direction, expected):
    assert propagated(ELEMENTWISE, direction) == dict.fromkeys(expected, "[[0], [1]]")


def test_unknown_direction():
    with pytest.raises(ArgumentError, match=r"unknown direction 'sideways'.\n  directions: forward, backward, both"):
        propagated(ELEMENTWISE, "sideways")


@pytest.mark.parametrize(
    "split",
    ["[[0], [1]] halo_sizes = [1, 0, 0, 1]", "[[1], []] sharded_dims_offsets = [0, 1, 3, 3, 8]", "[[1, 0]]"],
)
def test_halos_and_offsets_are_kept(split):
    body = ELEMENTWISE.replace("[[0], [1]]", split)
    said = set(propagated(body).values())
    assert {text.replace(", []", "") for text in said} == {split.replace(", []", "")}


PRODUCT = """func.func @f(%x: tensor<8x16xf32>, %w: tensor<16x32xf32>) -> tensor<8x32xf32> {{
  {annotations}
  %zero = arith.constant dense<0.0> : tensor<8x32xf32>
  %m = linalg.matmul ins({x}, {w} : tensor<8x16xf32>, tensor<16x32xf32>)
    outs(%zero : tensor<8x32xf32>) -> tensor<8x32xf32>
  {after}
  return {out} : tensor<8x32xf32>
}}"""


def product(x: str = "", w: str = "", out: str = "", users: bool = False) -> str:
    lines, names = [], {"x": "%x", "w": "%w", "out": "%m"}
    after = ""
    flag = " annotate_for_users" if users else ""
    for name, split, kind in (("x", x, "8x16"), ("w", w, "16x32")):
        if split:
            lines.append(f"%s{name} = shard.sharding @g split_axes = {split} : !shard.sharding")
            lines.append(f"%{name}1 = shard.shard %{name} to %s{name}{flag} : tensor<{kind}xf32>")
            names[name] = f"%{name}1"
    if out:
        lines.append(f"%so = shard.sharding @g split_axes = {out} : !shard.sharding")
        after, names["out"] = "%out = shard.shard %m to %so : tensor<8x32xf32>", "%out"
    return PRODUCT.format(annotations="\n  ".join(lines), after=after, **names)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        # Rows and columns meet in the result.
        ({"x": "[[0], []]", "w": "[[], [1]]"}, {"%x": "[[0], []]", "%w": "[[], [1]]", "%m": "[[0], [1]]"}),
        # The result says what the operands are.
        ({"out": "[[0], [1]]"}, {"%x": "[[0], []]", "%w": "[[], [1]]", "%m": "[[0], [1]]"}),
        # A loop that is summed over is split where both operands are.
        ({"x": "[[], [1]]", "w": "[[1], []]"}, {"%x": "[[], [1]]", "%w": "[[1], []]", "%m": "[[], []]"}),
        ({"x": "[[], [1]]", "w": "[[1], []]", "out": "[[1], []]"},
         {"%x": "[[], [1]]", "%w": "[[1], []]", "%m": "[[1], []]"}),
        # Any order of axes.
        ({"x": "[[1, 0], []]"}, {"%x": "[[1, 0], []]", "%w": "[[], []]", "%m": "[[1, 0], []]"}),
    ],
)  # fmt: skip
def test_products(given, expected):
    assert propagated(product(**given)) == expected


def test_what_is_made_can_be_seen_otherwise():
    # Both want axis 0: the smaller operand gives way.
    found = propagated(product(x="[[0], []]", w="[[], [0]]"))
    assert found["%x"] == "[[0], []]"
    assert found["%w"] == "[[], [0]]"
    assert found["%x1 seen"] == "[[], []]"
    assert found["%m"] == "[[], [0]]"


def test_what_users_see_is_firmer_than_how_values_are_made():
    body = """func.func @f(%x: tensor<8xf32>, %y: tensor<8xf32>) -> tensor<8xf32> {
  %s = shard.sharding @g split_axes = [[0]] : !shard.sharding
  %t = shard.sharding @g split_axes = [[1]] : !shard.sharding
  %a = shard.shard %x to %s : tensor<8xf32>
  %b = shard.shard %y to %t : tensor<8xf32>
  %c = shard.shard %b to %t annotate_for_users : tensor<8xf32>
  %d = arith.addf %a, %c : tensor<8xf32>
  return %d : tensor<8xf32>
}"""
    found = propagated(body)
    assert found["%d"] == "[[1]]"
    assert found["%a seen"] == "[[1]]"
    swapped = body.replace("%a, %c", "%e, %b").replace("%c = shard.shard %b to %t", "%e = shard.shard %a to %s")
    assert propagated(swapped)["%d"] == "[[0]]"


@pytest.mark.parametrize(
    ("op", "kinds", "split", "expected"),
    [
        ("linalg.transpose ins(%v : tensor<8x6xf32>) outs(%e : tensor<6x8xf32>) permutation = [1, 0]",
         ("8x6", "6x8"), "[[1], [0]]", "[[0], [1]]"),
        ("linalg.broadcast ins(%v : tensor<8x6xf32>) outs(%e : tensor<8x3x6xf32>) dimensions = [1]",
         ("8x6", "8x3x6"), "[[1], [0]]", "[[1], [], [0]]"),
        ("linalg.reduce { arith.maximumf } ins(%v : tensor<8x6xf32>) outs(%e : tensor<6xf32>) dimensions = [0]",
         ("8x6", "6"), "[[1], [0]]", "[[0]]"),
        ("tensor.collapse_shape %v [[0, 1]] : tensor<8x6xf32> into tensor<48xf32>",
         ("8x6", "48"), "[[1], []]", "[[1]]"),
        ("tensor.expand_shape %v [[0, 1], [2]] output_shape [4, 2, 6] : tensor<8x6xf32> into tensor<4x2x6xf32>",
         ("8x6", "4x2x6"), "[[1], [0]]", "[[1], [], [0]]"),
        ("tensor.extract_slice %v[0, 2] [8, 3] [1, 1] : tensor<8x6xf32> to tensor<8x3xf32>",
         ("8x6", "8x3"), "[[1], []]", "[[1], []]"),
        ("tensor.concat dim(0) %v, %v : (tensor<8x6xf32>, tensor<8x6xf32>) -> tensor<16x6xf32>",
         ("8x6", "16x6"), "[[], [0]]", "[[], [0]]"),
        ("tosa.reduce_sum %v {axis = 0 : i32} : (tensor<8x6xf32>) -> tensor<1x6xf32>",
         ("8x6", "1x6"), "[[], [0]]", "[[], [0]]"),
        ("tosa.tanh %v : (tensor<8x6xf32>) -> tensor<8x6xf32>", ("8x6", "8x6"), "[[1, 0], []]", "[[1, 0], []]"),
    ],
    ids=lambda value: value.split(" ")[0] if isinstance(value, str) else "",
)  # fmt: skip
def test_ops_forward_and_backward(op, kinds, split, expected):
    shape, result = kinds
    start = f"""func.func @f(%x: tensor<{shape}xf32>) -> tensor<{result}xf32> {{
  %e = arith.constant dense<0.0> : tensor<{result}xf32>
  %s = shard.sharding @g split_axes = """
    forward = f"""{start}{split} : !shard.sharding
  %v = shard.shard %x to %s : tensor<{shape}xf32>
  %r = {op}
  return %r : tensor<{result}xf32>
}}"""
    assert propagated(forward, "forward")["%r"] == expected
    if "reduce" in op:
        return  # what is reduced can be spread in any way
    backward = f"""{start}{expected} : !shard.sharding
  %r = {op.replace("%v", "%x")}
  %v = shard.shard %r to %s : tensor<{result}xf32>
  return %v : tensor<{result}xf32>
}}"""
    assert propagated(backward, "backward")["%x"] == split


def test_branches_loops_and_calls():
    body = """func.func private @callee(%x: tensor<8xf32>) -> tensor<8xf32> {
  %s = shard.sharding @g split_axes = [[0]] : !shard.sharding
  %r = shard.shard %x to %s : tensor<8xf32>
  return %r : tensor<8xf32>
}
func.func @f(%p: tensor<8xf32>, %c: i1, %n: index) -> tensor<8xf32> {
  %q = func.call @callee(%p) : (tensor<8xf32>) -> tensor<8xf32>
  %i = scf.if %c -> (tensor<8xf32>) {
    %a = arith.negf %q : tensor<8xf32>
    scf.yield %a : tensor<8xf32>
  } else {
    scf.yield %q : tensor<8xf32>
  }
  %l = scf.for %k = %n to %n step %n iter_args(%state = %i) -> (tensor<8xf32>) {
    %b = arith.negf %state : tensor<8xf32>
    scf.yield %b : tensor<8xf32>
  }
  return %l : tensor<8xf32>
}"""
    found = propagated(body, "forward")
    assert {name: found[name] for name in ("%q", "%a", "%i", "%state", "%b", "%l")} == dict.fromkeys(
        ("%q", "%a", "%i", "%state", "%b", "%l"), "[[0]]"
    )


def test_nothing_follows_from_nothing():
    body = ELEMENTWISE.replace("%xs = shard.shard %x to %s : tensor<8x8xf32>", "").replace("%xs", "%x")
    module = parse_module(f"shard.grid @g(shape = 2x4)\n{body}")
    assert print_module(propagate(module)) == print_module(module)


def test_scalars_and_constants_are_not_annotated():
    found = propagated("""func.func @f(%x: tensor<8xf32>) -> tensor<f32> {
  %s = shard.sharding @g split_axes = [[0]] : !shard.sharding
  %v = shard.shard %x to %s : tensor<8xf32>
  %c = arith.constant dense<2.0> : tensor<8xf32>
  %m = arith.mulf %v, %c : tensor<8xf32>
  %z = arith.constant dense<0.0> : tensor<f32>
  %t = linalg.reduce { arith.addf } ins(%m : tensor<8xf32>) outs(%z : tensor<f32>) dimensions = [0]
  return %t : tensor<f32>
}""")
    assert found == {"%x": "[[0]]", "%m": "[[0]]"}
