"""Device meshes: named grids of devices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any

from shardwise.caches import Interned, cached_property, intern
from shardwise.errors import (
    ArgumentError,
    LayoutError,
    MeshError,
    as_int,
    as_tuple,
    check_int,
    check_sizes,
    did_you_mean,
    is_sequence_of,
    printable,
    seal,
)
from shardwise.layout.axis import SUB_AXIS, Axis, check_disjoint, gaps
from shardwise.layout.device import Device
from shardwise.layout.device_order import RegularOrder, fit_order, join_factors, virtual_order
from shardwise.layout.notebook import Drawable
from shardwise.names import Renamed

Order = RegularOrder | tuple[Device, ...]


@seal
class DeviceMesh(Interned, Drawable):
    """An n-dimensional grid of devices whose axes have names.

    Equal meshes are the same object. Nothing that grows with the number of devices is built until
    somebody asks for it. Wherever an axis name is taken, a sub-axis `"x:(pre)size"` is too.

    >>> mesh = DeviceMesh((2, 4), ("dp", "tp"))
    >>> mesh
    DeviceMesh(dp=2, tp=4)
    >>> mesh.coords(6), mesh.index((1, 2)), mesh.devices[6]
    ((1, 2), 6, CPU(6))
    >>> mesh.groups("dp")
    [(0, 4), (1, 5), (2, 6), (3, 7)]
    >>> mesh.ndim, mesh.num_devices, mesh.devices[:2], mesh.device(5)
    (2, 8, (CPU(0), CPU(1)), CPU(5))
    >>> mesh.device_coord(6, "tp")
    2
    >>> mesh.axis_size("tp"), mesh.strides, mesh.group(6, "tp")
    (4, {'dp': 4, 'tp': 1}, (4, 5, 6, 7))
    >>> mesh.is_single, mesh.is_simulated, DeviceMesh((2,), ("x",), [Device(0)] * 2).is_simulated
    (False, False, True)
    """

    __slots__ = ("__dict__", "__weakref__", "_order", "axis_names", "mesh_shape", "name")

    mesh_shape: tuple[int, ...]
    axis_names: tuple[str, ...]
    name: str
    _order: Order

    def __new__(
        cls,
        mesh_shape: Sequence[int],
        axis_names: Sequence[str],
        devices: Iterable[Device] | None = None,
        *,
        name: str = "mesh",
    ) -> DeviceMesh:
        """Return the mesh of this shape; without `devices`, of as many distinct virtual CPU devices."""
        _check_order_of_arguments(mesh_shape, axis_names)
        wanted = "mesh_shape is a tuple of sizes such as (2, 4)"
        shape, names = check_sizes(mesh_shape, wanted, "of a mesh", 1, MeshError), _check_names(axis_names)
        if len(shape) != len(names):
            raise MeshError(
                f"a mesh needs one name per axis, got {len(shape)} sizes {shape} and {len(names)} names {names}."
            )
        if not isinstance(name, str):
            raise ArgumentError(f"the name of a mesh is a string, got {name!r}.")
        order = virtual_order(shape) if devices is None else _check_order(devices, shape)
        return _intern(cls, shape, names, order, name)

    # -- the value ---------------------------------------------------------------------------------

    def __reduce__(self) -> tuple[Any, ...]:
        return _intern, (type(self), self.mesh_shape, self.axis_names, self._order, self.name)

    def __str__(self) -> str:
        pairs = zip(self.axis_names, self.mesh_shape, strict=True)
        return printable(", ".join(f"{name}={size}" for name, size in pairs), keep="")

    def __repr__(self) -> str:
        devices = "" if self._order == virtual_order(self.mesh_shape) else f", devices={_brief(self)}"
        name = "" if self.name == "mesh" else f", name={self.name!r}"
        return f"DeviceMesh({self}{devices}{name})"

    @property
    def ndim(self) -> int:
        """How many axes the mesh has."""
        return len(self.mesh_shape)

    @cached_property
    def num_devices(self) -> int:
        """How many slots the mesh has."""
        return prod(self.mesh_shape)

    @cached_property
    def indices(self) -> range:
        """The indices of all slots.

        >>> DeviceMesh((2, 4), ("x", "y")).indices
        range(0, 8)
        """
        return range(self.num_devices)

    @cached_property
    def devices(self) -> tuple[Device, ...]:
        """The devices in row-major order of the mesh; built when first asked for."""
        return self._order if isinstance(self._order, tuple) else self._order.devices()

    def device(self, index: int) -> Device:
        """Return the device in one slot, without building the list of all."""
        index = self.check_index(index)
        if isinstance(self._order, tuple):
            return self._order[index]
        return self._order.device(self.coords(index))

    @property
    def is_single(self) -> bool:
        """Whether the mesh has one slot only."""
        return self.num_devices == 1

    @property
    def is_simulated(self) -> bool:
        """Whether several slots stand for one and the same device."""
        if self.num_devices == 1:
            return False
        if isinstance(self._order, tuple):
            return len(set(self._order)) == 1
        return all(stride == 0 for axis in self._order.axes for _, stride in axis)

    @property
    def order(self) -> Order:
        """Which device stands where: a formula, or the tuple of devices.

        >>> DeviceMesh((4,), ("x",)).flatten(name="y").order == DeviceMesh((4,), ("y",)).order
        True
        """
        return self._order

    @classmethod
    def single(cls, device: Device) -> DeviceMesh:
        """Return the mesh of one device, which has one axis, `"_"`, of size 1.

        >>> DeviceMesh.single(Device(3)), DeviceMesh.single(Device(3)).is_single
        (DeviceMesh(_=1, devices=[Device(3)]), True)
        """
        return cls((1,), ALONE, [device])

    # -- axes and coordinates ----------------------------------------------------------------------

    def axis(self, axis: str | int | Axis, where: str = "") -> Axis:
        """Return the axis or sub-axis of this name or index; `where` tells the error who asked.

        >>> DeviceMesh((8,), ("x",)).axis("x:(2)4").size
        4
        """
        # Only names and axes are remembered: by number, 1.0 and True would find axis 1.
        if not isinstance(axis, str | Axis):
            return self._parse(axis, f" in {where}" if where else "")
        if axis not in self._axes:
            self._axes[axis] = self._parse(axis, f" in {where}" if where else "")
        return self._axes[axis]

    def axis_size(self, axis: str | int | Axis) -> int:
        """Return the size of an axis or sub-axis."""
        return self.axis(axis).size

    @cached_property
    def strides(self) -> Mapping[str, int]:
        """How far apart in the device index two neighbours along each axis are."""
        return {n: prod(self.mesh_shape[i + 1 :]) for i, n in enumerate(self.axis_names)}

    def divisor(self, axis: Axis) -> int:
        """Return d such that the position of device i along `axis` is `i // d % axis.size`.

        >>> mesh = DeviceMesh((2, 4), ("dp", "tp"))
        >>> mesh.divisor(mesh.axis("dp")), mesh.divisor(mesh.axis("tp"))
        (4, 1)
        """
        try:
            return self.strides[axis.name] * (axis.of // (axis.pre * axis.size))
        except (AttributeError, KeyError):
            own = self.axis(axis)  # which says what is wrong with it, or finds it by name
            return self.strides[own.name] * own.post

    def device_coord(self, index: int, axis: str | int | Axis) -> int:
        """Return the position of the device with this index along one axis or sub-axis."""
        own = self.axis(axis)
        return self.check_index(index) // self.divisor(own) % own.size

    def coords(self, index: int) -> tuple[int, ...]:
        """Return the position of a device along every axis."""
        index = self.check_index(index)
        return tuple(index // s % n for n, s in zip(self.mesh_shape, self.strides.values(), strict=True))

    def index(self, coords: Sequence[int]) -> int:
        """Return the index of the device at these coordinates."""
        positions = as_tuple(coords, f"coordinates are a tuple with one position per axis ({self})")
        if len(positions) != self.ndim:
            raise MeshError(f"coordinates need one position per axis ({self}), got {positions}.")
        return sum(_position(self.axis(n), c) * s for c, (n, s) in zip(positions, self.strides.items(), strict=True))

    def rest(self, axes: Iterable[Axis]) -> tuple[Axis, ...]:
        """Return the factors of the mesh that these disjoint axes do not use, in mesh order.

        >>> mesh = DeviceMesh((2, 8), ("x", "y"))
        >>> mesh.rest([mesh.axis("y:(1)2")])
        (x, y:(2)4)
        """
        named = axes if axes.__class__ is tuple else as_tuple(axes, "rest takes a list of axes")
        used = [a if isinstance(a, Axis) else self.axis(a) for a in named]
        by_name = {axis.name: axis for axis in used}
        out: list[Axis] = []
        for whole in self.whole_axes:
            one = by_name.get(whole.name)
            if one is None:
                out.append(whole)
            elif one.size != whole.size:
                out += gaps(whole, used)
        return tuple(out)

    # -- groups ------------------------------------------------------------------------------------

    def groups(self, axes: str | int | Sequence[str | int]) -> list[tuple[int, ...]]:
        """Return the groups of devices that differ only in `axes`.

        The order of the members follows the order of `axes`, major to minor.

        >>> DeviceMesh((2, 2), ("x", "y")).groups(("y", "x"))
        [(0, 2, 1, 3)]
        """
        chosen = self._resolve(axes, "groups")
        steps = walk(self, chosen)
        return [tuple(first + step for step in steps) for first in walk(self, self.rest(chosen))]

    def group(self, index: int, axes: str | int | Sequence[str | int | Axis]) -> tuple[int, ...]:
        """Return the one group over `axes` that this device belongs to."""
        chosen, own = self._resolve(axes, "group"), self.check_index(index)
        return tuple(walk(self, chosen, own - offset(self, chosen, own)))

    # -- meshes made from this one -----------------------------------------------------------------

    def select(self, *axes: str | int, names: Sequence[str] | None = None) -> DeviceMesh:
        """Return the mesh of these axes, in this order, at position 0 of all others.

        An axis made of a sub-axis keeps the name of its mesh axis; `names` gives others.

        >>> DeviceMesh((2, 4), ("dp", "tp")).select("tp").devices
        (CPU(0), CPU(1), CPU(2), CPU(3))
        """
        chosen = self._resolve(axes, "select")
        return self._derive([[axis] for axis in chosen], names or [a.name for a in chosen], {})

    def fix(self, positions: Mapping[str, int] | None = None, /, **more: int) -> DeviceMesh:
        """Return the mesh of the other axes, at these positions of the named ones.

        >>> DeviceMesh((2, 4), ("dp", "tp")).fix(dp=1).devices
        (CPU(4), CPU(5), CPU(6), CPU(7))
        """
        if not isinstance(positions, Mapping | None):
            raise ArgumentError(f"fix needs positions by axis, such as fix(x=0), got {positions!r}.")
        pairs = [(self.axis(name, "fix"), at) for name, at in (*(positions or {}).items(), *more.items())]
        check_disjoint([axis for axis, _ in pairs], "fix")
        fixed = {axis: _position(axis, at) for axis, at in pairs}
        names = [n for n in self.axis_names if self.axis(n) not in fixed]
        return self._derive([[a for a in self.rest((*fixed,)) if a.name == n] for n in names], names, fixed)

    def transpose(self, *axes: str | int, names: Sequence[str] | None = None) -> DeviceMesh:
        """Return the same devices with the axes in another order; without arguments, reversed.

        >>> DeviceMesh((2, 2), ("x", "y")).transpose().devices
        (CPU(0), CPU(2), CPU(1), CPU(3))
        """
        chosen = self._resolve(axes or self.axis_names[::-1], "transpose")
        left = [*self.rest(chosen), *(n for n in self.axis_names if n not in {a.name for a in chosen})]
        if left := list(dict.fromkeys(map(str, left))):
            raise MeshError(f"transpose needs every axis of the mesh ({self}); missing: {', '.join(left)}.")
        return self.select(*axes or self.axis_names[::-1], names=names)

    def flatten(self, *axes: str | int, name: str | None = None) -> DeviceMesh:
        """Return the mesh in which these axes (all, if none is named) are one, where the first of them stood.

        >>> DeviceMesh((2, 2, 2), ("x", "y", "z")).flatten("y", "z")
        DeviceMesh(x=2, y_z=4)
        """
        chosen = self._resolve(axes or self.axis_names, "flatten")
        names, parts = list[str](), list[list[Axis]]()
        for own in self.axis_names:
            if chosen and own == chosen[0].name:
                names.append(name or "_".join(dict.fromkeys(a.name for a in chosen)))
                parts.append(list(chosen))
            left = [a for a in self.rest(chosen) if a.name == own]
            if left or (self.axis(own).size == 1 and self.axis(own) not in chosen):
                names.append(own)
                parts.append(left)
        return self._derive(parts, names, {})

    # -- inside ------------------------------------------------------------------------------------

    @cached_property
    def _axes(self) -> dict[str | Axis, Axis]:
        return {}  # that were asked for, by what was asked

    @cached_property
    def whole_axes(self) -> tuple[Axis, ...]:
        """The axes of more than one position.

        >>> DeviceMesh((2, 1), ("x", "y")).whole_axes
        (x,)
        """
        return tuple(axis for axis in map(self.axis, self.axis_names) if axis.size > 1)

    def _derive(self, parts: list[list[Axis]], names: Sequence[str], fixed: Mapping[Axis, int]) -> DeviceMesh:
        shape, names = tuple(prod(a.size for a in part) for part in parts), _check_names(names)
        if len(names) != len(shape):
            raise MeshError(f"a mesh needs one name per axis, got {len(shape)} axes and names {names}.")
        first = sum(at * self.divisor(axis) for axis, at in fixed.items())
        order = self._regular(parts, first)
        if order is None:
            steps = product(*(walk(self, part) for part in parts))
            order = _check_order((self.device(first + sum(step)) for step in steps), shape)
        return _intern(type(self), shape, names, order, self.name)

    def _regular(self, parts: list[list[Axis]], first: int) -> RegularOrder | None:
        if isinstance(self._order, tuple):
            return None
        factors = [[self.factors(axis) for axis in part] for part in parts]
        if any(None in part for part in factors):
            return None
        axes = tuple(join_factors([factor for axis in part if axis for factor in axis]) for part in factors)
        return RegularOrder(self._order.label, self.device(first).id, axes)

    def factors(self, axis: Axis) -> list[tuple[int, int]] | None:
        """Return the digits of an axis, major to minor, as (size, stride in device ids).

        None where there is no such formula: the devices are a list, or the sub-axis cuts across the order.

        >>> mesh = DeviceMesh((2, 4), ("x", "y"))
        >>> mesh.factors(mesh.axis("x")), mesh.flatten().factors(mesh.flatten().axis("x_y"))
        ([(2, 4)], [(8, 1)])
        """
        axis = axis if isinstance(axis, Axis) else self.axis(axis)
        if isinstance(self._order, tuple):
            return None
        out, above = list[tuple[int, int]](), axis.of
        lowest, highest = axis.post, axis.post * axis.size
        for size, stride in self._order.axes[self.axis_names.index(axis.name)]:
            below = above // size
            low, high = max(below, lowest), min(above, highest)
            if low < high:
                if above % high or high % low or low % below:
                    return None
                out.append((high // low, stride * (low // below)))
            above = below
        return out

    def _resolve(self, axes: str | int | Axis | Sequence[str | int | Axis], where: str) -> tuple[Axis, ...]:
        single = isinstance(axes, str | Axis) or as_int(axes) is not None
        names: tuple[Any, ...] = (axes,) if single else as_tuple(axes, f"{where} needs one axis or a tuple of axes")
        chosen = tuple(self.axis(a, where) for a in names)
        check_disjoint(chosen, where)
        return chosen

    checked_index = Renamed("check_index")

    def check_index(self, index: int) -> int:
        """Return the index of a device after checking that the mesh has it.

        >>> DeviceMesh((4,), ("x",)).check_index(4)
        Traceback (most recent call last):
        shardwise.MeshError: device 4 is outside the mesh (x=4), which has devices 0 to 3.
        """
        number = as_int(index)
        if number is None:
            raise ArgumentError(f"a device of a mesh is given by its index, an int, got {index!r}.")
        if not 0 <= number < self.num_devices:
            last = self.num_devices - 1
            raise MeshError(f"device {number} is outside the mesh ({self}), which has devices 0 to {last}.")
        return number

    def _parse(self, axis: str | int | Axis, where: str) -> Axis:
        known, number = f"\n  mesh axes: {str(self) or 'none'}", as_int(axis)
        if number is not None:
            if not -self.ndim <= number < self.ndim:
                raise MeshError(f"mesh axis {number} does not exist{where}: the mesh has {self.ndim} axes.{known}")
            return self.axis(self.axis_names[number])
        if isinstance(axis, Axis):
            axis = Axis(axis.name, *(check_int(n, f"the numbers of an Axis{where} are ints") for n in axis[1:]))
            own = self.axis(str(axis))
            if own != axis:
                raise LayoutError(f"axis {axis} of {axis.of} positions{where} belongs to another mesh.{known}")
            return own
        if not isinstance(axis, str):
            raise ArgumentError(f"a mesh axis is given by name or index, got {axis!r}{where}.{known}")
        text = axis
        if text in self.axis_names:
            size = self.mesh_shape[self.axis_names.index(text)]
            return Axis(text, 1, size, size)
        match = SUB_AXIS.fullmatch(text)
        name = match["name"] if match else text
        if name not in self.axis_names:
            form = "\n  a sub-axis is written 'name:(pre)size'" if ":" in text and not match else ""
            near = did_you_mean(name, self.axis_names)
            raise LayoutError(f"unknown mesh axis {text!r}{where}.{known}{form}{near}")
        assert match
        of, pre, size = self.axis_size(name), int(match["pre"]), int(match["size"])
        if pre < 1 or size < 1 or of % (pre * size):
            raise LayoutError(
                f"sub-axis {text!r}{where} does not divide mesh axis {name!r}: "
                f"{pre} x {size} is no factor of {of}.{known}"
            )
        return Axis(name, pre, size, of)


ALONE = ("_",)  # the axis names of a mesh that was made of one device


def place_of(mesh: DeviceMesh) -> str:
    """Return where a mesh is, in short: its axes, or its device if it was made of one.

    >>> place_of(DeviceMesh((2, 4), ("x", "y"))), place_of(DeviceMesh.single(Device(3)))
    ('x=2, y=4', 'device:3')
    """
    return str(mesh.device(0)) if mesh.axis_names in ((), ALONE) else str(mesh)


def _intern(
    cls: type[DeviceMesh], shape: tuple[int, ...], names: tuple[str, ...], order: Order, name: str
) -> DeviceMesh:
    return intern(cls, mesh_shape=shape, axis_names=names, _order=order, name=name)


def _check_order_of_arguments(shape: object, names: object) -> None:
    # Whoever gives the devices, a name or the names of the axes first is told the whole order.
    first = shape[0] if is_sequence_of(shape, object) and shape else shape
    second = names[0] if is_sequence_of(names, object) and names else names
    swapped = isinstance(first, str) and (first is not shape or not isinstance(second, str))
    if isinstance(first, Device) or swapped or (as_int(shape) is not None and as_int(names) is not None):
        raise ArgumentError(
            "a DeviceMesh is made of its shape, its axis names, and then its devices, in this order, "
            f"got {shape!r} and {names!r}.\n"
            "  write DeviceMesh((2, 4), ('x', 'y')), or DeviceMesh((2,), ('x',), [CPU(0), CPU(1)], name='pod')."
        )


def _check_names(names: Sequence[str]) -> tuple[str, ...]:
    names = as_tuple(names, "axis_names is a tuple of names such as ('x', 'y')")
    for name in names:
        if not isinstance(name, str):
            raise ArgumentError(f"the names of mesh axes are strings, got {name!r}.")
        if not name or any(c in ":()[]," or c.isspace() for c in name):
            raise MeshError(f"{name!r} cannot name a mesh axis: a name has no spaces, commas, colons or brackets.")
    if twice := [n for i, n in enumerate(names) if n in names[:i]]:
        raise MeshError(f"mesh axis names must differ, got {twice[0]!r} twice in {names}.")
    return names


def _check_order(devices: Iterable[Device], shape: tuple[int, ...]) -> Order:
    devices = as_tuple(devices, "devices is a list of Device values such as [CPU(0), CPU(1)]")
    for device in devices:
        if not isinstance(device, Device):
            raise ArgumentError(f"a mesh is made of Device values such as CPU(0), got {device!r}.")
    if len(devices) != prod(shape):
        raise MeshError(f"a mesh of shape {shape} needs {prod(shape)} devices, got {len(devices)}.")
    return fit_order(devices, shape) or devices


def _position(axis: Axis, at: object) -> int:
    number = check_int(at, f"a position along axis {str(axis)!r} is an int")
    if not 0 <= number < axis.size:
        raise MeshError(f"position {number} is outside axis {str(axis)!r}, which has positions 0 to {axis.size - 1}.")
    return number


def offset(mesh: DeviceMesh, axes: Iterable[Axis], index: int) -> int:
    """Return the part of a device index that its positions along `axes` make up."""
    total = 0
    for axis in axes:
        divisor = mesh.divisor(axis)
        total += index // divisor % axis.size * divisor
    return total


def walk(mesh: DeviceMesh, axes: Iterable[Axis], first: int = 0) -> list[int]:
    """Return the device indices reached from `first`, which is at position 0, along `axes`, major to minor."""
    out = [first]
    for axis in axes:
        divisor = mesh.divisor(axis)
        out = [index + i * divisor for index in out for i in range(axis.size)]
    return out


def _brief(mesh: DeviceMesh) -> str:
    if mesh.num_devices <= 8:
        return "[" + ", ".join(map(repr, mesh.devices)) + "]"
    return f"[{mesh.device(0)!r}, {mesh.device(1)!r}, ..., {mesh.device(mesh.num_devices - 1)!r}]"
