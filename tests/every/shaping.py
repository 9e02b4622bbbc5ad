"""Rows of what only moves elements: shapes, joins, cuts, padding, rolling, indexing and updates."""

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from tests.every.calls import Call, Setting
from tests.every.comparison import Rule
from tests.every.table import row
from tests.every.values import EVERY, FLOATS, INTS, MOVABLE, NUMBERS, UINTS, Shape, draw_values


def _moved(setting: Setting, shape: Shape) -> str:
    return setting.operand(shape, setting.dtype(MOVABLE))


def _rule(setting: Setting) -> Rule:
    return Rule(signs=not setting.is_pending)


@row("reshape")
def reshape(setting: Setting, name: str) -> Call:
    """Factors of the size in another order, one of them perhaps not said."""
    shape = setting.shape()
    a = _moved(setting, shape)
    left, sizes = prod(shape), []
    while left > 1 and len(sizes) < 4:
        sizes.append(setting.draws.choice([left, *(d for d in range(2, left) if left % d == 0)]))
        left //= sizes[-1]
    sizes += [left] if left != 1 or setting.draws.rarely(3) else []
    sizes = [*sizes, *shape] if not prod(shape) else sizes
    sizes = [0] if not prod(shape) and prod(sizes) else sizes
    if sizes and prod(shape) and setting.draws.rarely(3):
        sizes[setting.draws.below(len(sizes))] = -1
    to = tuple(sizes)
    return setting.call(setting.spell(name, a, str(to), method=name), lambda x: x.reshape(to), local=True)


@row("permute_dims")
def permute_dims(setting: Setting, name: str) -> Call:
    """Any order of dims."""
    shape = setting.shape()
    a = _moved(setting, shape)
    order = tuple(setting.draws.order(len(shape)))
    code = setting.draws.choice(
        [f"sw.permute_dims({a}, {order})", f"{a}.permute_dims({order})", f"{a}.transpose({order})"]
    )
    return setting.call(code, lambda x: np.transpose(x, order), local=True)


@row("matrix_transpose", "Tensor.T", "Tensor.mT", "Tensor.transpose")
def matrix_transpose(setting: Setting, name: str) -> Call:
    """The last two dims exchanged, or all turned round."""
    a = _moved(setting, setting.shape(low=2))
    if name in ("Tensor.T", "Tensor.transpose"):
        return setting.call(f"{a}.T" if name == "Tensor.T" else f"{a}.transpose()", np.transpose, local=True)
    code = f"{a}.mT" if name == "Tensor.mT" else setting.spell(name, a, method=name)
    return setting.call(code, lambda x: np.swapaxes(x, -1, -2), local=True)


@row("moveaxis")
def moveaxis(setting: Setting, name: str) -> Call:
    """One dim, or several, to other places."""
    shape = setting.shape(low=1)
    a = _moved(setting, shape)
    source: Any = setting.dim(len(shape))
    target: Any = setting.dim(len(shape))
    if setting.draws.rarely(2):
        count = setting.draws.between(1, len(shape))
        source, target = (tuple(setting.draws.order(len(shape))[:count]) for _ in range(2))
    code = setting.spell(name, a, str(source), str(target), method=name)
    return setting.call(code, lambda x: np.moveaxis(x, source, target), local=True)


@row("expand_dims")
def expand_dims(setting: Setting, name: str) -> Call:
    """A new dim anywhere."""
    shape = setting.shape()
    a, axis = _moved(setting, shape), setting.dim(len(shape) + 1)
    code = setting.spell(name, a, f"axis={axis}", method=name)
    return setting.call(code, lambda x: np.expand_dims(x, axis), local=True)


@row("squeeze")
def squeeze(setting: Setting, name: str) -> Call:
    """Dims of size one."""
    shape = list(setting.shape(low=1))
    dims = setting.draws.some(range(len(shape))) or [0]
    for dim in dims:
        shape[dim] = 1
    a = _moved(setting, tuple(shape))
    axis: Any = tuple(dims) if len(dims) > 1 else dims[0]
    return setting.call(setting.spell(name, a, str(axis), method=name), lambda x: np.squeeze(x, axis), local=True)


@row("broadcast_to")
def broadcast_to(setting: Setting, name: str) -> Call:
    """New dims in front, and dims of size one made larger."""
    to = (*setting.shape(high=1, most=3), *(shape := setting.shape()))
    shape = tuple(1 if setting.draws.rarely(3) else n for n in shape)
    a = _moved(setting, shape)
    return setting.call(setting.spell(name, a, str(to), method=name), lambda x: np.broadcast_to(x, to), local=True)


# -- joins and cuts --------------------------------------------------------------------------------------------


