"""Loads: what the busiest device receives and sends when contributions are reduced, as the cost model sees it."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from shardwise.layout.axis import Axis, common
from shardwise.plan.agreement import count_agreeing, largest_common
from shardwise.plan.kinds import remainder
from shardwise.plan.least import Messages, count_messages
from shardwise.plan.moves import Shares


class Load(NamedTuple):
    """Elements that one device receives to reduce them, and receives and sends when the results go on."""

    reduced: float
    received: float
    sent: float


def load_of(shares: Shares) -> Load:
    """Return the load of the busiest device: exact where parts are equal, an upper bound where axes cut across.

    >>> from shardwise import DeviceMesh, P, plan_reshard
    >>> mesh = DeviceMesh((4, 4), ("x", "y"))
    >>> step = plan_reshard(P("x", unreduced=["y"]), P("y"), (16,), "int8", mesh=mesh).steps[0]
    >>> load_of(step.moves[0].shares)  # of four devices that need rows, one contributes to them, and reduces all four
    Load(reduced=12.0, received=4.0, sent=12.0)
    """
    src, dst, mesh = shares.src.layout, shares.dst.layout, shares.dst.layout.mesh
    takers = mesh.rest((*dst.sharded_axes, *shares.batch))
    even = prod(shares.dst.tiling.largest) / prod([axis.size for axis in takers])
    targets = prod([axis.size for axis in takers]) // prod([axis.size for axis in shares.fresh])
    counts = count_messages(shares.src, shares.dst, shares.option)
    if counts is None:
        contributions = prod([axis.size for axis in shares.pending])
        return Load(even * contributions, even * (targets - 1), even * (targets - 1))
    times = prod([axis.size for axis in shares.batch])
    near, far = (Messages(count.first // times, count.second // times) for count in counts)
    agreeing = _fraction_agreeing(shares)
    if all(is_prefix(old.axes, new.axes) for old, new in zip(src.dims, dst.dims, strict=True)):
        share, received = even * agreeing, even * (agreeing * near.second + (1 - agreeing) * far.second)
    else:  # few devices have something of what they need, and reduce it for the others
        sharers = common(mesh.rest((*src.sharded_axes, *shares.batch)), takers)
        share = largest_common(shares.src, shares.dst) / prod([axis.size for axis in sharers])
        received = even * targets if near.second or far.second else 0.0
    rest = even * (1 - agreeing)
    return Load(share * near.first + rest * far.first, received, share * near.second + rest * far.second)


def is_prefix(a: Sequence[Axis], b: Sequence[Axis]) -> bool:
    """Whether the axes of one dim begin with those of the other, so that all devices have as much in common.

    >>> x, y = Axis("x", 1, 2, 2), Axis("y", 1, 2, 2)
    >>> is_prefix([x], [x, y]), is_prefix([x], [y])
    (True, False)
    """
    return remainder(a, b) is not None or remainder(b, a) is not None


def _fraction_agreeing(shares: Shares) -> float:
    # How much of the tensor some device has before and after. An axis that moves between dims agrees once in its size.
    src, dst = shares.src.layout, shares.dst.layout
    out = 1.0
    for i, old in enumerate(src.dims):
        for k, new in enumerate(dst.dims):
            shared = common(old.axes, new.axes)
            if i != k:
                out /= prod([axis.size for axis in shared])
            elif shared and not is_prefix(old.axes, new.axes):
                return count_agreeing(shares.src, shares.dst) / max(1, prod(shares.src.shape))
    return out
