"""Types of values: the shapes and the elements of tensors. xDSL's types are given their parameters here."""

from __future__ import annotations

from typing import Any, TypeGuard, TypeVar, cast

from xdsl.dialects.builtin import ArrayAttr, IntegerType, MemRefType, TensorType
from xdsl.ir import Attribute, SSAValue

from shardwise.layout.layout import Shape

Entry = TypeVar("Entry", bound=Attribute)


def is_tensor(kind: Attribute) -> TypeGuard[TensorType[Attribute]]:
    """Whether a type is that of tensors."""
    return isinstance(kind, TensorType)


def is_shaped(kind: Attribute) -> TypeGuard[TensorType[Attribute] | MemRefType[Attribute]]:
    """Whether a type is that of tensors or buffers."""
    return isinstance(kind, TensorType | MemRefType)


def is_integer(kind: Attribute) -> TypeGuard[IntegerType]:
    """Whether a type is that of ints; `index` is none of them."""
    return isinstance(kind, IntegerType)


def is_list_of(attribute: Attribute | None, kind: type[Entry]) -> TypeGuard[ArrayAttr[Entry]]:
    """Whether an attribute is a list with entries of one kind."""
    if not isinstance(attribute, ArrayAttr):
        return False
    return all(isinstance(entry, kind) for entry in cast("ArrayAttr[Attribute]", attribute))


def shape_of(value: SSAValue) -> Shape:
    """Return the shape of a tensor, DYNAMIC_INDEX where a size is not known."""
    assert is_tensor(value.type)
    return value.type.get_shape()


def element_type(value: SSAValue) -> Any:
    """Return the type of the elements of a tensor, or that of a scalar."""
    return value.type.element_type if is_shaped(value.type) else value.type


def is_static(*kinds: Attribute) -> bool:
    """Whether types are those of tensors with known sizes.

    >>> from xdsl.dialects.builtin import f32
    >>> is_static(TensorType(f32, [2])), is_static(TensorType(f32, [-1])), is_static(f32)
    (True, False, False)
    """
    return all(isinstance(kind, TensorType) and min(kind.get_shape(), default=0) >= 0 for kind in kinds)
