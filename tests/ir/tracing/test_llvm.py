"""LLVM compiles and runs traced programs, and finds the numbers that eager finds."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardwise as sw
from shardwise import grad
from shardwise.ir import print_module, trace

# From whole tensors down to machine code.
PASSES = [
    "-convert-elementwise-to-linalg",
    "-one-shot-bufferize=bufferize-function-boundaries",
    "-convert-linalg-to-loops",
    "-expand-strided-metadata",
    "-lower-affine",
    "-convert-scf-to-cf",
    "-convert-math-to-llvm",
    "-convert-math-to-libm",
    "-convert-arith-to-llvm",
    "-finalize-memref-to-llvm",
    "-convert-func-to-llvm",
    "-convert-cf-to-llvm",
    "-reconcile-unrealized-casts",
]

RNG = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype("float32")


def loss(w1: Any, w2: Any, x: Any) -> Any:
    return sw.mean(sw.square(sw.matmul(sw.gelu(sw.matmul(x, w1)), w2)))


def attention(q: Any, k: Any, v: Any) -> Any:
    weights = sw.softmax(sw.einsum("bqd,bkd->bqk", q, k) / float(np.sqrt(q.shape[-1])))
    return sw.einsum("bqk,bkd->bqd", weights, v)


def digest(fn: Callable[..., Any], *shapes: tuple[int, ...]) -> Callable[..., Any]:
    """One number that depends on every element of what a function returns: all that the runner can show."""
    weights = [floats(*shape) for shape in shapes]

    def number(*args: Any) -> Any:
        made = fn(*args)
        parts = made if isinstance(made, tuple) else (made,)
        return sum((sw.sum(x * w) for x, w in zip(parts, weights, strict=True)), start=0.0)

    return number


def stencil(u: Any) -> Any:
    # Neighbours along a dim, from products with shifted diagonals.
    up, down = np.eye(6, k=1, dtype="float32"), np.eye(6, k=-1, dtype="float32")
    return u + 0.1 * (sw.matmul(up, u) + sw.matmul(down, u) - 2.0 * u)


MLP = (floats(6, 4), floats(4, 3), floats(8, 6))
HEADS = (floats(2, 4, 3), floats(2, 4, 3), floats(2, 4, 3))


@pytest.mark.parametrize(
    ("fn", "args"),
    [
        (loss, MLP),
        (digest(grad(loss, argnums=(0, 1, 2)), (6, 4), (4, 3), (8, 6)), MLP),
        (digest(attention, (2, 4, 3)), HEADS),
        (digest(grad(lambda *x: sw.sum(attention(*x) ** 2), argnums=(0, 1, 2)), *[(2, 4, 3)] * 3), HEADS),  # type: ignore
        (digest(stencil, (6, 2)), (floats(6, 2),)),
        (digest(lambda x: sw.where(x > 0, sw.round(x * 3), sw.logaddexp(x, 1.0)), (5, 2)), (floats(5, 2),)),
        (
            digest(lambda x: sw.max(sw.permute_dims(sw.reshape(x, (2, 3, 4)), (2, 0, 1)), axis=2), (4, 2)),
            (floats(6, 4),),
        ),
    ],
    ids=["loss", "its gradient", "attention", "the gradient of that", "stencil", "elements", "shapes"],
)
def test_llvm_finds_the_same_number(fn, args, mlir_opt, tmp_path):
    kinds = [f"tensor<{'x'.join(map(str, x.shape))}xf32>" for x in args]
    constants = "\n".join(f"%a{i} = arith.constant dense<{x.tolist()}> : {kinds[i]}" for i, x in enumerate(args))
    names = ", ".join(f"%a{i}" for i in range(len(args)))
    main = f"""func.func @main() -> f32 {{
        {constants}
        %r = func.call @f({names}) : ({", ".join(kinds)}) -> tensor<f32>
        %s = tensor.extract %r[] : tensor<f32>
        return %s : f32
      }}"""
    traced = print_module(trace(fn, *args, name="f"), dialect="mesh19").rstrip().removesuffix("}")
    path = tmp_path / "program.mlir"
    path.write_text(f"{traced}{main}\n}}")
    runner = str(Path(mlir_opt).with_name("mlir-cpu-runner-19"))
    lowered = _output([mlir_opt, *PASSES, str(path)])
    path.write_text(lowered)
    number = float(_output([runner, str(path), "-e", "main", "--entry-point-result=f32"]))
    np.testing.assert_allclose(number, np.asarray(fn(*args)), rtol=1e-4)


def _output(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr[:2000]
    return done.stdout
