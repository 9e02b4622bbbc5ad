"""Splats: dense constants of equal elements, of which a large one holds one for all."""

from __future__ import annotations

from math import prod
from typing import Any

from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, TensorType

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
