"""Figures: what README and docs say was measured, written from one committed run.

    python tools/figures.py            write docs/benchmarks.md, and what stands between marks on the other pages
    python tools/figures.py --check    say what is not current, and write nothing

A mark is a pair of comments, and what is between them is written here:

    <!-- figure: ours planning; a layout -->43 µs<!-- /figure -->

Its first word says what: `ours`, `floor`, `ratio` (ours / floor), a peer in quotes (`"JAX jit"`), `against "JAX jit"`
(the peer / ours), `table`, `plots`, `machine`, `run`, or `mean "JAX jit"` (the geometric mean of peer / ours). The rest
names the row: its area and name, and of size, mesh and state what tells it from others, with semicolons between; or
rows, by what they have in common.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.areas import AREAS  # noqa: E402
from benchmarks.fits import means, series  # noqa: E402
from benchmarks.plots import curves, dots_of  # noqa: E402
from benchmarks.report import Report, ReportError, read  # noqa: E402
from benchmarks.row import Row  # noqa: E402
from benchmarks.tables import conditions, notes, summary  # noqa: E402
from benchmarks.words import amount, measure, times, verdict  # noqa: E402

RUN = ROOT / "benchmarks" / "results" / "full.json"
PAGE = ROOT / "docs" / "benchmarks.md"
MARK = re.compile(r"<!-- figure: (?P<key>[^\n]*?) -->(?P<text>.*?)<!-- /figure -->", re.DOTALL)
KEY = re.compile(r'(?P<what>\w+)?\s*(?:"(?P<peer>[^"]+)")?\s*(?P<row>.*)')
BY_HAND = re.compile(
    r"\d(?:[\d.,]*\d)?\s?(?:µs|us|ms|ns|microseconds?|milliseconds?|nanoseconds?)\b"
    r"|\b\d+(?:\.\d+)?(?:\s?[x×]|\s+times)\s+(?:as\s+)?(?:fast|slow|quick|less|more)"
    r"|\b(?:a|one)\s+(?:tenth|hundredth|thousandth)\s+of\s+a\s+(?:milli|micro)?second"
)


def pages() -> list[Path]:
    """Return the pages that may have marks."""
    return [ROOT / "README.md", ROOT / "CHANGELOG.md", *(p for p in sorted(ROOT.glob("docs/**/*.md")) if p != PAGE)]


def figure(report: Report, key: str) -> str:
    """Return what a mark stands for."""
    found = KEY.fullmatch(key.strip())
    what, peer, where = (found["what"], found["peer"], found["row"]) if found else (None, None, "")
    names = [part.strip() for part in where.split(";") if part.strip()]
    if what == "machine":
        return str(report.machine)
    if what == "run":
        return conditions(report)
    if what in ("table", "plots", "mean"):
        return _of_rows(report, what, peer, names)
    row = report.find(*names)
    if what in (None, "against") and peer is not None:
        theirs = _named(row.peers, peer, where).median
        return amount(theirs, row.unit) if what is None else times(theirs / row.ours.median)
    if what == "ours":
        return amount(row.ours.median, row.unit)
    if what == "floor" and row.floor is not None:
        return amount(row.floor.measure.median, row.unit)
    if what == "ratio" and row.ratio is not None:
        return times(row.ratio)
    raise ReportError(f"the figure {key!r} is none: ours, floor, ratio, a peer in quotes, against, mean, table, plots.")


def _of_rows(report: Report, what: str, peer: str | None, names: list[str]) -> str:
    """Return a figure of all rows of an area, or of those with a certain name, size, mesh or state."""
    rows = [row for row in report.of(names[0]) if set(names) <= set(row.key)] if names else []
    if not rows:
        areas = ", ".join(area.name for area in AREAS if report.of(area.name))
        raise ReportError(f"no rows for {what!r} are {'; '.join(names)!r}.\n  areas: {areas}")
    if what == "mean":
        return times(_named(means(rows), peer or "", "; ".join(names)))
    return "\n\n" + (table(rows) if what == "table" else "\n".join(plots(rows))) + "\n\n"


def _named(found: Mapping[str, Any], peer: str, where: str) -> Any:
    if peer not in found:
        raise ReportError(f"{where} has no peer {peer!r}; it has {', '.join(found) or 'none'}.")
    return found[peer]


def filled(text: str, report: Report) -> str:
    """Return a page with everything between marks as it is in a report."""
    return MARK.sub(lambda m: f"<!-- figure: {m['key']} -->{figure(report, m['key'])}<!-- /figure -->", text)


def table(rows: list[Row]) -> str:
    """Return rows as a table of Markdown."""
    peers = list(dict.fromkeys(peer for row in rows for peer in (*row.peers, *row.missing)))
    floors = list(dict.fromkeys(row.floor.name for row in rows if row.floor))
    floor = floors[0] if len(floors) == 1 else "floor"
    heads = ["row", "size", "mesh", "", "ours", *peers, *([floor, "ours / floor"] if floors else []), "best peer"]
    lines = [heads, ["---"] * 4 + ["---:"] * (len(heads) - 5) + ["---"]]
    for row in rows:
        named = [row.name, row.size, row.mesh, "" if row.state == "count" else row.state]
        cells = [measure(m, row.unit) for m in (row.ours, *(row.peers.get(peer) for peer in peers))]
        if floors:
            cells += [measure(row.floor.measure if row.floor else None, row.unit), times(row.ratio)]
        lines.append([*named, *cells, verdict(row)])
    said = [k for k in range(len(heads)) if any(line[k] for line in lines[2:])]
    return "\n".join("| " + " | ".join(_cell(line[k], k > 0) for k in said) + " |" for line in lines)


def _cell(text: str, whole: bool) -> str:
    return (text.replace(" ", "\u00a0") if whole else text).replace("|", "\\|")


def plots(rows: list[Row]) -> Iterator[str]:
    """Yield the plots of rows, each in a line of its own, so that Markdown leaves them alone."""
    for drawn in (*dots_of(rows, rows[0].area), *(curves(some) for some in series(rows))):
        yield f"<div>{drawn}</div>"


HEAD = """# Benchmarks

