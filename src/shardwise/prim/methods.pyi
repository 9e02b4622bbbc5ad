"""Methods of tensors: the operators, methods and attributes of the table."""

# Written by tools/stubs.py from the table of functions.

from collections.abc import Sequence
from shardwise.ops.convolution import Padding
from shardwise.ops.joining import Axis
from shardwise.ops.joining import PadMode
from shardwise.ops.normalization import Reduction
from shardwise.ops.updates import Updates
from shardwise.prim.tensor import Tensor
from typing import Any

class Methods:
    """What can be done to a tensor with operators and methods."""

    __slots__ = ()
    @property
    def T(self) -> Tensor:
        """Return the tensor with its dims in reverse order."""
        ...

    def __abs__(self) -> Tensor: ...
    def __add__(self, other: Any, /) -> Tensor: ...
    def __and__(self, other: Any, /) -> Tensor: ...
    def __eq__(self, other: object, /) -> Tensor: ...  # type: ignore[override]
    def __floordiv__(self, other: Any, /) -> Tensor: ...
    def __ge__(self, other: Any, /) -> Tensor: ...
    def __getitem__(self, key: Any, /) -> Tensor:
        """Return the elements at an index: integers, slices, None, an ellipsis, arrays of integers."""
        ...

    def __gt__(self, other: Any, /) -> Tensor: ...
    def __invert__(self) -> Tensor: ...
    def __le__(self, other: Any, /) -> Tensor: ...
    def __lshift__(self, other: Any, /) -> Tensor: ...
    def __lt__(self, other: Any, /) -> Tensor: ...
    def __matmul__(self, other: Any, /) -> Tensor: ...
    def __mod__(self, other: Any, /) -> Tensor: ...
    def __mul__(self, other: Any, /) -> Tensor: ...
    def __ne__(self, other: object, /) -> Tensor: ...  # type: ignore[override]
    def __neg__(self) -> Tensor:
        """Return, element by element, the negative."""
        ...

    def __or__(self, other: Any, /) -> Tensor: ...
    def __pos__(self) -> Tensor:
        """Return, element by element, the value itself."""
        ...

    def __pow__(self, other: Any, /) -> Tensor: ...
    def __radd__(self, other: Any, /) -> Tensor: ...
    def __rand__(self, other: Any, /) -> Tensor: ...
    def __rfloordiv__(self, other: Any, /) -> Tensor: ...
    def __rlshift__(self, other: Any, /) -> Tensor: ...
    def __rmatmul__(self, other: Any, /) -> Tensor: ...
    def __rmod__(self, other: Any, /) -> Tensor: ...
    def __rmul__(self, other: Any, /) -> Tensor: ...
    def __ror__(self, other: Any, /) -> Tensor: ...
    def __rpow__(self, other: Any, /) -> Tensor: ...
    def __rrshift__(self, other: Any, /) -> Tensor: ...
    def __rshift__(self, other: Any, /) -> Tensor: ...
    def __rsub__(self, other: Any, /) -> Tensor: ...
    def __rtruediv__(self, other: Any, /) -> Tensor: ...
    def __rxor__(self, other: Any, /) -> Tensor: ...
    def __sub__(self, other: Any, /) -> Tensor: ...
    def __truediv__(self, other: Any, /) -> Tensor: ...
    def __xor__(self, other: Any, /) -> Tensor: ...
    def abs(self) -> Tensor:
        """Return, element by element, the absolute value."""
        ...

    def acos(self) -> Tensor:
        """Return, element by element, the inverse cosine."""
        ...

    def acosh(self) -> Tensor:
        """Return, element by element, the inverse hyperbolic cosine."""
        ...

    def all(self, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
        """Return whether all elements over dims are true."""
        ...

    def any(self, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
        """Return whether any element over dims is true."""
        ...

    def argmax(self, axis: int | None = None, *, keepdims: bool = False) -> Tensor:
        """Return where the largest element along a dim is, the first of several; of the flattened tensor by default."""
        ...

    def argmin(self, axis: int | None = None, *, keepdims: bool = False) -> Tensor:
        """Return where the smallest element along a dim is, the first of several; of the flattened tensor by default."""
        ...

    def asin(self) -> Tensor:
        """Return, element by element, the inverse sine."""
        ...

    def asinh(self) -> Tensor:
        """Return, element by element, the inverse hyperbolic sine."""
        ...

    def astype(self, dtype: Any, /) -> Tensor:
        """Return `x` converted to another dtype."""
        ...

    @property
    def at(self) -> Updates:
        """Updates that return a new tensor: `x.at[2:4].set(0.0)`, `x.at[indices].add(values)`."""
        ...

    def atan(self) -> Tensor:
        """Return, element by element, the inverse tangent."""
        ...

    def atan2(self, x2: Any, /) -> Tensor:
        """Return, element by element, the angle of the point (x2, x1)."""
        ...

    def atanh(self) -> Tensor:
        """Return, element by element, the inverse hyperbolic tangent."""
        ...

    def broadcast_to(self, shape: Sequence[int]) -> Tensor:
        """Return the tensor repeated along new leading dims and dims of size one."""
        ...

    def ceil(self) -> Tensor:
        """Return, element by element, it rounded up."""
        ...

    def clip(self, min: Any = None, max: Any = None) -> Tensor:
        """Return `x` limited to [min, max]."""
        ...

    def conj(self) -> Tensor:
        """Return, element by element, the complex conjugate."""
        ...

    def conv(
        self,
        w: Any,
        /,
        *,
        stride: int | Sequence[int] = 1,
        padding: Padding = "VALID",
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
    ) -> Tensor:
        """Return the convolution (without flipping the kernel) of `x`, of dims (batch, channel, space...), with `w`.

        `w` has the dims (channels of the result, channels of x / groups, kernel...). `padding` is "VALID", "SAME" or a
        pair of widths per dim of space. Where space is sharded, devices exchange only the edges that kernels reach over.
        """
        ...

    def copysign(self, x2: Any, /) -> Tensor:
        """Return, element by element, the first with the sign of the second."""
        ...

    def cos(self) -> Tensor:
        """Return, element by element, the cosine."""
        ...

    def cosh(self) -> Tensor:
        """Return, element by element, the hyperbolic cosine."""
        ...

    def cross_entropy(
        self, labels: Any, /, *, axis: int = -1, reduction: Reduction = "mean", ignore_index: int | None = None
    ) -> Tensor:
        """Return minus the logarithm of the probability that logits along a dim give to labels, which are integers.

        The dim may be sharded: only numbers per label are sent, never logits. Labels equal to `ignore_index` do not
        count.
        """
        ...

    def cumulative_sum(self, axis: int | None = None, *, dtype: Any = None, include_initial: bool = False) -> Tensor:
        """Return the sums of all elements up to each along a dim; along a sharded one only totals are sent."""
        ...

    def exp(self) -> Tensor:
        """Return, element by element, e to its power."""
        ...

    def expand_dims(self, axis: int = 0) -> Tensor:
        """Return the tensor with a new dim of size one at position `axis`."""
        ...

    def expm1(self) -> Tensor:
        """Return, element by element, exp(x) - 1."""
        ...

    def flip(self, axis: Axis = None) -> Tensor:
        """Return the elements in reverse order along dims, all of them by default."""
        ...

    def floor(self) -> Tensor:
        """Return, element by element, it rounded down."""
        ...

    def gather(self) -> Tensor:
        """Return the same value on every device of the mesh."""
        ...

    def gelu(self) -> Tensor:
        """Return, element by element, the Gaussian error linear unit, in its tanh form."""
        ...

    def hypot(self, x2: Any, /) -> Tensor:
        """Return, element by element, the length of the hypotenuse."""
        ...

    @property
    def imag(self) -> Tensor:
        """Return, element by element, the imaginary part."""
        ...

    def isfinite(self) -> Tensor:
        """Return, element by element, whether it is finite."""
        ...

    def isinf(self) -> Tensor:
        """Return, element by element, whether it is infinite."""
        ...

    def isnan(self) -> Tensor:
        """Return, element by element, whether it is not a number."""
        ...

    def layer_norm(self, weight: Any = None, bias: Any = None, /, *, axis: Axis = -1, eps: float = 1e-05) -> Tensor:
        """Return `x` with mean 0 and variance 1 over dims, times `weight` plus `bias`, which have the shape of those dims."""
        ...

    def log(self) -> Tensor:
        """Return, element by element, the natural logarithm."""
        ...

    def log10(self) -> Tensor:
        """Return, element by element, the logarithm to base 10."""
        ...

    def log1p(self) -> Tensor:
        """Return, element by element, log(1 + x)."""
        ...

    def log2(self) -> Tensor:
        """Return, element by element, the logarithm to base 2."""
        ...

    def log_softmax(self, axis: int = -1) -> Tensor:
        """Return the logarithm of softmax."""
        ...

    def logaddexp(self, x2: Any, /) -> Tensor:
        """Return, element by element, log(exp(x1) + exp(x2))."""
        ...

    def logical_and(self, x2: Any, /) -> Tensor:
        """Return, element by element, whether both are true."""
        ...

    def logical_not(self) -> Tensor:
        """Return, element by element, whether it is false."""
        ...

    def logical_or(self, x2: Any, /) -> Tensor:
        """Return, element by element, whether one is true."""
        ...

    def logical_xor(self, x2: Any, /) -> Tensor:
        """Return, element by element, whether exactly one is true."""
        ...

    def logsumexp(self, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
        """Return log(sum(exp(x))) over dims, without overflow."""
        ...

    @property
    def mT(self) -> Tensor:
        """Return the tensor with its last two dims exchanged; nothing moves."""
        ...

    def matmul(self, x2: Any, /) -> Tensor:
        """Return the matrix product over the last two dims; leading dims broadcast, vectors are allowed."""
        ...

    def matrix_transpose(self) -> Tensor:
        """Return the tensor with its last two dims exchanged; nothing moves."""
        ...

    def max(self, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
        """Return the largest element over dims; its derivative is shared evenly by ties."""
        ...

    def maximum(self, x2: Any, /) -> Tensor:
        """Return, element by element, the larger."""
        ...

    def mean(self, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
        """Return the mean over dims."""
        ...

    def min(self, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
        """Return the smallest element over dims; its derivative is shared evenly by ties."""
        ...

    def minimum(self, x2: Any, /) -> Tensor:
        """Return, element by element, the smaller."""
        ...

    def moveaxis(self, source: int | Sequence[int], destination: int | Sequence[int], /) -> Tensor:
        """Return the tensor with some dims at other positions; nothing moves."""
        ...

    def nextafter(self, x2: Any, /) -> Tensor:
        """Return, element by element, the next representable number towards the second."""
        ...

    def norm(self, axis: Axis = None, *, keepdims: bool = False, ord: float = 2) -> Tensor:
        """Return the vector norm over dims: the root of the sum of squares, or another order."""
        ...

    def one_hot(self, num_classes: int, /, *, dtype: Any = "float64", axis_layout: Any = None) -> Tensor:
        """Return 1 at each index along a new last dim of `num_classes`, and 0 elsewhere.

        Indices outside 0 to num_classes - 1 give zeros. `axis_layout` names the mesh axes that shard the new dim.
        """
        ...

    def pad(self, pad_width: Any, /, *, mode: PadMode = "constant", constant_values: complex = 0) -> Tensor:
        """Return a tensor with elements added before and after its dims, as `numpy.pad` does.

        `mode` is "constant", "edge" (repeats the last element), "reflect" or "wrap".
        """
        ...

    def permute_dims(self, axes: Sequence[int]) -> Tensor:
        """Return the tensor with its dims in another order; nothing moves."""
        ...

    def prod(self, axis: Axis = None, *, dtype: Any = None, keepdims: bool = False) -> Tensor:
        """Return the product over dims."""
        ...

    @property
    def real(self) -> Tensor:
        """Return, element by element, the real part."""
        ...

    def reciprocal(self) -> Tensor:
        """Return, element by element, one over it."""
        ...

    def relu(self) -> Tensor:
        """Return, element by element, the larger of it and zero."""
        ...

    def reshape(self, *shape: Any) -> Tensor:
        """Return the elements in another shape: `x.reshape(2, -1)` or `x.reshape((2, -1))`."""
        ...

    def rms_norm(self, weight: Any = None, /, *, axis: Axis = -1, eps: float = 1e-05) -> Tensor:
        """Return `x` divided by the root of the mean of its squares over dims, times `weight`."""
        ...

    def roll(self, shift: int | Sequence[int], axis: Axis = None) -> Tensor:
        """Return the elements moved along by `shift` places; those that leave at the end come in at the start."""
        ...

    def round(self) -> Tensor:
        """Return, element by element, it rounded to the nearest, ties to even."""
        ...

    def sigmoid(self) -> Tensor:
        """Return, element by element, 1 / (1 + exp(-x)), without overflow."""
        ...

    def sign(self) -> Tensor:
        """Return, element by element, its sign."""
        ...

    def signbit(self) -> Tensor:
        """Return, element by element, whether its sign bit is set."""
        ...

    def silu(self) -> Tensor:
        """Return, element by element, x sigmoid(x)."""
        ...

    def sin(self) -> Tensor:
        """Return, element by element, the sine."""
        ...

    def sinh(self) -> Tensor:
        """Return, element by element, the hyperbolic sine."""
        ...

    def softmax(self, axis: int = -1) -> Tensor:
        """Return exp(x) divided by its sum along a dim."""
        ...

    def softplus(self) -> Tensor:
        """Return, element by element, log(1 + exp(x)), without overflow."""
        ...

    def split(self, indices_or_sections: int | Sequence[int], /, axis: int = 0) -> list[Tensor]:
        """Return a tensor cut into equal sections along a dim, or at the given indices."""
        ...

    def sqrt(self) -> Tensor:
        """Return, element by element, the square root."""
        ...

    def square(self) -> Tensor:
        """Return, element by element, the square."""
        ...

    def squeeze(self, axis: int | Sequence[int]) -> Tensor:
        """Return the tensor without dims of size one."""
        ...

    def std(self, axis: Axis = None, *, correction: float = 0.0, keepdims: bool = False) -> Tensor:
        """Return the standard deviation over dims."""
        ...

    def sum(self, axis: Axis = None, *, dtype: Any = None, keepdims: bool = False) -> Tensor:
        """Return the sum over dims."""
        ...

    def take(self, indices: Any, /, axis: int | None = None) -> Tensor:
        """Return the elements of a dim at these indices, which may be of any shape.

        Along a sharded dim every device picks what it has; the small results are a pending sum.
        """
        ...

    def take_along_axis(self, indices: Any, /, axis: int = -1) -> Tensor:
        """Return, for each place of the other dims, the elements along one dim at the indices given for that place."""
        ...

    def tan(self) -> Tensor:
        """Return, element by element, the tangent."""
        ...

    def tanh(self) -> Tensor:
        """Return, element by element, the hyperbolic tangent."""
        ...

    def tensordot(self, x2: Any, /, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> Tensor:
        """Return the sum of products over pairs of dims: the last of `x1` with the first of `x2`, or those listed."""
        ...

    def topk(self, k: int, /, axis: int = -1) -> tuple[Tensor, Tensor]:
        """Return the `k` largest elements along a dim, largest first, and where they are; of equal ones the first.

        Along a sharded dim every device finds its own `k` largest, and only those are sent.
        """
        ...

    def transpose(self, *axes: Any) -> Tensor:
        """Return the dims in another order, or in reverse if none is given: `x.transpose(1, 0)`."""
        ...

    def tril(self, *, k: int = 0) -> Tensor:
        """Return matrices with zeros above the k-th diagonal; nothing moves."""
        ...

    def triu(self, *, k: int = 0) -> Tensor:
        """Return matrices with zeros below the k-th diagonal; nothing moves."""
        ...

    def trunc(self) -> Tensor:
        """Return, element by element, it rounded towards zero."""
        ...

    def unstack(self, axis: int = 0) -> tuple[Tensor, ...]:
        """Return the parts of a tensor along a dim, without that dim."""
        ...

    def var(self, axis: Axis = None, *, correction: float = 0.0, keepdims: bool = False) -> Tensor:
        """Return the variance over dims: the mean of |x - mean|², which is real for complex numbers too."""
        ...

    def __hash__(self) -> int: ...
