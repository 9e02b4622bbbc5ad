"""Rows of derivatives, of lists of tensors, one per device, and of reading values."""

from typing import Any

import numpy as np

from shardwise import Tensor
from tests.every.calls import Call, Setting
from tests.every.comparison import Rule
from tests.every.reductions import near, widen
from tests.every.table import row
from tests.every.values import FLOATS, MOVABLE

# -- derivatives: of a cubic, whose slope is known ---------------------------------------------------------------


def _slope(x: np.ndarray) -> np.ndarray:
    return (3 * widen(x) ** 2 + 2).astype(x.dtype)


def _cubic(x: np.ndarray) -> np.ndarray:
    return (widen(x) ** 3 + 2 * widen(x)).astype(x.dtype)


@row("grad", "value_and_grad", "vjp", "jvp", "checkpoint", "stop_gradient")
def derivative(setting: Setting, name: str) -> Call:
    """The slope of x * x * x + 2 * x."""
    dtype = setting.dtype(FLOATS)
    a = setting.operand(setting.shape(), dtype, "small")
    cubic = "lambda x: x * x * x + 2.0 * x"
    close = Rule(exact=False, ulps=16)
    how: dict[str, Any] = {"rule": close, "scale": lambda size: 3 * size**2 + 2, "local": True}
    if name == "grad":
        return setting.call(f"sw.grad(lambda x: sw.sum(({cubic})(x)))({a})", _slope, **how)
    if name == "checkpoint":
        return setting.call(f"sw.grad(lambda x: sw.sum(sw.checkpoint({cubic})(x)))({a})", _slope, **how)
    if name == "vjp":
        return setting.call(f"sw.vjp({cubic}, {a})[1](sw.ones_like({a}))[0]", _slope, **how)
    if name == "stop_gradient":
        code = f"sw.grad(lambda x: sw.sum(sw.stop_gradient(x) * x))({a})"
        return setting.call(code, lambda x: x, rule=close, local=True)
    if name == "jvp":
        return setting.call(
            f"sw.jvp({cubic}, ({a},), (sw.ones_like({a}),))",
            lambda x: (_cubic(x), _slope(x)),
            rule=close,
            scale=lambda size: (size**3 + 2 * size, 3 * size**2 + 2),
            local="many",
        )
    return setting.call(
        f"sw.value_and_grad(lambda x: sw.sum(({cubic})(x)))({a})",
        lambda x: (np.asarray(np.sum(widen(x) ** 3 + 2 * widen(x))).astype(x.dtype), _slope(x)),
        rule=close,
        scale=lambda size: (np.sum(size**3 + 2 * size), 3 * size**2 + 2),
        local="many",
    )


@row("jacfwd", "jacrev", "hessian")
def jacobian(setting: Setting, name: str) -> Call:
    """The matrix of derivatives of x * x * x + 2 * x, all of whose elements but the diagonal are zero."""
    dtype, size = setting.dtype(FLOATS), setting.draws.between(1, 5)
    a = setting.operand((size,), dtype, "small")
    cubic, rule = "lambda x: x * x * x + 2.0 * x", Rule(exact=False, ulps=16)
    if name == "hessian":
        code = f"sw.hessian(lambda x: sw.sum(({cubic})(x)))({a})"
        return setting.call(
            code, lambda x: np.diag(6 * widen(x)).astype(x.dtype), rule=rule, scale=lambda size: np.diag(6 * size)
        )
    return setting.call(
        f"sw.{name}({cubic})({a})",
        lambda x: np.diag(_slope(x)),
        rule=rule,
        scale=lambda size: np.diag(3 * size**2 + 2),
        local=True,
    )


@row("vmap")
def mapped(setting: Setting, name: str) -> Call:
    """Sums of squares of slices along any dim, put at any place."""
    dtype, shape = setting.dtype(FLOATS), setting.shape(low=2)
    a = setting.operand(shape, dtype, "small")
    axis, out = setting.dim(len(shape)), setting.draws.below(len(shape) - 1)

    def oracle(x: np.ndarray) -> np.ndarray:
        slices = [np.sum(np.square(widen(s)), axis=0).astype(dtype) for s in np.moveaxis(x, axis, 0)]
        empty = np.zeros((0, *np.moveaxis(x, axis, 0).shape[2:]), dtype)
        return np.moveaxis(np.stack(slices) if slices else empty, 0, out)

    return setting.call(
        f"sw.vmap(lambda s: sw.sum(s * s, axis=0), {axis}, {out})({a})",
        oracle,
        rule=near(dtype, 16 + max(shape)),
        scale=lambda size: np.moveaxis(np.sum(np.moveaxis(size, axis, 0) ** 2, axis=1), 0, out),
        local=True,
    )


@row("custom_op")
def own_op(setting: Setting, name: str) -> Call:
    """Rows in reverse order, by a function of local arrays that needs all of them."""
    a = setting.operand(setting.shape(low=2, high=2), setting.dtype(FLOATS))
    code = f"sw.custom_op(lambda v: v[::-1], rule='[i]j->[i]j')({a})"
    return setting.call(code, lambda x: x[::-1], local=True)


