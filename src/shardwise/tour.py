"""The tour: layouts, plans, real reshards and a little training on a 2x4 mesh of virtual devices, in seconds."""

from __future__ import annotations

import numpy as np
from rich.console import Console
from rich.rule import Rule
from rich.text import Text

from shardwise import (
    Cut,
    DeviceMesh,
    Layout,
    P,
    Tensor,
    all_reduce,
    halo_exchange,
    matmul,
    mean,
    plan_reshard,
    shard,
    shard_map,
    shift,
    tanh,
    trace_communication,
    value_and_grad,
    vjp,
)
from shardwise.pictures.text import layout_rich

SHAPE = (10, 16)


def show(console: Console | None = None) -> bool:
    """Print the tour, and return whether everything in it came out as plain NumPy says."""
    console = console or Console()
    mesh = DeviceMesh((2, 4), ("dp", "tp"))
    values = np.random.default_rng(0).integers(-9, 10, SHAPE).astype(np.float32)

    console.print(Rule("A mesh of 2 x 4 virtual devices"))
    console.print(Text(f"{mesh!r}: device 6 stands at {mesh.coords(6)}; groups along tp: {mesh.groups('tp')}\n"))

    console.print(Rule(f"Layouts of a tensor of {SHAPE[0]} x {SHAPE[1]}"))
    for title, layout in _layouts(mesh):
        console.print(Text.assemble((title, "bold"), f"  {layout}"))
        console.print(layout_rich(layout, SHAPE), end="\n\n")

    parts = (_reshards, _collectives, _derivative)
    return all([*(part(console, mesh, values) for part in parts), _training(console, mesh)])


def _layouts(mesh: DeviceMesh) -> list[tuple[str, Layout]]:
    return [
        ("rows over dp, columns over tp", P("dp", "tp").to_layout(2, mesh)),
        ("columns over tp; every column on two devices", P(None, "tp").to_layout(2, mesh)),
        ("rows over tp then dp: ten rows over eight devices", P(("tp", "dp")).to_layout(2, mesh)),
        ("rows over dp; each device along tp holds a term of a sum", P("dp", unreduced=["tp"]).to_layout(2, mesh)),
        ("rows over tp, with one row of each neighbour", Layout(mesh, [Cut("tp", halo=(1, 1)), None])),
    ]


def _reshards(console: Console, mesh: DeviceMesh, values: np.ndarray) -> bool:
    console.print(Rule("Resharding, with the fewest bytes that are possible"))
    x = shard(values, mesh, P("dp", "tp"))
    plan = plan_reshard(x.layout, P(("tp", "dp")).to_layout(2, mesh), x.shape, x.dtype)
    console.print(plan)
    console.print(plan.explain())
    return _verdict(console, "resharded", shard(x, mesh, P(("tp", "dp"))), values)


def _collectives(console: Console, mesh: DeviceMesh, values: np.ndarray) -> bool:
    console.print(Rule("What a program sends, step by step"))
    even = values[:8]
    with trace_communication() as log:
        x = shard(even, mesh, P("dp", "tp"))
        total = all_reduce(x, reduce_axes="tp")  # adds the four column blocks up
        shifted = shift(x, "dp")
        wide = halo_exchange(x, 0, 1)
        local = shard_map(
            lambda block: block * block - all_reduce(block, reduce_axes="dp"), mesh, P("dp", "tp"), P("dp", "tp")
        )
        mixed = local(x)
    console.print(log)
    blocks = even.reshape(2, 4, SHAPE[1])
    return all(
        (
            _verdict(console, "all_reduce", total, even.reshape(8, 4, 4).sum(1)),
            _verdict(console, "shift", shifted, np.roll(even, 4, axis=0)),
            _verdict(console, "halo_exchange", wide, even),
            _verdict(console, "shard_map", mixed, (blocks**2 - blocks.sum(0)).reshape(even.shape)),
        )
    )


def _derivative(console: Console, mesh: DeviceMesh, values: np.ndarray) -> bool:
    console.print(Rule("Differentiating through communication"))
    x = shard(values[:8], mesh, P("dp", "tp"))
    _, back = vjp(lambda x: all_reduce(x * x, reduce_axes=("dp", "tp")), x)
    (gradient,) = back(np.ones((4, 4), np.float32))
    return _verdict(console, "gradient of the sum of squares", gradient, 2 * values[:8])


def _training(console: Console, mesh: DeviceMesh) -> bool:
    """Train a small network, its batch split over dp and its hidden layer over tp, beside plain NumPy."""
    console.print(Rule("Training a network that is data- and tensor-parallel"))
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((32, 8)), rng.standard_normal((32, 1))
    plain = [rng.standard_normal((8, 16)) / 3, rng.standard_normal((16, 1)) / 4]
    weights = [shard(plain[0], mesh, P(None, "tp")), shard(plain[1], mesh, P("tp"))]
    inputs, targets = shard(x, mesh, P("dp")), shard(y, mesh, P("dp"))

    def loss(weights: list[Tensor]) -> Tensor:
        error = matmul(tanh(matmul(inputs, weights[0])), weights[1]) - targets
        return mean(error * error)

    same = True
    for step in range(31):
        value, gradients = value_and_grad(loss)(weights)
        weights = [w - 0.1 * g for w, g in zip(weights, gradients, strict=True)]
        hidden = np.tanh(x @ plain[0])
        error = hidden @ plain[1] - y
        slope = 2 * error / len(y)
        down = x.T @ ((slope @ plain[1].T) * (1 - hidden**2))
        plain = [plain[0] - 0.1 * down, plain[1] - 0.1 * hidden.T @ slope]
        same &= bool(np.isclose(value.item(), np.mean(error**2)))
        if step % 10 == 0:
            console.print(Text(f"step {step:2}: loss {value.item():.6f}, in plain NumPy {np.mean(error**2):.6f}"))
    for name, got, want in zip("ab", weights, plain, strict=True):
        same &= bool(np.allclose(got.numpy(), want))
        console.print(Text(f"weight {name}: {got.type_text}"))
    word = ("equal to", "green") if same else ("different from", "red")
    console.print(Text.assemble("losses and weights are ", word, " plain NumPy's, to rounding.\n"))
    return same


def _verdict(console: Console, name: str, got: Tensor, expected: np.ndarray) -> bool:
    same = np.array_equal(got.numpy(), expected)
    word = ("equal to", "green") if same else ("different from", "red")
    console.print(Text.assemble(f"{name}: {got.type_text} is ", word, " plain NumPy's.\n"))
    return same
