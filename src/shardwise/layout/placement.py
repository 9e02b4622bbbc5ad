"""Placements: what one mesh axis does to a tensor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Any, Literal, cast

import ml_dtypes
import numpy as np

from shardwise.caches import cache
from shardwise.errors import ArgumentError, BindingError, LayoutError, as_int, as_tuple, did_you_mean, seal

Split = Literal["balanced", "chunk", "offsets"]
Edge = Literal["clip", "pad"]

SPLITS: tuple[Split, ...] = ("balanced", "chunk", "offsets")
EDGES: tuple[Edge, ...] = ("clip", "pad")


class ReduceOp(StrEnum):
    """How partial values combine into the global value; each is equal to its name.

    >>> ReduceOp.SUM == "sum", f"{ReduceOp.SUM}", ReduceOp("max")
    (True, 'sum', ReduceOp.MAX)
    >>> ReduceOp.of("max"), ReduceOp.of(ReduceOp.SUM)
    (ReduceOp.MAX, ReduceOp.SUM)
    >>> [op.value for op in ReduceOp if op.is_idempotent]  # x with itself is x
    ['avg', 'min', 'max', 'band', 'bor']
    """

    SUM = "sum"
    AVG = "avg"
    MIN = "min"
    MAX = "max"
    PROD = "prod"
    BAND = "band"
    BOR = "bor"
    BXOR = "bxor"

    @classmethod
    def of(cls, op: str | ReduceOp) -> ReduceOp:
        """Return the reduction that a string names; a ReduceOp is passed through."""
        if isinstance(op, ReduceOp):
            return op
        member = cls._value2member_map_.get(op.lower()) if isinstance(op, str) else None
        if isinstance(member, ReduceOp):
            return member
        names = [member.value for member in cls]
        if not isinstance(op, str):
            raise ArgumentError(f"a reduction is a ReduceOp or its name, got {op!r}.\n  reductions: {', '.join(names)}")
        raise LayoutError(
            f"unknown reduction {op!r}.\n  reductions: {', '.join(names)}{did_you_mean(op.lower(), names)}"
        )

    @property
    def is_idempotent(self) -> bool:
        """Whether reducing equal copies gives the copy back, so that a replica already is a partial value."""
        return self in IDEMPOTENT

    def check_dtype(self, dtype: Any) -> None:
        """Raise a BindingError if values of this dtype cannot be reduced so.

        >>> ReduceOp.BXOR.check_dtype("float32")
        Traceback (most recent call last):
        shardwise.BindingError: reduction 'bxor' is not defined for float32.
          reductions of float32: sum, avg, min, max, prod
        """
        dtype = check_dtype(dtype)
        known = reductions_of(dtype)
        if self not in known:
            names = ", ".join(op.value for op in known) or "none"
            why = "" if has_zero(dtype) else ", which has no zero for a device that adds nothing"
            raise BindingError(
                f"reduction {self.value!r} is not defined for {dtype}{why}.\n  reductions of {dtype}: {names}"
            )

    def __str__(self) -> str:
        return self.value

    def __repr__(self) -> str:
        return f"ReduceOp.{self.name}"


IDEMPOTENT = frozenset({ReduceOp.AVG, ReduceOp.MIN, ReduceOp.MAX, ReduceOp.BAND, ReduceOp.BOR})

# Which reductions stay inside the dtype: averages of ints do not, complex numbers have no order, and
# the sum of two bools is an int.
_FLOAT = (ReduceOp.SUM, ReduceOp.AVG, ReduceOp.MIN, ReduceOp.MAX, ReduceOp.PROD)
_COMPLEX = (ReduceOp.SUM, ReduceOp.AVG, ReduceOp.PROD)
_INT = (ReduceOp.SUM, ReduceOp.MIN, ReduceOp.MAX, ReduceOp.PROD, ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR)
_BOOL = (ReduceOp.MIN, ReduceOp.MAX, ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR)


def check_dtype(dtype: Any) -> np.dtype:
    """Return a NumPy dtype (bfloat16 and the like among them), or raise an ArgumentError."""
    try:
        if dtype is not None:  # which NumPy takes for float64
            return np.dtype(dtype)
    except (TypeError, ValueError):
        pass
    raise ArgumentError(f"a dtype such as 'float32' was expected, got {dtype!r}.")


def joint_dtype(function: str, *dtypes: np.dtype) -> np.dtype:
    """Return the dtype to which all are promoted, or raise an ArgumentError.

    >>> joint_dtype("concat", np.dtype("int8"), np.dtype("float32"))
    dtype('float32')
    """
    try:
        return np.result_type(*dtypes)
    except TypeError:
        names = ", ".join(dict.fromkeys(map(str, dtypes)))
        raise ArgumentError(f"{function}: {names} have no dtype in common.\n  convert first: x.astype(...).") from None


@cache(entries=256)
def kind_of(dtype: np.dtype) -> str:
    """Return the kind of a dtype as NumPy writes it, also where NumPy does not know it: 'f' of bfloat16, 'i' of int4.

    >>> [kind_of(np.dtype(name)) for name in ("bool", "uint8", ml_dtypes.int4, ml_dtypes.uint2, ml_dtypes.bfloat16)]
    ['b', 'u', 'i', 'u', 'f']
    """
    if dtype.kind != "V":
        return dtype.kind
    for info, kinds in ((ml_dtypes.finfo, "ff"), (ml_dtypes.iinfo, "ui")):
        try:
            return kinds[int(cast(Any, info(dtype)).min < 0)]
        except (ValueError, TypeError):
            continue
    return dtype.kind


def has_zero(dtype: np.dtype) -> bool:
    """Whether zero is one of the numbers of a dtype, which a pending sum needs for those who add nothing.

    >>> has_zero(np.dtype("float32")), has_zero(np.dtype(ml_dtypes.float8_e8m0fnu))
    (True, False)
    """
    return kind_of(dtype) != "f" or bool(np.zeros((), "float32").astype(dtype) == 0)


@cache(entries=256)
def reductions_of(dtype: np.dtype) -> tuple[ReduceOp, ...]:
    """Return the reductions that are defined for a dtype."""
    kind = kind_of(dtype)
    if kind == "f" and not has_zero(dtype):
        return tuple(op for op in _FLOAT if op is not ReduceOp.SUM)
    return {"f": _FLOAT, "c": _COMPLEX, "i": _INT, "u": _INT, "b": _BOOL}.get(kind, ())


FLOAT32 = np.dtype(np.float32)


@cache(entries=256)
def accumulator(dtype: np.dtype) -> np.dtype:
    """Return the dtype in which values are added up: float32 for floats of 16 bits or fewer, and otherwise their own.

    >>> accumulator(np.dtype("float16")), accumulator(np.dtype(ml_dtypes.float8_e4m3fn)), accumulator(np.dtype("int8"))
    (dtype('float32'), dtype('float32'), dtype('int8'))
    """
    return FLOAT32 if kind_of(dtype) == "f" and dtype.itemsize <= 2 else dtype


class Placement:
    """What one mesh axis does to a tensor: `Replicated`, `Sharded` or `Partial`.

    >>> from shardwise.layout.placement import Partial, Replicated, Sharded
    >>> [isinstance(placement, Placement) for placement in (Replicated(), Sharded(0), Partial("max"))]
    [True, True, True]
    """

    __slots__ = ()


@seal
@dataclass(frozen=True, slots=True)
class Replicated(Placement):
    """Every device along the axis holds the same copy.

    >>> Replicated()
    Replicated()
    """


@seal
@dataclass(frozen=True, slots=True, repr=False)
class Partial(Placement):
    """Every device along the axis holds a contribution; the value is their reduction.

    >>> Partial(), Partial("max").reduce_op
    (Partial('sum'), ReduceOp.MAX)
    """

    reduce_op: ReduceOp | str = "sum"

    def __post_init__(self) -> None:
        object.__setattr__(self, "reduce_op", ReduceOp.of(self.reduce_op))

    def __repr__(self) -> str:
        return f"Partial({str(self.reduce_op)!r})"


@seal
@dataclass(frozen=True, slots=True, repr=False, init=False)
class Sharded(Placement):
    """Each device along the axis holds one piece of dim `axis`.

    >>> Sharded(0)
    Sharded(0)
    >>> Sharded(1, split="chunk")
    Sharded(1, split='chunk')
    >>> Sharded(0, offsets=(0, 1, 5), halo=(1, 1))
    Sharded(0, offsets=(0, 1, 5), halo=(1, 1))
    """

    axis: int
    split: Split
    offsets: tuple[int, ...] | None
    halo: tuple[int, int]
    edge: Edge

    def __init__(
        self,
        axis: int,
        *,
        split: Split = "balanced",
        offsets: Sequence[int] | None = None,
        halo: tuple[int, int] | int = (0, 0),
        edge: Edge = "clip",
    ) -> None:
        """Shard dim `axis`; `offsets` bound the pieces, `halo` is what each holds of its neighbours."""
        dim = as_int(axis)
        if dim is None:
            raise LayoutError(f"Sharded needs a tensor dim as an int, got {axis!r}.")
        cut = check_cut("Sharded", split, offsets, halo, edge)
        for name, value in zip(self.__slots__, (dim, *cut), strict=True):
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return f"Sharded({self.axis}{cut_text(self.split, self.offsets, self.halo, self.edge)})"


def check_cut(
    owner: str, split: Any, offsets: Any, halo: Any, edge: Any
) -> tuple[Split, tuple[int, ...] | None, tuple[int, int], Edge]:
    """Return how a dim is cut in checked, canonical form; `owner` names the value for errors."""
    if split not in SPLITS:
        raise LayoutError(
            f"unknown split {split!r} in {owner}.\n  splits: {', '.join(SPLITS)}{did_you_mean(split, SPLITS)}"
        )
    if edge not in EDGES:
        raise LayoutError(
            f"unknown edge policy {edge!r} in {owner}.\n  edges: {', '.join(EDGES)}{did_you_mean(edge, EDGES)}"
        )
    is_one = as_int(halo) is not None or not hasattr(halo, "__iter__")
    pair = (halo, halo) if is_one else as_tuple(halo, f"a halo is a pair of widths of 0 or more in {owner}")
    widths = [width for width in map(as_int, pair) if width is not None and width >= 0]
    if len(pair) != 2 or len(widths) != 2:
        raise LayoutError(f"a halo is a pair of widths of 0 or more, got {halo!r} in {owner}.")
    low, high = widths
    if offsets is None:
        if split == "offsets":
            raise LayoutError(f"split='offsets' in {owner} needs the offsets, such as offsets=(0, 3, 10).")
        return split, None, (low, high), edge
    if split == "chunk":
        raise LayoutError(f"{owner} got both split='chunk' and offsets; give one of them.")
    numbers = as_tuple(offsets, f"offsets in {owner} are a tuple of boundaries such as (0, 3, 10)")
    bounds = tuple(bound for bound in map(as_int, numbers) if bound is not None)
    if len(bounds) != len(numbers):
        raise LayoutError(f"offsets are ints, got {numbers} in {owner}.")
    if not bounds or bounds[0] != 0:
        raise LayoutError(f"offsets start at 0, got {bounds} in {owner}.")
    if any(a > b for a, b in pairwise(bounds)):
        raise LayoutError(f"offsets may not decrease, got {bounds} in {owner}.")
    return "offsets", bounds, (low, high), edge


def cut_text(split: Split, offsets: tuple[int, ...] | None, halo: tuple[int, int], edge: Edge) -> str:
    """Return the arguments that differ from the default, each after a comma."""
    out = f", split={split!r}" if split == "chunk" else ""
    out += f", offsets={offsets}" if offsets is not None else ""
    out += f", halo={halo}" if halo != (0, 0) else ""
    return out + (f", edge={edge!r}" if edge != "clip" else "")
