"""Elementwise ops of `linalg` that xDSL lacks; each has the body and the maps of a linalg.generic."""

from collections.abc import Callable, Sequence
from typing import ClassVar, Self

from xdsl.builder import ImplicitBuilder
from xdsl.dialects import arith, math
from xdsl.dialects.builtin import AffineMapAttr, AnyFloat, ArrayAttr, FloatAttr, ShapedType
from xdsl.dialects.linalg import ops
from xdsl.dialects.linalg.abstract_ops import ElementwiseOperation, NamedOperation
from xdsl.dialects.linalg.attrs import IteratorTypeAttr
from xdsl.ir import Attribute, Block, Data, Operation, Region, SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.irdl import irdl_attr_definition, irdl_op_definition, opt_prop_def, prop_def
from xdsl.parser import AttrParser, Parser
from xdsl.printer import Printer

from shardwise.ir.dialects.linalg_text import (
    print_operands,
    print_results,
    read_maps,
    read_operands,
    read_results,
)
from shardwise.ir.dialects.merge import make_operation
from shardwise.ir.types import element_type, is_tensor

Body = Callable[..., SSAValue]


def _pick(floats: type[Operation], ints: type[Operation] | None) -> Body:
    def body(*args: SSAValue) -> SSAValue:
        op = floats if ints is None or isinstance(args[-1].type, AnyFloat) else ints
        return op(*args).results[0]

    return body


def _reciprocal(x: SSAValue) -> SSAValue:
    return arith.DivfOp(arith.ConstantOp(FloatAttr(1.0, x.type)), x).result  # type: ignore[arg-type]


def _square(x: SSAValue) -> SSAValue:
    return _pick(arith.MulfOp, arith.MuliOp)(x, x)


def _select(condition: SSAValue, x: SSAValue, y: SSAValue) -> SSAValue:
    return arith.SelectOp(condition, x, y).result


# What each kind of linalg.elementwise does to elements: on floats, and on ints where it has them.
BODIES: dict[str, tuple[int, Body]] = {
    "exp": (1, _pick(math.ExpOp, None)),
    "log": (1, _pick(math.LogOp, None)),
    "abs": (1, _pick(math.AbsFOp, math.AbsIOp)),
    "ceil": (1, _pick(math.CeilOp, None)),
    "floor": (1, _pick(math.FloorOp, None)),
    "negf": (1, _pick(arith.NegfOp, None)),
    "reciprocal": (1, _reciprocal),
    "round": (1, _pick(math.RoundOp, None)),
    "sqrt": (1, _pick(math.SqrtOp, None)),
    "rsqrt": (1, _pick(math.RsqrtOp, None)),
    "square": (1, _square),
    "tanh": (1, _pick(math.TanhOp, None)),
    "erf": (1, _pick(math.ErfOp, None)),
    "add": (2, _pick(arith.AddfOp, arith.AddiOp)),
    "sub": (2, _pick(arith.SubfOp, arith.SubiOp)),
    "mul": (2, _pick(arith.MulfOp, arith.MuliOp)),
    "div": (2, _pick(arith.DivfOp, arith.DivSIOp)),
    "div_unsigned": (2, _pick(arith.DivfOp, arith.DivUIOp)),
    "max_signed": (2, _pick(arith.MaximumfOp, arith.MaxSIOp)),
    "min_signed": (2, _pick(arith.MinimumfOp, arith.MinSIOp)),
    "max_unsigned": (2, _pick(arith.MaximumfOp, arith.MaxUIOp)),
    "min_unsigned": (2, _pick(arith.MinimumfOp, arith.MinUIOp)),
    "powf": (2, _pick(math.PowFOp, None)),
    "select": (3, _select),
}

NAMED = "abs ceil floor negf reciprocal round rsqrt square tanh erf div div_unsigned powf"


def body_of(kind: str, inputs: Sequence[SSAValue], outputs: Sequence[SSAValue]) -> Region:
    """Return the body that applies a kind to elements of the inputs."""
    arity, apply = BODIES[kind]
    if len(inputs) != arity or len(outputs) != 1:
        raise ValueError(f"{kind} has {arity} inputs and one output, got {len(inputs)} and {len(outputs)}")
    block = Block(arg_types=[element_type(value) for value in (*inputs, *outputs)])
    with ImplicitBuilder(block):
        ops.YieldOp(apply(*block.args[:arity]))
    return Region(block)


