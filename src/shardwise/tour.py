"""The tour: layouts, a plan and a real reshard on a 2x4 mesh of virtual devices, in a few seconds."""

from __future__ import annotations

import numpy as np
from rich.console import Console
from rich.rule import Rule
from rich.text import Text

from shardwise import Cut, DeviceMesh, Layout, P, Plan, plan_reshard
from shardwise.layout.tiling import Box
from shardwise.pictures.text import layout_rich

SHAPE = (10, 16)


def show(console: Console | None = None) -> None:
    """Print the tour."""
    console = console or Console()
    mesh = DeviceMesh((2, 4), ("dp", "tp"))
    console.print(Rule("A mesh of 2 x 4 virtual devices"))
    console.print(f"{mesh!r}: device 6 stands at {mesh.coords(6)}; groups along tp: {mesh.groups('tp')}\n")

    console.print(Rule(f"Layouts of a tensor of {SHAPE[0]} x {SHAPE[1]}"))
    tall = Layout(mesh, [("tp", "dp"), None])
    for title, layout in (
        ("rows over dp, columns over tp", P("dp", "tp").to_layout(2, mesh)),
        ("columns over tp; every column on two devices", P(None, "tp").to_layout(2, mesh)),
        ("rows over tp then dp: ten rows over eight devices", tall),
        (
            "rows over dp; each device along tp holds a term of a sum",
            P("dp", unreduced=["tp"]).to_layout(2, mesh),
        ),
        ("rows over tp, with one row of each neighbour", Layout(mesh, [Cut("tp", halo=(1, 1)), None])),
    ):
        console.print(Text.assemble((title, "bold"), f"  {layout}"))
        console.print(layout_rich(layout, SHAPE), end="\n\n")

    console.print(Rule("Resharding"))
    reshard(console, plan_reshard(P("dp", "tp").to_layout(2, mesh), tall, SHAPE, "float32"))
    reshard(
        console,
        plan_reshard(P("dp", unreduced=["tp"]).to_layout(2, mesh), P("dp", "tp").to_layout(2, mesh), SHAPE, "float32"),
    )


def reshard(console: Console, plan: Plan) -> None:
    """Print a plan, run its transfers on real arrays, and check the result against plain NumPy."""
    console.print(plan)
    console.print(plan.explain())
    terms = {
        at: _values(i) for i, at in enumerate(sorted({_term(plan.src, d) for d in range(plan.src.mesh.num_devices)}))
    }
    expected = sum(terms.values(), np.zeros(plan.shape, np.float32))
    moved, right = run(plan, terms), 0
    for device, array in enumerate(moved):
        right += np.array_equal(array, expected[_region(plan.dst.box(plan.shape, device))])
    verdict = "[green]equal to[/green]" if right == len(moved) else "[red]different from[/red]"
    console.print(f"Run on real arrays: {right} of {len(moved)} shards are {verdict} plain NumPy's.\n")


def run(plan: Plan, terms: dict[tuple[int, ...], np.ndarray]) -> list[np.ndarray]:
    """Apply the transfers of a one-round plan to real arrays, one per virtual device."""
    devices = range(plan.src.mesh.num_devices)
    before = [np.where(_mask(plan.src, plan.shape, d), terms[_term(plan.src, d)], 0) for d in devices]
    after = [array.copy() for array in before]
    for device in devices:
        for transfer in (t for step in plan.transfers(device) for t in step if t.target == device):
            where = _region(transfer.box)
            piece = before[int(str(transfer.source))][where]
            after[device][where] = after[device][where] + piece if plan.src.partial else piece
    return [after[d][_region(plan.dst.box(plan.shape, d))] for d in devices]


def _values(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-9, 9, SHAPE).astype(np.float32)


def _term(layout: Layout, device: int) -> tuple[int, ...]:
    return tuple(layout.mesh.device_coord(device, axis) for axis in layout.partial)


def _mask(layout: Layout, shape: tuple[int, ...], device: int) -> np.ndarray:
    mask = np.zeros(shape, bool)
    mask[_region(layout.box(shape, device))] = True
    return mask


def _region(box: Box) -> tuple[slice, ...]:
    return tuple(slice(start, stop) for start, stop in box)
