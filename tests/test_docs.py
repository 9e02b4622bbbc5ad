"""The examples in README and docs run and print what they say."""

import doctest
import re
from collections.abc import Callable
from pathlib import Path

import pytest

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
    runner.run(test, out=failures.append)
    assert not failures, "".join(failures)


def test_the_readme_shows_the_thing_working_in_its_first_screen():
    first = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()[:40]
    assert any(line.startswith(">>> ") for line in first)
    assert any(line.startswith("make run") for line in first)
    assert any(line.startswith("make test") for line in first)
