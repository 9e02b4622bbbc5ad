"""Factor rules in words: how the dims of the operands and the result of an op belong together."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from shardwise.errors import ArgumentError, BindingError, check_int, did_you_mean, seal
from shardwise.layout.cut import Cut
from shardwise.layout.layout import Shape
from shardwise.layout.placement import ReduceOp
from shardwise.prim.rule import Rule

Names = tuple[str, ...]
Sizes = Mapping[str, int | Callable[..., int]]
REDUCTIONS = {"sum": ReduceOp.SUM, "prod": ReduceOp.PROD, "max": ReduceOp.MAX, "min": ReduceOp.MIN}


@seal
@dataclass(frozen=True, slots=True)
class WrittenRule:
    """A rule as it was written: a name for every dim, those that must be whole, and those that are reduced.

    >>> read_rule("ij,jk->ik sum(j)")
    WrittenRule('ij,jk->ik sum(j)')
    >>> rule = read_rule("batch seq [d], batch [t] [d] -> batch seq")
    >>> rule.operands, rule.out, sorted(rule.whole)
    ((('batch', 'seq', 'd'), ('batch', 't', 'd')), ('batch', 'seq'), ['d', 't'])
    """

    text: str
    operands: tuple[Names, ...]
    out: Names
    whole: frozenset[str]
    reduced: tuple[tuple[str, ReduceOp], ...]

    def __repr__(self) -> str:
        return f"WrittenRule({self.text!r})"

    def bind(self, name: str, shapes: Sequence[Shape], sizes: Sizes) -> dict[str, int]:
        """Return the size of every dim by its name, checked against the operands."""
        known: dict[str, int] = {}
        for number, (names, shape) in enumerate(zip(self.operands, shapes, strict=True)):
            if len(names) != len(shape):
                raise BindingError(
                    f"{name}: operand {number} of {self.text!r} has {len(names)} dims, got shape {tuple(shape)}."
                )
            for dim, size in zip(names, shape, strict=True):
                if known.setdefault(dim, size) != size:
                    raise BindingError(
                        f"{name}: {dim!r} of {self.text!r} has size {known[dim]} in one operand and {size} in another."
                    )
        operands = dict(known)
        for dim in self.out:
            if dim not in known:
                size = sizes[dim]
                known[dim] = check_int(size(**operands) if callable(size) else size, f"{name}: the size of {dim!r}")
        return known

    def rule(self, leads: Sequence[tuple[Names, Sequence[bool]]], sizes: Mapping[str, int]) -> Rule:
        """Return the factor rule, with dims in front of some operands and of the result."""
        front = [tuple(dim for names, mapped in leads if mapped[i] for dim in names) for i in range(len(self.operands))]
        every = tuple(dim for names, _ in leads for dim in names)
        operands = tuple((*some, *names) for some, names in zip(front, self.operands, strict=True))
        known = {dim for names in operands for dim in names}
        out = (*every, *self.out)
        offered = tuple((dim, Cut(), sizes[dim]) for dim in out if dim not in known)
        return Rule(operands, out, self.reduced, self.whole, offered=offered)


def read_rule(text: str, sizes: Sizes | None = None) -> WrittenRule:
    """Return a rule that is written like einsum: a letter, or a name, for every dim of the operands and the result.

    Dims of the same name have one size and may be split alike, each device working on its part. A dim in `[brackets]`
    must be whole, and so must one that the result does not have, unless it is reduced: `sum(j)` says that parts of it
    give parts of a sum. Names of more than one letter have spaces between them.
    """
    if not isinstance(text, str) or text.count("->") != 1:
        raise ArgumentError(f"a rule is written like 'ij,jk->ik sum(j)', with one arrow, got {text!r}.")
    left, right = text.split("->")
    spelled = re.findall(r"(\w+)\s*\(([^)]*)\)", right)
    right = re.sub(r"\w+\s*\([^)]*\)", "", right)
    terms = [term.strip() for term in (*left.split(","), right)]
    spaced = any(" " in term for term in terms)
    whole: set[str] = set()
    parsed = [_names(term, spaced, whole, text) for term in terms]
    operands, out = tuple(parsed[:-1]), parsed[-1]
    known = {dim for names in operands for dim in names}
    reduced: list[tuple[str, ReduceOp]] = []
    for how, dims in spelled:
        if how not in REDUCTIONS:
            near = did_you_mean(how, REDUCTIONS)
            raise ArgumentError(f"rule {text!r}: a reduction is {', '.join(REDUCTIONS)}, got {how!r}.{near}")
        reduced += [(dim, REDUCTIONS[how]) for dim in dims.replace(",", " ").split()]
    for dim, _ in reduced:
        if dim not in known or dim in out:
            raise ArgumentError(f"rule {text!r}: {dim!r} is reduced, so it is in an operand and not in the result.")
    for dim in out:
        if dim not in known and dim not in (sizes or {}):
            raise ArgumentError(f"rule {text!r}: {dim!r} is in no operand; give its size: sizes={{{dim!r}: ...}}.")
    whole |= known - set(out) - {dim for dim, _ in reduced}
    return WrittenRule(text, operands, out, frozenset(whole), tuple(reduced))


def _names(term: str, spaced: bool, whole: set[str], text: str) -> Names:
    dims = re.findall(r"\[\w+\]|\w+" if spaced else r"\[\w+\]|\w", term)
    if "".join(dims) != term.replace(" ", ""):
        raise ArgumentError(f"rule {text!r}: a dim is a letter, a name or either in [brackets], got {term!r}.")
    names = tuple(name.strip("[]") for name in dims)
    whole |= {name.strip("[]") for name in dims if name.startswith("[")}
    if len(set(names)) != len(names):
        raise ArgumentError(f"rule {text!r}: a dim is named twice in {term!r}.")
    return names
