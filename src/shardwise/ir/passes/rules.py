"""Factor rules of ops: which dims of operands and results belong together, and which loops are reduced and how."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from xdsl.dialects.builtin import i1
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.ir.affine import AffineDimExpr

from shardwise.errors import seal
from shardwise.ir.elementwise.table import ELEMENTWISE
from shardwise.ir.module.program import int_of, integer, ints, ints_of, kept_dims, property_of
from shardwise.ir.module.reductions import BY_COMBINER, Reduction
from shardwise.ir.module.values import DYNAMIC
from shardwise.ir.types import is_static, is_tensor, shape_of
from shardwise.layout.placement import ReduceOp
from shardwise.prim.arithmetic.contract import contraction_rule
from shardwise.prim.arithmetic.reduce import reduction_rule
from shardwise.prim.rule import Dims, Factor, Rule, elementwise_rule


@seal
@dataclass(frozen=True, slots=True)
class OpRule:
    """The rule of one op: the factors of each operand (None if it is no tensor) and of each result.

    `combine` has the reduction of each result over the factors in `reduced`. Factors in `whole` are never cut, those
    in `even` only into equal parts, since dims of different sizes share them. The operands from `inits` on are what
    results are accumulated into.
    """

    operands: tuple[Dims | None, ...]
    results: tuple[Dims, ...]
    reduced: tuple[Factor, ...] = ()
    combine: tuple[ReduceOp, ...] = ()
    whole: frozenset[Factor] = frozenset()
    even: frozenset[Factor] = frozenset()
    inits: int | None = None

    @staticmethod
    def of(rule: Rule, op: Operation) -> OpRule:
        """Return the rule of a primitive for an op whose tensors are its operands."""
        dims = iter(rule.operands)
        operands = tuple(next(dims) if is_tensor(x.type) else None for x in op.operands)
        combine = (rule.reduced[0][1],) if rule.reduced else ()
        return OpRule(operands, (rule.out,), tuple(f for f, _ in rule.reduced), combine, rule.whole)


def rule_of(op: Operation) -> OpRule | None:
    """Return the rule of an op; None if its operands have to be whole on every device."""
    tensors = [x for x in (*op.operands, *op.results) if is_tensor(x.type)]
    if not op.results or not is_tensor(op.results[0].type) or not all(is_static(x.type) for x in tensors):
        return None
    if op.name in RULES:
        return RULES[op.name](op)
    if op.name in ELEMENTWISE:
        shapes = tuple(shape_of(x) for x in op.operands if is_tensor(x.type))
        return OpRule.of(elementwise_rule(shapes), op)
    if isinstance(op, LinalgStructuredOperation):
        return _structured_rule(op)
    return None


def _names(count: int) -> Dims:
    return tuple(f"d{k}" for k in range(count))


# -- structured ops --------------------------------------------------------------------------------------


def _structured_rule(op: LinalgStructuredOperation) -> OpRule | None:
    maps = [list(m.data.results) for m in op.get_indexing_maps()]
    names = _names(op.get_num_loops())
    whole: set[Factor] = {f"d{integer(inner.properties['dim'])}" for inner in op.body.walk() if _is_index(inner)}
    dims: list[Dims | None] = []
    for x, indices in zip(op.operands, maps, strict=True):
        if not is_tensor(x.type):
            dims.append(None)
            continue
        for expr in indices:
            if not isinstance(expr, AffineDimExpr):  # an index made of several loops, or shifted
                whole |= {f"d{k}" for k in expr.used_dims()}
        dims.append(tuple(names[e.position] if isinstance(e, AffineDimExpr) else None for e in indices))
    if not op.res or len(op.res) != len(op.outputs):
        return None
    loops = [names[k] for k, kind in enumerate(op.get_iterator_types()) if str(kind.data) != "parallel"]
    return _reducing(op, dims, len(op.inputs), loops, op.body.block, whole)


def _is_index(op: Operation) -> bool:
    return op.name == "linalg.index"


def _reducing(
    op: Operation,
    dims: Sequence[Dims | None],
    inits: int,
    loops: Sequence[Factor | None],
    body: Block,
    whole: set[Factor],
) -> OpRule:
    results = tuple(d if d is not None else () for d in dims[inits:])
    reduced = tuple(f for f in loops if f is not None)
    combine = tuple(_combination(body, inits + k) for k in range(len(results))) if reduced else ()
    known = tuple(how for how in combine if how is not None)
    # A result that does not depend on a parallel loop is written again and again.
    lost = {f for d in dims for f in d or () if f is not None and f not in reduced and any(f not in r for r in results)}
    if len(known) < len(combine):
        return OpRule(tuple(dims), results, (), (), frozenset({*whole, *reduced, *lost}), inits=inits)
    return OpRule(tuple(dims), results, reduced, known, frozenset({*whole, *lost}), inits=inits)


# On bits, of which the larger is -1.
OF_BITS = {
    ReduceOp.SUM: ReduceOp.BXOR,
    ReduceOp.PROD: ReduceOp.BAND,
    ReduceOp.MAX: ReduceOp.BAND,
    ReduceOp.MIN: ReduceOp.BOR,
}


def _combination(body: Block, accumulator: int) -> ReduceOp | None:
    """Return how a body combines new values with the accumulator; None if it does anything else with it."""
    last, argument = body.last_op, body.args[accumulator]
    first = len(body.args) - len(last.operands) if last is not None else 0
    if last is None or accumulator < first:
        return None
    combiner = last.operands[accumulator - first].owner
    uses = list(argument.uses)
    if not isinstance(combiner, Operation) or combiner.parent is not body:
        return None
    if len(uses) != 1 or uses[0].operation is not combiner:
        return None
    return _reduction(BY_COMBINER.get(combiner.name), argument.type)


def _reduction(row: Reduction | None, element: Attribute) -> ReduceOp | None:
    if row is None:
        return None
    return OF_BITS.get(row.op, row.op) if element == i1 else row.op


def _linalg_reduce(op: Operation) -> OpRule | None:
    count = len(op.operands) // 2
    over, names = ints_of(op, "dimensions"), _names(len(shape_of(op.operands[0])))
    left = tuple(n for k, n in enumerate(names) if k not in over)
    return _reducing(op, [names] * count + [left] * count, count, [names[k] for k in over], op.regions[0].block, set())


def _linalg_broadcast(op: Operation) -> OpRule:
    added, names = ints_of(op, "dimensions"), _names(len(shape_of(op.operands[1])))
    return OpRule((tuple(n for k, n in enumerate(names) if k not in added), names), (names,))


def _linalg_transpose(op: Operation) -> OpRule:
    names = _names(len(shape_of(op.operands[0])))
    out = tuple(names[k] for k in ints_of(op, "permutation"))
    return OpRule((names, out), (out,))


# -- tosa ------------------------------------------------------------------------------------------------


def _tosa_matmul(op: Operation) -> OpRule:
    rule = contraction_rule(("bmk", "bkn"), "bmn")
    extra = tuple((None,) * len(shape_of(x)) for x in op.operands[2:])
    return OpRule((*rule.operands, *extra), (rule.out,), ("k",), (ReduceOp.SUM,))


def _tosa_reduce(how: ReduceOp) -> Callable[[Operation], OpRule]:
    def rule_of_axis(op: Operation) -> OpRule:
        axis, rank = int_of(op, "axis"), len(shape_of(op.operands[0]))
        rule = reduction_rule(rank, (axis,), how)
        out = (*rule.out[:axis], None, *rule.out[axis:])
        return OpRule(rule.operands, (out,), (f"d{axis}",), (how,))

    return rule_of_axis


# -- tensor ----------------------------------------------------------------------------------------------


def _same(op: Operation) -> OpRule:
    names = _names(len(shape_of(op.operands[0])))
    return OpRule((names,), (names,))


def _concat(op: Operation) -> OpRule:
    dim = int_of(op, "axis" if op.name == "tosa.concat" else "dim")
    names = tuple(None if k == dim else n for k, n in enumerate(_names(len(shape_of(op.results[0])))))
    return OpRule((names,) * len(op.operands), (names,))


def _regroup_rule(op: Operation) -> OpRule:
    # The first dim of a group that is larger than one goes with the dim that they make up together.
    groups = [ints(group) for group in property_of(op, "reassociation").data]
    many = shape_of(op.results[0] if op.name == "tensor.expand_shape" else op.operands[0])
    names = [f"d{k}" for k in range(len(groups))]
    fine: list[Factor | None] = [None] * len(many)
    even: set[Factor] = set()
    for name, group in zip(names, groups, strict=True):
        first = next((k for k in group if many[k] != 1), next(iter(group), None))
        if first is None:
            continue
        fine[first] = name
        if sum(many[k] != 1 for k in group) > 1:
            even.add(name)
    rest = (None,) * (len(op.operands) - 1)
    source, result = tuple(names), tuple(fine)
    if op.name == "tensor.collapse_shape":
        source, result = result, source
    return OpRule((source, *rest), (result,), even=frozenset(even))


def _is_whole(op: Operation, shape: Sequence[int]) -> list[bool]:
    offsets, sizes, strides = (ints_of(op, f"static_{n}") for n in ("offsets", "sizes", "strides"))
    return [o == 0 and n == size and s == 1 for o, n, s, size in zip(offsets, sizes, strides, shape, strict=True)]


def _slice_names(op: Operation, whole: SSAValue, part: SSAValue) -> tuple[Dims, Dims] | None:
    # The factors of a tensor and of a slice of it; dims that the slice takes whole have one.
    shape, sizes = shape_of(whole), ints_of(op, "static_sizes")
    dims = kept_dims(sizes, shape_of(part))
    if DYNAMIC in sizes or len(dims) != len(shape_of(part)):
        return None
    names = tuple(n if is_whole else None for n, is_whole in zip(_names(len(shape)), _is_whole(op, shape), strict=True))
    return names, tuple(names[k] for k in dims)


def _extract_slice(op: Operation) -> OpRule | None:
    names = _slice_names(op, op.operands[0], op.results[0])
    rest = (None,) * (len(op.operands) - 1)
    return None if names is None else OpRule((names[0], *rest), (names[1],))


def _insert_slice(op: Operation) -> OpRule | None:
    names = _slice_names(op, op.operands[1], op.operands[0])
    rest = (None,) * (len(op.operands) - 2)
    return None if names is None else OpRule((names[1], names[0], *rest), (names[0],))


def _pad(op: Operation) -> OpRule:
    low, high = (ints_of(op, f"static_{n}") for n in ("low", "high"))
    names = _names(len(low))
    out = tuple(n if a == b == 0 else None for n, a, b in zip(names, low, high, strict=True))
    if any(arg.uses for block in op.regions[0].blocks for arg in block.args):  # what is filled in depends on the place
        out = (None,) * len(low)
    rest = (None,) * (len(op.operands) - 1)
    return OpRule((out, *rest), (out,))


RULES: dict[str, Callable[[Any], OpRule | None]] = {
    "linalg.broadcast": _linalg_broadcast,
    "linalg.reduce": _linalg_reduce,
    "linalg.transpose": _linalg_transpose,
    "tensor.cast": _same,
    "tensor.collapse_shape": _regroup_rule,
    "tensor.concat": _concat,
    "tensor.expand_shape": _regroup_rule,
    "tensor.extract_slice": _extract_slice,
    "tensor.insert_slice": _insert_slice,
    "tensor.pad": _pad,
    "tosa.concat": _concat,
    "tosa.matmul": _tosa_matmul,
    "tosa.reduce_all": _tosa_reduce(ReduceOp.BAND),
    "tosa.reduce_any": _tosa_reduce(ReduceOp.BOR),
    "tosa.reduce_max": _tosa_reduce(ReduceOp.MAX),
    "tosa.reduce_min": _tosa_reduce(ReduceOp.MIN),
    "tosa.reduce_product": _tosa_reduce(ReduceOp.PROD),
    "tosa.reduce_sum": _tosa_reduce(ReduceOp.SUM),
}
