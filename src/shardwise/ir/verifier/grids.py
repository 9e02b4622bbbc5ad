"""Grids: the ones a module has, and what ops ask about them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from xdsl.dialects.builtin import DYNAMIC_INDEX, DenseArrayBase, ModuleOp, StringAttr
from xdsl.ir import Operation

from shardwise.errors import did_you_mean, seal
from shardwise.ir.shard import (
    GridOp,
    GridShapeOp,
    NeighborsLinearIndicesOp,
    ProcessLinearIndexOp,
    ProcessMultiIndexOp,
    ShardOperation,
)
from shardwise.ir.verifier.complaint import Check, Complaints, Sizes, count_text, sizes_text

VISIBILITIES = ("public", "private", "nested")


@seal
@dataclass(frozen=True, slots=True)
class Grid:
    """The name and the sizes of a grid, None where a size is not known.

    >>> str(Grid("g", (2, None)))
    '@g (2x?)'
    """

    name: str
    shape: Sizes

    @staticmethod
    def of(op: GridOp) -> "Grid":
        """Return the grid that an op declares."""
        # Written in the generic form, an op may have attributes of any kind.
        name, shape = op.properties.get("sym_name"), op.properties.get("shape")
        sizes: Sequence[Any] = shape.get_values() if isinstance(shape, DenseArrayBase) else ()
        known = tuple(None if size == DYNAMIC_INDEX else int(size) for size in sizes)
        return Grid(name.data if isinstance(name, StringAttr) else "?", known)

    def size(self, axes: Sequence[int]) -> int | None:
        """Return how many devices differ along the axes, None where it is not known."""
        sizes = [self.shape[axis] for axis in axes]
        return None if None in sizes else prod(size for size in sizes if size is not None)

    def __str__(self) -> str:
        return f"@{self.name} ({sizes_text(self.shape)})"


@dataclass(slots=True)
class Symbols:
    """The named ops of each module, looked up once."""

    tables: dict[Operation, dict[str, Operation]] = field(default_factory=dict[Operation, dict[str, Operation]])

    def table(self, op: Operation) -> dict[str, Operation]:
        """Return the names that an op can refer to: those of the module around it."""
        module: Operation | None = op.parent_op()
        while module is not None and not isinstance(module, ModuleOp):
            module = module.parent_op()
        if not isinstance(module, ModuleOp):
            return {}
        return self._names(module)

    def _names(self, module: ModuleOp) -> dict[str, Operation]:
        if module not in self.tables:
            # The first op with a name has it; a second one is complained about.
            named = [(_name(child), child) for child in _children(module)]
            self.tables[module] = {name: child for name, child in reversed(named) if name is not None}
        return self.tables[module]

    def has_twins(self, op: Operation) -> bool:
        """Return whether two ops of a module have one name."""
        if not isinstance(op, ModuleOp):
            return False
        return sum(_name(child) is not None for child in _children(op)) > len(self._names(op))

    def grid(self, op: Operation, name: str | None) -> Grid | None:
        """Return the grid of that name, if there is one."""
        named = None if name is None else self.table(op).get(name)
        return Grid.of(named) if isinstance(named, GridOp) else None

    def unknown(self, op: Operation, name: str) -> str:
        """Return what to say of a name that is no grid's."""
        table = self.table(op)
        if name in table:
            return f"@{name} is a {table[name].name}, not a grid."
        grids = [known for known, child in table.items() if isinstance(child, GridOp)]
        listed = f"grids: {', '.join(f'@{known}' for known in grids[::-1])}" if grids else "the module has no grids."
        return f"unknown grid @{name}.\n  {listed}{did_you_mean(name, grids)}"

    def complaints(self, op: Operation) -> Complaints:
        """Complain about a name that another op has already, and about one that nobody knows whom to show to."""
        seen = op.properties.get("sym_visibility")
        if seen is not None and (not isinstance(seen, StringAttr) or seen.data not in VISIBILITIES):
            yield f"sym_visibility is one of {', '.join(VISIBILITIES)}, got {seen}."
        name = _name(op)
        if name is None or not isinstance(op.parent_op(), ModuleOp):
            return
        if (first := self.table(op).get(name)) is not op and first is not None:
            yield f"the name @{name} is taken by the {first.name} before it."


def _children(module: ModuleOp) -> list[Operation]:
    # Written in the generic form, a module may have regions and blocks of any number.
    return [op for region in module.regions for block in region.blocks for op in block.ops]


def _name(op: Operation) -> str | None:
    name = op.properties.get("sym_name")
    return name.data if isinstance(name, StringAttr) else None


def axes_complaints(axes: Sequence[int], grid: Grid, what: str) -> Complaints:
    """Complain about axes that the grid does not have or that are named twice."""
    rank = len(grid.shape)
    for axis in sorted({axis for axis in axes if not 0 <= axis < rank}):
        yield f"{what} {list(axes)} names axis {axis}, but the grid has {count_text(rank, 'axis')}, 0 to {rank - 1}."
    for axis in sorted({axis for axis in axes if axes.count(axis) > 1 and 0 <= axis < rank}):
        yield f"{what} {list(axes)} names axis {axis} twice."


def index_complaints(indices: Sizes, axes: Sequence[int], grid: Grid, what: str, of: str = "grid") -> Complaints:
    """Complain about an index that does not have one position for each axis, or has some outside of the grid."""
    if len(indices) != len(axes):
        yield f"{what} has {count_text(len(indices), 'index')}, but the {of} has {count_text(len(axes), 'axis')}."
        return
    for axis, index in zip(axes, indices, strict=True):
        size = grid.shape[axis]
        if index is not None and (index < 0 or (size is not None and index >= size)):
            known = "" if size is None else f", which has {count_text(size, 'device')}"
            yield f"{what} index {index} is outside of axis {axis}{known}."


def _grid(op: GridOp, _: Any) -> Complaints:
    grid = Grid.of(op)
    if not grid.shape:
        yield "a grid has at least one axis."
    for axis, size in enumerate(grid.shape):
        if size is not None and size < 1:
            yield f"size {size} of axis {axis}: a grid has at least one device along each axis."


def _own_axes(op: GridShapeOp | ProcessMultiIndexOp, grid: Grid) -> Complaints:
    yield from axes_complaints(op.axes.get_values(), grid, "axes")


def _result_count(op: GridShapeOp | ProcessMultiIndexOp, grid: Grid) -> Complaints:
    axes = op.axes.get_values() or range(len(grid.shape))
    if len(op.results) != len(axes):
        yield f"{count_text(len(axes), 'axis')} give as many results, got {len(op.results)}."


def _split_axes(op: NeighborsLinearIndicesOp, grid: Grid) -> Complaints:
    yield from axes_complaints(op.split_axes.get_values(), grid, "split_axes")
    if not op.split_axes.get_values():
        yield "split_axes is empty, but neighbours lie along at least one axis."


def _device(op: NeighborsLinearIndicesOp, grid: Grid) -> Complaints:
    yield from index_complaints((None,) * len(op.device), range(len(grid.shape)), grid, "device")


GRIDS: dict[type[ShardOperation], tuple[Check, ...]] = {
    GridOp: (_grid,),
    GridShapeOp: (_own_axes, _result_count),
    ProcessMultiIndexOp: (_own_axes, _result_count),
    ProcessLinearIndexOp: (),
    NeighborsLinearIndicesOp: (_split_axes, _device),
}
