"""Outlines, and what tapes keep: no more than torch's do, by its own hooks."""

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import shardwise as sw
from shardwise import DeviceMesh, P, Tensor, asarray, shard
from shardwise.prim.bind import Node, Traced, new_level
from shardwise.prim.movement.parts import zeros_like
from shardwise.prim.outline import Outline, blank_of
from shardwise.prim.tensor import lowest

MESH = DeviceMesh((2,), ("x",))
ROWS, WIDTH = 64, 32
X, Y, W, B = (np.random.default_rng(k).random((ROWS, WIDTH)).astype("float32") + 0.5 for k in range(4))
W, B, SQUARE = W[0], B[0], np.eye(WIDTH, dtype="float32")
LABELS = np.arange(ROWS) % WIDTH


def test_an_outline_knows_what_there_is_to_know_and_has_no_elements() -> None:
    x = shard(np.ones((4, 3), "float16"), MESH, P("x"))
    outline = Outline(x)
    assert (outline.shape, outline.dtype, outline.layout, outline.engine) == (x.shape, x.dtype, x.layout, x.engine)
    assert repr(outline) == "Outline(float16[4@x, 3])"
    assert Outline(outline).blank is outline.blank
    for read in (lambda: outline.arrays, lambda: outline.numpy(), lambda: outline + 1.0):
        with pytest.raises(AssertionError, match=r"reads Outline.*says that it does not need"):
            read()


def test_zeros_are_made_like_an_outline_in_its_library() -> None:
    x = asarray(torch.ones(2, 3, dtype=torch.bfloat16))
    zeros = zeros_like(Outline(x), (5,), x.layout.replicated(x.mesh, 1))
    assert isinstance(zeros.arrays[0], torch.Tensor)
    assert (zeros.dtype, zeros.numpy().astype(float).tolist()) == (x.dtype, [0.0] * 5)
    assert blank_of(x).numel() == 0
    assert blank_of(asarray([1, 2])).dtype == np.dtype("int64")


# -- what tapes keep --------------------------------------------------------------------------------------

CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[np.ndarray, ...]]] = {
    "add": (sw.add, torch.add, (X, Y)),
    "subtract": (sw.subtract, torch.sub, (X, Y)),
    "multiply": (sw.multiply, torch.mul, (X, Y)),
    "a multiple": (lambda x: x * 2.0, lambda x: x * 2.0, (X,)),
    "divide": (lambda x, y: x / y, lambda x, y: x / y, (X, Y)),
    "negative": (sw.negative, torch.neg, (X,)),
    "a square": (sw.square, torch.square, (X,)),
    "sqrt": (sw.sqrt, torch.sqrt, (X,)),
    "exp": (sw.exp, torch.exp, (X,)),
    "log": (sw.log, torch.log, (X,)),
    "sin": (sw.sin, torch.sin, (X,)),
    "tanh": (sw.tanh, torch.tanh, (X,)),
    "relu": (sw.relu, F.relu, (X,)),
    "sigmoid": (sw.sigmoid, torch.sigmoid, (X,)),
    "silu": (sw.silu, F.silu, (X,)),
    "gelu": (sw.gelu, lambda x: F.gelu(x, approximate="tanh"), (X,)),
    "softplus": (sw.softplus, F.softplus, (X,)),
    "softmax": (sw.softmax, lambda x: x.softmax(-1), (X,)),
    "log_softmax": (sw.log_softmax, lambda x: x.log_softmax(-1), (X,)),
    "logsumexp": (lambda x: sw.logsumexp(x, axis=1), lambda x: x.logsumexp(1), (X,)),
    "layer_norm": (sw.layer_norm, lambda x, w, b: F.layer_norm(x, (WIDTH,), w, b), (X, W, B)),
    "rms_norm": (sw.rms_norm, lambda x, w: F.rms_norm(x, (WIDTH,), w, 1e-5), (X, W)),
    "cross_entropy": (
        lambda x: sw.cross_entropy(x, LABELS),
        lambda x: F.cross_entropy(x, torch.tensor(LABELS)),
        (X,),
    ),
    "matmul": (sw.matmul, torch.matmul, (X, SQUARE)),
    "reshape": (lambda x: sw.reshape(x, (WIDTH, ROWS)), lambda x: x.reshape(WIDTH, ROWS), (X,)),
    "transpose": (sw.matrix_transpose, lambda x: x.mT, (X,)),
    "a slice": (lambda x: x[3:9], lambda x: x[3:9], (X,)),
    "concat": (lambda x, y: sw.concat([x, y]), lambda x, y: torch.cat([x, y]), (X, Y)),
    "pad": (lambda x: sw.pad(x, ((1, 1), (0, 0))), lambda x: F.pad(x, (0, 0, 1, 1)), (X,)),
    "sum": (lambda x: sw.sum(x, axis=0), lambda x: x.sum(0), (X,)),
    "mean": (lambda x: sw.mean(x, axis=0), lambda x: x.mean(0), (X,)),
    "astype": (lambda x: sw.astype(x, "float64"), lambda x: x.to(torch.float64), (X,)),
    "rows by index": (lambda x: sw.take(x, LABELS, axis=0), lambda x: x[torch.tensor(LABELS)], (X,)),
}


