"""Rows of what makes tensors: of one value, in steps, of one diagonal, in grids, at random."""

from typing import Any

import numpy as np

import shardwise
from shardwise import LocalEngine, ReduceOp, engine_context
from shardwise.layout.placement import reductions_of
from tests.every.calls import Call, Setting
from tests.every.comparison import Rule
from tests.every.table import row
from tests.every.values import EVERY, FLOATS, INTS, NUMBERS, UINTS, Shape


def _where(setting: Setting, shape: Shape, dtype: np.dtype) -> str:
    # Where it lies: on a mesh in some layout, which may be pending, or on every device.
    if not setting.draws.below(4):
        return ", mesh=mesh"
    op = setting.draws.choice([None, *(op for op in ReduceOp if op in reductions_of(dtype))])
    return f", mesh=mesh, layout={setting.name(setting.layout(shape, None, op))}"


def _rule(setting: Setting) -> Rule:
    layout = setting.names.get("layout")
    return Rule(exact=layout is None or layout[1].reduce_op is not ReduceOp.AVG)


@row("zeros", "ones", "empty", "full")
def full(setting: Setting, name: str) -> Call:
    """One value everywhere."""
    shape, dtype = setting.shape(), setting.dtype(EVERY)
    number = {"zeros": 0, "ones": 1, "empty": 0, "full": setting.draws.below(2)}[name]
    fill = f", {bool(number) if dtype.kind == 'b' else number}" if name == "full" else ""
    code = f"sw.{name}({shape}{fill}, dtype={str(dtype)!r}{_where(setting, shape, dtype)})"
    return setting.call(code, lambda: np.full(shape, number).astype(dtype), rule=_rule(setting))


@row("zeros_like", "ones_like", "empty_like", "full_like")
def full_like(setting: Setting, name: str) -> Call:
    """One value, in the shape and the layout of another tensor."""
    shape, dtype = setting.shape(), setting.dtype(EVERY)
    a = setting.operand(shape, dtype)
    number = {"zeros": 0, "ones": 1, "empty": 0, "full": setting.draws.below(2)}[name[:-5]]
    fill = f", {bool(number) if dtype.kind == 'b' else number}" if name == "full_like" else ""
    return setting.call(f"sw.{name}({a}{fill})", lambda x: np.full(x.shape, number).astype(dtype), local=True)


@row("arange", "linspace")
def steps(setting: Setting, name: str) -> Call:
    """Even steps, up or down."""
    draws = setting.draws
    dtype = setting.dtype([*INTS, *FLOATS] if name == "arange" else FLOATS)
    if name == "arange":
        start, step, count = draws.between(0, 5) - 3, draws.choice([1, 2, -1, 3]), draws.between(0, 9)
        shape = (count,)
        code = (
            f"sw.arange({start}, {start + step * count}, {step}, dtype={str(dtype)!r}{_where(setting, shape, dtype)})"
        )
        return setting.call(code, lambda: (start + step * np.arange(count)).astype(dtype), rule=_rule(setting))
    start, stop, count, end = draws.between(0, 4) - 2, draws.between(1, 9), draws.between(1, 9), draws.below(2) == 0
    text = "" if end else ", endpoint=False"
    code = f"sw.linspace({start}, {stop}, {count}, dtype={str(dtype)!r}{text}{_where(setting, (count,), dtype)})"
    return setting.call(
        code,
        lambda: np.linspace(start, stop, count, endpoint=end).astype(dtype),
        rule=Rule(exact=False),
        scale=lambda: np.full(count, float(max(abs(start), stop))),
    )


@row("eye")
def eye(setting: Setting, name: str) -> Call:
    """Ones on a diagonal."""
    n, m, k = (setting.draws.between(0, 6) for _ in range(3))
    dtype = setting.dtype(EVERY)
    code = f"sw.eye({n}, {m}, k={k - 3}, dtype={str(dtype)!r}{_where(setting, (n, m), dtype)})"
    return setting.call(code, lambda: np.eye(n, m, k - 3).astype(dtype), rule=_rule(setting))


@row("meshgrid")
def meshgrid(setting: Setting, name: str) -> Call:
    """Coordinates of a grid."""
    dtype, indexing = setting.dtype(NUMBERS), setting.draws.choice(["xy", "ij"])
    names = [setting.operand((setting.draws.between(0, 4),), dtype) for _ in range(setting.draws.between(1, 3))]
    code = f"sw.meshgrid({', '.join(names)}, indexing={indexing!r})"
    return setting.call(code, lambda *xs: np.meshgrid(*xs, indexing="ij" if indexing == "ij" else "xy"))


@row("asarray")
def asarray(setting: Setting, name: str) -> Call:
    """An array of the host on the default device, in another dtype if one is named."""
    old, new = (setting.dtype([*FLOATS, *INTS]) for _ in range(2))
    shape = setting.shape()
    a = (
        setting.operand(shape, old, "positive", mesh=None)
        if setting.draws.below(2)
        else setting.host(shape, old, "positive")
    )
    if not setting.draws.below(2):
        return setting.call(f"sw.asarray({a})", lambda x: x)
    return setting.call(f"sw.asarray({a}, dtype={str(new)!r})", lambda x: x.astype(new), local=True)


# -- at random: the numbers are those of an unsharded tensor -------------------------------------------------------


def _alone(code: str) -> Any:
    # What one device draws, whole: the promise is that a layout changes nothing. Which numbers these are is tested
    # with the generator.
    with engine_context(LocalEngine()):
        return eval(code, {"sw": shardwise, "np": np}).numpy()


@row("random.bits", "random.uniform", "random.normal", "random.bernoulli", "random.integers")
def draw(setting: Setting, name: str) -> Call:
    """Numbers that depend on the key and the place alone."""
    shape, seed = setting.shape(), setting.draws.below(100)
    kinds = {"random.bits": UINTS, "random.integers": INTS, "random.bernoulli": [np.dtype(bool)]}
    dtype = setting.dtype(kinds.get(name, FLOATS))
    key = f"sw.random.key({seed})"
    text = {"random.bernoulli": f"{key}, 0.3, {shape}", "random.integers": f"{key}, -3, 4, {shape}, {str(dtype)!r}"}
    inner = text.get(name, f"{key}, {shape}, {str(dtype)!r}")
    code = f"sw.{name}({inner}{_where(setting, shape, dtype)})"
    return setting.call(code, lambda: _alone(f"sw.{name}({inner})"), rule=_rule(setting))


@row("random.dropout")
def dropout(setting: Setting, name: str) -> Call:
    """Elements that are dropped, the same in every layout."""
    a = setting.operand(setting.shape(), setting.dtype(FLOATS), "finite")
    seed, rate = setting.draws.below(100), setting.draws.choice([0.5, 0.0, 0.25])

    def oracle(x: np.ndarray) -> np.ndarray:
        kept = _alone(f"sw.random.dropout(sw.random.key({seed}), np.ones({x.shape}), {rate})")
        return np.where(kept > 0, x.astype("float64") / (1 - rate), 0).astype(x.dtype)

    return setting.call(
        f"sw.random.dropout(sw.random.key({seed}), {a}, {rate})",
        oracle,
        rule=Rule(exact=False),
        scale=lambda size: 2 * size,
    )
