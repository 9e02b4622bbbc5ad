"""The table: every public function of tensors, and what tensors have of them as methods, attributes and operators."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from shardwise.ops import (
    communication,
    convolution,
    creation,
    dtensors,
    elementwise,
    indexing,
    joining,
    linalg,
    local_view,
    normalization,
    own_kernels,
    own_ops,
    reductions,
    rooted,
    shapes,
    updates,
)
from shardwise.prim import explanation, relayout, tensor
from shardwise.prim.arithmetic import activations
from shardwise.prim.arithmetic import elementwise as elements
from shardwise.prim.face import attributes_of, face_of
from shardwise.prim.methods import Methods
from shardwise.prim.primitive import Primitive
from shardwise.transform import derivatives, gradients, jacobians, mapping, rematerialization

ROOMS = (
    elements,
    activations,
    elementwise,
    communication,
    convolution,
    creation,
    dtensors,
    indexing,
    joining,
    linalg,
    local_view,
    normalization,
    own_kernels,
    own_ops,
    reductions,
    rooted,
    shapes,
    updates,
    explanation,
    relayout,
    tensor,
    derivatives,
    gradients,
    jacobians,
    mapping,
    rematerialization,
)


def functions_of(module: ModuleType) -> Iterator[Callable[..., Any]]:
    """Yield the functions of the table that a module defines, and those of the primitives that it declares.

    >>> [function.__name__ for function in functions_of(linalg)]
    ['einsum', 'matmul', 'tensordot']
    """
    for value in vars(module).values():
        function = value.function if isinstance(value, Primitive) else value
        if callable(function) and face_of(function) and (isinstance(value, Primitive) or is_from(module, function)):
            yield function


def is_from(module: ModuleType, function: Callable[..., Any]) -> bool:
    """Whether a module defines a function, and does not only import it."""
    return getattr(function, "__globals__", None) is vars(module)


EVERY = tuple(dict.fromkeys(function for module in ROOMS for function in functions_of(module)))
FUNCTIONS: dict[str, Callable[..., Any]] = {f.name: x for x in EVERY if (f := face_of(x)) is not None and f.name}
METHODS: dict[str, Any] = dict(pair for function in EVERY for pair in attributes_of(function))

for _name, _attribute in METHODS.items():
    setattr(Methods, _name, _attribute)
    if hasattr(_attribute, "__set_name__"):
        _attribute.__set_name__(Methods, _name)
