"""Arithmetic that xDSL lacks: conversions of whole tensors, and two more ops."""

from typing import Any

from xdsl.dialects import arith
from xdsl.dialects.arith import floatingPointLike, signlessIntegerLike
from xdsl.dialects.builtin import ShapedType
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import IRDLOperation, irdl_op_definition, operand_def, result_def, traits_def
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from shardwise.ir.dialects.merge import merged


class Conversion(IRDLOperation):
    """Converts each element, `%1 = arith.extf %0 : tensor<4xf32> to tensor<4xf64>`."""

    assembly_format = "$input attr-dict `:` type($input) `to` type($result)"

    input = operand_def()
    result = result_def()
    traits = traits_def(Pure())

    def __init__(self, input: SSAValue | Operation, target: Attribute) -> None:
        super().__init__(operands=[input], result_types=[target])

    def verify_(self) -> None:
        """Check that only the element type changes."""
        shapes = [
            kind.get_shape() if isinstance(kind, ShapedType) else None for kind in (self.input.type, self.result.type)
        ]
        if shapes[0] != shapes[1]:
            raise VerifyException(f"{self.name} keeps the shape, got {self.input.type} to {self.result.type}")


NUMBERS = {"int": signlessIntegerLike, "float": floatingPointLike, "any": signlessIntegerLike | floatingPointLike}

CONVERSIONS = {
    # name             from     to
    "extf": ("float", "float"),
    "truncf": ("float", "float"),
    "extsi": ("int", "int"),
    "extui": ("int", "int"),
    "trunci": ("int", "int"),
    "sitofp": ("int", "float"),
    "uitofp": ("int", "float"),
    "fptosi": ("float", "int"),
    "fptoui": ("float", "int"),
    "index_cast": ("int", "int"),
    "index_castui": ("int", "int"),
    "bitcast": ("any", "any"),
}


def _conversion(name: str, source: str, target: str) -> type[IRDLOperation]:
    fields: dict[str, Any] = {
        "__doc__": Conversion.__doc__,
        "__module__": __name__,
        "__annotations__": {},
        "name": f"arith.{name}",
        "input": operand_def(NUMBERS[source]),
        "result": result_def(NUMBERS[target]),
    }
    return irdl_op_definition(type(f"{name}_op", (Conversion,), fields))


@irdl_op_definition
class RemfOp(arith.FloatingPointLikeBinaryOperation):
    """The remainder of a division, with the sign of the dividend."""

    name = "arith.remf"

    traits = traits_def(Pure())


Arith = merged(arith.Arith, [*(_conversion(name, *row) for name, row in CONVERSIONS.items()), RemfOp])
