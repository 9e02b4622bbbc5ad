"""Elementwise ops of `tosa` that xDSL lacks, read as LLVM 19 and as newer tools write them."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from xdsl.dialects import tosa
from xdsl.dialects.builtin import (
    AnyFloat,
    DenseIntOrFPElementsAttr,
    FloatAttr,
    IntegerAttr,
    IntegerType,
    TensorType,
    i1,
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

from shardwise.ir.dialects.merge import make_operation, merge_dialect
from shardwise.ir.types import is_integer, is_tensor

FORMAT = "operands attr-dict `:` functional-type(operands, results)"

# The elements that ops take: whatever they are, all tensors of an op have the same, and so has the result.
UNARY = {
    "any": "abs cast identity",
    "float": "ceil cos erf exp floor log reciprocal rsqrt sigmoid sin tanh",
    "int": "bitwise_not clz",
    "i1": "logical_not",
}
BINARY = {
    "any": "add equal greater greater_equal maximum minimum sub",
    "float": "pow",
    "int": "bitwise_and bitwise_or bitwise_xor int_div intdiv logical_left_shift logical_right_shift",
    "i1": "logical_and logical_or logical_xor",
}
COMPARISONS = ("tosa.equal", "tosa.greater", "tosa.greater_equal")
ELEMENTS: dict[str, Callable[[Attribute], bool]] = {
    "any": lambda kind: True,
    "float": lambda kind: isinstance(kind, AnyFloat),
    "int": lambda kind: isinstance(kind, IntegerType),
    "i1": lambda kind: kind == i1,
}


class TosaOperation(IRDLOperation):
    """An op of tensors that makes one, `%1 = tosa.abs %0 : (tensor<4xf32>) -> tensor<4xf32>`."""

    assembly_format = FORMAT
    irdl_options = (ParsePropInAttrDict(),)
    TAKES: ClassVar[str] = "any"

    output = result_def(TensorType)
    traits = traits_def(Pure())

    def tensors(self) -> Sequence[SSAValue]:
        """Return the operands that are combined element by element."""
        return self.operands

    def verify_(self) -> None:
        """Check that each operand has the rank of the result and its sizes or ones, and what the elements are."""
        result = _tensor(self.output)
        for operand in self.tensors():
            self.check_spread(_tensor(operand), result)
        kinds = [_tensor(operand).element_type for operand in self.tensors()]
        if any(kind != kinds[0] for kind in kinds):
            raise VerifyException(f"{self.name} combines elements of one type, got {', '.join(map(str, kinds))}")
        if not ELEMENTS[self.TAKES](kinds[0]):
            raise VerifyException(f"{self.name} takes elements of type {self.TAKES}, got {kinds[0]}")
        if not self.is_convertible(kinds[0], result.element_type):
            raise VerifyException(f"{self.name} of {kinds[0]} does not make {result.element_type}")

    def check_spread(self, operand: TensorType[Any], result: TensorType[Any]) -> None:
        """Raise unless each dim of the operand has the size of the result's, or one."""
        shape, target = operand.get_shape(), result.get_shape()
        if len(shape) != len(target) or any(
            size not in (to, 1) and min(size, to) >= 0 for size, to in zip(shape, target, strict=True)
        ):
            raise VerifyException(f"{self.name} cannot spread {operand} to {result}")

    def is_convertible(self, source: Attribute, result: Attribute) -> bool:
        """Whether elements of one type can give elements of the other."""
        return result == (i1 if self.name in COMPARISONS else source) or self.name == "tosa.cast"


def _tensor(value: SSAValue) -> TensorType[Any]:
    if not is_tensor(value.type):
        raise VerifyException(f"expected a tensor, got {value.type}")
    return value.type


class TosaUnary(TosaOperation):
    """Applies a function to each element, `%1 = tosa.abs %0 : (tensor<4xf32>) -> tensor<4xf32>`."""

    input1 = operand_def(TensorType)

    def __init__(self, input1: SSAValue | Operation, output: Attribute) -> None:
        super().__init__(operands=[input1], result_types=[output])


class TosaBinary(TosaOperation):
    """Combines elements, `%2 = tosa.maximum %0, %1 : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>`."""

    input1 = operand_def(TensorType)
    input2 = operand_def(TensorType)

    def __init__(self, input1: SSAValue | Operation, input2: SSAValue | Operation, output: Attribute) -> None:
        super().__init__(operands=[input1, input2], result_types=[output])


def _rows(rows: dict[str, str], kind: type[TosaOperation]) -> list[type[IRDLOperation]]:
    pairs = [(takes, name) for takes, names in rows.items() for name in names.split()]
    return [make_operation(kind, f"tosa.{name}", TAKES=takes) for takes, name in pairs]


@irdl_op_definition
class SelectOp(TosaOperation):
    """Takes elements of one tensor or the other, `tosa.select %c, %0, %1 : (...) -> tensor<4xf32>`."""

    name = "tosa.select"

    pred = operand_def(TensorType)
    on_true = operand_def(TensorType)
    on_false = operand_def(TensorType)

    def tensors(self) -> Sequence[SSAValue]:
        """Return the tensors to choose from."""
        return self.operands[1:]

    def verify_(self) -> None:
        """Check the shapes and that the choice is one of truth values."""
        super().verify_()
        kind = _tensor(self.pred)
        if kind.element_type != i1:
            raise VerifyException(f"tosa.select chooses by i1, got {kind.element_type}")
        self.check_spread(kind, _tensor(self.output))


