"""Values: what an SSA value is while a program runs, and which parts of it nothing has defined yet.

A tensor is a NumPy array and a scalar a NumPy scalar of the dtype that its type says. A value that is undefined,
in whole or in part, is `Poisoned`: it may be moved about and overwritten, but a computation that reads it is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVarTuple, cast

import ml_dtypes
import numpy as np
import optree
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    BFloat16Type,
    ComplexType,
    Float16Type,
    Float32Type,
    Float64Type,
    IndexType,
    Signedness,
)
from xdsl.ir import Attribute

from shardwise.errors import ProgramError, seal
from shardwise.ir.types import is_integer, is_tensor

DYNAMIC = DYNAMIC_INDEX  # of a size that a tensor type leaves open

_FLOATS: dict[type, np.dtype] = {
    Float16Type: np.dtype("float16"),
    BFloat16Type: np.dtype(ml_dtypes.bfloat16),
    Float32Type: np.dtype("float32"),
    Float64Type: np.dtype("float64"),
    IndexType: np.dtype("int64"),
}
_WIDTHS = (8, 16, 32, 64)


def dtype_of(kind: Attribute) -> np.dtype:
    """Return the dtype of the elements of a type; `index` is a 64-bit int, `i1` a bool.

    >>> from xdsl.dialects.builtin import TensorType, f32, i1
    >>> dtype_of(TensorType(f32, [2])), dtype_of(i1)
    (dtype('float32'), dtype('bool'))
    """
    if is_tensor(kind):
        return dtype_of(kind.element_type)
    if type(kind) in _FLOATS:
        return _FLOATS[type(kind)]
    if isinstance(kind, ComplexType):
        return np.dtype(f"complex{16 * dtype_of(kind.parameters[0]).itemsize}")
    if is_integer(kind):
        width, unsigned = kind.width.data, kind.signedness.data is Signedness.UNSIGNED
        if width == 1:
            return np.dtype(bool)
        if width in _WIDTHS:
            return np.dtype(f"{'u' * unsigned}int{width}")
    raise ProgramError(
        f"values of type {kind} cannot be run.\n"
        "  element types that can: i1, i8, i16, i32, i64, index, f16, bf16, f32, f64, complex<f32>, complex<f64>"
    )


@seal
@dataclass(frozen=True, slots=True, eq=False)
class Poisoned:
    """A tensor or scalar of which some elements are undefined: the data, where it is undefined, and who left it so.

    >>> value = Poisoned(np.zeros(2), np.array([True, False]), "shard.shift (%y) at line 5 (no device shifts to it)")
    >>> value.shape, value.dtype
    ((2,), dtype('float64'))
    """

    data: Any
    mask: Any
    origin: str

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape, which is known."""
        return np.shape(self.data)

    @property
    def dtype(self) -> np.dtype:
        """The dtype, which is known."""
        return self.data.dtype

    def __repr__(self) -> str:
        return f"Poisoned({self.dtype}{list(self.shape)} of {self.origin})"


Value = Any  # an array or scalar of NumPy, Poisoned, or what an op has of its own, such as a sharding
Values = TypeVarTuple("Values")


def undefined_tensor(shape: tuple[int, ...], dtype: np.dtype, origin: str) -> Value:
    """Return a tensor with no defined element; one without elements has nothing to define."""
    if 0 in shape:
        return np.zeros(shape, dtype)
    return Poisoned(np.zeros(shape, dtype), np.broadcast_to(np.True_, shape), origin)


def check_defined(value: Value, what: str) -> Value:
    """Return a value, after checking that all of it is defined."""
    if isinstance(value, Poisoned):
        raise ProgramError(f"{what} is undefined: {value.origin} left it so.")
    return value


def move(movement: Callable[[*Values], Any], *values: *Values) -> Value:
    """Apply a function that only moves elements, to data and to what is undefined in it alike.

    >>> whole = undefined_tensor((2,), np.dtype("float32"), "%0")
    >>> move(np.concatenate, [whole, np.ones(1, "float32")]).mask
    array([ True,  True, False])
    """
    tree = cast("Any", values)
    poisons = [x for x in optree.tree_leaves(tree) if isinstance(x, Poisoned)]
    if not poisons:
        return movement(*values)
    data, mask = (movement(*cast("tuple[*Values]", optree.tree_map(part, tree))) for part in (data_of, _mask_of))
    return Poisoned(data, mask, poisons[0].origin) if np.any(mask) else data


def data_of(x: Value) -> Any:
    """Return the array of a value, whether all of it is defined or not."""
    return x.data if isinstance(x, Poisoned) else x


def _mask_of(x: Value) -> Any:
    return x.mask if isinstance(x, Poisoned) else np.zeros(np.shape(x), bool)


def sizes_of(kind: Attribute) -> tuple[int, ...]:
    """Return the sizes that a type gives to the dims, DYNAMIC where it leaves them open; none of a scalar."""
    return kind.get_shape() if is_tensor(kind) else ()


def _is_array(value: object) -> bool:
    return isinstance(value, np.ndarray | np.generic | Poisoned)


def fits(value: Any, kind: Attribute) -> bool:
    """Whether a value has the dtype of a type and a shape that it allows.

    >>> from xdsl.dialects.builtin import TensorType, f32
    >>> fits(np.ones((2, 3), "float32"), TensorType(f32, [2, DYNAMIC]))
    True
    """
    if not _is_array(value):
        return False
    sizes, shape = sizes_of(kind), value.shape
    agree = len(sizes) == len(shape) and all(a in (DYNAMIC, b) for a, b in zip(sizes, shape, strict=True))
    return agree and value.dtype == dtype_of(kind)


def type_text(value: Any) -> str:
    """Return dtype and shape of a value in short: `float32[2, 3]`."""
    return f"{value.dtype}{list(np.shape(data_of(value)))}"
