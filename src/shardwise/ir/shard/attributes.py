"""Attributes and types of the dialect, and how plain Python values become them."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeGuard

from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    I16,
    ArrayAttr,
    DenseArrayBase,
    IndexType,
    IntegerAttr,
    IntegerType,
    StringAttr,
    SymbolRefAttr,
    UnitAttr,
    i16,
    i64,
)
from xdsl.dialects.shard import ReductionKind, ShardAxesArrayAttr, ShardingType
from xdsl.ir import Attribute, Data, Operation, SSAValue
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer

from shardwise.errors import ArgumentError, as_int, as_tuple, did_you_mean

__all__ = [
    "DYNAMIC_INDEX",
    "GridAxes",
    "ReductionKind",
    "ReductionKindAttr",
    "ShardAxesArrayAttr",
    "ShardingType",
]

GridAxes: TypeAlias = DenseArrayBase[I16]
"""A list of grid axes, `array<i16: 0, 1>`."""


@irdl_attr_definition
class ReductionKindAttr(Data[ReductionKind]):
    """How values are combined, `#shard.partial<max>`.

    >>> ReductionKindAttr(ReductionKind.MAX).data.value
    'max'
    """

    name = "shard.partial"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> ReductionKind:
        """Read `<max>`."""
        with parser.in_angle_brackets():
            return parser.parse_str_enum(ReductionKind)

    def print_parameter(self, printer: Printer) -> None:
        """Print `<max>`."""
        with printer.in_angle_brackets():
            printer.print_string(str(self.data))


GridLike: TypeAlias = str | StringAttr | SymbolRefAttr
AxesLike: TypeAlias = Sequence[int] | DenseArrayBase[Any]
AxisListsLike: TypeAlias = Sequence[Sequence[int]] | ShardAxesArrayAttr
IntLike: TypeAlias = int | IntegerAttr[Any]
IntsLike: TypeAlias = Sequence[int] | DenseArrayBase[Any]
ValueLike: TypeAlias = SSAValue | Operation
ReductionLike: TypeAlias = str | ReductionKind | ReductionKindAttr


def grid_attribute(grid: GridLike) -> SymbolRefAttr:
    """Return the reference to a grid from its name.

    >>> grid_attribute("@g") == grid_attribute("g")
    True
    """
    if isinstance(grid, SymbolRefAttr):
        return grid
    if isinstance(grid, StringAttr):
        return SymbolRefAttr(grid)
    if not isinstance(grid, str) or not grid.removeprefix("@"):
        raise ArgumentError(f"grid is the name of a shard.grid, such as 'grid0', got {grid!r}.")
    return SymbolRefAttr(grid.removeprefix("@"))


def _ints(values: object, what: str, bits: int) -> list[int]:
    entries = [as_int(value) for value in as_tuple(values, f"{what} is a list of ints")]
    numbers = [number for number in entries if number is not None]
    if len(numbers) != len(entries):
        raise ArgumentError(f"{what} is a list of ints, got {values!r}.")
    for number in numbers:
        if not -(1 << bits - 1) <= number < 1 << bits - 1:
            raise ArgumentError(f"{what} holds ints of {bits} bits, got {number}.")
    return numbers


def axes_attribute(axes: AxesLike | None, what: str = "grid_axes") -> DenseArrayBase[Any]:
    """Return a list of grid axes as an attribute; None is the empty list.

    >>> axes_attribute([1, 0]).get_values()
    (1, 0)
    """
    if isinstance(axes, DenseArrayBase):
        return axes
    return DenseArrayBase.from_list(i16, _ints(axes if axes is not None else (), what, 16))


def is_axes(attribute: Attribute | None) -> TypeGuard[GridAxes]:
    """Whether an attribute is a list of grid axes."""
    return isinstance(attribute, DenseArrayBase)


def axis_lists_attribute(axes: AxisListsLike) -> ShardAxesArrayAttr:
    """Return the grid axes per dim as an attribute.

    >>> [dim.get_values() for dim in axis_lists_attribute([[0], []]).axes]
    [(0,), ()]
    """
    if isinstance(axes, ShardAxesArrayAttr):
        return axes
    lists = [axes_attribute(dim, "split_axes") for dim in as_tuple(axes, "split_axes is a list of lists of grid axes")]
    return ShardAxesArrayAttr(ArrayAttr(lists))


def split_dims(axes: ShardAxesArrayAttr) -> tuple[tuple[int, ...], ...]:
    """Return the grid axes of each dim.

    >>> split_dims(axis_lists_attribute([[0], []]))
    ((0,), ())
    """
    return tuple(tuple(int(axis) for axis in dim.get_values()) for dim in axes.axes)


def ints_attribute(values: IntsLike | None, what: str) -> DenseArrayBase[Any]:
    """Return 64-bit ints as an attribute; None is the empty list, DYNAMIC_INDEX stands for a value.

    >>> ints_attribute([0, 2], "root").get_values()
    (0, 2)
    """
    if isinstance(values, DenseArrayBase):
        return values
    return DenseArrayBase.from_list(i64, _ints(values if values is not None else (), what, 64))


def int_attribute(value: IntLike, what: str, kind: IntegerType | IndexType) -> IntegerAttr[Any]:
    """Return one int as an attribute of the type `kind`.

    >>> int_attribute(1, "gather_axis", IndexType()).value.data
    1
    """
    if isinstance(value, IntegerAttr):
        return value
    number = as_int(value)
    if number is None:
        raise ArgumentError(f"{what} is an int, got {value!r}.")
    return IntegerAttr(_ints([number], what, 64)[0], kind)


def reduction_attribute(reduction: ReductionLike | None) -> ReductionKindAttr:
    """Return a reduction as an attribute; None is the sum.

    >>> reduction_attribute("max").data.value, reduction_attribute(None).data.value
    ('max', 'sum')
    """
    if isinstance(reduction, ReductionKindAttr):
        return reduction
    names = [str(kind) for kind in ReductionKind]
    if reduction is None:
        return ReductionKindAttr(ReductionKind.SUM)
    if reduction not in names:
        raise ArgumentError(
            f"unknown reduction {reduction!r}.\n  reductions: {', '.join(names)}{did_you_mean(reduction, names)}"
        )
    return ReductionKindAttr(ReductionKind(reduction))


# How a plain value becomes the property of each name.
PROPERTIES: dict[str, Callable[[Any, str], Attribute | None]] = {
    "grid": lambda plain, name: grid_attribute(plain),
    **dict.fromkeys(("grid_axes", "axes", "split_axes"), axes_attribute),
    **dict.fromkeys(
        ("gather_axis", "slice_axis", "split_axis", "concat_axis", "scatter_axis", "shift_axis"),
        lambda plain, name: int_attribute(plain, name, IndexType()),
    ),
    "offset": lambda plain, name: int_attribute(plain, name, i64),
    **dict.fromkeys(
        ("shape", "root", "destination", "dims", "device", "static_halo_sizes", "static_sharded_dims_offsets"),
        ints_attribute,
    ),
    "source": lambda plain, name: None if plain is None else ints_attribute(plain, name),
    "reduction": lambda plain, name: reduction_attribute(plain),
    **dict.fromkeys(("rotate", "annotate_for_users"), lambda plain, name: UnitAttr() if plain else None),
}


def property_attribute(name: str, plain: Any) -> Attribute | None:
    """Return the property of that name from a plain value; an attribute is one already, but a grid may be a string.

    >>> property_attribute("gather_axis", 1).value.data
    1
    """
    is_attribute = isinstance(plain, Attribute) and name != "grid"
    return plain if is_attribute else PROPERTIES[name](plain, name)


def values(operands: Sequence[ValueLike] | None, what: str) -> list[SSAValue]:
    """Return the values among operands given as values or as ops with one result; None is none."""
    if operands is None:
        return []
    return [SSAValue.get(value) for value in as_tuple(operands, f"{what} is a list of values")]