@irdl_op_definition
class ArithmeticRightShiftOp(TosaBinary):
    """Shifts ints to the right, `tosa.arithmetic_right_shift %0, %1 {round = false} : (...) -> tensor<4xi32>`."""

    name = "tosa.arithmetic_right_shift"
    TAKES: ClassVar[str] = "int"

    round = opt_prop_def(IntegerAttr)


@irdl_op_definition
class MulOp(TosaOperation):
    """The product; the shift of int products is a third operand or, in LLVM 19, an attribute."""

    name = "tosa.mul"

    input1 = operand_def(TensorType)
    input2 = operand_def(TensorType)
    shift_operand = var_operand_def(TensorType)
    shift = opt_prop_def(IntegerAttr)

    def tensors(self) -> Sequence[SSAValue]:
        """Return the factors."""
        return self.operands[:2]

    def is_convertible(self, source: Attribute, result: Attribute) -> bool:
        """Whether the product is of the same type, or of ints with more bits."""
        if is_integer(source) and is_integer(result):
            return source.width.data <= result.width.data
        return source == result

    def verify_(self) -> None:
        """Check the shapes and that there is one shift at most."""
        super().verify_()
        if len(self.shift_operand) + (self.shift is not None) > 1:
            raise VerifyException("tosa.mul has one shift, an operand or an attribute")


@irdl_op_definition
class NegateOp(TosaOperation):
    """The negative; newer tools give the zero points of input and output as operands."""

    name = "tosa.negate"

    input1 = operand_def(TensorType)
    zero_points = var_operand_def(TensorType)
    quantization_info = opt_prop_def()

    def tensors(self) -> Sequence[SSAValue]:
        """Return the input."""
        return self.operands[:1]

    def verify_(self) -> None:
        """Check the shapes and the zero points."""
        super().verify_()
        if len(self.zero_points) not in (0, 2):
            raise VerifyException(f"tosa.negate has two zero points or none, got {len(self.zero_points)}")


@irdl_op_definition
class MatMulOp(TosaOperation):
    """The products of two stacks of matrices; newer tools give the zero points of both as operands."""

    name = "tosa.matmul"

    a = operand_def(TensorType)
    b = operand_def(TensorType)
    zero_points = var_operand_def(TensorType)
    quantization_info = opt_prop_def()

    def verify_(self) -> None:
        """Check the shapes and the zero points."""
        if len(self.zero_points) not in (0, 2):
            raise VerifyException(f"tosa.matmul has two zero points or none, got {len(self.zero_points)}")
        a, b, result = (_tensor(value).get_shape() for value in (self.a, self.b, self.output))
        if not len(a) == len(b) == len(result) == 3:
            raise VerifyException(f"tosa.matmul multiplies stacks of matrices, got {self.a.type} and {self.b.type}")
        pairs = [(a[0], b[0]), (a[2], b[1]), (a[0], result[0]), (a[1], result[1]), (b[2], result[2])]
        if any(one != other and min(one, other) >= 0 for one, other in pairs):
            raise VerifyException(f"tosa.matmul of {self.a.type} and {self.b.type} does not make {self.output.type}")
        if _tensor(self.a).element_type != _tensor(self.b).element_type:
            raise VerifyException(f"tosa.matmul multiplies elements of one type, got {self.a.type} and {self.b.type}")


@irdl_op_definition
class ClampOp(TosaOperation):
    """Limits each element; LLVM 19 gives limits for ints and for floats, newer tools one pair of the element type."""

    name = "tosa.clamp"

    input = operand_def(TensorType)
    min_val = opt_prop_def()
    max_val = opt_prop_def()
    min_int = opt_prop_def(IntegerAttr)
    max_int = opt_prop_def(IntegerAttr)
    min_fp = opt_prop_def(FloatAttr)
    max_fp = opt_prop_def(FloatAttr)
    nan_mode = opt_prop_def()

    def verify_(self) -> None:
        """Check the shapes and that there are limits."""
        super().verify_()
        one = self.min_val is not None and self.max_val is not None
        both = None not in (self.min_int, self.max_int, self.min_fp, self.max_fp)
        if not one and not both:
            raise VerifyException("tosa.clamp needs min_val and max_val, or min_int, max_int, min_fp and max_fp")
        kind = _tensor(self.input).element_type
        for limit in (self.min_val, self.max_val):
            if limit is not None and getattr(limit, "type", None) != kind:
                raise VerifyException(f"tosa.clamp of {kind} has limits of that type, got {limit}")


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
        constant = self.values if self.values is not None else self.value
        if constant is None or (self.values is not None and self.value is not None):
            raise VerifyException("tosa.const has one constant: values, or value in LLVM 19")
        if constant.get_type() != self.output.type:
            raise VerifyException(f"tosa.const makes {constant.get_type()}, but its result is {self.output.type}")


TOSA = merge_dialect(
    tosa.TOSA,
    [
        *_rows(UNARY, TosaUnary),
        *_rows(BINARY, TosaBinary),
        ArithmeticRightShiftOp,
        SelectOp,
        MulOp,
        NegateOp,
        MatMulOp,
        ClampOp,
        ConstOp,
    ],
)
