"""Operators and methods of tensors: each is the function of the same name."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Any

Axis = int | Sequence[int] | None


@cache
def _function(name: str) -> Any:
    # The functions are written in terms of tensors, so they are looked up when they are needed.
    return getattr(import_module("shardwise"), name)


@cache
def _indexed() -> Any:
    return import_module("shardwise.ops.indexing").indexed


def _bound(name: str, *operands: Any) -> Any:
    return _function(name)(*operands)


class Methods:
    """What can be done to a tensor with operators and methods.

    >>> from shardwise import DeviceMesh, P, shard
    >>> import numpy as np
    >>> x = shard(np.array([[1.0, -2.0], [3.0, 0.5]]), DeviceMesh((2,), ("x",)), P("x"))
    >>> (2 * x + 1).numpy().tolist(), (x @ x)[0, 1].item(), (x > 0).any().item(), (x > 0).all().item()
    ([[3.0, -3.0], [7.0, 2.0]], -3.0, True, False)
    >>> x.sum().item(), x.prod().item(), x.mean(0).numpy(), x.max(1).numpy(), x.min().item()
    (2.5, -3.0, array([ 2.  , -0.75]), array([1., 3.]), -2.0)
    >>> x.var().item(), round(x.std().item(), 4), x.argmax().item(), x.argmin(1).numpy()
    (3.171875, 1.781, 2, array([1, 1]))
    >>> x.T.type_text, x.mT.shape, x.reshape(4).type_text, x.transpose(1, 0).shape, x[None].squeeze(0).shape
    ('float64[2, 2@x]', (2, 2), 'float64[4@x]', (2, 2), (2, 2))
    >>> x.at[0, 1].set(9.0).numpy().tolist(), x.astype("int32").dtype
    ([[1.0, 9.0], [3.0, 0.5]], dtype('int32'))
    >>> x.abs().sqrt().log().exp().square().numpy().round(6).tolist()
    [[1.0, 2.0], [3.0, 0.5]]
    >>> [f().numpy().round(3).tolist()[0] for f in (x.sin, x.cos, x.tanh, x.sign, x.conj)]
    [[0.841, -0.909], [0.54, -0.416], [0.762, -0.964], [1.0, -1.0], [1.0, -2.0]]
    >>> [f().numpy().tolist()[1] for f in (x.floor, x.ceil, x.round, x.relu)]
    [[3.0, 0.0], [3.0, 1.0], [3.0, 0.0], [3.0, 0.5]]
    >>> [f().numpy().round(3).tolist()[0] for f in (x.sigmoid, x.gelu, x.silu, x.softmax)]
    [[0.731, 0.119], [0.841, -0.045], [0.731, -0.238], [0.953, 0.047]]
    >>> x.clip(-1, 1).numpy().tolist(), x.logsumexp().numpy().round(4), x.norm().numpy().round(4)
    ([[1.0, -1.0], [1.0, 0.5]], np.float64(3.2023), np.float64(3.7749))
    >>> x.cumulative_sum(0).numpy().tolist(), x.take([1], axis=1).numpy().tolist()
    ([[1.0, -2.0], [4.0, -1.5]], [[-2.0], [0.5]])
    >>> x.flip(0).numpy().tolist(), x.roll(1, 1).numpy().tolist()
    ([[3.0, 0.5], [1.0, -2.0]], [[-2.0, 1.0], [0.5, 3.0]])
    """

    __slots__ = ()

    # -- operators ---------------------------------------------------------------------------------

    def __add__(self, other: Any) -> Any:
        return _bound("add", self, other)

    def __radd__(self, other: Any) -> Any:
        return _bound("add", other, self)

    def __sub__(self, other: Any) -> Any:
        return _bound("subtract", self, other)

    def __rsub__(self, other: Any) -> Any:
        return _bound("subtract", other, self)

    def __mul__(self, other: Any) -> Any:
        return _bound("multiply", self, other)

    def __rmul__(self, other: Any) -> Any:
        return _bound("multiply", other, self)

    def __truediv__(self, other: Any) -> Any:
        return _bound("divide", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return _bound("divide", other, self)

    def __neg__(self) -> Any:
        return _bound("negative", self)

    def __pos__(self) -> Any:
        return _bound("positive", self)

    def __abs__(self) -> Any:
        return _bound("abs", self)

    def __invert__(self) -> Any:
        return _bound("bitwise_invert", self)

    def __pow__(self, other: Any) -> Any:
        return _bound("pow", self, other)

    def __rpow__(self, other: Any) -> Any:
        return _bound("pow", other, self)

    def __floordiv__(self, other: Any) -> Any:
        return _bound("floor_divide", self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return _bound("floor_divide", other, self)

    def __mod__(self, other: Any) -> Any:
        return _bound("remainder", self, other)

    def __rmod__(self, other: Any) -> Any:
        return _bound("remainder", other, self)

    def __lt__(self, other: Any) -> Any:
        return _bound("less", self, other)

    def __le__(self, other: Any) -> Any:
        return _bound("less_equal", self, other)

    def __gt__(self, other: Any) -> Any:
        return _bound("greater", self, other)

    def __ge__(self, other: Any) -> Any:
        return _bound("greater_equal", self, other)

    def __and__(self, other: Any) -> Any:
        return _bound("bitwise_and", self, other)

    def __rand__(self, other: Any) -> Any:
        return _bound("bitwise_and", other, self)

    def __or__(self, other: Any) -> Any:
        return _bound("bitwise_or", self, other)

    def __ror__(self, other: Any) -> Any:
        return _bound("bitwise_or", other, self)

    def __xor__(self, other: Any) -> Any:
        return _bound("bitwise_xor", self, other)

    def __rxor__(self, other: Any) -> Any:
        return _bound("bitwise_xor", other, self)

    def __eq__(self, other: object) -> Any:
        return _bound("equal", self, other)

    def __ne__(self, other: object) -> Any:
        return _bound("not_equal", self, other)

    def __matmul__(self, other: Any) -> Any:
        return _bound("matmul", self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return _bound("matmul", other, self)

    def __lshift__(self, other: Any) -> Any:
        return _bound("bitwise_left_shift", self, other)

    def __rlshift__(self, other: Any) -> Any:
        return _bound("bitwise_left_shift", other, self)

    def __rshift__(self, other: Any) -> Any:
        return _bound("bitwise_right_shift", self, other)

    def __rrshift__(self, other: Any) -> Any:
        return _bound("bitwise_right_shift", other, self)

    __hash__ = object.__hash__

    # -- elements ----------------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> Any:
        """Return the elements at an index: integers, slices, None, an ellipsis, arrays of integers."""
        return _indexed()(self, key)

    @property
    def at(self) -> Any:
        """Updates that return a new tensor: `x.at[2:4].set(0.0)`, `x.at[indices].add(values)`."""
        return import_module("shardwise.ops.updates").Updates(self)

    # -- reductions --------------------------------------------------------------------------------

    def sum(self, axis: Axis = None, *, dtype: Any = None, keepdims: bool = False) -> Any:
        """Return the sum over dims."""
        return _function("sum")(self, axis=axis, dtype=dtype, keepdims=keepdims)

    def prod(self, axis: Axis = None, *, dtype: Any = None, keepdims: bool = False) -> Any:
        """Return the product over dims."""
        return _function("prod")(self, axis=axis, dtype=dtype, keepdims=keepdims)

    def mean(self, axis: Axis = None, *, keepdims: bool = False) -> Any:
        """Return the mean over dims."""
        return _function("mean")(self, axis=axis, keepdims=keepdims)

    def var(self, axis: Axis = None, *, correction: float = 0.0, keepdims: bool = False) -> Any:
        """Return the variance over dims."""
        return _function("var")(self, axis=axis, correction=correction, keepdims=keepdims)

    def std(self, axis: Axis = None, *, correction: float = 0.0, keepdims: bool = False) -> Any:
        """Return the standard deviation over dims."""
        return _function("std")(self, axis=axis, correction=correction, keepdims=keepdims)

    def max(self, axis: Axis = None, *, keepdims: bool = False) -> Any:
        """Return the largest element over dims."""
        return _function("max")(self, axis=axis, keepdims=keepdims)

    def min(self, axis: Axis = None, *, keepdims: bool = False) -> Any:
        """Return the smallest element over dims."""
        return _function("min")(self, axis=axis, keepdims=keepdims)

    def any(self, axis: Axis = None, *, keepdims: bool = False) -> Any:
        """Return whether any element over dims is true."""
        return _function("any")(self, axis=axis, keepdims=keepdims)

    def all(self, axis: Axis = None, *, keepdims: bool = False) -> Any:
        """Return whether all elements over dims are true."""
        return _function("all")(self, axis=axis, keepdims=keepdims)

    def argmax(self, axis: int | None = None, *, keepdims: bool = False) -> Any:
        """Return where the largest element along a dim is."""
        return _function("argmax")(self, axis=axis, keepdims=keepdims)

    def argmin(self, axis: int | None = None, *, keepdims: bool = False) -> Any:
        """Return where the smallest element along a dim is."""
        return _function("argmin")(self, axis=axis, keepdims=keepdims)

    # -- shapes and dtypes -------------------------------------------------------------------------

    @property
    def T(self) -> Any:
        """The tensor with its dims in reverse order."""
        return _function("permute_dims")(self, tuple(reversed(range(self.ndim))))  # type: ignore[attr-defined]

    @property
    def mT(self) -> Any:
        """The tensor with its last two dims exchanged."""
        return _function("matrix_transpose")(self)

    def astype(self, dtype: Any) -> Any:
        """Return the elements in another dtype."""
        return _function("astype")(self, dtype)

    def reshape(self, *shape: Any) -> Any:
        """Return the elements in another shape: `x.reshape(2, -1)` or `x.reshape((2, -1))`."""
        sizes = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
        return _function("reshape")(self, sizes)

    def transpose(self, *axes: Any) -> Any:
        """Return the dims in another order, or in reverse if none is given."""
        if not axes:
            return self.T
        order = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes
        return _function("permute_dims")(self, order)

    def squeeze(self, axis: int | Sequence[int]) -> Any:
        """Return the tensor without dims of size one."""
        return _function("squeeze")(self, axis)

    # -- elementwise -------------------------------------------------------------------------------

    def exp(self) -> Any:
        """Return the exponential, element by element."""
        return _function("exp")(self)

    def log(self) -> Any:
        """Return the natural logarithm, element by element."""
        return _function("log")(self)

    def sqrt(self) -> Any:
        """Return the square root, element by element."""
        return _function("sqrt")(self)

    def square(self) -> Any:
        """Return the square, element by element."""
        return _function("square")(self)

    def abs(self) -> Any:
        """Return the absolute value, element by element."""
        return _function("abs")(self)

    def sin(self) -> Any:
        """Return the sine, element by element."""
        return _function("sin")(self)

    def cos(self) -> Any:
        """Return the cosine, element by element."""
        return _function("cos")(self)

    def tanh(self) -> Any:
        """Return the hyperbolic tangent, element by element."""
        return _function("tanh")(self)

    def sign(self) -> Any:
        """Return the sign, element by element."""
        return _function("sign")(self)

    def floor(self) -> Any:
        """Return the elements rounded down, element by element."""
        return _function("floor")(self)

    def ceil(self) -> Any:
        """Return the elements rounded up, element by element."""
        return _function("ceil")(self)

    def round(self) -> Any:
        """Return the elements rounded to even, element by element."""
        return _function("round")(self)

    def conj(self) -> Any:
        """Return the complex conjugate, element by element."""
        return _function("conj")(self)

    def relu(self) -> Any:
        """Return the positive part, element by element."""
        return _function("relu")(self)

    def sigmoid(self) -> Any:
        """Return 1 / (1 + exp(-x)), element by element."""
        return _function("sigmoid")(self)

    def gelu(self) -> Any:
        """Return the Gaussian error linear unit, element by element."""
        return _function("gelu")(self)

    def silu(self) -> Any:
        """Return x sigmoid(x), element by element."""
        return _function("silu")(self)

    def clip(self, min: Any = None, max: Any = None) -> Any:
        """Return the elements limited to [min, max]."""
        return _function("clip")(self, min, max)

    # -- along dims ----------------------------------------------------------------------------------

    def softmax(self, axis: int = -1) -> Any:
        """Return exp(x) divided by its sum along a dim."""
        return _function("softmax")(self, axis=axis)

    def logsumexp(self, axis: Axis = None, *, keepdims: bool = False) -> Any:
        """Return log(sum(exp(x))) over dims."""
        return _function("logsumexp")(self, axis=axis, keepdims=keepdims)

    def norm(self, axis: Axis = None, *, keepdims: bool = False, ord: float = 2) -> Any:
        """Return the vector norm over dims."""
        return _function("norm")(self, axis=axis, keepdims=keepdims, ord=ord)

    def cumulative_sum(self, axis: int | None = None) -> Any:
        """Return the sums of all elements up to each along a dim."""
        return _function("cumulative_sum")(self, axis=axis)

    def take(self, indices: Any, axis: int | None = None) -> Any:
        """Return the elements of a dim at these indices."""
        return _function("take")(self, indices, axis=axis)

    def flip(self, axis: Axis = None) -> Any:
        """Return the elements in reverse order along dims."""
        return _function("flip")(self, axis=axis)

    def roll(self, shift: Any, axis: Axis = None) -> Any:
        """Return the elements moved along by `shift` places."""
        return _function("roll")(self, shift, axis=axis)
