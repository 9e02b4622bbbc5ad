"""Constants: dense ones of equal elements, of which a large one holds one for all, and those that ops make."""

from __future__ import annotations

from math import prod
from typing import Any

from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, IntegerAttr, TensorType
from xdsl.ir import Attribute, Operation, SSAValue

MOST_REPEATED = 256  # elements that are held one by one, as those who read lists of sizes expect them


def splat(kind: Any, number: Any) -> DenseIntOrFPElementsAttr:
    """Return the constant of a type of which each element is the same number.

    >>> from xdsl.dialects.builtin import f32
    >>> len(splat(TensorType(f32, [4]), 1.0)), len(splat(TensorType(f32, [100000, 100000]), 1.0))
    (4, 1)
    """
    if prod(kind.get_shape()) <= MOST_REPEATED:
        return DenseIntOrFPElementsAttr.from_list(kind, [number])
    one = DenseIntOrFPElementsAttr.from_list(TensorType(kind.element_type, []), [number])
    return DenseIntOrFPElementsAttr(kind, one.data)


def number_of(constant: Any) -> Any:
    """Return the number that each element of a dense constant is; None if they differ, or there is none.

    >>> from xdsl.dialects.builtin import i64
    >>> number_of(splat(TensorType(i64, [1000]), 7)), number_of(splat(TensorType(i64, [0]), 7))
    (7, None)
    """
    numbers: tuple[Any, ...] = constant.get_values() if isinstance(constant, DenseIntOrFPElementsAttr) else ()
    return numbers[0] if numbers and numbers.count(numbers[0]) == len(numbers) else None


def constant_attribute(op: Operation) -> Attribute | None:
    """Return what a constant op holds, a property (or an attribute of older text) called `value` or `values`."""
    names = [name for name in ("value", "values") if name in op.properties]
    return op.properties[names[0]] if names else op.attributes.get("value")


def constant_int(value: SSAValue) -> int | None:
    """Return the int that a value is, if an arith.constant makes it."""
    op = value.owner
    attribute = constant_attribute(op) if isinstance(op, Operation) and op.name == "arith.constant" else None
    return attribute.value.data if isinstance(attribute, IntegerAttr) else None
