"""Methods of tensors: each is the function of the same name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardwise.errors import as_int
from shardwise.prim.elementwise_methods import ElementwiseMethods
from shardwise.prim.fixed import Fixed
from shardwise.prim.operators import function_named

Axis = int | Sequence[int] | None


class Methods(ElementwiseMethods):
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
    >>> x.permute_dims((1, 0)).shape, x.matrix_transpose().shape, x.moveaxis(0, 1).shape, x.expand_dims(0).shape
    ((2, 2), (2, 2), (2, 2), (1, 2, 2))
    >>> x.broadcast_to((3, 2, 2)).shape, [y.shape for y in x.split(2, axis=1)], [y.shape for y in x.unstack()]
    ((3, 2, 2), [(2, 1), (2, 1)], [(2,), (2,)])
    >>> x.pad(1, mode="edge").shape, x.tril().numpy().tolist(), x.triu().numpy().tolist()
    ((4, 4), [[1.0, 0.0], [3.0, 0.5]], [[1.0, -2.0], [0.0, 0.5]])
    >>> x.topk(1)[0].numpy().tolist(), x.take_along_axis([[1], [0]]).numpy().tolist()
    ([[1.0], [3.0]], [[-2.0], [3.0]])
    >>> x.argmax(0).one_hot(2).numpy().tolist(), round(x.cross_entropy([0, 1]).item(), 4)
    ([[0.0, 1.0], [0.0, 1.0]], 1.3137)
    >>> x.log_softmax(0).shape, x.layer_norm(eps=0.0).numpy().tolist(), x.rms_norm().shape
    ((2, 2), [[1.0, -1.0], [1.0, -1.0]], (2, 2))
    >>> x.matmul([1.0, 1.0]).numpy(), x.tensordot([1.0, 1.0], axes=1).numpy(), x[None].conv([[[1.0], [1.0]]]).numpy()
    (array([-1. ,  3.5]), array([-1. ,  3.5]), array([[[ 4. , -1.5]]]))
    """

    __slots__ = ()

    # -- reductions --------------------------------------------------------------------------------

    def sum(self, axis: Axis = None, *, dtype: Any = None, keepdims: bool = False) -> Any:
        """Return the sum over dims."""
        return function_named("sum")(self, axis=axis, dtype=dtype, keepdims=keepdims)

    def prod(self, axis: Axis = None, *, dtype: Any = None, keepdims: bool = False) -> Any:
        """Return the product over dims."""
        return function_named("prod")(self, axis=axis, dtype=dtype, keepdims=keepdims)

    def mean(self, axis: Axis = None, *, keepdims: bool = False) -> Any:
        """Return the mean over dims."""
        return function_named("mean")(self, axis=axis, keepdims=keepdims)

    def var(self, axis: Axis = None, *, correction: float = 0.0, keepdims: bool = False) -> Any:
        """Return the variance over dims."""
        return function_named("var")(self, axis=axis, correction=correction, keepdims=keepdims)

    def std(self, axis: Axis = None, *, correction: float = 0.0, keepdims: bool = False) -> Any:
        """Return the standard deviation over dims."""
        return function_named("std")(self, axis=axis, correction=correction, keepdims=keepdims)

    def max(self, axis: Axis = None, *, keepdims: bool = False) -> Any:
        """Return the largest element over dims."""
        return function_named("max")(self, axis=axis, keepdims=keepdims)

    def min(self, axis: Axis = None, *, keepdims: bool = False) -> Any:
        """Return the smallest element over dims."""
        return function_named("min")(self, axis=axis, keepdims=keepdims)

    def any(self, axis: Axis = None, *, keepdims: bool = False) -> Any:
        """Return whether any element over dims is true."""
        return function_named("any")(self, axis=axis, keepdims=keepdims)

    def all(self, axis: Axis = None, *, keepdims: bool = False) -> Any:
        """Return whether all elements over dims are true."""
        return function_named("all")(self, axis=axis, keepdims=keepdims)

    def argmax(self, axis: int | None = None, *, keepdims: bool = False) -> Any:
        """Return where the largest element along a dim is."""
        return function_named("argmax")(self, axis=axis, keepdims=keepdims)

    def argmin(self, axis: int | None = None, *, keepdims: bool = False) -> Any:
        """Return where the smallest element along a dim is."""
        return function_named("argmin")(self, axis=axis, keepdims=keepdims)

    # -- shapes and dtypes -------------------------------------------------------------------------

    @Fixed
    def T(self) -> Any:
        """The tensor with its dims in reverse order."""
        return function_named("permute_dims")(self, tuple(reversed(range(self.ndim))))  # type: ignore[attr-defined]

    @Fixed
    def mT(self) -> Any:
        """The tensor with its last two dims exchanged."""
        return function_named("matrix_transpose")(self)

    def astype(self, dtype: Any) -> Any:
        """Return the elements in another dtype."""
        return function_named("astype")(self, dtype)

    def reshape(self, *shape: Any) -> Any:
        """Return the elements in another shape: `x.reshape(2, -1)` or `x.reshape((2, -1))`."""
        sizes = shape[0] if len(shape) == 1 and as_int(shape[0]) is None else shape
        return function_named("reshape")(self, sizes)

    def transpose(self, *axes: Any) -> Any:
        """Return the dims in another order, or in reverse if none is given."""
        if not axes:
            return self.T
        order = axes[0] if len(axes) == 1 and as_int(axes[0]) is None else axes
        return function_named("permute_dims")(self, order)

    def permute_dims(self, axes: Sequence[int]) -> Any:
        """Return the dims in another order."""
        return function_named("permute_dims")(self, axes)

    def matrix_transpose(self) -> Any:
        """Return the tensor with its last two dims exchanged."""
        return function_named("matrix_transpose")(self)

    def moveaxis(self, source: int | Sequence[int], destination: int | Sequence[int]) -> Any:
        """Return the tensor with some dims at other positions."""
        return function_named("moveaxis")(self, source, destination)

    def expand_dims(self, axis: int = 0) -> Any:
        """Return the tensor with a new dim of size one."""
        return function_named("expand_dims")(self, axis=axis)

    def broadcast_to(self, shape: Sequence[int]) -> Any:
        """Return the tensor repeated along new leading dims and dims of size one."""
        return function_named("broadcast_to")(self, shape)

    def squeeze(self, axis: int | Sequence[int]) -> Any:
        """Return the tensor without dims of size one."""
        return function_named("squeeze")(self, axis)

    # -- along dims ----------------------------------------------------------------------------------

    def softmax(self, axis: int = -1) -> Any:
        """Return exp(x) divided by its sum along a dim."""
        return function_named("softmax")(self, axis=axis)

    def logsumexp(self, axis: Axis = None, *, keepdims: bool = False) -> Any:
        """Return log(sum(exp(x))) over dims."""
        return function_named("logsumexp")(self, axis=axis, keepdims=keepdims)

    def norm(self, axis: Axis = None, *, keepdims: bool = False, ord: float = 2) -> Any:
        """Return the vector norm over dims."""
        return function_named("norm")(self, axis=axis, keepdims=keepdims, ord=ord)

    def cumulative_sum(self, axis: int | None = None, *, dtype: Any = None, include_initial: bool = False) -> Any:
        """Return the sums of all elements up to each along a dim."""
        return function_named("cumulative_sum")(self, axis=axis, dtype=dtype, include_initial=include_initial)

    def log_softmax(self, axis: int = -1) -> Any:
        """Return the logarithm of softmax."""
        return function_named("log_softmax")(self, axis=axis)

    def topk(self, k: int, axis: int = -1) -> Any:
        """Return the `k` largest elements along a dim, and where they are."""
        return function_named("topk")(self, k, axis=axis)

    def layer_norm(self, weight: Any = None, bias: Any = None, *, axis: Axis = -1, eps: float = 1e-5) -> Any:
        """Return the tensor with mean 0 and variance 1 over dims, times `weight` plus `bias`."""
        return function_named("layer_norm")(self, weight, bias, axis=axis, eps=eps)

    def rms_norm(self, weight: Any = None, *, axis: Axis = -1, eps: float = 1e-5) -> Any:
        """Return the tensor divided by the root of the mean of its squares over dims, times `weight`."""
        return function_named("rms_norm")(self, weight, axis=axis, eps=eps)

    def cross_entropy(self, labels: Any, **how: Any) -> Any:
        """Return the loss of these logits for labels."""
        return function_named("cross_entropy")(self, labels, **how)

    def tril(self, *, k: int = 0) -> Any:
        """Return the lower triangle of matrices, and zeros elsewhere."""
        return function_named("tril")(self, k=k)

    def triu(self, *, k: int = 0) -> Any:
        """Return the upper triangle of matrices, and zeros elsewhere."""
        return function_named("triu")(self, k=k)

    def take(self, indices: Any, axis: int | None = None) -> Any:
        """Return the elements of a dim at these indices."""
        return function_named("take")(self, indices, axis=axis)

    def flip(self, axis: Axis = None) -> Any:
        """Return the elements in reverse order along dims."""
        return function_named("flip")(self, axis=axis)

    def roll(self, shift: Any, axis: Axis = None) -> Any:
        """Return the elements moved along by `shift` places."""
        return function_named("roll")(self, shift, axis=axis)

    def take_along_axis(self, indices: Any, axis: int = -1) -> Any:
        """Return, for each place of the other dims, the elements along one dim at its indices."""
        return function_named("take_along_axis")(self, indices, axis=axis)

    def one_hot(self, num_classes: int, **how: Any) -> Any:
        """Return 1 at each of these indices along a new last dim, and 0 elsewhere."""
        return function_named("one_hot")(self, num_classes, **how)

    def pad(self, pad_width: Any, **how: Any) -> Any:
        """Return the tensor with elements added before and after its dims."""
        return function_named("pad")(self, pad_width, **how)

    def split(self, indices_or_sections: int | Sequence[int], axis: int = 0) -> Any:
        """Return the tensor cut into equal sections along a dim, or at the given indices."""
        return function_named("split")(self, indices_or_sections, axis=axis)

    def unstack(self, axis: int = 0) -> Any:
        """Return the parts of the tensor along a dim, without that dim."""
        return function_named("unstack")(self, axis=axis)

    # -- products ------------------------------------------------------------------------------------

    def matmul(self, other: Any) -> Any:
        """Return the matrix product."""
        return function_named("matmul")(self, other)

    def tensordot(self, other: Any, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> Any:
        """Return the sums of products over dims of both."""
        return function_named("tensordot")(self, other, axes=axes)

    def conv(self, w: Any, **how: Any) -> Any:
        """Return the convolution with filters."""
        return function_named("conv")(self, w, **how)
