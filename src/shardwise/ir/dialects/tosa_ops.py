"""Elementwise ops of `tosa` that xDSL lacks, read as LLVM 19 and as newer tools write them."""

from typing import Any

from xdsl.dialects import tosa
from xdsl.dialects.builtin import (
    DenseIntOrFPElementsAttr,
    FloatAttr,
    IntegerAttr,
    ShapedType,
    TensorType,
)
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    ParsePropInAttrDict,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from shardwise.ir.dialects.merge import merged

FORMAT = "operands attr-dict `:` functional-type(operands, results)"

UNARY = "abs bitwise_not cast ceil clz cos erf exp floor identity log logical_not reciprocal rsqrt sigmoid sin tanh"
BINARY = (
    "add sub bitwise_and bitwise_or bitwise_xor equal greater greater_equal int_div intdiv logical_and"
    " logical_left_shift logical_or logical_right_shift logical_xor maximum minimum pow"
)


def _check_shapes(op: IRDLOperation, operands: tuple[SSAValue, ...]) -> None:
    """Raise unless the result has the rank of the operands, each dim of which has its size or one."""
    result = op.results[0].type
    if not isinstance(result, ShapedType):
        raise VerifyException(f"{op.name} makes a tensor, got {result}")
    for operand in operands:
        shape, wanted = _shape(operand.type), result.get_shape()
        if len(shape) != len(wanted) or any(
            size not in (to, 1) and min(size, to) >= 0 for size, to in zip(shape, wanted, strict=True)
        ):
            raise VerifyException(f"{op.name} cannot spread {operand.type} to {result}")


def _shape(kind: Attribute) -> tuple[int, ...]:
    return kind.get_shape() if isinstance(kind, ShapedType) else ()


class TosaUnary(IRDLOperation):
    """Applies a function to each element, `%1 = tosa.abs %0 : (tensor<4xf32>) -> tensor<4xf32>`."""

    assembly_format = FORMAT

    input1 = operand_def(TensorType)
    output = result_def(TensorType)
    traits = traits_def(Pure())

    def __init__(self, input1: SSAValue | Operation, output: Attribute) -> None:
        super().__init__(operands=[input1], result_types=[output])

    def verify_(self) -> None:
        """Check the shapes."""
        _check_shapes(self, (self.input1,))


class TosaBinary(IRDLOperation):
    """Combines elements, `%2 = tosa.maximum %0, %1 : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>`."""

    assembly_format = FORMAT
    irdl_options = (ParsePropInAttrDict(),)

    input1 = operand_def(TensorType)
    input2 = operand_def(TensorType)
    output = result_def(TensorType)
    traits = traits_def(Pure())

    def __init__(self, input1: SSAValue | Operation, input2: SSAValue | Operation, output: Attribute) -> None:
        super().__init__(operands=[input1, input2], result_types=[output])

    def verify_(self) -> None:
        """Check the shapes."""
        _check_shapes(self, (self.input1, self.input2))


def _made(name: str, kind: type[IRDLOperation]) -> type[IRDLOperation]:
    fields: dict[str, Any] = {
        "__doc__": kind.__doc__,
        "__module__": __name__,
        "__annotations__": {},
        "name": f"tosa.{name}",
    }
    return irdl_op_definition(type(f"Tosa{name.title().replace('_', '')}Op", (kind,), fields))


@irdl_op_definition
class SelectOp(IRDLOperation):
    """Takes elements of one tensor or the other, `tosa.select %c, %0, %1 : (...) -> tensor<4xf32>`."""

    name = "tosa.select"
    assembly_format = FORMAT

    pred = operand_def(TensorType)
    on_true = operand_def(TensorType)
    on_false = operand_def(TensorType)
    output = result_def(TensorType)
    traits = traits_def(Pure())

    def verify_(self) -> None:
        """Check the shapes."""
        _check_shapes(self, (self.pred, self.on_true, self.on_false))


@irdl_op_definition
class ArithmeticRightShiftOp(IRDLOperation):
    """Shifts ints to the right, `tosa.arithmetic_right_shift %0, %1 {round = false} : (...) -> tensor<4xi32>`."""

    name = "tosa.arithmetic_right_shift"
    assembly_format = FORMAT
    irdl_options = (ParsePropInAttrDict(),)

    input1 = operand_def(TensorType)
    input2 = operand_def(TensorType)
    round = opt_prop_def()
    output = result_def(TensorType)
    traits = traits_def(Pure())

    def verify_(self) -> None:
        """Check the shapes."""
        _check_shapes(self, (self.input1, self.input2))


