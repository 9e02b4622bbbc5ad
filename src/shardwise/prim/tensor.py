"""Tensors: immutable global values that are spread over a mesh."""

# What a tensor remembers of its pending reduction is read and written by functions of this file.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from operator import is_
from typing import Any, NoReturn, Protocol, TypeVar, Union

import numpy as np

from shardwise.caches import cache
from shardwise.engine.arrays import NUMPY, Array, copy_into, dtype_of, is_torch, readonly, reduce_into, to_numpy
from shardwise.engine.current import Engine, current_engine
from shardwise.engine.execute import Program, program_of
from shardwise.engine.grid import Grid, regrid_from_host, tiles_of
from shardwise.engine.local_shards import LocalShards
from shardwise.engine.log import active_logs
from shardwise.engine.storage import Storage, region, storage_of
from shardwise.errors import ArgumentError, BindingError, ConversionError, EngineError, ShardwiseError, as_tuple, seal
from shardwise.layout.accessors import LayoutAccessors, mapping_of
from shardwise.layout.context import current_mesh
from shardwise.layout.conversion import LayoutLike, as_layout
from shardwise.layout.device import Device, default_device
from shardwise.layout.layout import Layout, Shape, check_shape
from shardwise.layout.mapping import DeviceMapping
from shardwise.layout.mesh import DeviceMesh, place_of
from shardwise.layout.notebook import Drawable
from shardwise.layout.placement import ReduceOp
from shardwise.layout.spec import ShardingSpec
from shardwise.layout.tiling import Box
from shardwise.plan.plan import plan_reshard
from shardwise.prim.face import public
from shardwise.prim.fixed import Fixed
from shardwise.prim.methods import Methods


class HasArray(Protocol):
    """What NumPy can read: its own arrays, tensors, and those of other libraries."""

    def __array__(self) -> Any: ...


Numbers = complex | np.generic | Sequence["Numbers"]
ArrayLike = Union["Tensor", np.ndarray[Any, Any], HasArray, Numbers]  # what can be made a tensor
Tree = TypeVar("Tree")  # containers of tensors, which keep their type


@seal
@dataclass(frozen=True, slots=True)
class Shard:
    """What one device holds: the box, halo included, in global coordinates, and the array.

    >>> from shardwise import DeviceMesh, P, shard
    >>> shard(np.arange(8.0), DeviceMesh((4,), ("x",)), P("x")).shards[2]
    Shard(device=CPU(2), index=2, box=((4, 6),), array=array([4., 5.]))
    """

    device: Device
    index: int
    box: Box
    array: Array


