"""Pages: drawings and tables as one HTML file that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence

from shardwise.pictures.canvas import clean
from shardwise.pictures.palette import DARK, LIGHT


def page(title: str, parts: Sequence[str]) -> str:
    """Return a page with these parts, which are HTML."""
    body = "\n".join(parts)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{clean(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def heading(text: str, level: int = 2) -> str:
    """Return a heading."""
    return f"<h{level}>{clean(text)}</h{level}>"


def prose(text: str) -> str:
    """Return a paragraph."""
    return f"<p>{clean(text)}</p>"


def scroll(svg: str) -> str:
    """Return a drawing that is scrolled where it is wider than the page."""
    return f'<div class="scroll">{svg}</div>'


def table(head: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1, chosen: int | None = None) -> str:
    """Return a table whose first `left` columns are texts and the others figures; one row may be marked."""
    aligned = ["" if k < left else ' class="figure"' for k in range(len(head))]
    cells = "".join(f"<th{a}>{clean(name)}</th>" for a, name in zip(aligned, head, strict=True))
    out = [f"<tr>{cells}</tr>"]
    for index, row in enumerate(rows):
        cells = "".join(f"<td{a}>{clean(text)}</td>" for a, text in zip(aligned, row, strict=True))
        out.append(f"<tr{' class=chosen' if index == chosen else ''}>{cells}</tr>")
    return f'<div class="scroll"><table>{"".join(out)}</table></div>'


def _theme(theme: dict[str, str]) -> str:
    return "".join(f"--{name}:{colour};" for name, colour in theme.items())


STYLE = (
    f":root{{color-scheme:light dark;{_theme(LIGHT)}}}"
    f"@media(prefers-color-scheme:dark){{:root{{{_theme(DARK)}}}}}"
    "body{background:var(--ground);color:var(--ink);font:15px/1.5 system-ui,sans-serif;"
    "max-width:1280px;margin:0 auto;padding:24px}"
    "h1{font-size:22px;margin:0 0 8px}h2{font-size:17px;margin:28px 0 8px}p{margin:8px 0}"
    "table{font:13px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}"
    ".scroll{overflow-x:auto}table{border-collapse:collapse}"
    "th,td{text-align:left;padding:4px 20px 4px 0;border-bottom:1px solid var(--edge);white-space:nowrap}"
    "th{color:var(--soft);font-weight:normal}.figure{text-align:right}.chosen{font-weight:bold}"
    "svg{display:block}"
)
