"""Meshes to draw: 1 to 4 axes of 1 to 6 devices, one of 12, in any order, some with one device in several slots."""

from collections.abc import Sequence
from math import prod
from random import Random

from shardwise import CPU, DeviceMesh, Layout
from shardwise.layout.axis import Axis
from tests.every.draws import Draws

NAMES = "xyzw"
CHAINS: dict[int, list[list[int]]] = {
    1: [[1]], 2: [[2]], 3: [[3]], 4: [[4], [2, 2]], 5: [[5]], 6: [[6], [2, 3], [3, 2]],
    8: [[8], [2, 4], [4, 2], [2, 2, 2]],
    12: [[12], [3, 4], [4, 3], [2, 6], [6, 2], [2, 3, 2], [3, 2, 2], [2, 2, 3]],
}  # fmt: skip


def draw_mesh(draws: Draws, most: int, among: int | None = None) -> DeviceMesh:
    """A mesh of at most `most` slots; where `among` is given, its devices are those of so many processes."""
    # As many choices whatever they are: a case with one axis less is then made of the same others.
    axes, sizes = draws.between(1, 4), list[int]()
    for at in range(4):
        size = draws.between(1, min(6, most // prod(sizes)))
        sizes += [size] if at < axes else []
    if prod(sizes) == 1 and most >= 12 and draws.rarely(3):
        sizes[0] = 12
    count = prod(sizes)
    kind = draws.choice(["usual", "usual", "usual", "turned", "one", "several"])
    rng, room = Random(draws.below(1 << 16)), count if among is None else among
    if kind == "usual" and count <= room:
        devices = None
    elif kind == "turned" and count <= room:
        devices = [CPU(i) for i in rng.sample(range(room), count)]
    elif kind == "one":
        devices = [CPU(0)] * count
    else:
        devices = [CPU(rng.randrange(room)) for _ in range(count)]
    return DeviceMesh(sizes, tuple(NAMES[: len(sizes)]), devices)


def draw_factors(draws: Draws, mesh: DeviceMesh) -> list[Axis]:
    """All of a mesh as axes and sub-axes, in any order; those of two draws need not nest."""
    return [axis for axis, _ in draw_homes(draws, mesh, [0])]


def draw_homes(draws: Draws, mesh: DeviceMesh, places: Sequence[int]) -> list[tuple[Axis, int]]:
    """All of a mesh as axes and sub-axes, in any order, and one of several places for each."""
    out: list[tuple[int, Axis, int]] = []
    for at in range(4):
        size = mesh.mesh_shape[at] if at < mesh.ndim else 1
        pre, parts = 1, draws.choice(CHAINS[size])
        for number in range(3):
            turn, place = draws.below(4), draws.choice(places)
            if at < mesh.ndim and number < len(parts):
                out.append((turn, Axis(mesh.axis_names[at], pre, parts[number], size), place))
                pre *= parts[number]
    return [(axis, place) for _, axis, place in sorted(out, key=lambda some: some[0])]


def mesh_code(mesh: DeviceMesh) -> str:
    """The mesh as Python text."""
    usual = [device.id for device in mesh.devices] == list(range(mesh.num_devices))
    devices = "" if usual else f", [{', '.join(map(repr, mesh.devices))}]"
    return f"DeviceMesh({mesh.mesh_shape}, {mesh.axis_names}{devices})"


def layout_code(layout: Layout, mesh: str = "mesh") -> str:
    """The layout as Python text, with the name of its mesh."""
    dims = ", ".join(
        repr(cut) if cut.details else repr(_names(cut.axes)) if cut.axes else "None" for cut in layout.dims
    )
    pending = ""
    if layout.partial:
        pending = f", {[str(a) for a in layout.partial]}, {str(layout.reduce_op)!r}"
    return f"Layout({mesh}, [{dims}]{pending})"


def _names(axes: tuple[Axis, ...]) -> str | tuple[str, ...]:
    names = tuple(map(str, axes))
    return names[0] if len(names) == 1 else names