@row("local_call")
def own_function(setting: Setting, name: str) -> Call:
    """Elements in reverse order, on every device by itself."""
    dtype, shape = setting.dtype(FLOATS), setting.shape(low=1)
    a = setting.operand(shape, dtype)
    inner = setting.call(f"sw.local_call(lambda v: v[::-1], {a}, out={a})", lambda x: x[::-1], local=True)
    return setting.in_local_view(inner)


# -- lists of tensors, one per device ------------------------------------------------------------------------------


def _devices(setting: Setting, least: int) -> list[Any]:
    found = list(dict.fromkeys(setting.mesh.devices))
    return found[: max(least, setting.draws.between(1, len(found)))]


def _buffers(devices: list[Any]) -> str:
    return f"[{', '.join(f'sw.graph_ops.SignalBuffer({device!r})' for device in devices)}]"


@row("graph_ops.distributed_broadcast", "graph_ops.transfer_to")
def spread_out(setting: Setting, name: str) -> Call:
    """A copy for each device, or for one."""
    devices = _devices(setting, 2)
    a = setting.host(setting.shape(), setting.dtype(MOVABLE))
    there = f"sw.graph_ops.transfer_to({a}, {devices[0]!r})"
    if name == "graph_ops.transfer_to":
        return setting.call(there, lambda x: x, verify=lambda x: _are_on([x], devices[:1]))
    code = f"sw.{name}({there}, {_buffers(devices)})"
    if len(devices) < 2:
        return setting.call(code, lambda x: x, refusal="at least 2 signal buffers")
    return setting.call(code, lambda x: [x] * len(devices), verify=lambda made: _are_on(made, devices))


def _are_on(made: list[Tensor], devices: list[Any]) -> str | None:
    found = [x.device for x in made]
    return None if found == devices else f"on {found} instead of {devices}"


@row("graph_ops.allgather")
def allgather(setting: Setting, name: str) -> Call:
    """All inputs joined, for each of their devices."""
    devices, dtype, shape = _devices(setting, 1), setting.dtype(MOVABLE), list(setting.shape(low=1))
    dim = setting.draws.below(len(shape))
    names = []
    for device in devices:
        shape[dim] = setting.draws.between(0, 3)
        names.append(f"sw.graph_ops.transfer_to({setting.host(tuple(shape), dtype)}, {device!r})")
        if len(names) == 8:
            break
    devices = devices[: len(names)]
    code = f"sw.{name}([{', '.join(names)}], {_buffers(devices)}, {dim})"
    return setting.call(
        code, lambda *xs: [np.concatenate(xs, dim)] * len(xs), verify=lambda made: _are_on(made, devices)
    )


@row("graph_ops.shard_and_stack")
def shard_and_stack(setting: Setting, name: str) -> Call:
    """The chunk of every input, for each device."""
    devices, dtype, shape = _devices(setting, 1), setting.dtype(MOVABLE), list(setting.shape(low=1))
    dim = setting.draws.below(len(shape))
    shape[dim] = len(devices) * setting.draws.between(0, 2)
    names = [setting.host(tuple(shape), dtype) for _ in range(setting.draws.between(1, 3))]
    code = f"sw.{name}([{', '.join(names)}], {devices!r}, {dim})"

    def oracle(*xs: np.ndarray) -> list[np.ndarray]:
        return [np.stack(some) for some in zip(*(np.split(x, len(devices), dim) for x in xs), strict=True)]

    return setting.call(code, oracle, verify=lambda made: _are_on(made, devices))


# -- reading -------------------------------------------------------------------------------------------------------


@row("Tensor.numpy", "Tensor.__array__", "from_shards")
def read(setting: Setting, name: str) -> Call:
    """The value itself, after all of it was brought here; or a tensor from what each device holds."""
    a = setting.operand(setting.shape(), setting.dtype(MOVABLE))
    if name == "from_shards":
        layout = setting.operands[a].layout
        assert layout is not None
        shards = f"{{s.index: s.array for s in {a}.shards}}"
        code = f"sw.from_shards({shards}, mesh, {setting.name(layout)}, {a}.shape, dtype={a}.dtype)"
    else:
        whole = f"sw.distributed_broadcast({a}, {setting.everyone()})"
        code = f"{whole}.numpy()" if name == "Tensor.numpy" else f"np.asarray({whole})"
    return setting.call(code, lambda x: x, abstract=False)


@row("Tensor.item", "Tensor.__float__", "Tensor.__int__", "Tensor.__bool__", "Tensor.__complex__", "Tensor.__len__")
def number(setting: Setting, name: str) -> Call:
    """The only element as a number of Python's, after it was brought here."""
    if name == "Tensor.__len__":
        a = setting.operand(setting.shape(low=1), setting.dtype(MOVABLE))
        return setting.call(f"len({a})", lambda x: np.asarray(len(x)))
    a = setting.operand((1,) * setting.draws.below(3), setting.dtype([*FLOATS, np.dtype("int64")]), "small")
    function = name.strip("_").removeprefix("Tensor.__")
    whole = f"sw.distributed_broadcast({a}, {setting.everyone()})"
    code = f"{whole}.item()" if name == "Tensor.item" else f"{function}({whole})"
    kind = {"float": float, "int": int, "bool": bool, "complex": complex}.get(function)
    return setting.call(
        code, lambda x: np.asarray(x.ravel()[0].item() if kind is None else kind(x.ravel()[0])), abstract=False
    )
