"""A drawing read back: its texts, rectangles and groups, in the coordinates of the whole."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations
from xml.etree import ElementTree

from rich.cells import cell_len

NAMESPACE = "{http://www.w3.org/2000/svg}"
FONT, LETTER = 12, 0.602 * 12  # the widest letter of the common fonts of equal widths


@dataclass
class Word:
    """A line of text and the room that it takes."""

    text: str
    left: float
    right: float
    top: float
    bottom: float


@dataclass
class Group:
    """A tile, a node or a flow: its data, title, words and rectangles."""

    kind: str
    data: dict[str, str]
    title: str
    words: list[Word] = field(default_factory=list)
    rects: list[tuple[float, float, float, float, str]] = field(default_factory=list)


@dataclass
class Scene:
    """All that is in a drawing."""

    width: float
    height: float
    words: list[Word]
    groups: list[Group]

    def of(self, kind: str) -> list[Group]:
        """The groups of one kind."""
        return [group for group in self.groups if group.kind == kind]


def read(svg: str) -> Scene:
    """Read a drawing; it must be well-formed and stand alone."""
    root = ElementTree.fromstring(svg)
    assert root.tag == f"{NAMESPACE}svg"
    assert not re.search(r"(href|src|@import|url\((?!#))", svg), "nothing from elsewhere"
    scene = Scene(float(root.get("width", 0)), float(root.get("height", 0)), [], [])
    _walk(root, 0, 0, scene, None)
    return scene


def _walk(element: ElementTree.Element, x: float, y: float, scene: Scene, group: Group | None) -> None:
    for child in element:
        tag, style = child.tag.removeprefix(NAMESPACE), child.get("class") or ""
        if tag == "g":
            moved = re.fullmatch(r"translate\((\S+) (\S+)\)", child.get("transform") or "translate(0 0)")
            assert moved
            inner = group
            if style:
                data = {name.removeprefix("data-"): value for name, value in child.items() if name != "class"}
                title = child.find(f"{NAMESPACE}title")
                assert title is not None
                inner = Group(style, data, title.text or "")
                scene.groups.append(inner)
            _walk(child, x + float(moved[1]), y + float(moved[2]), scene, inner)
        elif tag == "text":
            word = _word(child, style, x, y)
            scene.words.append(word)
            if group is not None:
                group.words.append(word)
        elif tag == "rect" and group is not None:
            left, top, width, height = (float(child.get(name, 0)) for name in ("x", "y", "width", "height"))
            group.rects.append((x + left, y + top, width, height, style))


def _word(element: ElementTree.Element, style: str, x: float, y: float) -> Word:
    text = element.text or ""
    room, at = cell_len(text) * LETTER, x + float(element.get("x", 0))
    left = at - room / 2 if "mid" in style else at - room if "end" in style else at
    line = y + float(element.get("y", 0))
    return Word(text, left, left + room, line - 0.75 * FONT, line + 0.2 * FONT)


def overlaps(scene: Scene) -> Iterator[tuple[str, str]]:
    """Yield the texts that lie on each other or outside the drawing."""
    for word in scene.words:
        if word.left < 0 or word.top < 0 or word.right > scene.width or word.bottom > scene.height:
            yield word.text, "the edge"
    for a, b in combinations(scene.words, 2):
        if a.left < b.right and b.left < a.right and a.top < b.bottom and b.top < a.bottom:
            yield a.text, b.text