@row("concat")
def concat(setting: Setting, name: str) -> Call:
    """Several tensors along a dim, or all in a row."""
    dtype, shape = setting.dtype(MOVABLE), setting.shape(low=1)
    axis = setting.dim(len(shape)) if setting.draws.below(3) else None
    count = setting.draws.between(1, 3)
    shapes = [list(shape) for _ in range(count)]
    for some in shapes[1:]:
        some[axis if axis is not None else 0] = setting.draws.between(0, 4)
    names = [setting.operand(tuple(shapes[0]), dtype), *(setting.beside(tuple(s), dtype) for s in shapes[1:])]
    code = f"sw.concat([{', '.join(names)}], axis={axis})"
    return setting.call(
        code, lambda *xs: np.concatenate([x.ravel() for x in xs] if axis is None else xs, axis or 0), local=True
    )


@row("stack")
def stack(setting: Setting, name: str) -> Call:
    """Several tensors of one shape along a new dim."""
    dtype, shape = setting.dtype(MOVABLE), setting.shape()
    axis = setting.dim(len(shape) + 1)
    names = [setting.operand(shape, dtype), *(setting.beside(shape, dtype) for _ in range(setting.draws.below(3)))]
    return setting.call(f"sw.stack([{', '.join(names)}], axis={axis})", lambda *xs: np.stack(xs, axis), local=True)


@row("unstack")
def unstack(setting: Setting, name: str) -> Call:
    """The parts along a dim."""
    shape = setting.shape(low=1, most=5)
    a, axis = _moved(setting, shape), setting.dim(len(shape))
    code = setting.spell(name, a, f"axis={axis}", method=name)
    return setting.call(code, lambda x: [np.take(x, i, axis) for i in range(x.shape[axis])], local="many")


@row("split")
def split(setting: Setting, name: str) -> Call:
    """Equal sections, or at indices, some of them empty."""
    shape = setting.shape(low=1)
    a, axis = _moved(setting, shape), setting.dim(len(shape))
    size = shape[axis]
    if setting.draws.below(2):
        where: Any = sorted(setting.draws.between(0, size + 1) for _ in range(setting.draws.below(4)))
    else:
        where = setting.draws.choice([d for d in range(1, max(2, size + 1)) if not size % d])
    code = setting.spell(name, a, str(where), f"axis={axis}", method=name)
    return setting.call(code, lambda x: np.split(x, where, axis), local="many")


@row("flip")
def flip(setting: Setting, name: str) -> Call:
    """The other way round along dims."""
    shape = setting.shape()
    a, axis = _moved(setting, shape), setting.dims(len(shape))
    return setting.call(setting.spell(name, a, f"axis={axis}", method=name), lambda x: np.flip(x, axis), local=True)


@row("roll")
def roll(setting: Setting, name: str) -> Call:
    """Along one dim, several, or all in a row."""
    shape = setting.shape()
    a, axis = _moved(setting, shape), setting.dims(len(shape))
    shift: Any = setting.draws.between(0, 9) * setting.draws.choice([1, -1])
    if isinstance(axis, tuple) and axis and setting.draws.below(2):
        shift = tuple(setting.draws.between(0, 9) - 4 for _ in axis)
    code = setting.spell(name, a, str(shift), f"axis={axis}", method=name)
    return setting.call(code, lambda x: np.roll(x, shift, axis), local=True)


@row("pad")
def pad(setting: Setting, name: str) -> Call:
    """All four modes, with widths per dim."""
    dtype = setting.dtype(EVERY)
    mode = setting.draws.choice(["constant", "edge", "reflect", "wrap"])
    shape = setting.shape(low=1, least=0 if mode == "constant" else 1)
    most = [{"constant": 4, "edge": 4, "reflect": n - 1, "wrap": n}[mode] for n in shape]
    widths = [(setting.draws.between(0, m), setting.draws.between(0, m)) for m in most]
    a = setting.operand(shape, dtype)
    how: dict[str, Any] = {"mode": mode}
    text = f"mode={mode!r}"
    if mode == "constant" and setting.draws.below(2):
        how["constant_values"] = 1
        text += ", constant_values=1"
    code = setting.spell(name, a, str(widths), text, method=name)
    return setting.call(code, lambda x: np.pad(x, widths, **how), local=True)


@row("tril", "triu")
def triangle(setting: Setting, name: str) -> Call:
    """One side of a diagonal."""
    a = setting.operand(setting.shape(low=2), setting.dtype(EVERY))
    k = setting.draws.between(0, 6) - 3
    oracle: Callable[..., Any] = getattr(np, name)
    return setting.call(setting.spell(name, a, f"k={k}", method=name), lambda x: oracle(x, k), local=True)


# -- indexing --------------------------------------------------------------------------------------------------


def draw_indices(setting: Setting, shape: Shape, size: int) -> np.ndarray:
    """Indices into a dim of `size` elements; negative ones count from its end."""
    rng = np.random.default_rng(setting.draws.below(1 << 16))
    dtype = setting.draws.choice([*INTS, *UINTS])
    low = 0 if dtype.kind == "u" or setting.draws.below(2) else -size
    return rng.integers(low, max(size, 1), shape).astype(dtype) if size else np.zeros(shape, dtype)


