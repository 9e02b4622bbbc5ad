"""The parts that the texts of linalg ops share."""

from collections.abc import Sequence
from contextlib import nullcontext

from xdsl.dialects.builtin import AffineMapAttr, ArrayAttr
from xdsl.ir import Attribute, SSAValue
from xdsl.parser import Parser
from xdsl.printer import Printer

from shardwise.ir.types import is_list_of


def read_operands(parser: Parser, word: str) -> list[SSAValue]:
    """Read `ins(%0, %1 : tensor<4xf32>, tensor<4xf32>)`, or nothing where it may be absent."""
    position = parser.pos
    if not parser.parse_optional_keyword(word):
        return []
    with parser.in_parens():
        names = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_unresolved_operand)
        parser.parse_punctuation(":")
        kinds = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type)
    return list(parser.resolve_operands(names, kinds, position))


def read_maps(parser: Parser) -> ArrayAttr[AffineMapAttr] | None:
    """Read `indexing_maps = [...]`, if it is there."""
    if not parser.parse_optional_keyword("indexing_maps"):
        return None
    parser.parse_punctuation("=")
    maps = parser.parse_attribute()
    if not is_list_of(maps, AffineMapAttr):
        parser.raise_error("indexing_maps is a list of affine maps")
    return maps


def read_results(parser: Parser) -> list[Attribute]:
    """Read `-> tensor<4xf32>` or `-> (tensor<4xf32>, tensor<4xf32>)`, if it is there."""
    if not parser.parse_optional_punctuation("->"):
        return []
    many = parser.parse_optional_comma_separated_list(parser.Delimiter.PAREN, parser.parse_type)
    return [parser.parse_type()] if many is None else [*many]


def print_operands(printer: Printer, word: str, values: Sequence[SSAValue]) -> None:
    """Print `ins(%0 : tensor<4xf32>)`, or nothing where there are none."""
    if not values:
        return
    printer.print_string(f" {word}(")
    printer.print_list(values, printer.print_ssa_value)
    printer.print_string(" : ")
    printer.print_list([value.type for value in values], printer.print_attribute)
    printer.print_string(")")


def print_results(printer: Printer, values: Sequence[SSAValue]) -> None:
    """Print `-> tensor<4xf32>`, in brackets where there are several types."""
    if not values:
        return
    printer.print_string(" -> ")
    with printer.in_parens() if len(values) > 1 else nullcontext():
        printer.print_list([value.type for value in values], printer.print_attribute)
