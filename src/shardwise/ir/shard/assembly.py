"""The text of an op as a row of clauses, each of which reads and prints one part of it.

A clause has one spelling per vocabulary: `grid_axes` in the `shard` dialect is `mesh_axes` in LLVM 19's `mesh`.
All spellings are read; the printer's `spelling` says which one is printed.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

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
class Found:
    """What the clauses of one op have read so far."""

    operands: dict[str, list[UnresolvedOperand]] = field(default_factory=dict)
    values: dict[str, list[SSAValue]] = field(default_factory=dict)
    properties: dict[str, Attribute] = field(default_factory=dict)
    attributes: dict[str, Attribute] = field(default_factory=dict)


class Clause(Protocol):
    """One part of an op's text."""

    def parse(self, parser: Parser, found: Found) -> None:
        """Read the part into `found`."""
        ...

    def print(self, printer: Printer, op: Operation) -> None:
        """Print the part with a leading space, or nothing."""
        ...


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


@seal
@dataclass(frozen=True, slots=True)
class OperandClause:
    """A value: `%t`, `to %s` or `sharding = %s`."""

    name: str
    before: str = ""

    def parse(self, parser: Parser, found: Found) -> None:
        """Read the value and the words before it."""
        for word in self.before.split():
            parser.parse_characters(word) if word == "=" else parser.parse_keyword(word)
        found.operands[self.name] = [parser.parse_unresolved_operand()]

    def print(self, printer: Printer, op: Operation) -> None:
        """Print the value and the words before it."""
        printer.print_string(f" {self.before} " if self.before else " ")
        printer.print_ssa_value(getattr(op, self.name))


@seal
@dataclass(frozen=True, slots=True)
class OperandsClause:
    """Values in brackets: `[%i, %j]`."""

    name: str

    def parse(self, parser: Parser, found: Found) -> None:
        """Read the values."""
        found.operands[self.name] = parser.parse_comma_separated_list(
            parser.Delimiter.SQUARE, parser.parse_unresolved_operand
        )

    def print(self, printer: Printer, op: Operation) -> None:
        """Print the values."""
        with printer.in_square_brackets():
            printer.print_list(getattr(op, self.name), printer.print_ssa_value)


@seal
@dataclass(frozen=True, slots=True)
class GridClause:
    """The grid: `on @g`, or `@g` alone."""

    before: str = "on"

    def parse(self, parser: Parser, found: Found) -> None:
        """Read the grid's name."""
        if self.before:
            parser.parse_keyword(self.before)
        found.properties["grid"] = SymbolRefAttr(parser.parse_symbol_name())

    def print(self, printer: Printer, op: Operation) -> None:
        """Print the grid's name."""
        printer.print_string(f" {self.before} " if self.before else " ")
        printer.print_attribute(op.properties["grid"])


@seal
@dataclass(frozen=True, slots=True)
class AxesClause:
    """Grid axes: `grid_axes = [0, 1]`, absent where there are none."""

    name: str
    mesh_name: str = ""
    optional: bool = True

    def parse(self, parser: Parser, found: Found) -> None:
        """Read the axes."""
        names = [self.name, self.mesh_name] if self.mesh_name else [self.name]
        if read_keyword(parser, names, self.optional):
            found.properties[self.name] = read_axes(parser)

    def print(self, printer: Printer, op: Operation) -> None:
        """Print the axes."""
        axes = getattr(op, self.name).get_values()
        if not axes and self.optional:
            return
        name = self.mesh_name if self.mesh_name and spelling(printer) == "mesh19" else self.name
        printer.print_string(f" {name} = ")
        print_ints(printer, axes)


@seal
@dataclass(frozen=True, slots=True)
class AxisListsClause:
    """Grid axes per dim: `split_axes = [[0], []]`."""

    name: str = "split_axes"

    def parse(self, parser: Parser, found: Found) -> None:
        """Read the lists."""
        read_keyword(parser, [self.name], optional=False)
        lists = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, lambda: read_axes(parser))
        found.properties[self.name] = ShardAxesArrayAttr(ArrayAttr(lists))

    def print(self, printer: Printer, op: Operation) -> None:
        """Print the lists."""
        lists: ShardAxesArrayAttr = getattr(op, self.name)
        printer.print_string(f" {self.name} = ")
        with printer.in_square_brackets():
            printer.print_list(lists.axes.data, lambda axes: print_ints(printer, axes.get_values()))


