"""xDSL's printer with a vocabulary, and with dense constants that LLVM's tools read."""

from dataclasses import dataclass
from typing import Any, TypeGuard, cast

from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, UnregisteredOp, i1
from xdsl.dialects.linalg.abstract_ops import NamedOperation
from xdsl.ir import Attribute, Operation
from xdsl.printer import Printer

from shardwise.errors import ConversionError
from shardwise.ir.dialects.linalg_elementwise import usual_body
from shardwise.ir.shard import ReductionKindAttr, ShardAxesArrayAttr
from shardwise.ir.types import is_integer


@dataclass(eq=False, repr=False)
class ModulePrinter(Printer):
    """A printer whose ops are spelled as `spelling` says: `shard`, or `mesh19` as LLVM 19 has them."""

    spelling: str = "shard"

    def print_op(self, op: Operation) -> None:
        """Print an op, in the generic form where its own does not say all that it does."""
        if not self.print_generic_format and isinstance(op, NamedOperation) and not _has_usual_body(op):
            self.print_generic_format = True
            super().print_op(op)
            self.print_generic_format = False
            return
        if not isinstance(op, UnregisteredOp):
            super().print_op(op)
            return
        # xDSL takes the name away while it prints, and would lose it where printing fails.
        name = op.op_name
        try:
            super().print_op(op)
        finally:
            op.attributes["op_name__"] = name

    def print_attribute(self, attribute: Attribute) -> None:
        """Print an attribute; our own ones belong to the dialect that is printed."""
        if self.spelling == "mesh19" and isinstance(attribute, ReductionKindAttr):
            self.print_string("#mesh.partial")
            attribute.print_parameter(self)
        elif self.spelling == "mesh19" and isinstance(attribute, ShardAxesArrayAttr):
            raise ConversionError(
                "LLVM 19 has no attribute `axisarray`; print the module in the `shard` dialect instead."
            )
        elif _is_dense_of_odd_width(attribute):
            self._print_dense(attribute)
        else:
            super().print_attribute(attribute)

    def _print_dense(self, attribute: DenseIntOrFPElementsAttr) -> None:
        # xDSL writes many elements as bytes, and not as many of them as MLIR reads for ints of unusual widths.
        numbers: tuple[Any, ...] = attribute.get_values()
        self.print_string("dense<")
        if numbers and numbers.count(numbers[0]) == len(numbers):
            self.print_string(_number_text(numbers[0], attribute))
        elif numbers:
            self._print_nested([_number_text(number, attribute) for number in numbers], attribute.get_shape())
        self.print_string("> : ")
        self.print_attribute(attribute.get_type())

    def _print_nested(self, numbers: list[str], shape: tuple[int, ...]) -> None:
        step = len(numbers) // shape[0]
        with self.in_square_brackets():
            if len(shape) == 1:
                self.print_string(", ".join(numbers))
                return
            rows = [numbers[start : start + step] for start in range(0, len(numbers), step)]
            self.print_list(rows, lambda row: self._print_nested(row, shape[1:]))


def _has_usual_body(op: NamedOperation) -> bool:
    try:
        return op.body.is_structurally_equivalent(usual_body(op))
    except Exception:  # xDSL raises all kinds of errors where operands are not what an op takes
        return False


def _is_dense_of_odd_width(attribute: Attribute) -> TypeGuard[DenseIntOrFPElementsAttr]:
    if not isinstance(attribute, DenseIntOrFPElementsAttr):
        return False
    kind: Attribute = cast("DenseIntOrFPElementsAttr", attribute).get_element_type()
    return is_integer(kind) and kind.width.data not in (8, 16, 32, 64)


def _number_text(number: int, attribute: DenseIntOrFPElementsAttr) -> str:
    if attribute.get_element_type() != i1:
        return str(number)
    return "true" if number else "false"
