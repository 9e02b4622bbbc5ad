"""Pages: a report as one HTML file that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from benchmarks.areas import AREAS
from benchmarks.fits import means, series
from benchmarks.plots import curves, dots_of
from benchmarks.report import Report
from benchmarks.row import Row
from benchmarks.tables import conditions, notes, summary
from benchmarks.words import measure, times, verdict

STYLE = """
:root { color-scheme: light dark; --back: #ffffff; --text: #1b2330; --dim: #5b6675; --rule: #d8dde5; --card: #f5f7fa;
  --won: #1a7f45; --lost: #c0392b; }
@media (prefers-color-scheme: dark) {
  :root { --back: #14181f; --text: #e4e8ee; --dim: #9aa5b4; --rule: #2d3542; --card: #1c222c;
    --won: #58c784; --lost: #ff7b6b; }
}
body { background: var(--back); color: var(--text); font: 15px/1.5 system-ui, sans-serif; margin: 0 auto;
  max-width: 76rem; padding: 1.5rem; }
h1 { margin: 0 0 .3rem; } h2 { margin: 2.5rem 0 .3rem; border-top: 1px solid var(--rule); padding-top: 1rem; }
p { max-width: 60rem; } .dim { color: var(--dim); font-size: .9em; }
nav a { margin-right: 1rem; color: inherit; }
figure { margin: 1rem 0; overflow-x: auto; } svg { max-width: 100%; height: auto; }
.grid { display: flex; flex-wrap: wrap; gap: 1rem; }
.grid figure { margin: 0; background: var(--card); border-radius: 8px; padding: .6rem; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-size: .87em; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid var(--rule); text-align: right; white-space: nowrap; }
th { position: sticky; top: 0; background: var(--back); }
.left { text-align: left; } .won { color: var(--won); } .lost, .failed { color: var(--lost); font-weight: 600; }
li { margin: .15rem 0; } summary { cursor: pointer; color: var(--dim); }
"""


def page(report: Report) -> str:
    """Return a report as a page."""
    areas = [area for area in AREAS if report.of(area.name)]
    links = " ".join(f'<a href="#{area.name}">{escape(area.title)}</a>' for area in areas)
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8"><title>shardwise: benchmarks</title>',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<style>{STYLE}</style></head><body>",
        "<h1>shardwise beside its peers</h1>",
        f"<p>{escape(summary(report))}</p>",
        f'<p class="dim">{escape(conditions(report))} Medians, with half the distance between the quartiles; a row is '
        "even where the quartiles of ours and of the best peer overlap.</p>",
        f"<nav>{links}</nav>",
        *(f'<p class="failed">{escape(name)} failed: {escape(why)}</p>' for name, why in report.failures.items()),
    ]
    for area in areas:
        rows = report.of(area.name)
        parts += [f'<h2 id="{area.name}">{escape(area.title)}</h2>', f"<p>{escape(area.text)}</p>", *_means(rows)]
        parts += [f"<figure>{drawn}</figure>" for drawn in dots_of(rows, area.title)]
        grown = "".join(f"<figure>{curves(some)}</figure>" for some in series(rows))
        parts.append(f'<div class="grid">{grown}</div>' if grown else "")
        parts.append(html_table(rows))
        parts += [f"<ul>{''.join(f'<li>{escape(note)}</li>' for note in notes(rows))}</ul>"] * bool(notes(rows))
    return "\n".join(filter(None, [*parts, "</body></html>\n"]))


def _means(rows: Sequence[Row]) -> list[str]:
    found = ", ".join(f"{times(mean)} {escape(peer)}" for peer, mean in means(rows).items())
    return [f'<p class="dim">Peer / ours, geometric mean of the rows that are not cold: {found}.</p>'] if found else []


def html_table(rows: Sequence[Row]) -> str:
    """Return rows as a table that can be folded."""
    peers = list(dict.fromkeys(peer for row in rows for peer in (*row.peers, *row.missing)))
    heads = ["row", "size", "mesh", "state", "ours", *peers, "floor", "ours / floor", "against the best peer"]
    out = ["<details open><summary>all rows</summary><div class=scroll><table><thead><tr>"]
    out += [f"<th{' class=left' * (i < 4)}>{escape(head)}</th>" for i, head in enumerate(heads)]
    out.append("</tr></thead><tbody>")
    for row in rows:
        cells = [measure(m, row.unit) for m in (row.ours, *(row.peers.get(peer) for peer in peers))]
        floor = measure(row.floor.measure if row.floor else None, row.unit)
        tip = f' title="{escape(row.floor.name)}"' if row.floor else ""
        named = "".join(f"<td class=left>{escape(text)}</td>" for text in (row.name, row.size, row.mesh, row.state))
        numbers = "".join(f"<td>{escape(text)}</td>" for text in cells) + f"<td{tip}>{floor}</td>"
        numbers += f"<td>{times(row.ratio)}</td>"
        out.append(f'<tr>{named}{numbers}<td class="{row.verdict}">{escape(verdict(row))}</td></tr>')
    return "".join([*out, "</tbody></table></div></details>"])
