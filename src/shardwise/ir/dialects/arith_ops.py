"""Arithmetic that xDSL lacks: conversions of whole tensors, and two more ops."""

from collections.abc import Callable
from math import isnan, nan
from typing import ClassVar, cast

from xdsl.dialects import arith
from xdsl.dialects.arith import floatingPointLike, signlessIntegerLike
from xdsl.dialects.builtin import ContainerType, FixedBitwidthType, IndexType, ShapedType
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import IRDLOperation, irdl_op_definition, operand_def, result_def, traits_def
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from shardwise.ir.dialects.merge import make_operation, merge_dialect


class Conversion(IRDLOperation):
    """Converts each element, `%1 = arith.extf %0 : tensor<4xf32> to tensor<4xf64>`."""

    assembly_format = "$input attr-dict `:` type($input) `to` type($result)"
    WIDTH: ClassVar[str] = "any"

    input = operand_def()
    result = result_def()
    traits = traits_def(Pure())

    def __init__(self, input: SSAValue | Operation, target: Attribute) -> None:
        super().__init__(operands=[input], result_types=[target])

    def verify_(self) -> None:
        """Check that only the element type changes, and how."""
        shapes = [
            kind.get_shape() if isinstance(kind, ShapedType) else None for kind in (self.input.type, self.result.type)
        ]
        if shapes[0] != shapes[1]:
            raise VerifyException(f"{self.name} keeps the shape, got {self.input.type} to {self.result.type}")
        rule, fits = WIDTHS[self.WIDTH]
        if not fits(*(_width(value.type) for value in (self.input, self.result))):
            raise VerifyException(f"{self.name} {rule}, got {self.input.type} to {self.result.type}")


def _width(kind: Attribute) -> float:
    """Return the bits of an element; an index has as many as a machine says, which is none here."""
    if isinstance(kind, ContainerType):
        return _width(cast("ContainerType[Attribute]", kind).get_element_type())
    return nan if isinstance(kind, IndexType) else cast("FixedBitwidthType", kind).bitwidth


# What a conversion does to the bits of elements; comparisons with those of an index are false.
WIDTHS: dict[str, tuple[str, Callable[[float, float], bool]]] = {
    "any": ("has no indices", lambda source, target: not isnan(source) and not isnan(target)),
    "wider": ("widens elements", lambda source, target: source < target),
    "narrower": ("narrows elements", lambda source, target: source > target),
    "same": ("keeps the bits of elements", lambda source, target: source == target),
    "index": ("converts between ints and indices", lambda source, target: isnan(source) != isnan(target)),
}

NUMBERS = {"int": signlessIntegerLike, "float": floatingPointLike, "any": signlessIntegerLike | floatingPointLike}

CONVERSIONS = {
    # name      from     to       bits
    "extf": ("float", "float", "wider"),
    "truncf": ("float", "float", "narrower"),
    "extsi": ("int", "int", "wider"),
    "extui": ("int", "int", "wider"),
    "trunci": ("int", "int", "narrower"),
    "sitofp": ("int", "float", "any"),
    "uitofp": ("int", "float", "any"),
    "fptosi": ("float", "int", "any"),
    "fptoui": ("float", "int", "any"),
    "index_cast": ("int", "int", "index"),
    "index_castui": ("int", "int", "index"),
    "bitcast": ("any", "any", "same"),
}


def _conversion(name: str, source: str, target: str, width: str) -> type[IRDLOperation]:
    ends = {"input": operand_def(NUMBERS[source]), "result": result_def(NUMBERS[target])}
    return make_operation(Conversion, f"arith.{name}", WIDTH=width, **ends)


@irdl_op_definition
class RemfOp(arith.FloatingPointLikeBinaryOperation):
    """The remainder of a division, with the sign of the dividend."""

    name = "arith.remf"

    traits = traits_def(Pure())


Arith = merge_dialect(arith.Arith, [*(_conversion(name, *row) for name, row in CONVERSIONS.items()), RemfOp])
