"""Array libraries: the few things an engine asks of NumPy or torch arrays, in one place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
from array_api_compat import array_namespace

from shardwise.caches import cache
from shardwise.errors import ArgumentError, EngineError
from shardwise.layout.device import Accelerator, Device, accelerator_count
from shardwise.layout.placement import FLOAT32, ReduceOp, accumulator, kind_of

if TYPE_CHECKING:
    import torch

Array = Any  # a NumPy array or a torch tensor

UFUNCS: dict[ReduceOp, np.ufunc] = {
    ReduceOp.SUM: np.add,
    ReduceOp.AVG: np.add,
    ReduceOp.MIN: np.minimum,
    ReduceOp.MAX: np.maximum,
    ReduceOp.PROD: np.multiply,
    ReduceOp.BAND: np.bitwise_and,
    ReduceOp.BOR: np.bitwise_or,
    ReduceOp.BXOR: np.bitwise_xor,
}
FLOAT64 = np.dtype(np.float64)
SCALAR: type[Any] = np.generic
NUMPY: type[Any] = np.ndarray  # an array that is one of its own stays an Array to type checkers
finfo: Callable[[np.dtype], Any] = ml_dtypes.finfo
FEW = 1 << 12  # numbers that float32 adds up one after the other without harm to 16 bits
ADDING = (ReduceOp.SUM, ReduceOp.AVG, ReduceOp.PROD)  # what rounds


def is_torch(array: object) -> bool:
    """Whether an array is a torch tensor; never imports torch."""
    kind = type(array)
    return kind is not np.ndarray and is_of_torch(kind)


@cache(entries=256)
def is_of_torch(kind: type) -> bool:
    """Whether a type of arrays is one of torch."""
    return kind.__module__.partition(".")[0] == "torch"


def dtype_of(array: Array) -> np.dtype:
    """Return the NumPy dtype of an array of either library."""
    return _numpy_dtype(array.dtype) if is_of_torch(array.__class__) else array.dtype


@cache(entries=256)
def _numpy_dtype(kind: Any) -> np.dtype:
    return np.dtype(str(kind).removeprefix("torch."))


@cache(entries=256)
def is_foreign(dtype: np.dtype) -> bool:
    """Whether a dtype, such as bfloat16, is not one of NumPy's own, which then has no rules for it.

    >>> is_foreign(np.dtype(ml_dtypes.float8_e5m2)), is_foreign(np.dtype("float16"))
    (True, False)
    """
    return dtype.isbuiltin == 2


@cache(entries=256)
def is_low(dtype: np.dtype) -> bool:
    """Whether values are added up in a dtype that is wider than their own.

    >>> is_low(np.dtype("float16")), is_low(np.dtype("float32"))
    (True, False)
    """
    return accumulator(dtype) != dtype


def room_for(dtype: np.dtype, count: int, most: int = FEW) -> np.dtype:
    """Return the dtype in which `count` values are added one after the other: above `most`, float64 for small floats.

    The roundings of float32 add up too: a million numbers of about one are off by a hundredth, all in one direction.

    >>> room_for(np.dtype("float16"), 10), room_for(np.dtype("float16"), 10**6), room_for(np.dtype("float32"), 10**6)
    (dtype('float32'), dtype('float64'), dtype('float32'))
    """
    if not is_low(dtype):
        return dtype
    return FLOAT32 if count <= most else FLOAT64


def as_array(value: Array) -> Array:
    """Return a value as an array: of some 0-d arrays NumPy makes scalars.

    >>> as_array(np.float32(1.0))
    array(1., dtype=float32)
    """
    return np.asarray(value) if isinstance(value, SCALAR) else value


def cast(array: Array, dtype: np.dtype) -> Array:
    """Return an array of either library in a dtype; one that has it already is passed through.

    >>> cast(np.ones(2, "float16"), np.dtype("float32"))
    array([1., 1.], dtype=float32)
    """
    if not is_torch(array):
        return array.astype(dtype, copy=False)
    return array.to(torch_dtype(dtype))


def torch_dtype(dtype: np.dtype) -> torch.dtype:
    """Return the dtype of torch that has the name of a dtype."""
    import torch

    return getattr(torch, str(dtype))


def identity(op: ReduceOp, dtype: np.dtype) -> Any:
    """Return the element that changes nothing under a reduction.

    >>> identity(ReduceOp.SUM, np.dtype("float32")), identity(ReduceOp.MIN, np.dtype("uint8"))
    (-0.0, 255)
    """
    if op is ReduceOp.SUM:  # 0.0 would make 0.0 of -0.0
        return {"f": -0.0, "c": complex(-0.0, -0.0)}.get(kind_of(dtype), 0)
    if op in (ReduceOp.BOR, ReduceOp.BXOR):
        return 0
    if op is ReduceOp.PROD:
        return 1
    kind = kind_of(dtype)
    if op is ReduceOp.BAND:
        return True if kind == "b" else -1 if kind == "i" else int(ml_dtypes.iinfo(dtype).max)
    if op is ReduceOp.AVG:
        raise ArgumentError("an average has no identity element.")
    if kind == "b":
        return op is ReduceOp.MIN
    if kind in "iu":
        info = ml_dtypes.iinfo(dtype)
        return int(info.min if op is ReduceOp.MAX else info.max)
    infinite = -np.inf if op is ReduceOp.MAX else np.inf
    if np.isinf(np.asarray(infinite).astype(dtype)):
        return infinite
    limits = finfo(dtype)  # some 8-bit floats have no infinity
    return limits.min if op is ReduceOp.MAX else limits.max


def reduce_into(out: Array, terms: Sequence[Array], op: ReduceOp) -> None:
    """Write the reduction of several equally shaped arrays into `out`, in the order given.

    Floats of 16 bits or fewer are added up in float32 and rounded once; terms may be float32 already.
    """
    if op in ADDING and (is_low(dtype_of(out)) or terms[0].dtype != out.dtype):
        _reduce_wide(out, terms, op)
        return
    if op is ReduceOp.PROD and len(terms) > 1 and dtype_of(out).kind == "c":
        copy_into(out, _multiply_complex(terms))
        return
    function: Callable[..., Any] = UFUNCS[op]
    if is_torch(out):
        function = _torch_function(op)
        if out.is_complex() and op in (ReduceOp.SUM, ReduceOp.AVG):  # whose torch.add loses signs of zeros
            import torch

            out, terms = torch.view_as_real(out), [torch.view_as_real(term.resolve_conj()) for term in terms]
    if len(terms) == 1:
        copy_into(out, terms[0])
    else:
        function(terms[0], terms[1], out=out)
    for term in terms[2:]:
        function(out, term, out=out)
    if op is ReduceOp.AVG:
        _divide(out, len(terms))


def _reduce_wide(out: Array, terms: Sequence[Array], op: ReduceOp) -> None:
    # An average is divided before it is rounded: the sum may be too large for 16 bits.
    total, wide = terms[0], accumulator(dtype_of(out))
    if len(terms) > 1 and is_torch(out):
        function, kind = _torch_function(op), torch_dtype(wide)
        total = function(terms[0].to(kind), terms[1].to(kind))
        for term in terms[2:]:
            function(total, term.to(kind), out=total)
    elif len(terms) > 1:
        ufunc = UFUNCS[op]
        total = np.asarray(ufunc(terms[0], terms[1], dtype=wide))  # of 0-d arrays a ufunc makes a number
        for term in terms[2:]:
            ufunc(total, term, out=total, dtype=wide)
    if op is ReduceOp.AVG and len(terms) > 1:
        _divide(total, len(terms))
    if is_torch(out):
        out.copy_(total)
    else:
        np.copyto(out, total, casting="unsafe")


def _torch_function(op: ReduceOp) -> Callable[..., Any]:
    import torch

    return getattr(torch, UFUNCS[op].__name__)


def _divide(total: Any, count: int) -> None:
    if is_torch(total):
        total.div_(count)
        return
    # Complex numbers part by part: their own division rounds more than once.
    for part in (total.real, total.imag) if total.dtype.kind == "c" else (total,):
        np.divide(part, part.dtype.type(count), out=part)


def _multiply_complex(terms: Sequence[Array]) -> Array:
    # One times an infinite complex number is not that number: its other part becomes NaN. But devices that contribute
    # nothing hold ones, so they are left out.
    names, total = array_namespace(terms[0]), terms[0]
    for term in terms[1:]:
        with np.errstate(all="ignore"):  # of the products that are not taken
            product = total * term
        total = names.where(term == 1, total, names.where(total == 1, term, product))
    return total


def copy_into(out: Array, source: Array) -> None:
    """Copy one array into another of the same shape and library."""
    if is_torch(out):
        out.copy_(source)
    else:
        np.copyto(out, source)


def join_into(out: Array, parts: Sequence[Array], dim: int) -> None:
    """Copy arrays into `out`, side by side along a dim."""
    if type(out) is np.ndarray:
        if len(parts) == 1:
            np.copyto(out, parts[0])
        else:
            np.concatenate(parts, dim, out)
    else:
        for place, part in zip(placed_along(out, parts, dim), parts, strict=True):
            place.copy_(part)


def placed_along(out: Array, parts: Sequence[Array], dim: int) -> Iterator[Array]:
    """Yield the views of `out` in which arrays come to lie that are joined along a dim."""
    start = 0
    for part in parts:
        stop = start + part.shape[dim]
        yield out[(*(slice(None),) * dim, slice(start, stop))] if part.ndim else out
        start = stop


def pieces(arrays: Sequence[Array], most: int) -> Iterator[Sequence[Array]]:
    """Yield equally shaped arrays cut alike, leading dims first, into pieces of at most `most` bytes.

    >>> [piece.shape for (piece,) in pieces([np.zeros((2, 8), "int8")], 6)]
    [(6,), (6,), (4,)]
    """
    first = arrays[0]
    if first.nbytes <= most or first.size == 1:
        yield arrays
        return
    if all(array.flags.c_contiguous for array in arrays):
        arrays = [array.reshape(-1) for array in arrays]
    dim = next(dim for dim, size in enumerate(arrays[0].shape) if size > 1)
    size = arrays[0].shape[dim]
    step = max(1, most * size // first.nbytes)
    for start in range(0, size, step):
        at = (*(slice(None),) * dim, slice(start, start + step))
        yield from pieces([array[at] for array in arrays], most)


def runs_of(arrays: Sequence[Array], length: int) -> list[Array] | None:
    """Return NumPy arrays seen as of elements that are `length` long along the last dim, if they can be."""
    if not all(type(a) is np.ndarray and (a.strides[-1] == a.itemsize or not a.size) for a in arrays):
        return None
    wide = np.dtype((np.void, length * arrays[0].itemsize))
    return [array.view(wide) for array in arrays]


def readonly(array: Array) -> Array:
    """Return a view that cannot be written through; of a torch tensor, which has no such thing, a copy."""
    if is_torch(array):
        return array.clone()
    if not array.flags.writeable:
        return array
    view = array.view()
    view.flags.writeable = False
    return view


def to_numpy(array: Array) -> np.ndarray:
    """Return an array of either library as a NumPy array, without a copy where that is possible."""
    if not is_torch(array):
        return array
    array, dtype = array.detach().cpu(), dtype_of(array)
    if dtype.isbuiltin == 1:
        return array.numpy()
    import torch

    bits = torch.int16 if dtype.itemsize == 2 else torch.uint8
    return array.contiguous().view(bits).numpy().view(dtype)


def in_memory(array: Array, device: Device) -> Array:
    """Return an array in the memory of a device, which must be there."""
    if isinstance(device, Accelerator) and device.id >= (count := accelerator_count()):
        raise EngineError(
            f"{device!r} is not there: {count} accelerators were found (looked for CUDA devices through torch, then "
            "CuPy).\n  install the extra shardwise[torch] with a CUDA build, or use CPU()."
        )
    return on_device(array, device)


def on_device(array: Array, device: Device) -> Array:
    """Return an array in the memory of a device: a torch tensor on an accelerator, or what it is on the host.

    What is already there is passed through without a copy.
    """
    if isinstance(device, Accelerator):
        import torch

        if not is_torch(array):
            array = torch_of(array)
        return array.to(torch.device("cuda", device.id))
    return array.cpu() if is_torch(array) else array


def empty_like(like: Array, shape: Sequence[int], dtype: np.dtype) -> Array:
    """Return a torch tensor with arbitrary contents where another is."""
    if dtype_of(like) == dtype:
        return like.new_empty(tuple(shape))
    return like.new_empty(tuple(shape), dtype=torch_dtype(dtype))


def torch_of(array: np.ndarray) -> Array:
    """Return a NumPy array as a torch tensor of the host, which shares its memory where it may be written to."""
    return torch_view(array if array.flags.writeable and array.flags.c_contiguous else array.copy())


def torch_view(array: Array) -> Array:
    """Return an array as a torch tensor that shares its memory; of one that may not be written to, a copy."""
    if is_torch(array):
        return array
    bits = array if array.flags.writeable else array.copy()
    is_known = array.dtype.isbuiltin == 1
    if not is_known:  # of the dtypes that NumPy does not know itself, torch takes the bits
        bits = bits.view(np.dtype(f"u{array.dtype.itemsize}"))
    tensor = __import__("torch").from_numpy(bits)
    return tensor if is_known else tensor.view(torch_dtype(array.dtype))
