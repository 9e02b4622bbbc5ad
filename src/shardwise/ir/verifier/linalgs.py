"""Ops of `linalg`: their results, bodies and lists of dims, which xDSL leaves unchecked."""

from collections.abc import Sequence
from typing import Any

from xdsl.dialects.builtin import DenseArrayBase
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.dialects.linalg.ops import BroadcastOp, CopyOp, FillOp, ReduceOp, TransposeOp, YieldOp
from xdsl.ir import Operation, SSAValue

from shardwise.ir.types import element_type, is_tensor
from shardwise.ir.verifier.complaint import Complaints, count_text, shape_of

SHORT = (BroadcastOp, ReduceOp)


def linalg_complaints(op: Operation) -> Complaints:
    """Complain about a linalg op whose parts do not fit each other."""
    if not isinstance(op, (LinalgStructuredOperation, *SHORT)):
        return
    # What is said below takes the number of operands, results and regions for granted.
    op.get_irdl_definition().verify(op)
    yield from _dims(op)
    inputs, outputs = ([op.input], [op.init]) if isinstance(op, SHORT) else (op.inputs, op.outputs)
    yield from _results(op, outputs)
    yield from _body(op, [*inputs, *outputs], outputs)


def _dims(op: Operation) -> Complaints:
    if isinstance(op, TransposeOp):
        dims, rank = _ints(op.permutation), len(shape_of(op.inputs[0]))
        if sorted(dims) != [*range(rank)]:
            yield f"permutation {dims} does not name each of {count_text(rank, 'dim')} once."
    if isinstance(op, SHORT):
        dims, rank = _ints(op.dimensions), len(shape_of(op.input if isinstance(op, ReduceOp) else op.init))
        if sorted(set(dims)) != dims or any(not 0 <= dim < rank for dim in dims):
            yield f"dimensions {dims} do not rise within the {count_text(rank, 'dim')} they are among."


def _ints(attribute: DenseArrayBase[Any]) -> list[int]:
    return [int(number) for number in attribute.get_values()]


def _results(op: Operation, outputs: Sequence[SSAValue]) -> Complaints:
    expected = [value.type for value in outputs if is_tensor(value.type)]
    types = [result.type for result in op.results]
    if types != expected:
        yield f"the results are {_types_text(types)}, but the outputs are {_types_text(expected)}."


def _types_text(kinds: Sequence[object]) -> str:
    return ", ".join(map(str, kinds)) or "none"


def _body(op: Operation, operands: Sequence[SSAValue], outputs: Sequence[SSAValue]) -> Complaints:
    block = op.regions[0].blocks[0] if op.regions[0].blocks else None
    if block is None or not isinstance(last := block.last_op, YieldOp):
        yield "the body ends with linalg.yield."
        return
    args, elements = [arg.type for arg in block.args], [element_type(value) for value in operands]
    if args != elements:
        yield f"the body takes {_types_text(args)}, but the operands have elements of {_types_text(elements)}."
    yields, expected = [value.type for value in last.operands], [element_type(value) for value in outputs]
    # What xDSL makes for these two leaves out the conversion to the elements of the output.
    if yields != expected and not (isinstance(op, FillOp | CopyOp) and len(yields) == len(expected)):
        yield f"the body yields {_types_text(yields)}, but the outputs have elements of {_types_text(expected)}."
