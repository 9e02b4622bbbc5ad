"""Specs: the axes per tensor dim, as `P(...)` or as `DimSpec` lists with hints for propagation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from shardwise.caches import cache
from shardwise.errors import (
    ArgumentError,
    BindingError,
    ConversionError,
    LayoutError,
    as_tuple,
    check_int,
    is_sequence_of,
    seal,
)
from shardwise.layout.axis import check_disjoint
from shardwise.layout.context import current_mesh
from shardwise.layout.layout import Layout, check_rank
from shardwise.layout.mesh import DeviceMesh
from shardwise.layout.placement import ReduceOp

SpecEntry = str | tuple[str, ...] | None
Unreduced = Iterable[str | tuple[str, ReduceOp | str]] | Mapping[str, ReduceOp | str]


PLAIN = frozenset((str, type(None)))  # kinds of entries that need no check


@seal
@dataclass(frozen=True, slots=True, init=False, repr=False)
class P:
    """The short form of a spec: per tensor dim None, an axis, or several axes major to minor.

    Dims beyond the last entry are whole. `unreduced` names axes whose sum is pending, or maps them to
    another reduction.

    >>> P("dp", None, ("tp", "pp"))
    P('dp', None, ('tp', 'pp'))
    >>> P("dp", unreduced={"tp": "max"}).to_layout(2, DeviceMesh((2, 4), ("dp", "tp")))
    Layout(mesh(dp=2, tp=4), ['dp', None], partial=['tp'], reduce_op='max')
    >>> P.from_layout(Layout(DeviceMesh((2, 4), ("dp", "tp")), [None, "tp"]))
    P(None, 'tp')
    """

    entries: tuple[SpecEntry, ...]
    unreduced: tuple[tuple[str, ReduceOp], ...]

    def __init__(self, *entries: SpecEntry | Sequence[str], unreduced: Unreduced = ()) -> None:
        """Make a spec from one entry per dim."""
        plain = PLAIN.issuperset(map(type, entries))  # as most are
        object.__setattr__(self, "entries", entries if plain else tuple(map(check_entry, entries)))
        object.__setattr__(self, "unreduced", tuple(reductions(unreduced).items()) if unreduced != () else ())

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self):
        return iter(self.entries)

    def __getitem__(self, dim: int) -> SpecEntry:
        return self.entries[dim]

    def __repr__(self) -> str:
        parts = list(map(repr, self.entries))
        if self.unreduced:
            sums = all(op is ReduceOp.SUM for _, op in self.unreduced)
            names = tuple(axis for axis, _ in self.unreduced)
            parts.append(f"unreduced={names if sums else {a: op.value for a, op in self.unreduced}}")
        return f"P({', '.join(parts)})"

    def to_layout(self, rank: int, mesh: DeviceMesh | None = None) -> Layout:
        """Return the layout of a tensor of `rank` dims on a mesh (or that of the `mesh_context`)."""
        return _p_layout(self, rank if type(rank) is int else check_rank(rank), current_mesh(mesh))

    @classmethod
    def from_layout(cls, layout: Layout) -> P:
        """Return the spec that says the same, or raise a ConversionError."""
        entries = spec_entries(layout, "P")
        return cls(*entries, unreduced={str(a): layout.reduce_op or "sum" for a in layout.partial})


@cache(typed=True)
def _p_layout(spec: P, rank: int, mesh: DeviceMesh) -> Layout:
    return spec_layout(mesh, spec.entries, dict(spec.unreduced), rank, repr(spec))


@seal
@dataclass(frozen=True, slots=True)
class DimSpec:
    """The axes that split one dim; propagation may add more if it `is_open`, lower `priority` first.

    >>> DimSpec(["dp"])
    DimSpec(axes=('dp',), is_open=False, priority=0)
    """

    axes: Sequence[str] = ()
    is_open: bool = False
    priority: int = 0

    def __post_init__(self) -> None:
        entry = check_entry(self.axes)
        object.__setattr__(self, "axes", (entry,) if isinstance(entry, str) else tuple(entry or ()))
        if not isinstance(self.is_open, bool):
            raise ArgumentError(f"DimSpec.is_open is a bool, got {self.is_open!r}.")
        object.__setattr__(self, "priority", check_int(self.priority, "DimSpec.priority is an int"))
        if self.priority < 0:
            raise LayoutError(f"DimSpec.priority is 0 (first) or more, got {self.priority}.")


@seal
@dataclass(frozen=True, slots=True)
class ShardingSpec:
    """A layout request: one `DimSpec` per dim, and what propagation must leave replicated.

    `partial_axes` names axes whose sum is pending, or maps them to another reduction.

    >>> mesh = DeviceMesh((2, 4), ("dp", "tp"))
    >>> ShardingSpec(mesh, [DimSpec(["dp"]), DimSpec()]).to_layout()
    Layout(mesh(dp=2, tp=4), ['dp', None])
    >>> spec = ShardingSpec.from_layout(Layout(mesh, [None, "tp"]))
    >>> spec.dim_specs[1].axes, spec.to_mesh(DeviceMesh((2,), ("tp",))).to_layout()
    (('tp',), Layout(mesh(tp=2), [None, 'tp']))
    """

    mesh: DeviceMesh
    dim_specs: Sequence[DimSpec]
    replicated_axes: Iterable[str] = frozenset()
    partial_axes: Unreduced = ()

    def __post_init__(self) -> None:
        if self.mesh is None:
            object.__setattr__(self, "mesh", current_mesh())
        if not isinstance(self.mesh, DeviceMesh):
            raise ArgumentError(f"ShardingSpec needs a DeviceMesh, got {self.mesh!r}.")
        specs = as_tuple(self.dim_specs, "ShardingSpec needs a list with one DimSpec per dim")
        for spec in specs:
            if not isinstance(spec, DimSpec):
                raise ArgumentError(f"ShardingSpec needs one DimSpec per dim, got {spec!r}; write DimSpec([{spec!r}]).")
        names = [self.replicated_axes] if isinstance(self.replicated_axes, str) else self.replicated_axes
        names = frozenset(names) if isinstance(names, Iterable) else {names}
        if not all(isinstance(axis, str) for axis in names):
            raise ArgumentError(f"replicated_axes are names of mesh axes, got {self.replicated_axes!r}.")
        object.__setattr__(self, "dim_specs", specs)
        object.__setattr__(self, "replicated_axes", names)
        object.__setattr__(self, "partial_axes", tuple(reductions(self.partial_axes).items()))
        layout = self.to_layout()
        axes = [self.mesh.axis(a, "replicated_axes") for a in sorted(self.replicated_axes)]
        check_disjoint(
            [*layout.sharded_axes, *layout.partial, *axes],
            f"{layout} with replicated_axes={sorted(self.replicated_axes)}",
        )

    def to_layout(self, rank: int | None = None) -> Layout:
        """Return the layout that the spec asks for."""
        entries = tuple(tuple(spec.axes) for spec in self.dim_specs)
        text = f"ShardingSpec of {list(map(list, entries))}"
        return spec_layout(self.mesh, entries, reductions(self.partial_axes), rank, text)

    def to_mesh(self, mesh: DeviceMesh) -> ShardingSpec:
        """Return the same request on another mesh that has axes of the same names."""
        return ShardingSpec(mesh, self.dim_specs, self.replicated_axes, reductions(self.partial_axes))

    @classmethod
    def from_layout(cls, layout: Layout) -> ShardingSpec:
        """Return the spec that says the same, or raise a ConversionError."""
        dims = [DimSpec(entry or ()) for entry in spec_entries(layout, "ShardingSpec")]
        return cls(layout.mesh, dims, (), {str(a): layout.reduce_op or "sum" for a in layout.partial})


def check_entry(entry: Any) -> SpecEntry:
    """Return one entry of a spec as None, a name, or a tuple of two or more names."""
    if entry is None or isinstance(entry, str):
        return entry
    if not is_sequence_of(entry, str):
        raise ArgumentError(f"an entry of a spec is None, an axis name or a tuple of axis names, got {entry!r}.")
    return entry[0] if len(entry) == 1 else tuple(entry) or None


def reductions(unreduced: Unreduced) -> dict[str, ReduceOp]:
    """Return the pending reduction of each named axis, by name; axes named alone are summed."""
    if isinstance(unreduced, str):
        return {unreduced: ReduceOp.SUM}
    if not isinstance(unreduced, Iterable):
        raise ArgumentError(f"unreduced axes are a list of names, or a dict to reductions, got {unreduced!r}.")
    pairs = (
        cast("Mapping[str, ReduceOp | str]", unreduced).items()
        if isinstance(unreduced, Mapping)
        else [axis if isinstance(axis, tuple) and len(axis) == 2 else (axis, ReduceOp.SUM) for axis in unreduced]
    )
    for axis, _ in pairs:
        if not isinstance(axis, str):
            raise ArgumentError(f"an unreduced axis is given by its name, got {axis!r}.")
    return {axis: ReduceOp.of(op) for axis, op in sorted(pairs, key=lambda pair: pair[0])}


def spec_layout(
    mesh: DeviceMesh, entries: Sequence[SpecEntry], unreduced: Mapping[str, ReduceOp], rank: int | None, text: str
) -> Layout:
    """Return the layout of a spec; missing trailing entries mean whole dims."""
    rank = len(entries) if rank is None else check_rank(rank)
    if len(entries) > rank:
        raise BindingError(f"{text} has {len(entries)} entries, the tensor has {rank} dims.")
    for entry in entries:
        for axis in (entry,) if isinstance(entry, str) else entry or ():
            mesh.axis(axis, text)
    for axis in unreduced:
        mesh.axis(axis, text)
    return Layout(mesh, [*entries, *[None] * (rank - len(entries))], unreduced)


def spec_entries(layout: Layout, target: str) -> list[SpecEntry]:
    """Return the axes per dim; cuts that names alone cannot say raise a ConversionError."""
    if not isinstance(layout, Layout):
        raise ArgumentError(f"{target}.from_layout takes a Layout, got {layout!r}.")
    for dim, cut in enumerate(layout.dims):
        if not cut.is_plain:
            raise ConversionError(
                f"dim {dim} is cut with {cut.details.lstrip(', ')}, "
                f"which a {target} cannot say: it has axis names only.\n"
                "  keep the Layout, or use placements such as Sharded(0, split='chunk')."
            )
    return [check_entry(tuple(map(str, cut.axes))) for cut in layout.dims]
