"""Generated modules: every op of the dialect in every form, valid by construction."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from hypothesis import strategies as st
from xdsl.builder import ImplicitBuilder
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    FunctionType,
    IndexType,
    ModuleOp,
    StringAttr,
    TensorType,
    f16,
    f32,
    f64,
    i8,
    i32,
    i64,
)
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Region, SSAValue

from shardwise.ir import print_module, shard

Draw = Any
ELEMENTS = (f16, f32, f64, i8, i32)
REDUCTIONS = [str(kind) for kind in shard.ReductionKind]


@dataclass
class Body:
    """What the ops of one function are drawn from."""

    draw: Draw
    grid: str
    sizes: tuple[int | None, ...]
    tensors: list[SSAValue]
    indices: list[SSAValue]
    numbers: list[SSAValue]

    def axes(self, least: int = 0) -> list[int]:
        chosen = st.lists(st.sampled_from(range(len(self.sizes))), unique=True, min_size=least)
        return self.draw(chosen)

    def size(self, axes: Sequence[int]) -> int | None:
        sizes = [self.sizes[axis] for axis in axes]
        return None if None in sizes else prod(s for s in sizes if s is not None)

    def tensor(self, minimum_rank: int = 0) -> SSAValue:
        return self.draw(st.sampled_from([t for t in self.tensors if len(shape(t)) >= minimum_rank]))

    def mixed(
        self, limits: Sequence[int | None], pool: list[SSAValue], low: int = 0
    ) -> tuple[list[int], list[SSAValue]]:
        """A list with an int below each limit, or a value in its place."""
        static, dynamic = [], []
        for limit in limits:
            if self.draw(st.booleans()):
                static.append(DYNAMIC_INDEX)
                dynamic.append(self.draw(st.sampled_from(pool)))
            else:
                static.append(self.draw(st.integers(0, 5 if limit is None else limit - 1)))
        return static, dynamic

    def split(self, rank: int) -> list[list[int]]:
        """Axes per dim, each axis used at most once."""
        order = self.draw(st.permutations(range(len(self.sizes))))
        owners = [self.draw(st.integers(-1, rank - 1)) for _ in order]
        dims = [[axis for axis, owner in zip(order, owners, strict=True) if owner == dim] for dim in range(rank)]
        return dims[: self.draw(st.integers(1, rank))] if rank else [[]]


def shape(value: SSAValue) -> tuple[int | None, ...]:
    assert isinstance(value.type, TensorType)
    return tuple(None if size == DYNAMIC_INDEX else size for size in value.type.get_shape())


def element(value: SSAValue) -> Attribute:
    assert isinstance(value.type, TensorType)
    return value.type.element_type


def kind_of(sizes: Sequence[int | None], of: Attribute) -> TensorType[Any]:
    return TensorType(of, [DYNAMIC_INDEX if size is None else size for size in sizes])


def resized(body: Body, value: SSAValue, sizes: dict[int, int | None], of: Attribute | None = None) -> TensorType[Any]:
    """The type with some dims changed, and perhaps some more of them not known."""
    new = [sizes.get(dim, size) for dim, size in enumerate(shape(value))]
    hidden = [None if body.draw(st.integers(0, 5)) == 0 else size for size in new]
    return kind_of(hidden, element(value) if of is None else of)


def times(size: int | None, count: int | None) -> int | None:
    return None if size is None or count is None else size * count


def sharable(body: Body, count: int | None) -> list[tuple[SSAValue, int]]:
    """The tensors and dims that a group can share evenly."""
    return [
        (t, dim)
        for t in body.tensors
        for dim, size in enumerate(shape(t))
        if size is None or count is None or size % count == 0
    ]


def cut(body: Body) -> tuple[list[int], SSAValue, int, int | None] | None:
    axes = body.axes()
    count = body.size(axes)
    if not (options := sharable(body, count)):
        return None
    value, dim = body.draw(st.sampled_from(options))
    size = shape(value)[dim]
    return axes, value, dim, None if size is None or count is None else size // count


def all_gather(body: Body) -> None:
    value, axes = body.tensor(1), body.axes()
    dim = body.draw(st.integers(0, len(shape(value)) - 1))
    result = resized(body, value, {dim: times(shape(value)[dim], body.size(axes))})
    shard.all_gather(result, body.grid, value, dim, grid_axes=axes)


def gather(body: Body) -> None:
    value, axes = body.tensor(1), body.axes()
    dim = body.draw(st.integers(0, len(shape(value)) - 1))
    result = resized(body, value, {dim: times(shape(value)[dim], body.size(axes))})
    root, dynamic = body.mixed([body.sizes[axis] for axis in axes], body.indices)
    shard.gather(result, body.grid, value, dim, root, dynamic, grid_axes=axes)


def all_reduce(body: Body) -> None:
    value = body.tensor()
    result = kind_of(shape(value), body.draw(st.sampled_from(ELEMENTS)))
    reduction = body.draw(st.sampled_from(REDUCTIONS))
    shard.all_reduce(result, body.grid, value, grid_axes=body.axes(), reduction=reduction)


def reduce(body: Body) -> None:
    value, axes = body.tensor(), body.axes()
    result = kind_of(shape(value), body.draw(st.sampled_from(ELEMENTS)))
    root, dynamic = body.mixed([body.sizes[axis] for axis in axes], body.indices)
    reduction = body.draw(st.sampled_from(REDUCTIONS))
    shard.reduce(result, body.grid, value, root, dynamic, grid_axes=axes, reduction=reduction)


def broadcast(body: Body) -> None:
    value, axes = body.tensor(), body.axes()
    root, dynamic = body.mixed([body.sizes[axis] for axis in axes], body.indices)
    shard.broadcast(value.type, body.grid, value, root, dynamic, grid_axes=axes)


def send(body: Body) -> None:
    value, axes = body.tensor(1), body.axes()
    to, dynamic = body.mixed([body.sizes[axis] for axis in axes], body.indices)
    shard.send(value.type, body.grid, value, to, dynamic, grid_axes=axes)


def recv(body: Body) -> None:
    value, axes = body.tensor(1), body.axes(1)
    source, dynamic = body.mixed([body.sizes[axis] for axis in axes], body.indices)
    if body.draw(st.booleans()):
        shard.recv(value.type, body.grid, value, None, grid_axes=axes)
    else:
        shard.recv(value.type, body.grid, value, dynamic, grid_axes=axes, source=source)


def shift(body: Body) -> None:
    value, axes = body.tensor(1), body.axes(1)
    axis, offset = body.draw(st.sampled_from(axes)), body.draw(st.integers(-5, 5))
    shard.shift(value.type, body.grid, value, axis, offset, grid_axes=axes, rotate=body.draw(st.booleans()))


def all_slice(body: Body) -> None:
    if (found := cut(body)) is not None:
        axes, value, dim, size = found
        shard.all_slice(resized(body, value, {dim: size}), body.grid, value, dim, grid_axes=axes)


def reduce_scatter(body: Body) -> None:
    if (found := cut(body)) is not None:
        axes, value, dim, size = found
        result = resized(body, value, {dim: size}, body.draw(st.sampled_from(ELEMENTS)))
        reduction = body.draw(st.sampled_from(REDUCTIONS))
        shard.reduce_scatter(result, body.grid, value, dim, grid_axes=axes, reduction=reduction)


def scatter(body: Body) -> None:
    if (found := cut(body)) is not None:
        axes, value, dim, size = found
        root, dynamic = body.mixed([body.sizes[axis] for axis in axes], body.indices)
        shard.scatter(resized(body, value, {dim: size}), body.grid, value, dim, root, dynamic, grid_axes=axes)


def all_to_all(body: Body) -> None:
    if (found := cut(body)) is not None:
        axes, value, dim, size = found
        joined = body.draw(st.integers(0, len(shape(value)) - 1))
        sizes = {dim: size, joined: times(shape(value)[joined], body.size(axes))}
        if joined == dim:
            sizes = {dim: shape(value)[dim]}
        shard.all_to_all(resized(body, value, sizes), body.grid, value, dim, joined, grid_axes=axes)


def grid_shape(body: Body) -> None:
    axes = body.axes()
    shard.grid_shape([IndexType()] * (len(axes) or len(body.sizes)), body.grid, axes=axes)


def process_multi_index(body: Body) -> None:
    axes = body.axes()
    shard.process_multi_index([IndexType()] * (len(axes) or len(body.sizes)), body.grid, axes=axes)


def process_linear_index(body: Body) -> None:
    shard.process_linear_index(body.grid)


def shard_plain(body: Body) -> None:
    value = body.tensor(1)
    sharding = shard.sharding(body.grid, body.split(len(shape(value))), None, None)
    # A copy for each annotation: two of one value may contradict each other.
    value = shard.all_reduce(value.type, body.grid, value)
    shard.shard(value, sharding, annotate_for_users=body.draw(st.booleans()))


def shard_extended(body: Body) -> None:
    value = body.tensor(1)
    split = body.split(len(shape(value)))
    dims = [axes for axes in split if axes]
    halos, offsets, dynamic_halos, dynamic_offsets = [], [], [], []
    if body.draw(st.booleans()):
        halos, dynamic_halos = body.mixed([3] * 2 * len(dims), body.numbers)
    elif None not in body.sizes:
        for dim, axes in enumerate(split):
            row, rest = offsets_of(body, shape(value)[dim], body.size(axes) or 1) if axes else ([], [])
            offsets += row
            dynamic_offsets += rest
    sharding = shard.sharding(
        body.grid, split, dynamic_offsets, dynamic_halos, static_sharded_dims_offsets=offsets, static_halo_sizes=halos
    )
    value = shard.all_reduce(value.type, body.grid, value)
    annotated = shard.shard(value, sharding, annotate_for_users=body.draw(st.booleans()))
    shard.get_sharding(annotated)
    sizes, dynamic = body.mixed([None if size is None else size + 1 for size in shape(value)], body.indices)
    if offsets:
        sizes, dynamic = [DYNAMIC_INDEX] * len(sizes), [body.indices[0]] * len(sizes)
    device, rest = body.mixed(body.sizes, body.indices)
    shard.shard_shape([IndexType()] * len(sizes), sizes, dynamic, sharding, device, rest)


def offsets_of(body: Body, size: int | None, count: int) -> tuple[list[int], list[SSAValue]]:
    inner = sorted(body.draw(st.integers(0, 9 if size is None else size)) for _ in range(count - 1))
    row = [0, *inner, 9 if size is None else size]
    hidden = [body.draw(st.integers(0, 3)) == 0 for _ in row]
    dynamic = [body.draw(st.sampled_from(body.numbers)) for hide in hidden if hide]
    return [DYNAMIC_INDEX if hide else offset for hide, offset in zip(hidden, row, strict=True)], dynamic


def neighbors(body: Body) -> None:
    device = [body.draw(st.sampled_from(body.indices)) for _ in body.sizes]
    shard.neighbors_linear_indices(body.grid, device, body.axes(1))


def update_halo(body: Body) -> None:
    value = body.tensor(1)
    split = body.split(len(shape(value)))
    limits = [1 if size is None else size // 2 + 1 for size, axes in zip(shape(value), split, strict=False) if axes]
    static, dynamic = body.mixed([limit for limit in limits for _ in range(2)], body.numbers)
    if body.draw(st.booleans()):
        static, dynamic = [], []
    shard.update_halo(value.type, value, body.grid, split, dynamic, static_halo_sizes=static)


OLD = [
    all_gather,
    all_reduce,
    all_slice,
    all_to_all,
    broadcast,
    gather,
    grid_shape,
    process_linear_index,
    process_multi_index,
    recv,
    reduce,
    reduce_scatter,
    scatter,
    send,
    shard_plain,
    shift,
]
"""Makers of ops that LLVM 19 has too."""

NEW = [shard_extended, neighbors, update_halo]
"""Makers of ops that it lacks."""


class Case:
    """A module that shows itself as text; xDSL's own repr of one has megabytes."""

    def __init__(self, module: ModuleOp) -> None:
        self.module = module

    def __repr__(self) -> str:
        return print_module(self.module)


