"""FSDP, or ZeRO stage 3: parameters, gradients and the state of the optimizer are spread over the data-parallel axis.

Each device trains on a quarter of the batch and owns a quarter of every parameter. To use a weight, a layer gathers
it and forgets it again, forwards and once more backwards; its gradient is reduce-scattered, so that each device
receives the sum for the part that it owns. Adam then updates that part, and no device ever holds a second copy of
anything. None of this is spelled out below: weights that are cut by the axis that cuts the batch have to be gathered,
because that is cheaper than to gather the activations; and a gradient comes in the layout of its parameter.

Run it: python examples/fsdp.py, or on real processes: shardwise run -n 4 examples/fsdp.py
"""

from typing import Any

import numpy as np

from shardwise import (
    DeviceMesh,
    P,
    Tensor,
    init,
    matmul,
    mean,
    shard,
    sqrt,
    tanh,
    trace_communication,
    value_and_grad,
    zeros_like,
)

ROWS, WIDTH, HIDDEN = 256, 8, 32
MESH = DeviceMesh((4,), ("dp",))
CUT, WHOLE = P("dp"), P()
RATE, FIRST, SECOND, EPSILON = 0.01, 0.9, 0.999, 1e-8
Parameters = dict[str, Any]
State = dict[str, Parameters]  # the running means of the gradients and of their squares


def loss(parameters: Parameters, x: Any, y: Any) -> Tensor:
    """Return the mean squared error of a network with one hidden layer."""
    hidden = tanh(matmul(x, parameters["up"]))
    error = matmul(hidden, parameters["down"]) - y
    return mean(error * error)


def start(parameters: Parameters) -> State:
    """Return the state of Adam before the first step, each tensor where its parameter lies."""
    return {name: {k: zeros_like(p) for k, p in parameters.items()} for name in ("mean", "square")}


def adam(parameters: Parameters, gradients: Parameters, state: State, count: int) -> tuple[Parameters, State]:
    """Return the parameters and the state after step `count`; every device works on what it owns."""
    means = {k: FIRST * state["mean"][k] + (1 - FIRST) * g for k, g in gradients.items()}
    squares = {k: SECOND * state["square"][k] + (1 - SECOND) * g * g for k, g in gradients.items()}
    rate = RATE * (1 - SECOND**count) ** 0.5 / (1 - FIRST**count)
    new = {k: p - rate * means[k] / (sqrt(squares[k]) + EPSILON) for k, p in parameters.items()}
    return new, {"mean": means, "square": squares}


def train(parameters: Parameters, x: Any, y: Any, steps: int) -> tuple[Parameters, list[float]]:
    """Return the parameters after some steps, and the loss before each."""
    state, losses = start(parameters), []
    for count in range(1, steps + 1):
        value, gradients = value_and_grad(loss)(parameters, x, y)
        parameters, state = adam(parameters, gradients, state, count)
        losses.append(value.item())
    return parameters, losses


def values() -> tuple[Parameters, np.ndarray, np.ndarray]:
    """Return parameters, inputs and targets."""
    rng = np.random.default_rng(0)
    up, down = rng.standard_normal((WIDTH, HIDDEN)) / 3, rng.standard_normal((HIDDEN, 1)) / 6
    x = rng.standard_normal((ROWS, WIDTH))
    return {"up": up, "down": down}, x, np.sin(x.sum(1, keepdims=True))


def spread(parameters: Parameters, x: Any, y: Any, spec: P = CUT) -> tuple[Parameters, Tensor, Tensor]:
    """Return everything laid out alike: cut into four along its first dim."""
    return {k: shard(p, MESH, spec) for k, p in parameters.items()}, shard(x, MESH, spec), shard(y, MESH, spec)


def main() -> None:
    """Train spread over four devices and whole on each, and compare."""
    parameters, x, y = values()
    tensors = spread(parameters, x, y)
    with trace_communication() as log:
        value_and_grad(loss)(*tensors)
    print("one step:", log, sep="\n")

    trained, losses = train(*tensors, steps=20)
    plain, plain_losses = train(*spread(parameters, x, y, WHOLE), steps=20)
    np.testing.assert_allclose(losses, plain_losses, rtol=1e-9)
    print(f"loss {losses[0]:.4f}, after {len(losses)} steps {losses[-1]:.4f}, as without cutting anything")
    for name, parameter in trained.items():
        np.testing.assert_allclose(parameter.gather().numpy(), plain[name].numpy(), rtol=1e-7)
        held = parameter.shards[0].array
        print(f"{name}: {parameter.type_text}, {held.nbytes} of {parameter.nbytes} bytes on each device")


if __name__ == "__main__":
    init()
    main()
