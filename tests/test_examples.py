"""The examples run, are what JAX or NumPy says, and move the bytes of the textbook, each way, and not one more."""

from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from examples import fsdp, megatron_attention, megatron_mlp, ring_attention, sequence_parallel, stencil
from examples import vocabulary_parallel as vocabulary
from shardwise import DeviceMesh, P, current_engine, engine_context, shard, trace_communication, value_and_grad, vjp
from shardwise.engine.local.strict import StrictEngine
from tests.prim.cases import jax_of_eight

NAMES = sorted(path.stem for path in (Path(__file__).parent.parent / "examples").glob("*.py"))
DEVICES = 4
Kinds = dict[tuple[str, int], int]  # how often a step of this kind with these bytes was run


class Sent:
    """What is sent inside a block, by the log and by the engine's counters, which must agree."""

    def __enter__(self) -> "Sent":
        self._counters = current_engine().counters
        self._counters.reset()
        self._tracing = trace_communication()
        self._log = self._tracing.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._tracing.__exit__(*error)
        self.steps = Counter((record.kind, record.bytes) for record in self._log if record.bytes)
        self.bytes = {kind: size for kind, size in self._counters.bytes_moved.items() if size}
        logged: Counter[str] = Counter()
        for (kind, size), times in self.steps.items():
            logged[kind] += size * times
        assert dict(logged) == self.bytes


def all_reduce(size: int, devices: int = DEVICES) -> tuple[str, int]:
    """The step, with the bytes between all devices: each sends and receives all but its own part, twice."""
    return "all_reduce", 2 * (devices - 1) * size


def half(kind: str, size: int, devices: int = DEVICES) -> tuple[str, int]:
    """One half of an all-reduce: a reduce-scatter or an all-gather."""
    return kind, (devices - 1) * size


