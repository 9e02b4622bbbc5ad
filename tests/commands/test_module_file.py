"""What is wrong with files, options and sizes is said in one line, with an exit code and no traceback."""

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from shardwise.cli import main

MODULE = """shard.grid @g(shape = ?)
func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %s = shard.sharding @g split_axes = [[0]] : !shard.sharding
  %0 = shard.shard %x to %s : tensor<4xf32>
  %1 = arith.negf %0 : tensor<4xf32>
  return %1 : tensor<4xf32>
}"""
HUGE = """func.func @f() -> tensor<1000000x10000000xf32> {
  %x = arith.constant 0.0 : f32
  %0 = tensor.splat %x : tensor<1000000x10000000xf32>
  return %0 : tensor<1000000x10000000xf32>
}"""


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    Path("open.mlir").write_text(MODULE)
    Path("f.mlir").write_text(MODULE.replace("?", "2"))
    Path("huge.mlir").write_text(HUGE)
    Path("empty").write_bytes(b"")
    Path("binary").write_bytes(b"\x93NUMPY\x01\x00")
    Path("zipped").write_bytes(b"PK\x03\x04 and no more")
    np.save("x.npy", np.ones(4, "float32"))
    np.savez("two.npz", a=np.ones(4), b=np.ones(4))


FILES = [
    ("missing.mlir", "Error: missing.mlir cannot be read: No such file or directory."),
    ("folder", "Error: folder cannot be read: Is a directory."),
]
TEXTS = [
    ("empty", "empty:1:1: the text is empty."),
    ("binary", "binary:1:1: byte 0x93 is not UTF-8."),
    ("-", "<stdin>:1:1: the text is empty."),
]


@pytest.mark.parametrize("command", ["opt", "cost", "exec"])
@pytest.mark.parametrize(("file", "message"), FILES)
def test_files_that_cannot_be_read(command: str, file: str, message: str):
    result = CliRunner().invoke(main, [command, file])
    assert (result.exit_code, result.output) == (1, f"{message}\n")


@pytest.mark.parametrize("command", ["opt", "cost", "exec"])
@pytest.mark.parametrize(("file", "message"), TEXTS)
def test_files_that_are_no_modules(command: str, file: str, message: str):
    result = CliRunner().invoke(main, [command, file])
    assert result.exit_code == 1
    # opt writes as mlir-opt does.
    place, what = message.split(": ", 1)
    wanted = f"{place}: error: {what}" if command == "opt" else f"Error: {message}"
    assert result.output.split("\n")[0] == wanted


MISTAKES = [
    ("opt f.mlir --propogate", 2, "Error: No such option '--propogate'. Did you mean '--propagate'?"),
    (
        "opt f.mlir --direction=up",
        2,
        "Error: Invalid value for '--direction': 'up' is not one of 'both', 'forward', 'backward'.",
    ),
    ("opt f.mlir --dialect=mlir", 2, "Error: Invalid value for '--dialect': 'mlir' is not one of 'shard', 'mesh19'."),
    ("opt f.mlir x.mlir", 2, "Error: Got unexpected extra argument (x.mlir)"),
    ("opt f.mlir -o nowhere/x.mlir", 1, "Error: Could not open file 'nowhere/x.mlir': No such file or directory"),
    (
        "opt open.mlir --partition",
        1,
        "error: the grid @g has open sizes, so shard.sharding (%s) at line 3 says nothing yet; give it a shape.",
    ),
    ("cost f.mlir --link 0=1,0", 1, "Error: a Link needs a latency of 0 or more and a bandwidth above 0"),
    ("cost f.mlir --link fast", 1, "Error: --link is given as SECONDS,BYTES or AXIS=SECONDS,BYTES, such as"),
    (
        "cost f.mlir --link 1=1e-6,1e9",
        1,
        "Error: --link names grid axis 1 in '1=1e-6,1e9', but grids here have 1 at most.",
    ),
    ("exec", 2, "Error: Missing argument 'FILE'."),
    ("exec f.mlir --inputs", 2, "Error: Option '--inputs' requires an argument."),
    (
        "exec f.mlir --inputs missing.npy",
        1,
        "Error: missing.npy cannot be read as an array: No such file or directory",
    ),
    ("exec f.mlir --inputs folder", 1, "Error: folder cannot be read as an array: Is a directory"),
    ("exec f.mlir --inputs empty", 1, "Error: empty cannot be read as an array: No data left in file"),
    ("exec f.mlir --inputs binary", 1, "Error: binary cannot be read as an array: EOF"),
    ("exec f.mlir --inputs zipped", 1, "Error: zipped cannot be read as an array: File is not a zip file"),
    (
        "exec f.mlir --inputs two.npz",
        1,
        "Error: two.npz holds several arrays (a, b); save the one to use with numpy.save.",
    ),
    (
        "exec f.mlir --inputs x.npy --output nowhere/y.npy",
        1,
        "Error: nowhere/y.npy cannot be written: No such file or directory.",
    ),
    (
        "exec f.mlir --inputs x.npy --output nowhere/y.npz",
        1,
        "Error: nowhere/y.npz cannot be written: No such file or directory.",
    ),
    (
        "exec f.mlir --inputs x.npy --output y.txt",
        1,
        "Error: --output is the name of a .npy or .npz file, got 'y.txt'.",
    ),
    ("exec open.mlir --inputs x.npy --grid g=0", 1, "Error: the sizes of a mesh are 1 or more, got 0 in (0,)."),
    ("exec open.mlir --inputs x.npy --grid g=2x2", 1, "Error: the grid @g is ?, which (2, 2) does not fit."),
    ("exec open.mlir --inputs x.npy --grid g=-1", 1, "Error: --grid is given as NAME=2x4, got 'g=-1'."),
    ("exec f.mlir --inputs x.npy --grid h=2", 1, "Error: a shape was given for the grid @h, which the module does not"),
    ("exec huge.mlir", 1, "Error: on device 0: there is not enough memory: Unable to allocate 36.4 TiB"),
]


@pytest.mark.parametrize(("line", "code", "message"), MISTAKES, ids=[row[0] for row in MISTAKES])
def test_each_mistake_has_its_line(line: str, code: int, message: str):
    result = CliRunner().invoke(main, line.split())
    assert isinstance(result.exception, SystemExit)
    assert result.exit_code == code
    assert any(said.startswith(message) for said in result.stderr.split("\n")), result.output