@st.composite
def modules(draw: Draw, makers: Sequence[Any] = (*OLD, *NEW), ops: int = 6) -> Case:
    """A module with a grid and a function of several ops."""
    sizes = tuple(draw(st.lists(st.one_of(st.integers(1, 4), st.none()), min_size=1, max_size=3)))
    shapes = draw(st.lists(st.lists(st.one_of(st.integers(0, 12), st.none()), max_size=3), min_size=1, max_size=2))
    kinds = [kind_of(sizes, draw(st.sampled_from(ELEMENTS))) for sizes in [[8, 12], *shapes]]
    arguments: list[Attribute] = [*kinds, IndexType(), IndexType(), i64, i64]
    block = Block(arg_types=arguments)
    values: list[SSAValue] = [*block.args]
    count = len(kinds)
    grid = shard.grid("g", [DYNAMIC_INDEX if size is None else size for size in sizes])
    if draw(st.booleans()):
        grid.sym_visibility = StringAttr("private")
    body = Body(draw, "g", sizes, values[:count], values[count : count + 2], values[count + 2 :])
    with ImplicitBuilder(block):
        for make in draw(st.lists(st.sampled_from(makers), min_size=1, max_size=ops)):
            make(body)
        ReturnOp()
    return Case(ModuleOp([grid, FuncOp("f", FunctionType.from_lists(arguments, []), Region(block))]))
