"""A stencil on a grid: heat that spreads over a plate, the plate cut in two directions, and only edges moved.

Every point takes a step towards the mean of its neighbours. On the plate as a whole that is a convolution; on a mesh
of two by four devices each has a tile and needs one row and one column more on each side, its halo. The convolution
asks for exactly that. The last part does the same by hand: `halo_exchange` inside `shard_map`.

Run it: python examples/stencil.py, or on real processes: shardwise run -n 8 examples/stencil.py
With another mesh, here one of two by two devices: shardwise run -n 4 examples/stencil.py 2 2
"""

import sys
from typing import Any

import numpy as np

from shardwise import DeviceMesh, P, Tensor, conv, grad, halo_exchange, init, shard, shard_map, trace_communication
from shardwise import sum as total

ROWS, COLUMNS, STEPS = 32, 64, 10
SHAPE = (2, 4)  # of the mesh
RATE = 0.2
NEIGHBOURS = np.array([[0.0, 1.0, 0.0], [1.0, -4.0, 1.0], [0.0, 1.0, 0.0]])
KERNEL = (RATE * NEIGHBOURS + np.array([[0, 0, 0], [0, 1, 0], [0, 0, 0]]))[None, None]


def diffuse(heat: Any, steps: int = STEPS) -> Tensor:
    """Return the temperatures after some steps; it is cold outside."""
    for _ in range(steps):
        heat = conv(heat[None, None], KERNEL, padding="SAME")[0, 0]
    return heat


def tile_step(tile: Any) -> Any:
    """Return the tile of one device after a step; the neighbours' edges come first in one direction, then the other."""
    tall = halo_exchange(tile, 0, 1, mesh_axis="y")
    wide = halo_exchange(tile, 1, 1, mesh_axis="x")
    around = tall[:-2] + tall[2:] + wide[:, :-2] + wide[:, 2:]
    return tile + RATE * (around - 4.0 * tile)


def step_by_hand(heat: Tensor) -> Tensor:
    """Return the temperatures after one step, every device with its tile."""
    return shard_map(tile_step, heat.mesh, P("y", "x"), P("y", "x"))(heat)


def plain_diffuse(heat: np.ndarray, steps: int = STEPS) -> np.ndarray:
    """Return the same in plain NumPy."""
    for _ in range(steps):
        wide = np.pad(heat, 1)
        around = wide[:-2, 1:-1] + wide[2:, 1:-1] + wide[1:-1, :-2] + wide[1:-1, 2:]
        heat = heat + RATE * (around - 4 * heat)
    return heat


def plate() -> np.ndarray:
    """Return a plate with a hot spot."""
    heat = np.zeros((ROWS, COLUMNS))
    heat[12:20, 24:40] = 100.0
    return heat


def main(mesh: DeviceMesh | None = None) -> None:
    """Let heat spread over the devices of a mesh and in plain NumPy, and compare."""
    heat = shard(plate(), mesh or DeviceMesh(SHAPE, ("y", "x")), P("y", "x"))
    with trace_communication() as log:
        diffuse(heat, steps=1)
    print("one step:", log, sep="\n")
    print(f"the plate has {heat.nbytes} bytes, a tile has {heat.shards[0].array.nbytes}")
    warm = diffuse(heat).gather().numpy()
    np.testing.assert_allclose(warm, plain_diffuse(plate()), atol=1e-12)
    print(f"after {STEPS} steps the centre has {warm[16, 32]:.2f} degrees, as in plain NumPy")

    # Which points of the plate decide how warm the corner gets? Halos are added up on the way back.
    influence = grad(lambda heat: total(diffuse(heat)[:4, :4]))(heat)
    corner = np.zeros((ROWS, COLUMNS))
    corner[:4, :4] = 1.0
    expected = plain_diffuse(corner)  # a step is its own adjoint
    np.testing.assert_allclose(influence.gather().numpy(), expected, atol=1e-12)
    print("and the derivative", influence.type_text, "is right")

    with trace_communication() as log:
        by_hand = step_by_hand(heat)
    print("one step by hand:", log, sep="\n")
    np.testing.assert_allclose(by_hand.gather().numpy(), plain_diffuse(plate(), 1), atol=1e-12)


if __name__ == "__main__":
    init()
    main(DeviceMesh(SHAPE if len(sys.argv) < 3 else list(map(int, sys.argv[1:])), ("y", "x")))
