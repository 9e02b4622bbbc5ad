"""xDSL's printer with a vocabulary, and with dense constants that LLVM's tools read."""

from dataclasses import dataclass
from typing import Any

from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, IntegerType, i1
from xdsl.ir import Attribute
from xdsl.printer import Printer

from shardwise.errors import ConversionError
from shardwise.ir.shard import ReductionKindAttr, ShardAxesArrayAttr


@dataclass(eq=False, repr=False)
class ModulePrinter(Printer):
    """A printer whose ops are spelled as `spelling` says: `shard`, or `mesh19` as LLVM 19 has them."""

    spelling: str = "shard"

    def print_attribute(self, attribute: Attribute) -> None:
        """Print an attribute; our own ones belong to the dialect that is printed."""
        if self.spelling == "mesh19" and isinstance(attribute, ReductionKindAttr):
            self.print_string("#mesh.partial")
            attribute.print_parameter(self)
        elif self.spelling == "mesh19" and isinstance(attribute, ShardAxesArrayAttr):
            raise ConversionError(
                "LLVM 19 has no attribute `axisarray`; print the module in the `shard` dialect instead."
            )
        elif isinstance(attribute, DenseIntOrFPElementsAttr) and _is_odd(attribute.get_element_type()):
            self._print_dense(attribute)
        else:
            super().print_attribute(attribute)

    def _print_dense(self, attribute: DenseIntOrFPElementsAttr) -> None:
        # xDSL writes many elements as bytes, and not as many of them as MLIR reads for ints of unusual widths.
        numbers: tuple[Any, ...] = attribute.get_values()
        self.print_string("dense<")
        if numbers and numbers.count(numbers[0]) == len(numbers):
            self.print_string(_shown(numbers[0], attribute))
        elif numbers:
            self._print_nested([_shown(number, attribute) for number in numbers], attribute.get_shape())
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


def _is_odd(kind: Attribute) -> bool:
    return isinstance(kind, IntegerType) and kind.width.data not in (8, 16, 32, 64)


def _shown(number: int, attribute: DenseIntOrFPElementsAttr) -> str:
    if attribute.get_element_type() != i1:
        return str(number)
    return "true" if number else "false"
