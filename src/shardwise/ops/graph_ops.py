"""Collectives on lists of arrays, one per device: the list forms of the communication functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from shardwise.errors import ArgumentError, BindingError, as_int, seal
from shardwise.layout.device import Device
from shardwise.layout.layout import Layout
from shardwise.layout.mesh import DeviceMesh
from shardwise.ops.communication import to_device
from shardwise.prim.kernel import zeros
from shardwise.prim.movement.parts import join, on, own_copy, stack_parts
from shardwise.prim.movement.shards import local_map
from shardwise.prim.relayout import relayout
from shardwise.prim.tensor import Tensor, asarray


@seal
@dataclass(frozen=True, slots=True)
class SignalBuffer:
    """Says that a device takes part in a collective.

    >>> from shardwise import CPU
    >>> SignalBuffer(CPU(1)).device
    CPU(1)
    """

    device: Device

    def __post_init__(self) -> None:
        if not isinstance(self.device, Device):
            raise ArgumentError(f"SignalBuffer needs a Device such as CPU(0), got {self.device!r}.")


def distributed_broadcast(input: Any, signal_buffers: Iterable[SignalBuffer]) -> list[Tensor]:
    """Return a copy of `input`, which stays on its own device, for each of the participating devices.

    >>> from shardwise import CPU
    >>> [x.device for x in distributed_broadcast([1.0, 2.0], [SignalBuffer(CPU(0)), SignalBuffer(CPU(1))])]
    [CPU(0), CPU(1)]
    """
    x, devices = asarray(input), _devices(signal_buffers, "distributed_broadcast")
    if len(devices) < 2:
        raise BindingError(f"distributed_broadcast needs at least 2 signal buffers, got {len(devices)}.")
    if x.device not in devices:
        raise BindingError(
            f"the input is on {x.device!r}, which is not among the devices of the signal buffers: {devices}."
        )
    mesh = DeviceMesh((len(devices),), ("device",), devices)
    return _split(relayout(x, layout=Layout.replicated(mesh, x.ndim)))


def transfer_to(x: Any, device: Device) -> Tensor:
    """Return a tensor moved to another device.

    >>> from shardwise import CPU
    >>> transfer_to([1.0], CPU(2)).device
    CPU(2)
    """
    if not isinstance(device, Device):
        raise ArgumentError(f"transfer_to needs a Device such as CPU(0), got {device!r}.")
    return to_device(asarray(x), device)


def allgather(inputs: Iterable[Any], signal_buffers: Iterable[SignalBuffer], axis: int = 0) -> list[Tensor]:
    """Return, for the device of each input, all inputs joined along dim `axis`.

    Inputs may differ in size along that dim. Of no inputs there are no results.

    >>> from shardwise import CPU
    >>> parts = [transfer_to([1.0], CPU(0)), transfer_to([2.0, 3.0], CPU(1))]
    >>> allgather(parts, [SignalBuffer(CPU(0)), SignalBuffer(CPU(1))])[1]
    Tensor([1., 2., 3.], float64[3] on cpu:1)
    """
    parts, devices = [asarray(x) for x in inputs], _devices(signal_buffers, "allgather")
    if len(parts) != len(devices):
        raise BindingError(f"allgather needs one signal buffer per input, got {len(devices)} for {len(parts)} inputs.")
    if not parts:
        return []
    dim = _dim(parts[0], axis, "allgather")
    placed = [x if x.device == d else to_device(x, d) for x, d in zip(parts, devices, strict=True)]
    for x in placed:
        if _other(x.shape, dim) != _other(parts[0].shape, dim) or x.ndim != parts[0].ndim:
            raise BindingError(
                f"allgather joins inputs along dim {dim}, so their other dims must agree; got shapes "
                f"{[p.shape for p in parts]}."
            )
        if x.dtype != parts[0].dtype:
            raise BindingError(f"allgather needs one dtype, got {sorted({str(p.dtype) for p in parts})}.")
    whole = join(*placed, dim=dim)
    return _split(relayout(whole, layout=Layout.replicated(whole.mesh, whole.ndim)))


def shard_and_stack(inputs: Sequence[Any], devices: Sequence[Device], axis: int = 0) -> list[Tensor]:
    """Return for each device its chunk, along dim `axis`, of every input, stacked along a new dim 0.

    >>> from shardwise import CPU
    >>> shard_and_stack([[1.0, 2.0], [3.0, 4.0]], [CPU(0), CPU(1)])[1].numpy()
    array([[2.],
           [4.]])
    """
    parts, places = [asarray(x) for x in inputs], list(devices)
    if not parts:
        raise BindingError("shard_and_stack needs at least one input, got none.")
    if not places:
        raise BindingError("shard_and_stack needs at least one device, got none.")
    for device in places:
        if not isinstance(device, Device):
            raise ArgumentError(f"shard_and_stack needs Device values such as CPU(0), got {device!r}.")
    if odd := [x for x in parts if x.shape != parts[0].shape]:
        raise BindingError(f"shard_and_stack needs inputs of one shape, got {parts[0].shape} and {odd[0].shape}.")
    if odd := [x for x in parts if x.dtype != parts[0].dtype]:
        raise BindingError(f"shard_and_stack needs inputs of one dtype, got {parts[0].dtype} and {odd[0].dtype}.")
    if odd := [x for x in parts if x.device != parts[0].device]:
        raise BindingError(
            f"shard_and_stack needs inputs on one device, got {parts[0].device!r} and {odd[0].device!r}."
        )
    dim = _dim(parts[0], axis, "shard_and_stack")
    size, count = parts[0].shape[dim], len(places)
    if size % count:
        raise BindingError(f"dim {dim} of size {size} is not evenly divisible by {count} devices.")
    return [_chunk(parts, dim, size // count, i, device) for i, device in enumerate(places)]


def _chunk(parts: Sequence[Tensor], dim: int, width: int, index: int, device: Device) -> Tensor:
    where = (*[slice(None)] * dim, slice(index * width, (index + 1) * width))
    shape = parts[0].shape

    def transpose(array: Any) -> Any:
        out = zeros(array, shape)
        out[where] = array
        return out

    local = (*shape[:dim], width, *shape[dim + 1 :])
    kernels = {"kernel": itemgetter(where), "transpose": transpose}
    return to_device(stack_parts(*[local_map(x, **kernels, layout=x.layout, shape=local) for x in parts]), device)


def _split(x: Tensor) -> list[Tensor]:
    # One tensor per device, each with an array of its own.
    return [own_copy(relayout(x, layout=on(device, x.ndim))) for device in x.mesh.devices]


def _devices(buffers: Iterable[SignalBuffer], function: str) -> list[Device]:
    out: list[Device] = []
    for buffer in buffers:
        device = getattr(buffer, "device", None)
        if not isinstance(device, Device):
            raise ArgumentError(f"{function} needs SignalBuffer values, got {buffer!r}.")
        out.append(device)
    if len(set(out)) != len(out):
        raise BindingError(f"{function} needs signal buffers on unique devices, got {out}.")
    return out


def _dim(x: Tensor, axis: int, function: str) -> int:
    dim = as_int(axis)
    if dim is None:
        raise ArgumentError(f"{function}: axis is an int, got {axis!r}.")
    if not -x.ndim <= dim < x.ndim:
        raise BindingError(f"{function}: axis {dim} is out of bounds for tensors with {x.ndim} dims.")
    return dim % x.ndim


def _other(shape: tuple[int, ...], dim: int) -> tuple[int, ...]:
    return shape[:dim] + shape[dim + 1 :]
