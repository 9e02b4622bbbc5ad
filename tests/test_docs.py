"""The examples in README and docs run and print what they say."""

import builtins
import doctest
import pydoc
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from shardwise import Link, Links, engine_context
from shardwise.cli import main
from shardwise.engine.local.strict import StrictEngine
from tests.prim.cases import jax_of_eight

ROOT = Path(__file__).parent.parent
PAGES = sorted(p.relative_to(ROOT).as_posix() for p in (ROOT / "README.md", *ROOT.glob("docs/**/*.md")))
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
# What the peers that a page calls need before it starts; without them it is skipped.
PEERS: dict[str, Callable[[pytest.FixtureRequest], object]] = {
    "docs/guides/from-jax.md": lambda request: jax_of_eight(),
    "docs/guides/from-mlir.md": lambda request: request.getfixturevalue("mlir_opt"),
}


def examples(text: str) -> str:
    """The lines of all fenced console examples of a page, everything else blanked so that line numbers hold."""
    out, inside = [], False
    for line in text.splitlines():
        if re.match(r"```pycon( title=\"\w+\")?\s*$", line):
            inside = True
        elif line.startswith("```"):
            inside = False
        else:
            out.append(line if inside else "")
            continue
        out.append("")
    return "\n".join(out)


@pytest.mark.parametrize("page", PAGES)
def test_every_example_prints_what_the_page_says(page: str, request: pytest.FixtureRequest):
    if page in PEERS:
        PEERS[page](request)
    text = examples((ROOT / page).read_text(encoding="utf-8"))
    test = doctest.DocTestParser().get_doctest(text, {}, page, page, 0)
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    failures: list[str] = []
    with engine_context(StrictEngine()):  # so that what it says of values is so between processes too
        runner.run(test, out=failures.append)
    assert not failures, "".join(failures)


@pytest.mark.parametrize("page", PAGES)
def test_programs_that_stand_for_others_are_python(page: str):
    for text in re.findall(r"^```python[^\n]*\n(.*?)^```$", (ROOT / page).read_text(encoding="utf-8"), re.M | re.S):
        compile(text, page, "exec")


def test_the_readme_shows_the_thing_working_in_its_first_screen():
    first = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()[:40]
    assert any(line.startswith(">>> ") for line in first)
    assert any(line.startswith("make run") for line in first)
    assert any(line.startswith("make test") for line in first)


TEXTS = [ROOT / name for name in ("CONTRIBUTING.md", "CHANGELOG.md", "examples/README.md", *PAGES)]


def anchors(text: str) -> set[str]:
    """What the headings of a page are called in links to them."""
    bare = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    titles = re.findall(r"^#+ (.*)$", bare, re.M)
    return {re.sub(r"[^\w\s-]", "", title).strip().lower().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_link_inside_the_project_leads_somewhere(path: Path):
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("http://", "https://")):
            continue
        name, _, anchor = target.partition("#")
        page = (path.parent / name).resolve() if name else path
        assert page.exists(), f"{target} is not there"
        if anchor:
            assert anchor in anchors(page.read_text(encoding="utf-8")), f"{target}: no such heading"


def test_every_page_is_in_the_navigation():
    listed = set(re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf-8")))
    assert listed == {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").glob("**/*.md")}


def commands() -> list[str]:
    """The lines of all pages that call our command."""
    blocks = [b for page in PAGES for b in re.findall(r"^```sh\n(.*?)^```", (ROOT / page).read_text(), re.M | re.S)]
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    return sorted({line.partition("  #")[0].strip() for line in lines if line.startswith("shardwise ")})


@pytest.mark.parametrize("line", commands())
def test_every_command_on_a_page_has_its_options(line: str):
    name, *words = shlex.split(line.partition(" | ")[0])[1:]
    command = main.get_command(click.Context(main), name)
    assert command is not None, f"there is no command {name}"
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    given = [word.partition("=")[0] for word in words if word.startswith("-") and word != "-"]
    ours = given[: given.index("--")] if "--" in given else given
    assert not set(ours) - known


@pytest.mark.parametrize("line", [line for line in commands() if line.startswith("shardwise explain")])
def test_every_transition_on_a_page_is_explained(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Links({"dp": Link(1e-4, 1e9), "tp": Link(1e-5, 1e10)}).save("links.json")  # which pages have measured before
    done = CliRunner().invoke(main, shlex.split(line)[1:])
    assert done.exit_code == 0, done.output
    assert "the least possible" in done.output


def test_every_command_is_on_its_page():
    text = (ROOT / "docs/reference/commands.md").read_text(encoding="utf-8")
    assert [name for name in main.commands if f"`shardwise {name}`" not in text] == []


# Where the names of a mapping table live, by page and column.
HOMES: dict[tuple[str, int], list[str]] = {
    ("from-dtensor", 0): [
        "torch.distributed.tensor",
        "torch.distributed.tensor.DTensor",
        "torch.distributed.device_mesh",
        "torch.distributed.tensor.debug",
        "torch.distributed.tensor.experimental",
        "torch.distributed.tensor.parallel",
        "torch.distributed.fsdp",
        "torch.Tensor",
    ],
    ("from-jax", 0): [
        "jax",
        "jax.sharding",
        "jax.lax",
        "jax.random",
        "jax.debug",
        "jax.stages.Wrapped",
        "jax.stages.Lowered",
    ],
    **{
        (page, column): [
            "shardwise",
            "shardwise.random",
            "shardwise.Tensor",
            "shardwise.DeviceMesh",
            "shardwise.P",
            "shardwise.ir",
        ]
        for page, column in (("from-dtensor", 1), ("from-jax", 1), ("from-mlir", 1), ("from-mlir", 2))
    },
}


@pytest.mark.parametrize(("page", "column"), sorted(HOMES), ids=str)
def test_every_function_in_a_mapping_table_is_there(page: str, column: int):
    if page == "from-jax":
        jax_of_eight()
    elif page == "from-dtensor":
        pytest.importorskip("torch")
    homes = [pydoc.locate(path) for path in HOMES[page, column]]
    text = (ROOT / f"docs/guides/{page}.md").read_text(encoding="utf-8")
    cells = [re.split(r"(?<!\\)\|", row)[1:-1] for row in text.splitlines() if row.startswith("| ")]
    code = [c for row in cells if len(row) > column for c in re.findall(r"`([^`]+)`", row[column])]
    names = {name for text in code for name in re.findall(r"(\w+)\(", text)} - {"f", "loss", "jit"}
    assert names
    known = {*vars(builtins), "set", "add"}  # x.at[...].set
    assert [n for n in sorted(names) if n not in known and not any(hasattr(home, n) for home in homes)] == []