@irdl_op_definition
class MulOp(IRDLOperation):
    """The product; the shift of int products is a third operand or, in LLVM 19, an attribute."""

    name = "tosa.mul"
    assembly_format = FORMAT
    irdl_options = (ParsePropInAttrDict(),)

    input1 = operand_def(TensorType)
    input2 = operand_def(TensorType)
    shift_operand = var_operand_def(TensorType)
    shift = opt_prop_def(IntegerAttr)
    output = result_def(TensorType)
    traits = traits_def(Pure())

    def verify_(self) -> None:
        """Check the shapes and that there is one shift at most."""
        _check_shapes(self, (self.input1, self.input2))
        if len(self.shift_operand) + (self.shift is not None) > 1:
            raise VerifyException("tosa.mul has one shift, an operand or an attribute")


@irdl_op_definition
class NegateOp(IRDLOperation):
    """The negative; newer tools give the zero points of input and output as operands."""

    name = "tosa.negate"
    assembly_format = FORMAT
    irdl_options = (ParsePropInAttrDict(),)

    input1 = operand_def(TensorType)
    zero_points = var_operand_def(TensorType)
    quantization_info = opt_prop_def()
    output = result_def(TensorType)
    traits = traits_def(Pure())

    def verify_(self) -> None:
        """Check the shapes and the zero points."""
        _check_shapes(self, (self.input1,))
        if len(self.zero_points) not in (0, 2):
            raise VerifyException(f"tosa.negate has two zero points or none, got {len(self.zero_points)}")


@irdl_op_definition
class MatMulOp(IRDLOperation):
    """The products of two stacks of matrices; newer tools give the zero points of both as operands."""

    name = "tosa.matmul"
    assembly_format = FORMAT
    irdl_options = (ParsePropInAttrDict(),)

    a = operand_def(TensorType)
    b = operand_def(TensorType)
    zero_points = var_operand_def(TensorType)
    quantization_info = opt_prop_def()
    output = result_def(TensorType)
    traits = traits_def(Pure())

    def verify_(self) -> None:
        """Check the shapes and the zero points."""
        if len(self.zero_points) not in (0, 2):
            raise VerifyException(f"tosa.matmul has two zero points or none, got {len(self.zero_points)}")
        a, b, result = (_shape(value.type) for value in (self.a, self.b, self.output))
        if not len(a) == len(b) == len(result) == 3:
            raise VerifyException(f"tosa.matmul multiplies stacks of matrices, got {self.a.type} and {self.b.type}")
        pairs = [(a[0], b[0]), (a[2], b[1]), (a[0], result[0]), (a[1], result[1]), (b[2], result[2])]
        if any(one != other and min(one, other) >= 0 for one, other in pairs):
            raise VerifyException(f"tosa.matmul of {self.a.type} and {self.b.type} does not make {self.output.type}")


@irdl_op_definition
class ClampOp(IRDLOperation):
    """Limits each element; LLVM 19 gives limits for ints and for floats, newer tools one pair of the element type."""

    name = "tosa.clamp"
    assembly_format = FORMAT
    irdl_options = (ParsePropInAttrDict(),)

    input = operand_def(TensorType)
    min_val = opt_prop_def()
    max_val = opt_prop_def()
    min_int = opt_prop_def(IntegerAttr)
    max_int = opt_prop_def(IntegerAttr)
    min_fp = opt_prop_def(FloatAttr)
    max_fp = opt_prop_def(FloatAttr)
    nan_mode = opt_prop_def()
    output = result_def(TensorType)
    traits = traits_def(Pure())

    def verify_(self) -> None:
        """Check the shapes and that there are limits."""
        _check_shapes(self, (self.input,))
        one = self.min_val is not None and self.max_val is not None
        both = None not in (self.min_int, self.max_int, self.min_fp, self.max_fp)
        if not one and not both:
            raise VerifyException("tosa.clamp needs min_val and max_val, or min_int, max_int, min_fp and max_fp")


@irdl_op_definition
class ConstOp(IRDLOperation):
    """A constant; its property is `values`, in LLVM 19 `value`."""

    name = "tosa.const"

    values = opt_prop_def(DenseIntOrFPElementsAttr)
    value = opt_prop_def(DenseIntOrFPElementsAttr)
    output = result_def(TensorType)
    traits = traits_def(Pure())

    def __init__(self, values: DenseIntOrFPElementsAttr) -> None:
        super().__init__(properties={"values": values}, result_types=[values.get_type()])

    def verify_(self) -> None:
        """Check that there is one constant, of the result's type."""
        given = self.values if self.values is not None else self.value
        if given is None or (self.values is not None and self.value is not None):
            raise VerifyException("tosa.const has one constant: values, or value in LLVM 19")
        if given.get_type() != self.output.type:
            raise VerifyException(f"tosa.const makes {given.get_type()}, but its result is {self.output.type}")


TOSA = merged(
    tosa.TOSA,
    [
        *(_made(name, TosaUnary) for name in UNARY.split()),
        *(_made(name, TosaBinary) for name in BINARY.split()),
        ArithmeticRightShiftOp,
        SelectOp,
        MulOp,
        NegateOp,
        MatMulOp,
        ClampOp,
        ConstOp,
    ],
)