def close(got: Any, want: Any, tolerance: float = 1e-4) -> None:
    np.testing.assert_allclose(got.numpy(), np.asarray(want), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", NAMES)
def test_every_example_runs_and_checks_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with engine_context(StrictEngine()):  # which reads nothing that a process would not hold
        import_module(f"examples.{name}").main()
    assert "between devices" in capsys.readouterr().out


@pytest.mark.parametrize("name", NAMES)
def test_every_example_is_on_the_page_of_examples(name: str) -> None:
    page = (Path(__file__).parent.parent / "docs" / "examples.md").read_text(encoding="utf-8")
    assert f"examples/{name}.py" in page


def forth_and_back(block: Any, *tensors: Any) -> tuple[Any, Any, Kinds, Kinds]:
    """The result, its gradients with the result as cotangent, and what was sent each way."""
    with Sent() as forward:
        y, back = vjp(block, *tensors)
    with Sent() as backward:
        gradients = back(y)
    return y, gradients, dict(forward.steps), dict(backward.steps)


def test_a_megatron_mlp_takes_one_all_reduce_each_way() -> None:
    jax = jax_of_eight()
    arrays = megatron_mlp.values()
    y, gradients, forward, backward = forth_and_back(megatron_mlp.block, *megatron_mlp.spread(*arrays))
    assert forward == backward == {all_reduce(megatron_mlp.TOKENS * megatron_mlp.WIDTH * 4): 1}
    want, back = jax.vjp(lambda x, up, down: jax.nn.gelu(x @ up) @ down, *arrays)
    close(y, want)
    for gradient, expected in zip(gradients, back(want), strict=True):
        close(gradient, expected)


def layer_norm(jnp: Any, x: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred / jnp.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)


def test_a_megatron_attention_block_takes_one_all_reduce_each_way() -> None:
    jax = jax_of_eight()
    jnp, m = jax.numpy, megatron_attention
    x, weights = m.values()
    y, (by_x, by_weights), forward, backward = forth_and_back(m.block, *m.spread(x, weights))
    assert forward == backward == {all_reduce(m.BATCH * m.TOKENS * m.WIDTH * 4): 1}

    def plain(x: Any, w: Any) -> Any:
        q, k, v = (jnp.einsum("btd,dhk->bhtk", layer_norm(jnp, x), w[name]) for name in "qkv")
        scores = jnp.where(np.tri(m.TOKENS, dtype=bool), jnp.einsum("bhtk,bhsk->bhts", q, k) / m.SIZE**0.5, -1e9)
        return x + jnp.einsum("bhts,bhsk,hkd->btd", jax.nn.softmax(scores), v, w["o"])

    want, back = jax.vjp(plain, x, weights)
    want_by_x, want_by_weights = back(want)
    close(y, want)
    close(by_x, want_by_x, 2e-4)
    for name, gradient in by_weights.items():
        close(gradient, want_by_weights[name], 2e-4)


def test_sequence_parallelism_has_both_halves_in_place_of_the_all_reduce() -> None:
    jax = jax_of_eight()
    s = sequence_parallel
    arrays = s.values()
    y, gradients, forward, backward = forth_and_back(s.block, *s.spread(*arrays))
    size = s.TOKENS * s.WIDTH * 4
    assert forward == backward == {half("all_gather", size): 1, half("reduce_scatter", size): 1}
    assert y.local(0).nbytes == size // DEVICES
    want, back = jax.vjp(lambda x, up, down: x + jax.nn.gelu(layer_norm(jax.numpy, x) @ up) @ down, *arrays)
    close(y, want)
    for gradient, expected in zip(gradients, back(want), strict=True):
        close(gradient, expected, 2e-4)


def test_fsdp_gathers_weights_and_scatters_gradients() -> None:
    jax = jax_of_eight()
    parameters, x, y = fsdp.values()
    tensors = fsdp.spread(parameters, x, y)
    with Sent() as forward:
        fsdp.loss(*tensors)
    up, down = (parameters[name].nbytes for name in ("up", "down"))
    number = ("all_reduce", 2 * (DEVICES - 1) * 8)  # the loss itself
    assert forward.steps == {half("all_gather", up): 1, half("all_gather", down): 1, number: 1}
    with Sent() as both:
        _, gradients = value_and_grad(fsdp.loss)(*tensors)
    # The first weight is not needed again: nobody asks for the gradient of the batch.
    back = {half("all_gather", down): 1, half("reduce_scatter", up): 1, half("reduce_scatter", down): 1}
    assert both.steps == forward.steps + Counter(back)
    with Sent() as update:
        new, state = fsdp.adam(tensors[0], gradients, fsdp.start(tensors[0]), 1)
    assert not update.steps
    for name, parameter in tensors[0].items():
        assert all(t.layout is parameter.layout for t in (gradients[name], new[name], state["mean"][name]))
        assert new[name].local(0).nbytes * DEVICES == parameter.nbytes

    def plain(p: Any) -> Any:
        return jax.numpy.mean((jax.numpy.tanh(x @ p["up"]) @ p["down"] - y) ** 2)

    for name, expected in jax.grad(plain)(parameters).items():
        close(gradients[name], expected, 1e-9)


def test_only_numbers_per_token_are_sent_for_a_vocabulary() -> None:
    jax = jax_of_eight()
    jnp, v = jax.numpy, vocabulary
    values, tokens, labels = v.values()
    with Sent() as forward:
        value, back = vjp(lambda table: v.loss(table, tokens, labels), shard(values, v.MESH, P("tp")))
    with Sent() as backward:
        (gradient,) = back(1.0)
    states, numbers = all_reduce(v.TOKENS * v.WIDTH * 4), all_reduce(v.TOKENS * 4)
    assert forward.steps == {states: 1, numbers: 3}
    assert backward.steps == {states: 1}

    def plain(table: Any) -> Any:
        scores = jax.nn.log_softmax(jnp.tanh(table[tokens]) @ table.T)
        return -jnp.mean(scores[jnp.arange(v.TOKENS), labels])

    want, expected = jax.value_and_grad(plain)(values)
    close(value, want)
    close(gradient, expected)


def test_ring_attention_passes_keys_and_values_around_once_each_way() -> None:
    jax = jax_of_eight()
    jnp, r = jax.numpy, ring_attention
    arrays = r.values()
    tensors = [shard(a, r.MESH, P(None, "sp")) for a in arrays]
    y, gradients, forward, backward = forth_and_back(r.ring_attention, *tensors)
    rounds = 2 * (r.DEVICES - 1)  # for keys, and for values
    assert forward == backward == {("permute", r.HEADS * r.TOKENS * r.SIZE * 8): rounds}

    def plain(q: Any, k: Any, v: Any) -> Any:
        scores = jnp.where(np.tri(r.TOKENS, dtype=bool), jnp.einsum("hqk,hsk->hqs", q, k) / r.SIZE**0.5, -jnp.inf)
        return jnp.einsum("hqs,hsk->hqk", jax.nn.softmax(scores), v)

    want, back = jax.vjp(plain, *arrays)
    close(y, want, 1e-9)
    for gradient, expected in zip(gradients, back(want), strict=True):
        close(gradient, expected, 1e-9)


def test_a_stencil_moves_the_edges_of_tiles_and_nothing_else() -> None:
    s = stencil
    rows, columns = s.SHAPE
    heat = shard(s.plate(), DeviceMesh(s.SHAPE, ("y", "x")), P("y", "x"))
    edges = 2 * 8 * ((rows - 1) * s.COLUMNS + (columns - 1) * s.ROWS)
    corners = 4 * 8 * (rows - 1) * (columns - 1)
    with Sent() as one:
        s.diffuse(heat, steps=1)
    assert sum(one.bytes.values()) == edges + corners
    with Sent() as three:
        warm = s.diffuse(heat, steps=3)
    assert sum(three.bytes.values()) == 3 * (edges + corners)
    close(warm, s.plain_diffuse(s.plate(), 3), 1e-12)
    with Sent() as by_hand:
        s.step_by_hand(heat)
    assert by_hand.bytes == {"halo_exchange": edges}
    _, back = vjp(lambda heat: s.diffuse(heat, steps=1), heat)
    with Sent() as backward:
        back(heat)
    assert sum(backward.bytes.values()) == edges + corners
