"""What communication does to shards, device by device: groups that reduce, and devices that send to others."""

from collections.abc import Sequence

import numpy as np

from shardwise import Layout, ReduceOp
from shardwise.layout.axis import Axis
from tests.every.operands import Operand
from tests.every.values import reduce_terms
from tests.layout.oracle import digit, owned_box, position, slices


def axes_of(layout: Layout) -> list[Axis]:
    """The axes that a layout splits its mesh into: those of dims, those that are pending, and the others."""
    split = [axis for cut in layout.dims for axis in cut.axes]
    return [*split, *layout.partial, *layout.replicated_axes]


def owned(x: Operand, device: int) -> np.ndarray:
    """What a device holds, without halos."""
    assert x.layout is not None
    terms = x.terms or (x.value,)
    at = position(x.layout.mesh, x.layout.partial, device)
    return terms[at][slices(owned_box(x.layout, x.value.shape, device))]


def fold_shards(x: Operand, over: Sequence[Axis], op: ReduceOp) -> np.ndarray | None:
    """The reduction of what devices hold over the groups that differ in some axes; None if that is not of one shape."""
    layout = x.layout
    assert layout is not None
    mesh, rest = layout.mesh, [axis for axis in axes_of(layout) if axis not in over]
    groups: dict[tuple[int, ...], list[int]] = {}
    for device in range(mesh.num_devices):
        groups.setdefault(tuple(digit(mesh, axis, device) for axis in rest), []).append(device)
    left = [[axis for axis in cut.axes if axis not in over] for cut in layout.dims]
    pending = [axis for axis in layout.partial if axis not in over]
    blocks: dict[tuple[int, ...], dict[int, np.ndarray]] = {}
    for devices in groups.values():
        arrays = [owned(x, device) for device in devices]
        if len({array.shape for array in arrays}) > 1:
            return None
        block = tuple(position(mesh, axes, devices[0]) for axes in left)
        blocks.setdefault(block, {})[position(mesh, pending, devices[0])] = reduce_terms(arrays, op)
    whole = {block: reduce_terms([terms[at] for at in sorted(terms)], op) for block, terms in blocks.items()}
    return _assemble(whole, x.value)


def _assemble(blocks: dict[tuple[int, ...], np.ndarray], like: np.ndarray) -> np.ndarray:
    bounds = []
    for dim in range(like.ndim):
        lengths = {block[dim]: array.shape[dim] for block, array in blocks.items()}
        bounds.append([0, *np.cumsum([lengths[i] for i in range(len(lengths))])])
    out = np.zeros([int(ends[-1]) for ends in bounds], like.dtype)
    for block, array in blocks.items():
        out[(*(slice(ends[i], ends[i + 1]) for i, ends in zip(block, bounds, strict=True)), ...)] = array
    return out


def permute(x: Operand, sources: Sequence[int | None]) -> np.ndarray | None:
    """The value after each device received what another held, or zeros; None if it is not one value then."""
    layout, shape = x.layout, x.value.shape
    assert layout is not None
    mesh = layout.mesh

    def part(device: int | None) -> tuple[int, ...] | None:
        return None if device is None else tuple(position(mesh, cut.axes, device) for cut in layout.dims)

    def term(device: int | None) -> tuple[object, int] | None:
        return None if device is None else (part(device), position(mesh, layout.partial, device))

    for key in (part, term):
        received: dict[object, set[object]] = {}
        for device, source in enumerate(sources):
            received.setdefault(key(device), set()).add(key(source))
        if any(len(some) > 1 for some in received.values()):
            return None
    out = np.zeros(shape, x.value.dtype)
    contributions: dict[tuple[int, ...], dict[int, np.ndarray]] = {}
    boxes: dict[tuple[int, ...], tuple[slice, ...]] = {}
    for device, source in enumerate(sources):
        own = owned(x, device)
        new = np.zeros_like(own) if source is None else owned(x, source)
        if new.shape != own.shape:
            return None
        where = part(device)
        assert where is not None
        boxes[where] = slices(owned_box(layout, shape, device))
        contributions.setdefault(where, {})[position(mesh, layout.partial, device)] = new
    for where, terms in contributions.items():
        out[(*boxes[where], ...)] = reduce_terms([terms[at] for at in sorted(terms)], layout.reduce_op or ReduceOp.SUM)
    return out
