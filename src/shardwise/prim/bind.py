"""Bind: primitives on values that are watched by interpreters for derivatives.

A plain tensor has level 0. Differentiating opens a new level: forward mode pairs values of that level with
tangents, reverse mode writes what is done to them on a tape. A primitive is handled by the interpreter of
the highest level among its operands, which handles it in turn with values of lower levels; so derivatives
nest to any order, and with other interpreters.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from shardwise.errors import DerivativeError, ProgramError
from shardwise.layout.layout import Layout
from shardwise.layout.placement import kind_of
from shardwise.prim.fixed import Fixed
from shardwise.prim.outline import Outline, Unreadable
from shardwise.prim.primitive import OUT, Primitive, needs_nothing
from shardwise.prim.relayout import relayout
from shardwise.prim.tensor import Tensor, settle

_depth: ContextVar[int] = ContextVar("levels", default=0)


@contextmanager
def new_level() -> Generator[int]:
    """Open a level of differentiation above all that are open."""
    level = _depth.get() + 1
    token = _depth.set(level)
    try:
        yield level
    finally:
        _depth.reset(token)


@dataclass(eq=False)
class Node:
    """One entry of a tape: what was applied to what, and the entries that its operands came from."""

    row: Primitive | None = None
    operands: tuple[Any, ...] = ()
    params: dict[str, Any] = field(default_factory=dict[str, Any])
    out: Tensor | None = None
    parents: tuple[Node | None, ...] = ()


@dataclass(frozen=True)
class Bundle:
    """The cotangents of several results of one entry of a tape, None where there is none."""

    parts: tuple[Tensor | None, ...]

    def plus(self, other: Bundle, add: Any) -> Bundle:
        """Return the sums of two."""
        pairs = zip(self.parts, other.parts, strict=True)
        return Bundle(tuple(b if a is None else a if b is None else add(a, b) for a, b in pairs))


class Traced(Unreadable):
    """A value watched at one level: the value below it, with a tangent or a place on a tape.

    Its arrays are never there, as it must not leave the functions that are differentiated.
    """

    __slots__ = ("level", "node", "tangent", "value")

    def __init__(self, level: int, value: Tensor, tangent: Tensor | None = None, node: Node | None = None) -> None:
        """Watch `value` at `level`."""
        self.level, self.value, self.tangent, self.node = level, value, tangent, node
        self._shape, self._dtype, self._layout = value.shape, value.dtype, value.layout
        self._engine = value.engine
        self._arrays = ()

    def _interpret(self, row: Primitive, operands: tuple[Any, ...], params: dict[str, Any]) -> Tensor:
        """Apply a primitive to the values below, and watch what comes of it."""
        level = self.level
        watched = [isinstance(x, Traced) and x.level == level for x in operands]
        below = tuple([x.value if w else x for x, w in zip(operands, watched, strict=True)])
        out = row(*below, **params)
        nodes = tuple([x.node if w else None for x, w in zip(operands, watched, strict=True)])
        if any(node is not None for node in nodes):
            return type(self)(level, out, node=self._write(row, below, params, out, nodes))
        tangents = tuple([x.tangent if w else None for x, w in zip(operands, watched, strict=True)])
        tangent = _tangent(row, tangents, out, below, params)
        return out if tangent is None else Traced(level, out, tangent=_beside(tangent, out))

    def _write(self, row: Primitive, operands: tuple[Any, ...], params: Any, out: Tensor, parents: Any) -> Node:
        # Only values that cotangents are made of are kept.
        needs = row.needs or (needs_nothing if row.linear and row.local is None else None)
        if needs is None:
            return Node(row, operands, params, out, parents)
        watched = [i for i, parent in enumerate(parents) if parent is not None]

        def keep(j: int, x: Any) -> Any:
            if not isinstance(x, Tensor) or any(needs(i, j, operands, params) for i in watched):
                return x
            return Outline(x)

        return Node(row, tuple([keep(j, x) for j, x in enumerate(operands)]), params, keep(OUT, out), parents)

    def _constant(self) -> Tensor:
        """Return the value below as a constant."""
        return self.value._constant()

    @Fixed
    def is_local(self) -> bool:
        """Whether it is what devices hold inside `shard_map`."""
        return self.value.is_local

    def _real(self) -> Sequence[Any]:
        raise DerivativeError(
            f"the values of {self.type_text} were read inside a function that is being differentiated, which would "
            "cut it out of the derivative in silence.\n  read stop_gradient(x) if that is what you want."
        )

    def __repr__(self) -> str:
        return f"Tensor({self.type_text} on {self.mesh}, being differentiated)"


def below(x: Any) -> Any:
    """Return what the level that is open now watches, as the value below it; anything else as it is.

    >>> from shardwise import asarray
    >>> with new_level() as level:
    ...     below(Traced(level, asarray([1.0])))
    Tensor([1.], float64[1] on cpu:0)
    """
    return x.value if isinstance(x, Traced) and x.level == _depth.get() else x


class Recorded(Traced):
    """A value of a function that is being recorded, to be made into a module."""

    __slots__ = ()
    is_recorded = True

    def _write(self, row: Primitive, operands: tuple[Any, ...], params: Any, out: Tensor, parents: Any) -> Node:
        return Node(row, operands, params, out, parents)

    def _constant(self) -> Tensor:
        """Return the value itself: what is constant is recorded too."""
        return self

    def _real(self) -> Sequence[Any]:
        raise ProgramError(
            f"the values of {self.type_text} were read inside a function that is being traced; they are not known "
            "there.\n  keep to functions of tensors: where(c, x, y) instead of `if c`, and nothing that prints."
        )

    def __repr__(self) -> str:
        return f"Tensor({self.type_text} on {self.mesh}, being traced)"


def in_one_go(*operands: Any) -> bool:
    """Whether a primitive of several steps may compute operands in one go: all are floats, and no tracer watches.

    >>> from shardwise import asarray
    >>> in_one_go(asarray([1.0])), in_one_go(asarray([1]))
    (True, False)
    """
    return all(kind_of(x.dtype) == "f" and not _is_recorded(x) for x in operands if isinstance(x, Tensor))


def _is_recorded(x: Tensor) -> bool:
    # At any level: a derivative or a map of what is recorded is recorded too.
    while isinstance(x, Traced) and not x.is_recorded:
        x = x.value
    return x.is_recorded


def _tangent(
    row: Primitive, tangents: tuple[Tensor | None, ...], out: Tensor, operands: tuple[Any, ...], params: dict[str, Any]
) -> Tensor | None:
    if all(tangent is None for tangent in tangents):
        return None
    if row.linear:
        return row(*tangents, **params)
    if row.jvp is None:
        raise DerivativeError(f"{row.name} has no forward derivative.")
    return row.jvp(tangents, out, *operands, **params)


def _beside(tangent: Tensor, out: Tensor) -> Tensor:
    # A tangent lies as its value does, so that what is done to the shards of one can be done to those of the other.
    a, b = tangent.layout, out.layout
    alike = a.mesh is b.mesh and a.dims == b.dims and a.partial == b.partial
    return tangent if alike else relayout(tangent, layout=b.resolved())


def pull_back(ends: list[tuple[Node, Tensor]], starts: list[Node], add: Any, once: bool = False) -> list[Tensor | None]:
    """Return the cotangents of the tape entries `starts`, given those of the entries `ends`.

    A tape that is gone back `once` gives up what it keeps on the way.
    """
    gains: dict[int, Gains] = {}
    for end, cotangent in ends:
        _gain(gains.setdefault(id(end), {}), cotangent, add)
    for node in _sort([end for end, _ in ends]):
        if node.row is not None and id(node) in gains:
            _pull_back_entry(node, _total(gains.pop(id(node)), add), gains, add)
        if once:
            node.operands, node.out, node.parents = (), None, ()
    return [_total(gains[id(start)], add) if id(start) in gains else None for start in starts]


def _pull_back_entry(node: Node, ct: Any, gains: dict[int, Gains], add: Any) -> None:
    assert node.row is not None
    if node.row.vjp is None:
        raise DerivativeError(f"{node.row.name} has no reverse derivative.")
    parts = list(node.row.vjp(ct, node.out, *node.operands, **node.params))
    for parent, i in zip(node.parents, range(len(parts)), strict=True):
        part, parts[i] = parts[i], None  # each is let go of as soon as it is handed on
        if parent is not None and part is not None:
            _gain(gains.setdefault(id(parent), {}), part() if callable(part) else part, add)


Gains = dict[Layout | None, Any]  # the cotangents that one entry was given, those of one layout as their sum


def _gain(gains: Gains, part: Any, add: Any) -> None:
    # What is pending alike is added up first, so that it is resolved once and not term by term.
    if isinstance(part, Bundle):
        gains[None] = gains[None].plus(part, add) if gains else part
        return
    part = settle(part)
    before = gains.pop(part.layout, None)
    if before is not None and settle(before) is not before:  # an op has paid for it in the meantime
        _gain(gains, before, add)
        before = None
    gains[part.layout] = part if before is None else add(before, part)


def _total(gains: Gains, add: Any) -> Any:
    if None in gains:
        return gains[None]
    return reduce(add, sorted(map(settle, gains.values()), key=lambda part: not part.layout.partial))


def _sort(ends: list[Node]) -> list[Node]:
    # Entries from the last to the first, each after everything that was made from it.
    entries: list[Node] = []
    seen: set[int] = set()
    stack: list[tuple[Node, bool]] = [(end, False) for end in ends]
    while stack:
        node, done = stack.pop()
        if done:
            entries.append(node)
        elif id(node) not in seen:
            seen.add(id(node))
            stack.append((node, True))
            stack += [(parent, False) for parent in node.parents if parent is not None]
    return entries[::-1]
