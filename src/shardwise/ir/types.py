"""Types of values: the shapes and the elements of tensors."""

from __future__ import annotations

from typing import Any

from xdsl.dialects.builtin import MemRefType, TensorType
from xdsl.ir import Attribute, SSAValue

from shardwise.layout.layout import Shape


def shape_of(value: SSAValue) -> Shape:
    """Return the shape of a tensor, DYNAMIC_INDEX where a size is not known."""
    assert isinstance(value.type, TensorType)
    return tuple(value.type.get_shape())


def element_type(value: SSAValue) -> Any:
    """Return the type of the elements of a tensor, or that of a scalar."""
    return value.type.element_type if isinstance(value.type, TensorType | MemRefType) else value.type


def is_static(*kinds: Attribute) -> bool:
    """Whether types are those of tensors with known sizes.

    >>> from xdsl.dialects.builtin import f32
    >>> is_static(TensorType(f32, [2])), is_static(TensorType(f32, [-1])), is_static(f32)
    (True, False, False)
    """
    return all(isinstance(kind, TensorType) and min(kind.get_shape(), default=0) >= 0 for kind in kinds)
