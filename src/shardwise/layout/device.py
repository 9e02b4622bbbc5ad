"""Devices: what stands in the slots of a mesh."""

from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import ClassVar, overload

from shardwise.errors import ArgumentError, MeshError, as_int, seal


@seal
@dataclass(frozen=True, slots=True, repr=False)
class Device:
    """One device: a kind, given by the class, and a number.

    >>> CPU() == CPU(0), CPU(1) == Accelerator(1)
    (True, False)
    """

    id: int = 0
    label: ClassVar[str] = "device"

    def __post_init__(self) -> None:
        number = as_int(self.id)
        if number is None:
            raise ArgumentError(f"{type(self).__name__} needs an int as its id, got {self.id!r}.")
        if number < 0:
            raise MeshError(f"{type(self).__name__} needs an id of 0 or more, got {number}.")
        object.__setattr__(self, "id", number)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id})"

    def __str__(self) -> str:
        return f"{self.label}:{self.id}"


@seal
@dataclass(frozen=True, slots=True, repr=False)
class CPU(Device):
    """A CPU, or one virtual device that lives in this process.

    >>> CPU(3)
    CPU(3)
    """

    label: ClassVar[str] = "cpu"


@seal
@dataclass(frozen=True, slots=True, repr=False)
class Accelerator(Device):
    """A GPU or another accelerator.

    >>> str(Accelerator(1))
    'gpu:1'
    """

    label: ClassVar[str] = "gpu"


def accelerator_count() -> int:
    """Return how many accelerators this process can see, through torch or else CuPy.

    >>> accelerator_count() >= 0
    True
    """
    if find_spec("torch") is not None:
        return import_module("torch").cuda.device_count()
    if find_spec("cupy") is not None:
        return import_module("cupy").cuda.runtime.getDeviceCount()
    return 0


_default: ContextVar[Device] = ContextVar("default_device", default=CPU(0))  # noqa: B039 (frozen)


@overload
def default_device(device: None = None) -> Device: ...
@overload
def default_device(device: Device) -> AbstractContextManager[Device]: ...
def default_device(device: Device | None = None) -> Device | AbstractContextManager[Device]:
    """Return the default device or, given one, make it the default inside a `with` block.

    >>> default_device()
    CPU(0)
    >>> with default_device(CPU(2)):
    ...     default_device()
    CPU(2)
    """
    if device is None:
        return _default.get()
    if not isinstance(device, Device):
        raise ArgumentError(f"default_device needs a Device such as CPU(0), got {device!r}.")
    return _using(device)


@contextmanager
def _using(device: Device) -> Generator[Device]:
    token = _default.set(device)
    try:
        yield device
    finally:
        _default.reset(token)
