"""What a user's type checker and editor see of the package, from files outside it: tensors, and no `Any`."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import jedi
import pytest

import shardwise as sw
from shardwise.table import FUNCTIONS, METHODS

HEAD = """import numpy as np
import shardwise as sw
from shardwise import DeviceMesh, P, shard

mesh = DeviceMesh((2,), ("x",))
x = shard(np.ones((4, 4)), mesh, P("x"))
tree = {"w": x}


def loss(w: sw.Tensor, b: dict[str, sw.Tensor]) -> sw.Tensor:
    return (w * b["w"]).sum()


def double(a: sw.Tensor) -> sw.Tensor:
    return a * 2.0


"""
TENSORS = """x | x + x | 1 - x | x @ x | x == x | x > 0 | -x | abs(x) | x.sum() | x.sum(0) | x.T | x.real | x[0]
x[:, None] | x.at[0].set(1.0) | x.softmax(-1) | x.reshape(2, -1) | sw.sum(x) | sw.abs(x) | sw.tanh(x)
sw.where(x > 0, x, 0.0) | sw.matmul(x, x) | sw.all_reduce(x) | sw.shard(np.ones(2), mesh, P()) | sw.zeros((2,))
sw.concat([x, x]) | sw.random.normal(sw.random.key(0), (2,))
sw.layer_norm(x) | sw.conv(x, x) | sw.take(x, [0]) | sw.all_gather(x, 0)
sw.grad(loss)(x, tree) | sw.jacfwd(loss)(x, tree) | sw.vmap(loss)(x, tree) | sw.checkpoint(loss)(x, tree)
sw.stop_gradient(x) | sw.shard_map(double, mesh, P("x"), P("x"))(x) | sw.jvp(loss, (x, tree), (x, tree))[0]
sw.value_and_grad(loss)(x, tree)[1] | sw.vjp(loss, x, tree)[1](x)[0] | x.topk(1)[0] | x.split(2)[0]"""
OTHERS = {
    "sw.grad(loss, argnums=1)(x, tree)": "dict[str, Tensor]",
    "shard(tree, mesh, P())": "dict[str, Tensor]",
    "sw.plan_reshard(P('x'), P(), (4,), 'float32', mesh=mesh)": "Plan",
    "sw.explain(loss, x, tree)": "Explanation",
    "x.shape": "tuple[int, ...]",
    "x.layout": "Layout",
}
WRONG = [
    "x.sum(axes=0)",
    "sw.softmax(x, dim=0)",
    "sw.shard(x, mesh, P(), colour=1)",
    "x.no_such_method()",
    "sw.nothing",
]
EXPRESSIONS = [text.strip() for line in TENSORS.splitlines() for text in line.split("|")]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[str]]:
    """What pyright says in its strict mode of each line of a program outside the package."""
    folder = tmp_path_factory.mktemp("user")
    lines = [f"reveal_type({text})" for text in (*EXPRESSIONS, *OTHERS)] + WRONG
    (folder / "program.py").write_text(HEAD + "\n".join(lines) + "\n")
    root = Path(sw.__file__).parent.parent
    text = f'{{"typeCheckingMode": "strict", "extraPaths": ["{root}"], "pythonVersion": "3.11"}}'
    (folder / "pyrightconfig.json").write_text(text)
    command = [
        shutil.which("pyright", path=str(Path(sys.executable).parent)) or "pyright",
        "--pythonpath",
        sys.executable,
    ]
    done = subprocess.run([*command, "program.py"], cwd=folder, capture_output=True, text=True, check=False)
    out: dict[int, list[str]] = {}
    for number, said in re.findall(r"program\.py:(\d+):\d+ - (.*)", done.stdout):
        out.setdefault(int(number) - HEAD.count("\n") - 1, []).append(said)
    return out


@pytest.mark.parametrize("number", range(len(EXPRESSIONS)), ids=EXPRESSIONS)
def test_a_tensor_is_seen_as_one(number: int, seen: dict[int, list[str]]) -> None:
    assert [said for said in seen[number] if said.startswith("error")] == []
    assert seen[number][0].endswith('is "Tensor"')


@pytest.mark.parametrize("number", range(len(OTHERS)), ids=OTHERS)
def test_other_values_are_seen_as_what_they_are(number: int, seen: dict[int, list[str]]) -> None:
    (said,) = seen[len(EXPRESSIONS) + number]
    assert [*OTHERS.values()][number] in said


@pytest.mark.parametrize("number", range(len(WRONG)), ids=WRONG)
def test_what_is_not_there_is_an_error(number: int, seen: dict[int, list[str]]) -> None:
    assert any("error" in said for said in seen[len(EXPRESSIONS) + len(OTHERS) + number])


def test_nothing_else_is_wrong_with_the_program(seen: dict[int, list[str]]) -> None:
    assert [said for number, said in seen.items() if number < 0] == []


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jedi's own cache is one of files, which tests that run at once would share."""
    monkeypatch.setattr(jedi.settings, "cache_directory", str(tmp_path))


def completions(text: str) -> set[str]:
    script = jedi.Script(HEAD + text, project=jedi.Project(Path(sw.__file__).parent.parent))
    return {found.name for found in script.complete(HEAD.count("\n") + 1, len(text))}


def test_an_editor_completes_what_tensors_have() -> None:
    names = completions("x.")
    assert names >= {name for name in METHODS if not name.startswith("_")}
    assert {"shape", "dtype", "layout", "numpy", "shards"} <= names


def test_an_editor_completes_what_the_package_has() -> None:
    assert completions("sw.") >= {*FUNCTIONS, *sw.__all__, "random"}


def test_an_editor_completes_after_an_operator_and_a_method() -> None:
    assert "softmax" in completions("(x + x).")
    assert "softmax" in completions("x.sum(0).")
