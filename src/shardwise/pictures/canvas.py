"""The canvas: blocks of SVG that know their size, put beside and below each other, and the page around them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from textwrap import wrap
from xml.sax.saxutils import escape

from rich.cells import cell_len

from shardwise.pictures.palette import DARK, HUES, LIGHT, fills
from shardwise.pictures.unfolding import Lead, Unfolding, unfold

FONT = 12  # height of the letters
LINE = 16  # from one line of text to the next
LETTER = 0.62 * FONT  # at least as wide as a letter of any common font of equal widths
MARGIN = 16
WIDEST = 1100  # that a drawing should be


@dataclass(frozen=True)
class Block:
    """A piece of a drawing: its size, and its elements in coordinates of its own."""

    width: float
    height: float
    elements: tuple[str, ...] = ()

    def at(self, x: float, y: float) -> str:
        """Return the block as one element, at a place in another block."""
        return f'<g transform="translate({number(x)} {number(y)})">{"".join(self.elements)}</g>'


def number(value: float) -> str:
    """Return a coordinate in short.

    >>> number(3.0), number(2.346)
    ('3', '2.3')
    """
    return f"{value:.1f}".removesuffix(".0")


def clean(text: str) -> str:
    """Return text as XML may have it: escaped, and with a mark for letters that XML does not have.

    >>> clean("a<b"), clean("a" + chr(0)) == "a" + chr(0xFFFD)
    ('a&lt;b', True)
    """
    return escape(_ILLEGAL.sub("\ufffd", text), {'"': "&quot;"})


_ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def text_width(text: str) -> float:
    """Return the room that a line of text takes."""
    return cell_len(text) * LETTER


def rect(x: float, y: float, width: float, height: float, style: str, radius: float = 2) -> str:
    """Return a rectangle."""
    place = f'x="{number(x)}" y="{number(y)}" width="{number(width)}" height="{number(height)}"'
    return f'<rect {place} rx="{number(radius)}" class="{style}"/>'


def line(x: float, y: float, to_x: float, to_y: float, style: str) -> str:
    """Return a line."""
    return f'<path d="M{number(x)} {number(y)}L{number(to_x)} {number(to_y)}" class="{style}"/>'


def words(x: float, y: float, text: str, style: str = "", anchor: str = "start") -> str:
    """Return a line of text whose middle is at height `y`."""
    names = " ".join(filter(None, (style, {"start": "", "middle": "mid", "end": "end"}[anchor])))
    css = f' class="{names}"' if names else ""
    return f'<text x="{number(x)}" y="{number(y + FONT * 0.36)}"{css}>{clean(text)}</text>'


def group(elements: Iterable[str], style: str, title: str, **data: str) -> str:
    """Return elements as one group with a title, which a browser shows under the pointer."""
    more = "".join(f' data-{name}="{clean(value)}"' for name, value in data.items())
    return f'<g class="{style}"{more}><title>{clean(title)}</title>{"".join(elements)}</g>'


def paragraph(lines: Sequence[str], style: str = "") -> Block:
    """Return lines of text as a block; long ones are broken."""
    lines = [part for text in lines for part in wrap(text, int(WIDEST / LETTER)) or [""]]
    elements = [words(0, LINE * (k + 0.5), text, style) for k, text in enumerate(lines)]
    return Block(max(map(text_width, lines), default=0), LINE * len(lines), tuple(elements))


def beside(blocks: Sequence[Block], gap: float = MARGIN) -> Block:
    """Return blocks put side by side, their tops aligned."""
    x, out = 0.0, list[str]()
    for block in blocks:
        out.append(block.at(x, 0))
        x += block.width + gap
    return Block(max(0.0, x - gap), max((b.height for b in blocks), default=0), tuple(out))


def below(blocks: Sequence[Block], gap: float = MARGIN) -> Block:
    """Return blocks put below each other, their left sides aligned."""
    y, out = 0.0, list[str]()
    for block in blocks:
        if block.elements:
            out.append(block.at(0, y))
            y += block.height + gap
    return Block(max((b.width for b in blocks), default=0), max(0.0, y - gap), tuple(out))


def fit_panels(parts: Sequence[int], most: int, panel: Callable[[Unfolding, Lead], Block]) -> tuple[Unfolding, Block]:
    """Return the unfolding with the most parts whose panels are not too wide, and the panels in rows."""
    while True:
        unfolding = unfold(parts, most)
        panels = [panel(unfolding, lead) for lead in unfolding.panels]
        widest = max(block.width for block in panels)
        if widest <= WIDEST or most <= 2:
            break
        most -= 2
    across = min(unfolding.panels_across, max(1, int((WIDEST + 2 * MARGIN) // (widest + 2 * MARGIN))))
    rows = [beside(panels[k : k + across], 2 * MARGIN) for k in range(0, len(panels), across)]
    return unfolding, below(rows)


def svg(block: Block, title: str) -> str:
    """Return a whole drawing: the block on its own ground, with the style sheet that it needs."""
    width, height = block.width + 2 * MARGIN, block.height + 2 * MARGIN
    body = block.at(MARGIN, MARGIN)
    name = "sw" + sha256(body.encode()).hexdigest()[:8]  # drawings in one page must not share names
    size = f'width="{number(width)}" height="{number(height)}" viewBox="0 0 {number(width)} {number(height)}"'
    background = rect(0.5, 0.5, width - 1, height - 1, "ground", 6)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} class="{name}" role="img">'
        f"<title>{clean(title)}</title><style>{_style(name)}</style><defs>{_patterns(name)}</defs>"
        f"{background}{body}</svg>"
    )


# -- style -------------------------------------------------------------------------------------------------

_FONTS = 'ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono","Liberation Mono",monospace'


def _style(name: str) -> str:
    fixed = [
        f"text{{font:{FONT}px {_FONTS};white-space:pre}}",
        ".mid{text-anchor:middle}.end{text-anchor:end}.head{font-weight:bold}",
        ".empty{stroke-dasharray:3 3}.pending{stroke-dasharray:6 2}",
        ".link{fill:none;stroke-width:1.5}.link1{stroke-dasharray:5 3}.link2{stroke-dasharray:1.5 3}",
        f".halo{{fill:url(#{name}-halo);stroke-width:.75}}.pad{{fill:url(#{name}-pad);stroke-width:.75}}",
    ]
    dark = "".join(_scope(name, rule) for rule in _theme(DARK))
    light = "".join(_scope(name, rule) for rule in [*fixed, *_theme(LIGHT)])
    return f"{light}@media(prefers-color-scheme:dark){{{dark}}}"


def _theme(theme: dict[str, str]) -> list[str]:
    ground, ink, soft, edge = theme["ground"], theme["ink"], theme["soft"], theme["edge"]
    out = [f"text{{fill:{ink}}}.soft{{fill:{soft}}}.ground{{fill:{ground};stroke:{edge}}}"]
    out += [
        f".empty,.blank{{fill:{ground};stroke:{soft}}}.none{{fill:{ground};stroke:{edge}}}.link,.stripe{{stroke:{soft}}}.dot{{fill:{soft}}}"
    ]
    out += [f".halo,.pad{{stroke:{soft}}}"]
    out += [f".c{k}{{fill:{fill};stroke:{hue}}}" for k, (fill, hue) in enumerate(zip(fills(theme), HUES, strict=True))]
    return out


def _scope(name: str, rules: str) -> str:
    # Every selector under the class of this drawing, so that nothing else in the page is touched.
    out: list[str] = []
    for rule in rules.split("}")[:-1]:
        selectors, _, body = rule.partition("{")
        out.append(",".join(f".{name} {selector}" for selector in selectors.split(",")) + f"{{{body}}}")
    return "".join(out)


def _patterns(name: str) -> str:
    return (
        f'<pattern id="{name}-halo" width="6" height="6" patternUnits="userSpaceOnUse" '
        'patternTransform="rotate(45)"><path d="M0 0V6" class="stripe" stroke-width="1.5"/></pattern>'
        f'<pattern id="{name}-pad" width="6" height="6" patternUnits="userSpaceOnUse">'
        '<circle cx="2" cy="2" r="1" class="dot"/></pattern>'
    )