class Tensor(Methods, Drawable, LayoutAccessors):
    """An immutable value, seen as a whole, that is spread over a mesh by a layout.

    >>> from shardwise import DeviceMesh, P, shard
    >>> x = shard(np.arange(8.0), DeviceMesh((4,), ("x",)), P("x"))
    >>> x
    Tensor([0., 1., 2., 3., 4., 5., 6., 7.], float64[8@x] on x=4)
    >>> x.local(2)
    array([4., 5.])
    >>> x.ndim, x.size, x.nbytes, x.mesh, x.type_text, x.sharding.dim_specs[0].axes
    (1, 8, 64, DeviceMesh(x=4), 'float64[8@x]', ('x',))
    >>> x.shards[3].box, x.numpy().tolist() == x.gather().local(0).tolist(), x.gather().type_text
    (((6, 8),), True, 'float64[8]')
    >>> x.device, x.engine.name, len(x.arrays), len(x.kept), x.storage.count, x.is_local
    (None, 'local', 4, 4, 4, False)
    >>> x[3].item(), x[3:5].numpy()
    (3.0, array([3., 4.]))
    """

    __slots__ = ("_arrays", "_dtype", "_engine", "_layout", "_settled", "_shape")
    __array_priority__ = 1000

    shape: Shape = Fixed.slot("_shape", "The sizes of the dims.")
    dtype: np.dtype = Fixed.slot("_dtype", "The dtype of the elements.")
    layout: Layout = Fixed.slot("_layout", "How the tensor is spread over its mesh.")
    mesh: DeviceMesh = Fixed.slot("_layout.mesh", "The mesh that the tensor is spread over.")
    engine: Engine = Fixed.slot("_engine", "The engine that the tensor lives on.")
    kept = Fixed.slot("_arrays", "The arrays as the engine made them, perhaps as tiles of one.")
    level = 0  # of interpretation: a plain value
    is_recorded = False  # by a tracer

    def __init__(
        self, arrays: Sequence[Array], layout: Layout, shape: Shape, dtype: np.dtype, engine: Engine | None = None
    ) -> None:
        """Wrap the distinct arrays of a layout; users call `shard`, `asarray` or `from_shards`."""
        self._arrays = tuple(arrays) if isinstance(arrays, list) else arrays
        self._engine = engine or current_engine()
        self._settled: Tensor | None = None
        self._layout, self._shape, self._dtype = layout, shape, dtype

    def _interpret(self, row: Any, operands: tuple[Any, ...], params: dict[str, Any]) -> Tensor:
        """Apply a primitive to operands of which this one has the highest level: a plain value computes it."""
        return row.run(*operands, **params)

    def _constant(self) -> Tensor:
        """Return the same value as a constant to every derivative; what is recorded stays so."""
        return self

    @Fixed
    def is_local(self) -> bool:
        """Whether it is what devices hold inside `shard_map`."""
        return False

    # -- what it is --------------------------------------------------------------------------------

    @Fixed
    def ndim(self) -> int:
        """How many dims the tensor has."""
        return len(self._shape)

    @Fixed
    def size(self) -> int:
        """How many elements the tensor has."""
        return prod(self.shape)

    @Fixed
    def nbytes(self) -> int:
        """The bytes of the global value."""
        return self.size * self.dtype.itemsize

    @Fixed
    def device(self) -> Device | None:
        """The device that holds the tensor, or None if it is spread over several.

        >>> asarray([1.0]).device
        CPU(0)
        """
        return self.mesh.device(0) if self.mesh.is_single or self.mesh.is_simulated else None

    @Fixed
    def sharding(self) -> ShardingSpec | Layout:
        """The layout as a ShardingSpec or, where that cannot say it, the layout itself."""
        try:
            return ShardingSpec.from_layout(self.layout)
        except ConversionError:
            return self.layout

    @Fixed
    def arrays(self) -> Sequence[Array]:
        """The distinct arrays, for engines and kernels: never to be written to."""
        return tiles_of(self._arrays)

    @Fixed
    def storage(self) -> Storage:
        """Which device holds which of the arrays."""
        return storage_of(self._layout, self._shape)

    # -- as its type says it -----------------------------------------------------------------------

    @property
    def mapping(self) -> DeviceMapping:
        """The layout as placements or, where those cannot say it, as axis names.

        >>> asarray([1.0]).mapping.placements
        (Replicated(),)
        """
        return mapping_of(self.layout)

    @property
    def local_shards(self) -> tuple[Tensor, ...]:
        """What each device that this process can address holds, as a tensor on that device alone.

        >>> from shardwise import DeviceMesh, P, shard
        >>> [y.shape for y in shard([1.0, 2.0, 3.0], DeviceMesh((2,), ("x",)), P("x")).local_shards]
        [(2,), (1,)]
        """
        engine, storage, arrays = self._engine, self.storage, self.arrays
        out: list[Tensor] = []
        for index in engine.addressable(self.mesh):
            layout = Layout.replicated(DeviceMesh.single(self.mesh.device(index)), self.ndim)
            shape, array = storage.local_shape(storage.index(index)), arrays[storage.index(index)]
            own = engine.each(storage_of(layout, shape), self.dtype, lambda i, at, own=array: own, like=array)
            out.append(Tensor(own, layout, shape, self.dtype, engine))
        return tuple(out)

    # -- reading -----------------------------------------------------------------------------------

    def local(self, device: int) -> Array:
        """Return the array that the device with this index holds, in this process; it is read-only."""
        arrays, index = self._real(), self.mesh.check_index(device)
        _, here = self._engine.process(self.mesh, lambda devices: index in devices)
        if index not in here:
            raise EngineError(
                f"device {index} of ({self.mesh}) is {self.mesh.device(index)!r}, in another process; here are devices "
                f"{list(here)}.\n  x.gather() brings the value to every process."
            )
        return readonly(arrays[self.storage.index(index)])

    @Fixed
    def shards(self) -> tuple[Shard, ...]:
        """What each device that this process can address holds."""
        storage, arrays = self.storage, self._real()
        return tuple(
            Shard(self.mesh.device(i), i, storage.box(storage.index(i)), readonly(arrays[storage.index(i)]))
            for i in self._engine.addressable(self.mesh)
        )

    def numpy(self) -> np.ndarray:
        """Return the global value as a read-only NumPy array; nothing is sent between devices.

        Where this process does not hold all of it, that is an error.
        """
        arrays = self._read()
        if isinstance(arrays, LocalShards) and not arrays.is_whole:
            raise EngineError(
                f"this process holds a part of {self.type_text} on ({place_of(self.mesh)}) only, and "
                "reading never communicates.\n  x.gather().numpy() in all processes gives all of it to each; x.shards "
                "is what this one holds."
            )
        whole = self.layout.is_replicated and not self.layout.has_halo
        out = readonly(to_numpy(arrays[0]) if whole else assemble(self))
        if isinstance(arrays, LocalShards) and arrays.check is not None:
            arrays.check()  # what an accelerator waited for may have been abandoned meanwhile
        return out

    def item(self) -> Any:
        """Return the only element as a Python scalar."""
        if self.size != 1:
            raise BindingError(f"item() needs a tensor of one element, got shape {self.shape}.")
        return self.numpy().reshape(()).item()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        out = self.numpy()
        if dtype is not None and np.dtype(dtype) != out.dtype:
            if copy is False:
                raise ValueError(f"a copy is needed to convert {out.dtype} to {np.dtype(dtype)}.")
            return out.astype(dtype)
        return out.copy() if copy else out

    def __dlpack__(self, *, max_version: tuple[int, int] | None = None, **options: Any) -> Any:
        if not self.layout.is_replicated or self.layout.has_halo:
            raise ArgumentError(
                f"only a whole tensor can be exported; this one is laid out {self.layout} on {self.mesh}.\n"
                "  export one shard with from_dlpack(x.local(device)), or x.gather() first."
            )
        array = self._read(0)[0]
        if is_torch(array):
            return array.clone().__dlpack__(**options)
        # Older consumers cannot be told that it is read-only. torch can but does not listen: it is known by not
        # saying `copy`, as consumers of that version do.
        if max_version is not None and max_version >= (1, 0) and "copy" in options:
            return readonly(array).__dlpack__(max_version=max_version, **options)
        return array.copy().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._read(0)[0].__dlpack_device__()

    def _real(self) -> Sequence[Array]:
        if not self._engine.has_values:
            raise EngineError(f"a tensor on the {self._engine.name} engine has a layout but no values.")
        return self._arrays

    def _read(self, index: int | None = None) -> Sequence[Array]:
        # The arrays (or the one with this index) for reading: some may be elsewhere.
        return self._engine.read(self.storage, self._real(), index)

    # -- as a value --------------------------------------------------------------------------------

    @Fixed
    def type_text(self) -> str:
        """Dtype, shape and layout in short: `float32[8@x, 4]`."""
        return type_text(self.dtype, self.shape, self.layout)

    def __repr__(self) -> str:
        where = place_of(self.mesh)
        if not self._engine.has_values:
            return f"Tensor({self.type_text} on {where}, {self._engine.name})"
        arrays = self._read()
        if isinstance(arrays, LocalShards) and not arrays.is_whole:
            own = [str(i) for i, device in enumerate(self.mesh.devices) if device.id == arrays.rank]
            return f"Tensor({self.type_text} on {where}, of which device {', '.join(own) or 'none'} is here)"
        values = np.array2string(self.numpy(), separator=", ", threshold=50, edgeitems=2, prefix="Tensor(")
        return f"Tensor({values}, {self.type_text} on {where})"

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a 0-d tensor.")
        return self.shape[0]

    def __bool__(self) -> bool:
        return bool(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __complex__(self) -> complex:
        return complex(self.item())

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec and not self.shape else super().__format__(spec)

    def __iter__(self):
        raise TypeError("a Tensor is not iterable: it is one value spread over devices; x.numpy() gives its elements.")

    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        raise TypeError("a Tensor does not change; x.at[...].set(value) returns a new one.")


def together(*data: Any) -> list[Tensor]:
    """Return operands as tensors; host data used with a tensor goes to all devices of its mesh.

    >>> from shardwise import DeviceMesh, P, shard
    >>> x = shard(np.arange(4.0), DeviceMesh((4,), ("x",)), P("x"))
    >>> [str(y.layout) for y in together(x, [1.0])]
    ['[x]', '[-]']
    """
    mesh = next((x.mesh for x in data if isinstance(x, Tensor) and not x.mesh.is_single), None)
    if mesh is None:
        return [asarray(x) for x in data]
    return [x if isinstance(x, Tensor) else place_everywhere(x, mesh) for x in data]


def place_everywhere(data: Any, mesh: DeviceMesh) -> Tensor:
    """Return host data as a tensor that every device of a mesh has whole."""
    array = host_array(data)
    return place_data(array, Layout.replicated(mesh, array.ndim))


def lowest(x: Tensor) -> Tensor:
    """Return the tensor that an engine holds for a value, whatever watches it."""
    value: Any = x
    while value.level:
        value = value.value
    return value


def type_text(dtype: np.dtype, shape: Sequence[int], layout: Layout) -> str:
    """Return dtype, shape and layout in short."""
    dims = ", ".join(
        f"{size}@{'.'.join(map(str, cut.axes))}" if cut.axes else str(size)
        for size, cut in zip(shape, layout.dims, strict=True)
    )
    pending = f" {layout.reduce_op}({', '.join(map(str, layout.partial))})" if layout.partial else ""
    return f"{dtype}[{dims}]{pending}"


def assemble(x: Tensor) -> np.ndarray:
    """Return the global value put together from the arrays, on the host."""
    out = np.empty(x.shape, x.dtype)
    storage, arrays = x.storage, [to_numpy(array) for array in x.arrays]
    terms = storage.count // max(1, int(np.prod([dim.parts for dim in storage.tiling.dims])))
    for tile, first in zip(storage.tiling.tiles(), range(0, storage.count, terms), strict=True):
        owned, box = storage.tiling.tile_box(tile), storage.boxes[first]
        parts = [array[region(owned, box)] for array in arrays[first : first + terms]]
        reduce_into(out[region(owned, storage.tiling.bounds)], parts, x.layout.reduce_op or ReduceOp.SUM)
    return out


def move_to(x: Tensor, layout: Layout) -> Tensor:
    """Return the same value in another layout: the planner's plan, run by the tensor's engine."""
    if layout is x.layout:
        return x
    engine, program = x.engine, _program(x.layout, layout, x.shape, x.dtype)
    if program is None:
        # Devices hold what they need, though not in as many distinct arrays: equal copies seen as terms of an average.
        arrays, which = x.arrays, x.storage.index
        copies = engine.each(storage_of(layout, x.shape), x.dtype, lambda index, device: arrays[which(device)], arrays)
        return Tensor(copies, layout, x.shape, x.dtype, engine)
    out = engine.run(program, x.kept)
    if layout.mesh is not x.layout.mesh:
        # Between meshes the memory may differ: an accelerator's, or the host's.
        storage, device, tiles = storage_of(layout, x.shape), layout.mesh.device, tiles_of(out)
        placed = engine.each(storage, x.dtype, lambda i, at: engine.place(tiles[i], device(at)), tiles)
        out = out if type(out) is Grid and all(map(is_, placed, tiles)) else placed
    return Tensor(out, layout, x.shape, x.dtype, engine)


@cache()
def _program(src: Layout, dst: Layout, shape: Shape, dtype: np.dtype) -> Program | None:
    # What an engine runs, or None where devices hold what they need.
    plan = plan_reshard(src, dst, shape, dtype)
    return program_of(plan) if plan.steps or src.mesh is not dst.mesh else None


def operand(x: Tensor, layout: Layout) -> Tensor:
    """Return the value in the layout that an op needs; a pending reduction is paid for once.

    What it comes to is remembered with the tensor, for the next op (or the derivative of this one) that needs it.
    """
    if not x.layout.partial or layout.partial:
        return move_to(x, layout)
    if x._settled is None or x._settled.layout is not layout:
        x._settled = move_to(x, layout)
    return x._settled


def settle(x: Tensor) -> Tensor:
    """Return the value with nothing pending, if some op has paid for that, and otherwise as it is."""
    known = None if x.level else x._settled
    return known if known is not None and known.layout is x.layout.resolved() else x


@public()
def asarray(data: Any, dtype: Any = None) -> Tensor:
    """Return anything array-like as a tensor on the default device; a Tensor is passed through, in the dtype if given.

    >>> asarray([1.0, 2.0])
    Tensor([1., 2.], float64[2] on cpu:0)
    >>> asarray(asarray([1.0, 2.0]), "int32")
    Tensor([1, 2], int32[2] on cpu:0)
    """
    if isinstance(data, Tensor):
        return data if dtype is None or data.dtype == np.dtype(dtype) else data.astype(dtype)
    device, engine, array = default_device(), current_engine(), host_array(data, dtype)
    layout, shape, kind = Layout.replicated(DeviceMesh.single(device), array.ndim), tuple(array.shape), dtype_of(array)
    arrays = engine.each(storage_of(layout, shape), kind, lambda i, at: _own(engine.place(array, device)), like=array)
    return Tensor(arrays, layout, shape, kind, engine)


def host_array(data: Any, dtype: Any = None) -> Array:
    """Return data as a NumPy array or torch tensor, without a copy where that is possible."""
    if is_torch(data):
        local = without_grad(data)
        return local if dtype is None else local.to(getattr(__import__("torch"), str(np.dtype(dtype))))
    if hasattr(data, "__dlpack__") and not hasattr(data, "__array__"):
        data = np.from_dlpack(data)
    try:
        array = np.asarray(data, dtype=None if dtype is None else np.dtype(dtype))
    except ShardwiseError:  # of a local value, which says what it is
        raise
    except (TypeError, ValueError, RuntimeError) as error:  # the last from torch
        raise ArgumentError(f"an array or nested numbers were expected, got {type(data).__name__}: {error}.") from None
    if (array.dtype.kind not in "fciub" and array.dtype.kind != "V") or array.dtype.names:
        raise ArgumentError(f"numbers were expected, got an array of dtype {array.dtype}.")
    return array


def without_grad(array: Array) -> Array:
    """Return a torch tensor that no gradient of torch's goes through, as itself; refuse others.

    >>> import torch
    >>> without_grad(torch.nn.Parameter(torch.ones(2)))
    Traceback (most recent call last):
    shardwise.ArgumentError: a torch Parameter of shape (2,) that requires grad was given; torch would not see...
      pass x.detach() if its values are meant, and differentiate with shardwise.grad.
    """
    if not array.requires_grad:
        return array.detach()  # a Parameter as a plain tensor
    raise ArgumentError(
        f"a torch {type(array).__name__} of shape {tuple(array.shape)} that requires grad was given; torch would not "
        "see what is done with it here, and its gradient would miss that in silence.\n  pass x.detach() if its values "
        "are meant, and differentiate with shardwise.grad."
    )


def _own(array: Array) -> Array:
    # A tensor never changes, so it does not share memory with what the user may write to.
    if is_torch(array):
        return array.clone(memory_format=__import__("torch").contiguous_format)
    out = current_engine().empty(array.shape, array.dtype)
    if isinstance(out, NUMPY):
        copy_into(out, array)
    return out


def place_data(data: Any, layout: Layout) -> Tensor:
    """Return host data as a tensor of this layout; every device takes its shard from the host."""
    array, engine, device = host_array(data), current_engine(), layout.mesh.device
    if type(array) is np.ndarray and engine.holds_all and not active_logs():
        regrid = regrid_from_host(storage_of(layout, array.shape))
        if regrid is not None:  # as most are
            whole = engine.empty(regrid.after, array.dtype)
            source, into = regrid.match(array.reshape(regrid.before), whole)
            np.copyto(into, source)
            return Tensor(Grid(whole), layout, array.shape, array.dtype, engine)
    shape, dtype = check_shape(tuple(array.shape)), dtype_of(array)
    everywhere = Layout.replicated(layout.mesh, array.ndim)
    whole = storage_of(everywhere, shape)
    arrays = engine.each(whole, dtype, lambda i, at: engine.place(array, device(at)), (array,), array)
    out = move_to(Tensor(arrays, everywhere, shape, dtype, engine), layout)
    parts = out.arrays
    if type(out.kept) is Grid and _shares(out.kept.whole, arrays[0]):
        return Tensor(Grid(_own(out.kept.whole)), layout, shape, dtype, engine)

    def own(index: int, at: int) -> Array:
        return _own(parts[index]) if _shares(parts[index], arrays[0]) else parts[index]

    return Tensor(engine.each(storage_of(layout, shape), dtype, own, parts, array), layout, shape, dtype, engine)


def _shares(part: Array, array: Array) -> bool:
    if is_torch(part):
        return part.untyped_storage().data_ptr() == array.untyped_storage().data_ptr()
    return isinstance(part, NUMPY) and np.may_share_memory(part, array)


@public()
def from_shards(
    shards: Sequence[Any] | Mapping[int, Any],
    mesh: DeviceMesh | None,
    layout: LayoutLike,
    shape: Sequence[int],
    *,
    dtype: Any = None,
) -> Tensor:
    """Return the tensor whose devices hold these arrays, one per device in the order of the mesh.

    Where devices live in several processes, a mapping of the indices of this one's to their arrays is enough; one that
    has none gives the `dtype`. Shapes and dtypes are checked, and that devices which hold the same data hold equal
    arrays, as far as they are given.

    >>> from shardwise import DeviceMesh, P
    >>> from_shards([[1.0, 2.0], [3.0]], DeviceMesh((2,), ("x",)), P("x"), (3,))
    Tensor([1., 2., 3.], float64[3@x] on x=2)
    """
    sizes = check_shape(shape)
    layout = as_layout(layout, len(sizes), current_mesh(mesh))
    storage, engine = storage_of(layout, sizes), current_engine()
    arrays = _arrays_by_device(shards, layout.mesh, engine)
    dtypes = {dtype_of(array) for array in arrays.values()}
    if dtype is not None:
        dtypes.add(np.dtype(dtype))
    if not dtypes:
        raise BindingError(f"no device of ({layout.mesh}) is in this process, so from_shards needs the dtype.")
    if len(dtypes) > 1:
        raise BindingError(f"shards must have one dtype, got {', '.join(sorted(map(str, dtypes)))}.")
    kind = dtypes.pop()
    layout.check_dtype(kind)
    parts: dict[int, Array] = {}
    for device, array in arrays.items():
        index = storage.index(device)
        if tuple(array.shape) != storage.local_shape(index):
            raise BindingError(
                f"device {device} must hold shape {storage.local_shape(index)} of a tensor of shape {sizes} laid out "
                f"{layout}, got {tuple(array.shape)}."
            )
        if index not in parts:
            parts[index] = _own(engine.place(array, layout.mesh.device(device)))
        elif not _are_equal(to_numpy(array), to_numpy(parts[index])):
            raise BindingError(
                f"devices {storage.holder(index)} and {device} hold the same part under {layout}, but their "
                "arrays differ.\n  if they are contributions to be summed, say so: P(..., unreduced=[axis])."
            )
    like = next(iter(arrays.values()), None)
    own = engine.each(storage, kind, lambda index, device: parts[index], like=like)
    return Tensor(own, layout, sizes, kind, engine)


def _are_equal(x: np.ndarray, y: np.ndarray) -> bool:
    # NaN is equal to NaN, in dtypes that NumPy does not know as floats too.
    with np.errstate(invalid="ignore"):
        return bool(np.all((x == y) | ((x != x) & (y != y))))


def constant(x: Tensor) -> Tensor:
    """Return the value without what interpreters make of it, so that derivatives take it for a constant.

    >>> constant(asarray([1.0]))
    Tensor([1.], float64[1] on cpu:0)
    """
    return x._constant()


def _arrays_by_device(shards: Sequence[Any] | Mapping[int, Any], mesh: DeviceMesh, engine: Engine) -> dict[int, Array]:
    # The arrays by device: of all devices, or at least of those in this process.
    wanted = "from_shards takes a list of arrays, one per device, or a mapping from devices to arrays"
    pairs = dict(shards.items() if isinstance(shards, Mapping) else enumerate(as_tuple(shards, wanted)))
    if pairs and not isinstance(shards, Mapping) and all(isinstance(s, Shard) for s in pairs.values()):
        shards = pairs = _by_device(list(pairs.values()))
    for device, piece in pairs.items():
        if isinstance(piece, Shard) and piece.index != device:
            raise BindingError(
                f"the shard of device {piece.index} was given for device {device}.\n  pass s.array to move it there."
            )
    arrays = {device: host_array(s.array if isinstance(s, Shard) else s) for device, s in sorted(pairs.items())}
    if len(arrays) == mesh.num_devices and list(arrays) == list(range(mesh.num_devices)):
        return arrays
    some_suffice = isinstance(shards, Mapping) and all(mesh.check_index(d) >= 0 for d in arrays)
    _, here = engine.process(mesh, lambda devices: some_suffice and arrays.keys() >= set(devices))
    if some_suffice and arrays.keys() >= set(here):
        return arrays
    some = f" (this process has {list(here)})" if len(here) < mesh.num_devices else ""
    raise BindingError(f"the mesh ({mesh}) has {mesh.num_devices} devices{some}, got {len(arrays)} shards.")


def _by_device(shards: Sequence[Shard]) -> dict[int, Shard]:
    out: dict[int, Shard] = {}
    for piece in shards:
        if piece.index in out:
            raise BindingError(f"two shards were given for device {piece.index}; each device holds one.")
        out[piece.index] = piece
    return out
