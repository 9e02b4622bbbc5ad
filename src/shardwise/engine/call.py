"""Calls: what a round of communication is, in words that processes compare before any data moves."""

from __future__ import annotations

from typing import NamedTuple

from shardwise.caches import cache
from shardwise.layout.layout import Shape
from shardwise.layout.mesh import DeviceMesh


class Call(NamedTuple):
    """What a round of communication is: all processes of its group must say the same."""

    step: str
    ranks: tuple[int, ...]  # of the group, in order
    shape: Shape
    dtype: str
    before: str
    after: str
    reduction: str | None
    root: int | None  # the rank of the only device that gives, or takes
    plan: str
    meshes: str = ""  # that of the source, and that of the target if it is another


@cache(entries=1024)
def what_text(call: Call) -> str:
    """Return a call in few words.

    >>> what_text(Call("all_gather", (0, 1), (8,), "float32", "[x]", "[-]", None, None, "ab12"))
    'all_gather of float32[8] [x] -> [-]'
    """
    moved = f"{call.before} -> {call.after}" if call.before != call.after else call.before
    return f"{call.step} of {call.dtype}{list(call.shape)} {moved}"


@cache(entries=1024)
def full_text(call: Call) -> str:
    """Return all that processes must agree on but the group, what is in few words first.

    >>> full_text(Call("all_gather", (0, 1), (8,), "float32", "[x]", "[-]", None, None, "ab12", "DeviceMesh(x=2)"))
    'all_gather of float32[8] [x] -> [-]; plan ab12; on DeviceMesh(x=2)'
    """
    words = [what_text(call)]
    words += [f"reduction {call.reduction}"] * (call.reduction is not None)
    words += [f"root {call.root}"] * (call.root is not None)
    return "; ".join([*words, f"plan {call.plan}", *[f"on {call.meshes}"] * bool(call.meshes)])


def meshes_text(src: DeviceMesh, dst: DeviceMesh) -> str:
    """Return the mesh of a call, or both.

    >>> one = DeviceMesh((2, 2), ("a", "b"))
    >>> meshes_text(one, one), meshes_text(one, DeviceMesh((4,), ("x",)))
    ('DeviceMesh(a=2, b=2)', 'DeviceMesh(a=2, b=2) -> DeviceMesh(x=4)')
    """
    return repr(src) if src == dst else f"{src!r} -> {dst!r}"
