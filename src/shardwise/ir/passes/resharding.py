"""Resharding: the steps of a plan as ops of one device. A step that is a collective of the dialect becomes that op."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import prod

from xdsl.dialects.builtin import DYNAMIC_INDEX, TensorType, f32
from xdsl.ir import SSAValue

from shardwise.errors import ProgramError, seal
from shardwise.ir.module.reductions import BY_OP
from shardwise.ir.module.values import dtype_of
from shardwise.ir.passes.chains import Chain, find_chain
from shardwise.ir.passes.layouts import local_sizes, local_type, numbers
from shardwise.ir.passes.permutes import is_one_message, permute_shard
from shardwise.ir.passes.rounds import has_more_rounds, is_rounded, rounds, truncate
from shardwise.ir.passes.swaps import swap_axes
from shardwise.ir.passes.writer import Number, Writer
from shardwise.ir.reshapes import collapse, expand
from shardwise.ir.shard import AllGatherOp, AllReduceOp, AllSliceOp, AllToAllOp, ReduceScatterOp, UpdateHaloOp
from shardwise.ir.types import element_type
from shardwise.layout.axis import Axis, is_disjoint, without
from shardwise.layout.cut import Cut
from shardwise.layout.layout import Layout, Shape
from shardwise.plan.kinds import Kind, remainder
from shardwise.plan.plan import Plan, plan_reshard
from shardwise.plan.steps import Step


@seal
@dataclass(frozen=True, slots=True)
class Resharding:
    """What a device holds after a change of layout, its plan (None if there is none), and the steps as written.

    These are the plan's own, but for exchanges that are chains of collectives: then they are those of the chain.
    """

    value: SSAValue
    plan: Plan | None = None
    steps: tuple[Step, ...] = ()


def reshard(w: Writer, x: SSAValue, src: Layout, dst: Layout, shape: Shape) -> Resharding:
    """Write what a device does to get from one layout to another."""
    if src is dst:
        return Resharding(x)
    if dst.partial and dst.partial != src.partial:
        raise ProgramError(
            f"a value is made in the layout {src}, but it is to be seen as {dst}: nothing makes values partial.\n"
            "  partial axes are those of a reduction over a sharded dim; leave them out elsewhere."
        )
    if src.mesh is not dst.mesh:
        return _between(w, x, src, dst, shape)
    plan = plan_reshard(src, dst, shape, dtype_of(x.type))
    if not shape and src.partial:  # one number is not sent in parts
        return Resharding(_sum_over(w, x, src, src.partial), plan, plan.steps)
    middle, steps = _middle(plan), list(plan.steps)
    if middle is not None:
        x = _gather(w, _scatter(w, x, src, middle, shape), middle, dst, shape)
    else:
        x, steps = _write_steps(w, x, plan)
    return Resharding(w.cast(x, local_type(dst, shape, element_type(x))), plan, tuple(steps))


def _write_steps(w: Writer, x: SSAValue, plan: Plan) -> tuple[SSAValue, list[Step]]:
    # What an exchange moves, collectives may move in fewer rounds.
    steps: list[Step] = []
    for step in plan.steps:
        chain = _chain(plan, step)
        if chain is None:
            steps.append(step)
            x = STEPS[step.kind](w, x, step, plan.shape)
        else:
            own = chain.steps(plan.dtype)
            steps += own
            x = _write_chain(w, x, chain, own)
    return x, steps


def _chain(plan: Plan, step: Step) -> Chain | None:
    if step.kind not in ("exchange", "permute") or is_one_message(step):
        return None
    chain = find_chain(step, plan.shape, plan.dtype)
    return chain if chain is not None and has_more_rounds(step, plan.shape, chain.rounds) else None


def _write_chain(w: Writer, x: SSAValue, chain: Chain, steps: Sequence[Step]) -> SSAValue:
    # Digits of one dim lie behind one another in a shard, so that it only is seen in another shape.
    several, stops = any(len(sizes) > 1 for sizes in chain.digits), accumulate(map(len, chain.digits))
    groups = [range(stop - len(sizes), stop) for sizes, stop in zip(chain.digits, stops, strict=True)]
    if several:
        x = expand(w.add, x, groups, w.sizes(chain.layouts[0], chain.shape))
    for step in steps:
        x = STEPS[step.kind](w, x, step, chain.shape)
    if not several:
        return x
    sizes = local_sizes(chain.layouts[-1], chain.shape)
    return collapse(
        w.add, x, groups, [sizes[group[0]] if len(group) == 1 else prod(sizes[k] for k in group) for group in groups]
    )


def _between(w: Writer, x: SSAValue, src: Layout, dst: Layout, shape: Shape) -> Resharding:
    # From one grid to another: whatever the axes say about each other, boxes are exchanged.
    if src.mesh.num_devices != dst.mesh.num_devices:
        raise ProgramError(
            f"a value goes from the grid @{src.mesh.name} of {src.mesh.num_devices} devices to the grid"
            f" @{dst.mesh.name} of {dst.mesh.num_devices}; all devices run one program.\n"
            "  use grids of equally many devices."
        )
    x = reshard(w, x, src, src.resolved(), shape).value
    plan = plan_reshard(src, dst, shape, dtype_of(x.type))
    search = replace(plan.search, src=src.resolved(), dst=dst, numbers=(tuple(range(src.mesh.num_devices)),) * 2)
    for step in search.direct(src.resolved(), dst):
        x = rounds(w, x, step, shape)
    return Resharding(w.cast(x, local_type(dst, shape, element_type(x))), plan, plan.steps)


def _layouts(step: Step) -> tuple[Layout, Layout] | None:
    if isinstance(step.before, Layout) and isinstance(step.after, Layout):
        return step.before, step.after
    return None


# -- local -----------------------------------------------------------------------------------------------


def slice_shard(w: Writer, x: SSAValue, src: Layout, dst: Layout, shape: Shape) -> SSAValue:
    """Return the part of a shard that a finer layout, or one with smaller halos, leaves to this device."""
    x, src = _pad(w, x, src, dst, shape)
    sizes = list(local_sizes(src, shape))
    starts: dict[int, Number] = {}
    for dim, (old, new) in enumerate(zip(src.dims, dst.dims, strict=True)):
        if old == new:
            continue
        more = remainder(new.axes, old.axes)
        plain = old.halo == new.halo == (0, 0) and more
        if plain and _is_even(src, shape, dim) and _is_even(dst, shape, dim):
            sizes[dim] = local_sizes(dst, shape)[dim]
            kind = TensorType(element_type(x), sizes)
            x = w.add(AllSliceOp(kind, src.mesh.name, x, dim, grid_axes=numbers(more or ())))
            continue
        starts[dim] = w.minus(w.start(dst, shape, dim), w.start(src, shape, dim))
        if old.axes == new.axes and old.offsets == new.offsets:  # halos are all that differs
            starts[dim] = old.halo[0] - new.halo[0]
    if not starts:
        return x
    return w.slice(x, [starts.get(dim, 0) for dim in range(len(shape))], w.sizes(dst, shape))


def _pad(w: Writer, x: SSAValue, src: Layout, dst: Layout, shape: Shape) -> tuple[SSAValue, Layout]:
    # Dims in one piece with what lies outside of the tensor, as far as the halos of the target reach.
    halos = [
        old.halo if old.axes else (max(old.halo[0], new.halo[0]), max(old.halo[1], new.halo[1]))
        for old, new in zip(src.dims, dst.dims, strict=True)
    ]
    if all(old.halo == halo for old, halo in zip(src.dims, halos, strict=True)):
        return x, src
    cuts = [Cut(c.axes, offsets=c.offsets, halo=halo, edge="pad") for c, halo in zip(src.dims, halos, strict=True)]
    wide, element = Layout(src.mesh, cuts), element_type(x)
    into = w.splat(w.scalar(0, element), w.sizes(wide, shape), element)
    lows = [halo[0] - old.halo[0] for old, halo in zip(src.dims, halos, strict=True)]
    return w.insert(x, into, lows, w.sizes(src, shape)), wide


def _is_even(layout: Layout, shape: Shape, dim: int) -> bool:
    return layout.tiling(shape).dims[dim].is_even


def _slice(w: Writer, x: SSAValue, step: Step, shape: Shape) -> SSAValue:
    layouts = _layouts(step)
    if layouts is None or step.shares is not None:
        raise ProgramError(f"the step {step} makes values partial, which no op of the dialect does.")
    return slice_shard(w, x, *layouts, shape)


# -- collectives -----------------------------------------------------------------------------------------


def _all_gather(w: Writer, x: SSAValue, step: Step, shape: Shape) -> SSAValue:
    layouts = _layouts(step)
    if layouts is None:
        return rounds(w, x, step, shape)
    return _gather(w, x, *layouts, shape)


def _gather(w: Writer, x: SSAValue, src: Layout, dst: Layout, shape: Shape) -> SSAValue:
    sizes = list(local_sizes(src, shape))
    for dim, (old, new) in enumerate(zip(src.dims, dst.dims, strict=True)):
        axes = remainder(old.axes, new.axes)
        if not axes:
            continue
        if sizes[dim] != DYNAMIC_INDEX:
            sizes[dim] *= prod(axis.size for axis in axes)
        kind = TensorType(element_type(x), sizes)
        x = w.add(AllGatherOp(kind, src.mesh.name, x, dim, grid_axes=numbers(axes)))
        sizes[dim] = local_sizes(dst, shape)[dim]
        x = w.cast(x, TensorType(element_type(x), sizes))
    return x


def _all_to_all(w: Writer, x: SSAValue, step: Step, shape: Shape) -> SSAValue:
    layouts = _layouts(step)
    if layouts is None or not _all_even(*layouts, shape):
        return rounds(w, x, step, shape)
    src, dst = layouts
    less = {k: a for k, (o, n) in enumerate(zip(src.dims, dst.dims, strict=True)) if (a := remainder(o.axes, n.axes))}
    more = {k: a for k, (o, n) in enumerate(zip(src.dims, dst.dims, strict=True)) if (a := remainder(n.axes, o.axes))}
    if len(less) != 1 or len(more) != 1 or [*less.values()] != [*more.values()]:
        return swap_axes(w, x, src, shape, less, more)
    (concat, axes), (split, _) = next(iter(less.items())), next(iter(more.items()))
    kind = local_type(dst, shape, element_type(x))
    return w.add(AllToAllOp(kind, src.mesh.name, x, split, concat, grid_axes=numbers(axes)))


def _all_even(src: Layout, dst: Layout, shape: Shape) -> bool:
    pairs = enumerate(zip(src.dims, dst.dims, strict=True))
    return all(o == n or (_is_even(src, shape, k) and _is_even(dst, shape, k)) for k, (o, n) in pairs)


def _all_reduce(w: Writer, x: SSAValue, step: Step, shape: Shape) -> SSAValue:
    assert isinstance(step.before, Layout)
    return _sum_over(w, x, step.before, step.axes)


def _sum_over(w: Writer, x: SSAValue, src: Layout, axes: Sequence[Axis]) -> SSAValue:
    assert src.reduce_op is not None
    word = BY_OP[src.reduce_op].word
    return w.add(AllReduceOp(x.type, src.mesh.name, x, grid_axes=numbers(axes), reduction=word))


def _reduce_scatter(w: Writer, x: SSAValue, step: Step, shape: Shape) -> SSAValue:
    layouts = _layouts(step)
    if layouts is None or _scatter_axes(*layouts, shape) is None:
        return rounds(w, x, step, shape)
    return _scatter(w, x, *layouts, shape)


def _scatter(w: Writer, x: SSAValue, src: Layout, dst: Layout, shape: Shape) -> SSAValue:
    # What is replicated is sliced, what is pending is reduced and scattered.
    added = _scatter_axes(src, dst, shape)
    assert added is not None
    assert src.reduce_op is not None
    cuts = [cut.axes[: len(cut.axes) - len(added[k])] if k in added else cut for k, cut in enumerate(dst.dims)]
    middle = Layout(src.mesh, cuts)
    x = slice_shard(w, x, src.resolved(), middle, shape)
    sizes, element = list(local_sizes(middle, shape)), element_type(x)
    # What is added up once more is not rounded in between.
    carried = f32 if len(added) > 1 and is_rounded(src.reduce_op, element) else element
    word = BY_OP[src.reduce_op].word
    for dim, axes in added.items():
        sizes[dim] = local_sizes(dst, shape)[dim]
        kind = TensorType(carried, sizes)
        x = w.add(ReduceScatterOp(kind, src.mesh.name, x, dim, grid_axes=numbers(axes), reduction=word))
    return x if carried == element else truncate(w, x, element)


def _middle(plan: Plan) -> Layout | None:
    # Where each device reduces a share and all are gathered: a layout whose shards are such shares.
    kinds = [step.kind for step in plan.steps]
    if kinds != ["reduce_scatter", "all_gather"] or isinstance(plan.steps[1].before, Layout):
        return None
    src, dst, shape = plan.src, plan.dst, plan.shape
    if src.has_halo or any(remainder(o.axes, n.axes) is None for o, n in zip(src.dims, dst.dims, strict=True)):
        return None
    # Devices that have the same contributions share the work too.
    used = (*src.partial, *src.sharded_axes)
    shared = without(plan.steps[1].axes, used)
    if not is_disjoint(shared, used):
        return None
    parts = prod(axis.size for axis in (*shared, *src.partial))
    for dim, (cut, size) in enumerate(zip(src.dims, local_sizes(src, shape), strict=True)):
        if cut.offsets is None and size != DYNAMIC_INDEX and size % parts == 0:
            fine = (*cut.axes, *shared, *src.partial)
            return Layout(src.mesh, [Cut(fine) if k == dim else c for k, c in enumerate(src.dims)])
    return None


def _scatter_axes(src: Layout, dst: Layout, shape: Shape) -> dict[int, list[Axis]] | None:
    # Per dim the innermost axes, which become cuts by being reduced; None if it is no reduce_scatter of equal shards.
    added: dict[int, list[Axis]] = {}
    pending = without(src.partial, dst.partial)
    for dim, (old, new) in enumerate(zip(src.dims, dst.dims, strict=True)):
        more = remainder(new.axes, old.axes)
        if more is None or old.halo != (0, 0) or new.halo != (0, 0):
            return None
        reduced = without(more, without(more, pending))
        if not reduced:
            continue
        last = more[len(more) - len(reduced) :]
        if sorted(reduced) != sorted(last) or not _is_even(src, shape, dim) or not _is_even(dst, shape, dim):
            return None
        added[dim] = last
    reduced = [axis for axes in added.values() for axis in axes]
    return added if sorted(reduced) == sorted(pending) else None


def _halo_exchange(w: Writer, x: SSAValue, step: Step, shape: Shape) -> SSAValue:
    layouts = _layouts(step)
    assert layouts is not None
    src, dst = layouts
    if src.has_halo:  # what is there already need not be sent again
        return rounds(w, x, step, shape)
    element = element_type(x)
    into = w.splat(w.scalar(0, element), w.sizes(dst, shape), element)
    x = w.insert(x, into, [cut.halo[0] for cut in dst.dims], w.sizes(src, shape))
    axes = [numbers(cut.axes) if cut.halo != (0, 0) else [] for cut in dst.dims]
    halos = [n for cut in dst.dims if cut.halo != (0, 0) for n in cut.halo]
    return w.add(UpdateHaloOp(x.type, x, dst.mesh.name, axes, None, static_halo_sizes=halos))


def _accumulate(w: Writer, x: SSAValue, step: Step, shape: Shape) -> SSAValue:
    raise ProgramError(f"the step {step} adds halos up, which no plan between shardings has.")


STEPS: dict[Kind, Callable[[Writer, SSAValue, Step, Shape], SSAValue]] = {
    "slice": _slice,
    "fill": _slice,
    "all_gather": _all_gather,
    "all_to_all": _all_to_all,
    "all_reduce": _all_reduce,
    "reduce_scatter": _reduce_scatter,
    "permute": permute_shard,
    "exchange": rounds,
    "halo_exchange": _halo_exchange,
    "halo_accumulate": _accumulate,
}
