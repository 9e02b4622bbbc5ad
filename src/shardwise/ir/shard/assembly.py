"""The text of an op as a row of clauses, each of which reads and prints one part of it.

A clause has one spelling per vocabulary: `grid_axes` in the `shard` dialect is `mesh_axes` in LLVM 19's `mesh`.
All spellings are read; the printer's `spelling` says which one is printed.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    ArrayAttr,
    DenseArrayBase,
    IndexType,
    IntegerAttr,
    IntegerType,
    SymbolRefAttr,
    UnitAttr,
    i16,
    i64,
)
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.parser import AttrParser, Parser, UnresolvedOperand
from xdsl.printer import Printer

from shardwise.errors import seal
from shardwise.ir.shard.attributes import ReductionKind, ReductionKindAttr, ShardAxesArrayAttr


@dataclass(slots=True)
class Parts:
    """What the clauses of one op have read so far."""

    operands: dict[str, list[UnresolvedOperand]] = field(default_factory=dict[str, list[UnresolvedOperand]])
    values: dict[str, list[SSAValue]] = field(default_factory=dict[str, list[SSAValue]])
    properties: dict[str, Attribute] = field(default_factory=dict[str, Attribute])
    attributes: dict[str, Attribute] = field(default_factory=dict[str, Attribute])


@seal
@dataclass(frozen=True, slots=True)
class Clause:
    """One part of an op's text: how it is read, and how it is printed, with a leading space or not at all."""

    parse: Callable[[Parser, Parts], None]
    print: Callable[[Printer, Operation], None]


def spelling(printer: Printer) -> str:
    """Return the vocabulary a printer prints: `shard`, or `mesh19` where it says so."""
    return getattr(printer, "spelling", "shard")


def read_keyword(parser: AttrParser, spellings: Sequence[str], optional: bool) -> bool:
    """Read `keyword =` in any of its spellings; False where an optional one is absent."""
    for keyword in spellings:
        if parser.parse_optional_keyword(keyword):
            parser.parse_punctuation("=")
            return True
    if not optional:
        parser.raise_error(f"expected `{spellings[0]} =`")
    return False


def read_int(parser: AttrParser, bits: int = 64) -> int:
    """Read an int that fits `bits` bits."""
    start = parser.pos
    number = parser.parse_integer(allow_boolean=False)
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        parser.raise_error(f"the int does not fit {bits} bits", start, parser.pos)
    return number


def read_axes(parser: AttrParser) -> DenseArrayBase[Any]:
    """Read `[0, 1]`."""
    axes = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, lambda: read_int(parser, 16))
    return DenseArrayBase.from_list(i16, axes)


def print_ints(printer: Printer, ints: Sequence[int]) -> None:
    """Print `[0, 1]`."""
    printer.print_string(f"[{', '.join(map(str, ints))}]")


def print_axis_lists(printer: Printer, lists: ShardAxesArrayAttr) -> None:
    """Print `[[0], []]`."""
    with printer.in_square_brackets():
        printer.print_list(lists.axes.data, lambda axes: print_ints(printer, axes.get_values()))


def operand_clause(name: str, before: str = "") -> Clause:
    """Return the clause of a value: `%t`, `to %s` or `sharding = %s`."""

    def parse(parser: Parser, parts: Parts) -> None:
        for word in before.split():
            parser.parse_characters(word) if word == "=" else parser.parse_keyword(word)
        parts.operands[name] = [parser.parse_unresolved_operand()]

    def print_(printer: Printer, op: Operation) -> None:
        printer.print_string(f" {before} " if before else " ")
        printer.print_ssa_value(getattr(op, name))

    return Clause(parse, print_)


def operands_clause(name: str) -> Clause:
    """Return the clause of values in brackets: `[%i, %j]`."""

    def parse(parser: Parser, parts: Parts) -> None:
        values = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_unresolved_operand)
        parts.operands[name] = values

    def print_(printer: Printer, op: Operation) -> None:
        with printer.in_square_brackets():
            printer.print_list(getattr(op, name), printer.print_ssa_value)

    return Clause(parse, print_)


def grid_clause(before: str = "on") -> Clause:
    """Return the clause of the grid: `on @g`, or `@g` alone."""

    def parse(parser: Parser, parts: Parts) -> None:
        if before:
            parser.parse_keyword(before)
        parts.properties["grid"] = SymbolRefAttr(parser.parse_symbol_name())

    def print_(printer: Printer, op: Operation) -> None:
        printer.print_string(f" {before} " if before else " ")
        printer.print_attribute(op.properties["grid"])

    return Clause(parse, print_)


def axes_clause(name: str, mesh_name: str = "", optional: bool = True) -> Clause:
    """Return the clause of grid axes: `grid_axes = [0, 1]`, absent where there are none."""

    def parse(parser: Parser, parts: Parts) -> None:
        if read_keyword(parser, [name, mesh_name] if mesh_name else [name], optional):
            parts.properties[name] = read_axes(parser)

    def print_(printer: Printer, op: Operation) -> None:
        axes = getattr(op, name).get_values()
        if not axes and optional:
            return
        printer.print_string(f" {mesh_name if mesh_name and spelling(printer) == 'mesh19' else name} = ")
        print_ints(printer, axes)

    return Clause(parse, print_)