@seal
@dataclass(frozen=True, slots=True)
class IntClause:
    """One int: `gather_axis = 1`."""

    name: str
    kind: IntegerType | IndexType = field(default_factory=IndexType)
    also: tuple[str, ...] = ()

    def parse(self, parser: Parser, found: Found) -> None:
        """Read the int."""
        read_keyword(parser, [self.name, *self.also], optional=False)
        found.properties[self.name] = IntegerAttr(read_int(parser), self.kind)

    def print(self, printer: Printer, op: Operation) -> None:
        """Print the int."""
        printer.print_string(f" {self.name} = {getattr(op, self.name).value.data}")


@seal
@dataclass(frozen=True, slots=True)
class ReductionClause:
    """The reduction: `reduction = max`, absent for the sum; `<max>` is read too."""

    def parse(self, parser: Parser, found: Found) -> None:
        """Read the reduction."""
        if not read_keyword(parser, ["reduction"], optional=True):
            return
        bracketed = parser.parse_optional_punctuation("<") is not None
        found.properties["reduction"] = ReductionKindAttr(parser.parse_str_enum(ReductionKind))
        if bracketed:
            parser.parse_punctuation(">")

    def print(self, printer: Printer, op: Operation) -> None:
        """Print the reduction."""
        kind: ReductionKind = getattr(op, "reduction").data  # noqa: B009
        if kind is ReductionKind.SUM:
            return
        printer.print_string(" reduction = ")
        with printer.in_angle_brackets() if spelling(printer) == "mesh19" else nullcontext():
            printer.print_string(str(kind))


@seal
@dataclass(frozen=True, slots=True)
class PartialClause:
    """Partial axes, `partial = max [1]`, as LLVM 20 wrote them; kept and printed among the attributes."""

    def parse(self, parser: Parser, found: Found) -> None:
        """Read the reduction and the axes."""
        if read_keyword(parser, ["partial"], optional=True):
            found.attributes["partial_type"] = ReductionKindAttr(parser.parse_str_enum(ReductionKind))
            found.attributes["partial_axes"] = read_axes(parser)

    def print(self, printer: Printer, op: Operation) -> None:
        """Print nothing: newer tools have no such clause."""


@seal
@dataclass(frozen=True, slots=True)
class MixedClause:
    """Ints and values in one list: `root = [1, %i]`; an empty optional one is not printed."""

    name: str
    static: str
    dynamic: str
    optional: bool = False

    def parse(self, parser: Parser, found: Found) -> None:
        """Read the list into its static part and its values."""
        found.operands[self.dynamic] = []
        if not read_keyword(parser, [self.name], self.optional):
            return
        given = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, lambda: self._element(parser))
        static = [entry if isinstance(entry, int) else DYNAMIC_INDEX for entry in given]
        found.operands[self.dynamic] = [entry for entry in given if not isinstance(entry, int)]
        found.properties[self.static] = DenseArrayBase.from_list(i64, static)

    def _element(self, parser: Parser) -> int | UnresolvedOperand:
        value = parser.parse_optional_unresolved_operand()
        if value is not None:
            return value
        start = parser.pos
        number = read_int(parser)
        if number == DYNAMIC_INDEX:
            parser.raise_error("the int stands for a value, which is written in its place", start, parser.pos)
        return number

    def print(self, printer: Printer, op: Operation) -> None:
        """Print the list with the values in their places."""
        static: DenseArrayBase[Any] | None = getattr(op, self.static)
        if static is None or (self.optional and not static.get_values() and not self._keeps_empty(op)):
            return
        # A list that lacks a value is the verifier's to report; printing it must not fail.
        rest = iter(getattr(op, self.dynamic))
        entries: list[int | SSAValue | None] = [
            next(rest, None) if number == DYNAMIC_INDEX else int(number) for number in static.get_values()
        ]
        printer.print_string(f" {self.name} = ")
        with printer.in_square_brackets():
            printer.print_list(entries, lambda entry: _print_entry(printer, entry))

    def _keeps_empty(self, op: Operation) -> bool:
        # `source = []` (from anyone in a group of one) is not the same as no source.
        return self.static == "source"


def _print_entry(printer: Printer, entry: int | SSAValue | None) -> None:
    if isinstance(entry, SSAValue):
        printer.print_ssa_value(entry)
    else:
        printer.print_string("?" if entry is None else str(entry))


@seal
@dataclass(frozen=True, slots=True)
class FlagClause:
    """A word that is there or not: `rotate`."""

    name: str

    def parse(self, parser: Parser, found: Found) -> None:
        """Read the word."""
        if parser.parse_optional_keyword(self.name):
            found.properties[self.name] = UnitAttr()

    def print(self, printer: Printer, op: Operation) -> None:
        """Print the word."""
        if self.name in op.properties:
            printer.print_string(f" {self.name}")
