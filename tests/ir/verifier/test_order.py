"""Order: values are made before they are used, where their users can see them."""

import pytest

from shardwise.errors import VerifyError
from shardwise.ir import parse_module, verify
from shardwise.ir.verifier.order import Order

SEEN = "is used before it is made, or where it cannot be seen"


def complaint(body: str) -> str:
    try:
        verify(parse_module(f"func.func @f(%c: i1, %n: i32) {{\n{body}\n}}", allow_unregistered=True))
    except VerifyError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("body", "operand"),
    [
        ("%a = arith.addi %n, %n : i32\n%b = arith.addi %a, %a : i32\nreturn", None),
        ("%b = arith.addi %n, %a : i32\n%a = arith.addi %n, %n : i32\nreturn", 1),
        ("%a = arith.addi %a, %n : i32\nreturn", 0),  # itself
        ("scf.if %c {\n%a = arith.addi %n, %n : i32\n}\nreturn", None),  # from outside
        ("%a = arith.addi %n, %n : i32\nscf.if %c {\n%b = arith.addi %a, %n : i32\n}\nreturn", None),
        ("scf.if %c {\n%b = arith.addi %a, %n : i32\n}\n%a = arith.addi %n, %n : i32\nreturn", 0),
    ],
)
def test_a_value_is_made_before_it_is_used(body: str, operand: int | None) -> None:
    found = complaint(body)
    assert (f"operand {operand} {SEEN}" in found) == (operand is not None)


def test_blocks_of_one_region_see_one_another_and_go_to_one_another() -> None:
    text = "cf.br ^one\n^one:\n%a = arith.addi %n, %n : i32\ncf.br ^two\n^two:\n%b = arith.addi %a, %a : i32\nreturn"
    assert complaint(text) == ""
    back = '"some.op"() ({\n^zero:\ncf.br ^one\n^one:\ncf.br ^zero\n}) : () -> ()\nreturn'
    assert "goes to the first block of its region, which is entered from outside alone." in complaint(back)
    unfinished = "cf.br ^one\n^one:\n%a = arith.addi %n, %n : i32\n^two:\nreturn"
    assert "each of several blocks ends with an op that says where to go on" in complaint(unfinished)


def test_positions_are_counted_once_for_each_block() -> None:
    body = "%a = arith.addi %n, %n : i32\n%b = arith.addi %a, %n : i32\nreturn"
    module = parse_module(f"func.func @f(%n: i32) {{\n{body}\n}}")
    order = Order()
    for op in module.walk():
        assert list(order.complaints(op)) == []
    assert [sorted(found.values()) for found in order.positions.values()] == [[0, 1, 2]]