def int_clause(name: str, kind: IntegerType | IndexType | None = None, also: tuple[str, ...] = ()) -> Clause:
    """Return the clause of one int, an index unless told otherwise: `gather_axis = 1`."""

    def parse(parser: Parser, parts: Parts) -> None:
        read_keyword(parser, [name, *also], optional=False)
        parts.properties[name] = IntegerAttr(read_int(parser), kind or IndexType())

    def print_(printer: Printer, op: Operation) -> None:
        printer.print_string(f" {name} = {getattr(op, name).value.data}")

    return Clause(parse, print_)


def flag_clause(name: str) -> Clause:
    """Return the clause of a word that is there or not: `rotate`."""

    def parse(parser: Parser, parts: Parts) -> None:
        if parser.parse_optional_keyword(name):
            parts.properties[name] = UnitAttr()

    def print_(printer: Printer, op: Operation) -> None:
        if name in op.properties:
            printer.print_string(f" {name}")

    return Clause(parse, print_)


# -- split axes and reductions -----------------------------------------------------------------------------


def _parse_split_axes(parser: Parser, parts: Parts) -> None:
    read_keyword(parser, ["split_axes"], optional=False)
    lists = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, lambda: read_axes(parser))
    parts.properties["split_axes"] = ShardAxesArrayAttr(ArrayAttr(lists))


def _print_split_axes(printer: Printer, op: Operation) -> None:
    printer.print_string(" split_axes = ")
    print_axis_lists(printer, getattr(op, "split_axes"))  # noqa: B009


def _parse_reduction(parser: Parser, parts: Parts) -> None:
    if not read_keyword(parser, ["reduction"], optional=True):
        return
    bracketed = parser.parse_optional_punctuation("<") is not None
    parts.properties["reduction"] = ReductionKindAttr(parser.parse_str_enum(ReductionKind))
    if bracketed:
        parser.parse_punctuation(">")


def _print_reduction(printer: Printer, op: Operation) -> None:
    kind: ReductionKind = getattr(op, "reduction").data  # noqa: B009
    if kind is ReductionKind.SUM:
        return
    printer.print_string(" reduction = ")
    with printer.in_angle_brackets() if spelling(printer) == "mesh19" else nullcontext():
        printer.print_string(str(kind))


def _parse_partial(parser: Parser, parts: Parts) -> None:
    if read_keyword(parser, ["partial"], optional=True):
        parts.attributes["partial_type"] = ReductionKindAttr(parser.parse_str_enum(ReductionKind))
        parts.attributes["partial_axes"] = read_axes(parser)


SPLIT_AXES = Clause(_parse_split_axes, _print_split_axes)
"""Grid axes per dim: `split_axes = [[0], []]`."""
REDUCTION = Clause(_parse_reduction, _print_reduction)
"""The reduction: `reduction = max`, absent for the sum; `<max>` is read too."""
PARTIAL = Clause(_parse_partial, lambda printer, op: None)
"""Partial axes, `partial = max [1]`, as LLVM 20 wrote them; kept and printed among the attributes."""


# -- ints and values in one list ---------------------------------------------------------------------------


def mixed_clause(name: str, static: str, dynamic: str, optional: bool = False) -> Clause:
    """Return the clause of ints and values in one list: `root = [1, %i]`; an empty optional one is not printed."""

    def parse(parser: Parser, parts: Parts) -> None:
        parts.operands[dynamic] = []
        if not read_keyword(parser, [name], optional):
            return
        entries = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, lambda: _read_entry(parser))
        numbers = [entry if isinstance(entry, int) else DYNAMIC_INDEX for entry in entries]
        parts.operands[dynamic] = [entry for entry in entries if not isinstance(entry, int)]
        parts.properties[static] = DenseArrayBase.from_list(i64, numbers)

    def print_(printer: Printer, op: Operation) -> None:
        numbers: DenseArrayBase[Any] | None = getattr(op, static)
        # `source = []` (from anyone in a group of one) is not the same as no source.
        if numbers is None or (optional and not numbers.get_values() and static != "source"):
            return
        # A list that lacks a value is the verifier's to report; printing it must not fail.
        rest = iter(getattr(op, dynamic))
        entries = [next(rest, None) if number == DYNAMIC_INDEX else int(number) for number in numbers.get_values()]
        printer.print_string(f" {name} = ")
        with printer.in_square_brackets():
            printer.print_list(entries, lambda entry: _print_entry(printer, entry))

    return Clause(parse, print_)


def _read_entry(parser: Parser) -> int | UnresolvedOperand:
    value = parser.parse_optional_unresolved_operand()
    if value is not None:
        return value
    start = parser.pos
    number = read_int(parser)
    if number == DYNAMIC_INDEX:
        parser.raise_error("the int stands for a value, which is written in its place", start, parser.pos)
    return number


def _print_entry(printer: Printer, entry: int | SSAValue | None) -> None:
    if isinstance(entry, SSAValue):
        printer.print_ssa_value(entry)
    else:
        printer.print_string("?" if entry is None else str(entry))