def entries(node: Node | None, seen: set[int]) -> Iterator[Node]:
    if node is None or id(node) in seen:
        return
    seen.add(id(node))
    yield node
    for parent in node.parents:
        yield from entries(parent, seen)


def kept_by_us(call: Callable[..., Any], values: list[Any]) -> list[int]:
    """The bytes of each array that only the tape keeps."""
    tensors = [asarray(value) for value in values]
    with new_level() as level:
        out = call(*[Traced(level, x, node=Node()) for x in tensors])
    own = {_memory(x.arrays[0]) for x in tensors}
    kept: dict[int, int] = {}
    for node in entries(out.node, set()):
        for x in (*node.operands, node.out):
            if isinstance(x, Tensor) and not isinstance(x, Outline):
                kept[_memory(lowest(x).arrays[0])] = lowest(x).arrays[0].nbytes
    return sorted(size for place, size in kept.items() if place not in own)


def _memory(array: Any) -> int:
    if isinstance(array, torch.Tensor):
        return array.untyped_storage().data_ptr()
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array.__array_interface__["data"][0]


def kept_by_torch(call: Callable[..., Any], values: tuple[np.ndarray, ...]) -> list[int]:
    tensors = [torch.tensor(value, requires_grad=True) for value in values]
    own, kept = {x.untyped_storage().data_ptr() for x in tensors}, {}

    def pack(x: torch.Tensor) -> torch.Tensor:
        kept[x.untyped_storage().data_ptr()] = x.nbytes
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        call(*tensors)
    return sorted(size for place, size in kept.items() if place not in own)


@pytest.mark.parametrize("library", [np.array, torch.tensor], ids=["numpy", "torch"])
@pytest.mark.parametrize("name", CASES)
def test_a_tape_keeps_no_more_than_torch(name: str, library: Any) -> None:
    ours, theirs, values = CASES[name]
    kept, torches = kept_by_us(ours, [library(value) for value in values]), kept_by_torch(theirs, values)
    large = [size for size in kept if size >= X.nbytes]
    assert len(large) <= len([size for size in torches if size >= X.nbytes])
    assert sum(large) <= sum(size for size in torches if size >= X.nbytes)
    # Beside those, numbers: at most three for each row, as torch keeps them, and indices, as they were given.
    assert sum(kept) - sum(large) <= 3 * 4 * ROWS + LABELS.nbytes


def test_of_a_product_with_a_constant_only_the_constant_is_kept() -> None:
    constant = asarray(Y)
    assert kept_by_us(lambda x: sw.exp(x) * constant, [X]) == [X.nbytes, X.nbytes]
    assert kept_by_us(lambda x: (x + 1.0) * constant, [X]) == [X.nbytes]  # the constant itself
    assert kept_by_us(lambda x: (x + 1.0) @ asarray(SQUARE), [X]) == [SQUARE.nbytes]


def test_a_gradient_gives_up_on_the_way_what_was_kept() -> None:
    alive: list[int] = []

    @sw.custom_vjp
    def look(x: Tensor) -> Tensor:
        return x * 1.0

    arrays: list[Any] = []

    def note(x: Tensor) -> Tensor:
        arrays.append(weakref.ref(lowest(x).arrays[0]))
        return x

    def count(kept: None, ct: Tensor) -> tuple[Tensor]:
        gc.collect()
        alive.append(sum(ref() is not None for ref in arrays))
        return (ct,)

    look.defvjp(lambda x: (x * 1.0, None), count)

    def deep(x: Tensor) -> Tensor:
        for _ in range(5):
            x = look(note(sw.exp(x * 0.1)))
        return sw.sum(x)

    sw.grad(deep)(X)
    assert alive == [5, 4, 3, 2, 1]
    alive.clear()
    arrays.clear()
    _, back = sw.vjp(deep, X)
    first, second = back(np.float32(1.0))[0], back(np.float32(1.0))[0]  # one that may be called again keeps all
    assert np.array_equal(first.numpy(), second.numpy())
    assert alive == [5] * 10