`make bench` (or `shardwise bench`) measures all of this on your machine, with the peers it compares with installed in
the versions of `constraints.txt`; `--quick` takes 3 minutes on two cores, all of it at most 20. `--only local gloo`
measures some areas, `--list` names them, `--html report.html` writes one page with plots, `--json report.json` the
numbers.

"""
RULES = """

Every contender computes the same in the same dtype, and the results are compared before anything is timed; a row whose
results differ would be here as *failed*. Contenders run in turn in one process where they can live in one. Numbers are
medians, with half the distance between the quartiles; *even* is a row in which the quartiles of ours and of the best
peer overlap. *Cold* is the first call, *warm* the later ones. Less is better in every row. This page is written from
`benchmarks/results/full.json` by `make figures`.
"""
SCHEMA = """
## The report as JSON

`--json` writes one object. `version` changes when a field changes its meaning or goes.

| field | what it is |
| --- | --- |
| `schema`, `version` | `"shardwise-bench"` and `1` |
| `machine` | `processor`, `cores` that a run may use, `memory` in GiB, `system`, `python`, and versions of `packages` |
| `effort`, `date` | `"quick"` or `"full"`, and the day |
| `load` | the load of the machine in the minute before the run |
| `seconds` | how long each area took |
| `failures` | areas that stopped, and why; empty in a good run |
| `rows` | the rows, in the order in which they were measured |
| `fits` | of rows that differ in one number alone (`along`), the powers of it that contenders and the floor grow with |

Each row:

| field | what it is |
| --- | --- |
| `area`, `name`, `size`, `mesh` | what was measured; together with `state`, no two rows have the same |
| `state` | `"warm"`, `"cold"` (the first call), or `"count"` (counted, not timed) |
| `unit` | `"seconds"`, `"bytes"`, `"times the bound"` or `"transitions"`; less is better |
| `ours` | a measure: `median`, `low` and `high` (the quartiles), `count` (how many values) |
| `peers` | measures by the name of the peer |
| `missing` | peers that have no measure, and why |
| `floor` | `null`, or the `name` and `measure` of a limit, or of plain calls of a library |
| `checked` | `"equal"`, or `"failed: "` and how results differed |
| `note` | what there is to say |
| `at` | where the row lies among rows that differ in this number: `bytes`, `devices`, `axes`, `ops` |
| `ratio` | ours / floor, or `null` |
| `verdict` | `"won"`, `"even"` or `"lost"` against the best peer, `"failed"`, or `""` without peers |
"""


def benchmarks_page(report: Report) -> str:
    """Return docs/benchmarks.md."""
    parts = [HEAD, f"{summary(report)} {conditions(report)}", RULES]
    for area in AREAS:
        rows = report.of(area.name)
        if not rows:
            continue
        parts.append(f"\n## {area.title}\n\n{area.text}\n\n")
        found = ", ".join(f"{peer} {times(mean)}" for peer, mean in means(rows).items())
        parts.append(f"Peer / ours, geometric mean of the rows that are not cold: {found}.\n\n" if found else "")
        parts += ["\n".join(plots(rows)), "\n\n", table(rows), "\n"]
        parts += ["\n", *(f"- {note.replace('|', chr(92) + '|')}\n" for note in notes(rows))] if notes(rows) else []
    return "".join([*parts, SCHEMA])


def stale(report: Report) -> dict[Path, str]:
    """Return the pages that are not as a report makes them, and what they should be."""
    found = {}
    for page in pages():
        try:
            found[page] = filled(page.read_text(encoding="utf-8"), report)
        except ReportError as error:
            raise ReportError(f"{page.relative_to(ROOT)}: {error}") from None
    found[PAGE] = benchmarks_page(report)
    return {p: text for p, text in found.items() if not p.exists() or p.read_text(encoding="utf-8") != text}


def unmarked(text: str) -> list[str]:
    """Return what looks measured on a page but stands outside marks, of what is not code.

    >>> unmarked("It takes 3 ms, and <!-- figure: ours x -->4 ms<!-- /figure --> there; `5 ms`.")
    ['3 ms']
    """
    plain = re.sub(r"^```.*?^```", "", MARK.sub("", text), flags=re.DOTALL | re.MULTILINE)
    return [m[0] for m in BY_HAND.finditer(re.sub(r"`[^`]*`", "", plain))]


def main(arguments: list[str]) -> int:
    """Write, or check."""
    try:
        changed = stale(read(RUN))
    except ReportError as error:
        print(error, file=sys.stderr)
        return 1
    for page, text in changed.items():
        if "--check" not in arguments:
            page.write_text(text, encoding="utf-8")
        print(f"{page.relative_to(ROOT)}: {'not current; run `make figures`' if '--check' in arguments else 'written'}")
    return 1 if changed and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