class NamedElementwise(ElementwiseOperation, NamedOperation):
    """Applies a function to each element, `%2 = linalg.abs ins(%0 : tensor<4xf32>) outs(%1 : ...) -> ...`."""

    KIND: ClassVar[str] = ""

    def __init__(
        self,
        inputs: Sequence[SSAValue],
        outputs: Sequence[SSAValue] = (),
        res: Sequence[Attribute] | None = None,
    ) -> None:
        super().__init__(
            ins=inputs,
            outs=outputs,
            result_types=[[value.type for value in outputs] if res is None else list(res)],
            hidden_region=self.get_hidden_region(inputs, outputs),
        )

    @classmethod
    def get_hidden_region(cls, inputs: Sequence[SSAValue], outputs: Sequence[SSAValue]) -> Region:
        """Return the body."""
        return body_of(cls.KIND, inputs, outputs)


@irdl_attr_definition
class ElementwiseKindAttr(Data[str]):
    """A kind of linalg.elementwise, `#linalg.elementwise_kind<add>`."""

    name = "linalg.elementwise_kind"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> str:
        """Read `<add>`."""
        with parser.in_angle_brackets():
            kind = parser.parse_identifier()
            if kind not in BODIES:
                parser.raise_error(f"unknown kind {kind}; kinds: {', '.join(BODIES)}")
            return kind

    def print_parameter(self, printer: Printer) -> None:
        """Print `<add>`."""
        printer.print_string(f"<{self.data}>")


@irdl_op_definition
class ElementwiseOp(NamedOperation):
    """Applies a kind to elements, `linalg.elementwise kind=#linalg.elementwise_kind<add> ins(...) outs(...) -> ...`."""

    name = "linalg.elementwise"

    kind = prop_def(ElementwiseKindAttr)
    indexing_maps = opt_prop_def(ArrayAttr[AffineMapAttr])

    def __init__(
        self,
        kind: str,
        inputs: Sequence[SSAValue],
        outputs: Sequence[SSAValue],
        indexing_maps: ArrayAttr[AffineMapAttr] | None = None,
        res: Sequence[Attribute] | None = None,
    ) -> None:
        kinds = [value.type for value in outputs if is_tensor(value.type)] if res is None else list(res)
        super().__init__(
            ins=inputs,
            outs=outputs,
            result_types=[kinds],
            properties={"kind": ElementwiseKindAttr(kind), "indexing_maps": indexing_maps},
            hidden_region=body_of(kind, inputs, outputs),
        )

    @classmethod
    def get_hidden_region(cls, inputs: Sequence[SSAValue], outputs: Sequence[SSAValue]) -> Region:
        """Refuse: the body depends on the kind."""
        raise NotImplementedError("use body_of(kind, inputs, outputs)")

    def get_default_indexing_maps(self) -> Sequence[AffineMap]:
        """Return the identity for each operand."""
        kind = self.outputs[0].type
        assert isinstance(kind, ShapedType)
        return [AffineMap.identity(len(kind.get_shape()))] * len(self.operands)

    def get_indexing_maps(self) -> ArrayAttr[AffineMapAttr]:
        """Return the maps that are given, or the identity."""
        return super().get_indexing_maps() if self.indexing_maps is None else self.indexing_maps

    def get_iterator_types(self) -> ArrayAttr[IteratorTypeAttr]:
        """Return parallel loops."""
        return ArrayAttr([IteratorTypeAttr.parallel()] * self.get_num_loops())

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        """Read the op."""
        parser.parse_keyword("kind")
        parser.parse_punctuation("=")
        kind = parser.parse_attribute()
        if not isinstance(kind, ElementwiseKindAttr):
            parser.raise_error("kind is `#linalg.elementwise_kind<...>`")
        maps = read_maps(parser)
        inputs, outputs = read_operands(parser, "ins"), read_operands(parser, "outs")
        attributes = parser.parse_optional_attr_dict()
        op = cls(kind.data, inputs, outputs, maps, read_results(parser))
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        """Print the op."""
        printer.print_string(" kind=")
        printer.print_attribute(self.kind)
        if self.indexing_maps is not None:
            printer.print_string(" indexing_maps = ")
            printer.print_attribute(self.indexing_maps)
        print_operands(printer, "ins", self.inputs)
        print_operands(printer, "outs", self.outputs)
        printer.print_op_attributes(self.attributes)
        print_results(printer, self.res)


def usual_body(op: NamedOperation) -> Region:
    """Return the body that an op of its name has; its text does not say any other."""
    if isinstance(op, ElementwiseOp):
        return body_of(op.kind.data, op.inputs, op.outputs)
    return op.get_hidden_region(op.inputs, op.outputs)


ELEMENTWISE: list[type[Operation]] = [
    *(make_operation(NamedElementwise, f"linalg.{kind}", KIND=kind) for kind in NAMED.split()),
    ElementwiseOp,
]