def _index(setting: Setting, shape: Shape, size: int) -> str:
    # Indices as a tensor of their own.
    return setting.operand(shape, np.dtype("int64"), pending=False, value=draw_indices(setting, shape, size))


@row("take")
def take(setting: Setting, name: str) -> Call:
    """Elements of a dim at indices of any shape."""
    shape = setting.shape(low=1, least=1)
    a, axis = _moved(setting, shape), setting.dim(len(shape))
    b = _index(setting, setting.shape(high=2, most=4), shape[axis])
    code = setting.spell(name, a, b, f"axis={axis}", method=name)
    return setting.call(code, lambda x, i: np.take(x, i.astype("int64"), axis), local=True)


@row("take_along_axis")
def take_along_axis(setting: Setting, name: str) -> Call:
    """Elements along a dim at the indices of each place."""
    shape = setting.shape(low=1, least=1)
    a, axis = _moved(setting, shape), setting.dim(len(shape))
    where = list(shape)
    where[axis] = setting.draws.between(1, 4)
    b = _index(setting, tuple(where), shape[axis])
    code = setting.spell(name, a, b, f"axis={axis}", method=name)
    return setting.call(code, lambda x, i: np.take_along_axis(x, i.astype("int64"), axis), local=True)


@row("embedding")
def embedding(setting: Setting, name: str) -> Call:
    """Rows of a table."""
    shape = setting.shape(low=2, high=2, least=1)
    a = _index(setting, setting.shape(high=2, most=5), shape[0])
    b = setting.operand(shape, setting.dtype(FLOATS))
    return setting.call(f"sw.embedding({a}, {b})", lambda i, table: table[i.astype("int64")], local=True)


@row("one_hot")
def one_hot(setting: Setting, name: str) -> Call:
    """Classes, of which some are outside."""
    classes = setting.draws.between(1, 6)
    a = _index(setting, setting.shape(high=2), classes + 1)
    dtype = setting.draws.choice([*FLOATS, *INTS])
    code = setting.spell(name, a, str(classes), f"dtype={str(dtype)!r}", method=name)
    return setting.call(code, lambda i: (i[..., None] == np.arange(classes)).astype(dtype), local=True)


def draw_key(setting: Setting, shape: Shape) -> tuple[str, Any]:
    """An index of slices, integers, new dims and dots, with arrays now and then: its code, and itself."""
    draws, entries = setting.draws, list[str]()
    arrays = draws.rarely(3)
    for size in shape:
        kind = draws.choice(["all", "slice", "number", "array" if arrays else "slice"])
        if kind == "all":
            entries.append(":")
        elif kind == "number" and size:
            entries.append(str(draws.below(size) - (size if draws.below(2) else 0)))
        elif kind == "array" and size:
            where = draw_indices(setting, (2,), size).astype("int64")
            entries.append(f"np.array({where.tolist()})")
        else:
            start, stop = (draws.choice([None, *range(-size - 1, size + 2)]) for _ in range(2))
            step = draws.choice([1, 2, -1, 3, -2])
            entries.append(f"{'' if start is None else start}:{'' if stop is None else stop}:{step}")
    if draws.rarely(4):
        entries.insert(draws.below(len(entries) + 1), "None")
    if draws.rarely(4):
        entries = [*entries[: draws.below(len(entries) + 1)], "..."]
    text = ", ".join(entries) or "..."
    return text, eval(f"np.index_exp[{text}]", {"np": np})


@row("Tensor.__getitem__")
def getitem(setting: Setting, name: str) -> Call:
    """Any index."""
    shape = setting.shape()
    a = _moved(setting, shape)
    text, key = draw_key(setting, shape)
    return setting.call(f"{a}[{text}]", lambda x: x[key], local=True)


@row("Tensor.at")
def update(setting: Setting, name: str) -> Call:
    """Elements that are replaced, added to or read."""
    shape, dtype = setting.shape(), setting.dtype(NUMBERS)
    how = setting.draws.choice(["set", "add", "get"])
    a = setting.operand(shape, dtype, "small" if how == "add" else "any")
    text, key = draw_key(setting, shape)
    if how == "get":
        return setting.call(f"{a}.at[{text}].get()", lambda x: x[key], local=True)
    picked = np.zeros(shape)[key].shape
    number = setting.draws.below(2) == 0
    if number:
        b, value = "2", np.array(2)
    else:
        b, value = setting.beside(picked, dtype, "small", pending=False), None

    def oracle(x: np.ndarray, y: np.ndarray | None = None) -> np.ndarray:
        out, new = x.copy(), np.asarray(value if y is None else y).astype(x.dtype)
        if how == "set":
            out[key] = new
        elif x.dtype.kind == "V":
            wide = out.astype("float64")
            np.add.at(wide, key, new.astype("float64"))
            out = wide.astype(x.dtype)
        else:
            np.add.at(out, key, new)
        return out

    rule = _rule(setting) if how == "set" else Rule(exact=False)
    return setting.call(f"{a}.at[{text}].{how}({b})", oracle, rule=rule, local=True)


__all__ = ["draw_key", "draw_values"]
