"""Pictures: a layout, a tensor's layout, a plan or a mesh, drawn for a terminal, a notebook or a file."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from shardwise.caches import cached_property
from shardwise.errors import ArgumentError
from shardwise.layout.conversion import HasLayout, as_layout
from shardwise.layout.layout import Layout
from shardwise.layout.mesh import DeviceMesh, place_of
from shardwise.layout.shape import Dim
from shardwise.plan.explain import Explanation
from shardwise.plan.plan import Plan

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

    from shardwise.pictures.canvas import Block

SUFFIXES = (".svg", ".html", ".txt")


@dataclass(frozen=True, repr=False, eq=False)
class Picture:
    """A drawing: text in a terminal, `svg` and `html` elsewhere; a notebook shows it by itself.

    >>> from shardwise import DeviceMesh, Layout, picture
    >>> drawing = picture(Layout(DeviceMesh((2, 2), ("x", "y")), ["x", None]), (4, 6))
    >>> print(drawing)
    [x|-] of 4x6 on x=2, y=2
          0:6
        ┌─────┐
    0:2 │ 0,1 │
        ├─────┤
    2:4 │ 2,3 │
        └─────┘
    >>> drawing.svg[:4], len(drawing.html) > len(drawing.svg), drawing.text.splitlines()[0]
    ('<svg', True, '[x|-] of 4x6 on x=2, y=2')
    >>> drawing.save("layout.png")
    Traceback (most recent call last):
    shardwise.ArgumentError: a picture is saved as what the suffix of its path says, got 'layout.png'.
      suffixes: .svg, .html, .txt
    """

    title: str
    draw: Callable[[], str]
    show: Callable[[int | None], RenderableType]
    parts: Callable[[], list[str]] | None = None  # of the page, where it is more than the drawing

    @cached_property
    def svg(self) -> str:
        """The drawing as SVG, for light and dark ground."""
        return self.draw()

    @property
    def html(self) -> str:
        """The drawing as a page that needs nothing else."""
        from shardwise.pictures.page import page, scroll

        return page(self.title, [scroll(self.svg)] if self.parts is None else self.parts())

    @cached_property
    def text(self) -> str:
        """The drawing as plain text."""
        return plain(self.show(None))

    def save(self, path: str | Path) -> None:
        """Write the drawing to a file, as what its suffix says: .svg, .html or .txt."""
        path = Path(path)
        if path.suffix not in SUFFIXES:
            raise ArgumentError(
                f"a picture is saved as what the suffix of its path says, got {str(path)!r}.\n"
                f"  suffixes: {', '.join(SUFFIXES)}"
            )
        content = {".svg": lambda: self.svg + "\n", ".html": lambda: self.html, ".txt": lambda: self.text + "\n"}
        path.write_text(content[path.suffix](), encoding="utf-8", errors="replace")

    def __str__(self) -> str:
        return encodable(self.text, getattr(sys.stdout, "encoding", None))

    def __repr__(self) -> str:
        return f"Picture({self.title!r})"

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw on a rich console; in plain letters where it has no others."""
        from rich.text import Text

        if options.ascii_only:
            yield Text(encodable(plain(self.show(options.max_width)), options.encoding), no_wrap=True)
        else:
            yield self.show(options.max_width)

    def _repr_svg_(self) -> str:
        return self.svg

    def _repr_html_(self) -> str:
        return f"<div>{self.svg}</div>"

    def _repr_mimebundle_(
        self, include: Iterable[str] | None = None, exclude: Iterable[str] | None = None
    ) -> dict[str, str]:
        forms = {"text/plain": self.text, "image/svg+xml": self.svg, "text/html": self._repr_html_()}
        left = set(forms if include is None else include) - set(exclude or ())
        return {kind: content for kind, content in forms.items() if kind in left}


def picture(x: Any, shape: Sequence[Dim] | None = None) -> Picture:
    """Return the drawing of a layout (bound to a shape, if one is given), of a tensor's layout, a plan or a mesh.

    >>> from shardwise import DeviceMesh, P, shard
    >>> import numpy as np
    >>> mesh = DeviceMesh((2, 2), ("x", "y"))
    >>> print(picture(shard(np.zeros((3, 4)), mesh, P("x", unreduced=["y"]))))
    float64[3@x, 4] sum(y) on x=2, y=2
          0:4
        ┌─────┐
    0:2 │ 0+1 │
        ├─────┤
    2:3 │ 2+3 │
        └─────┘
    + : sum over y
    >>> print(picture(mesh))
    mesh x=2, y=2: 4 devices
        y=0 y=1
    x=0  0 ─ 1
         │   │
    x=1  2 ─ 3
    """
    if isinstance(x, DeviceMesh):
        _no_shape(shape, "a mesh")
        return _mesh_picture(x)
    if isinstance(x, Plan):
        _no_shape(shape, "a plan")
        return _plan_picture(x)
    own, layout = getattr(x, "shape", None), getattr(x, "layout", None)
    if isinstance(layout, Layout) and own is not None:
        _no_shape(shape, "a tensor")
        return _layout_picture(layout, own, getattr(x, "type_text", None))
    if isinstance(x, Layout):
        return _layout_picture(x, shape, None)
    if shape is not None:
        return _layout_picture(as_layout(x, len(shape)), shape, None)
    if isinstance(x, HasLayout):
        raise ArgumentError(f"{x!r} is a layout for tensors of any rank; say of which shape: picture(x, shape).")
    raise ArgumentError(f"a picture is made of a Layout, a Tensor, a Plan or a DeviceMesh, got {x!r}.")


def encodable(text: str, encoding: str | None) -> str:
    """Return the text, or one in plain letters if the encoding does not have the letters of drawings.

    >>> encodable("│ 4 × 2 │", "ascii"), encodable("│ 4 × 2 │", "utf-8")
    ('| 4 x 2 |', '│ 4 × 2 │')
    """
    try:
        text.encode(encoding or "utf-8")
    except UnicodeEncodeError:
        return text.translate(PLAIN).encode("ascii", "replace").decode("ascii")
    except LookupError:  # an encoding that Python does not know
        return text.translate(PLAIN)
    return text


# One letter for one, so that columns stay where they are.
PLAIN = str.maketrans("┌┬┐├┼┤└┴┘─│×→·±…", "+++++++++-|x>.~.")


def _no_shape(shape: object, what: str) -> None:
    if shape is not None:
        raise ArgumentError(f"{what} has its own shape; picture takes one for a layout only, got {shape!r}.")


def _layout_picture(layout: Layout, shape: Sequence[Dim] | None, type_text: str | None) -> Picture:
    from shardwise.pictures.binding import bind_layout
    from shardwise.pictures.layout_svg import layout_block
    from shardwise.pictures.text import bound_rich

    bound = bind_layout(layout, shape)
    sizes = f" of {bound.shape_text}" if shape is not None else ""
    title = f"{type_text or f'{layout}{sizes}'} on {place_of(layout.mesh)}"
    return _titled_picture(title, lambda: layout_block(bound), lambda width: bound_rich(bound, width))


def _mesh_picture(mesh: DeviceMesh) -> Picture:
    from shardwise.pictures.mesh_svg import mesh_block
    from shardwise.pictures.mesh_text import mesh_rich

    name = "mesh" if mesh.name == "mesh" else f"mesh {mesh.name!r}"
    count = f"{mesh.num_devices} device{'' if mesh.num_devices == 1 else 's'}"
    title = f"{name} {mesh}: {count}" if place_of(mesh) == str(mesh) else f"{name} of {mesh.device(0)!r}"
    return _titled_picture(title, lambda: mesh_block(mesh), lambda width: mesh_rich(mesh, width))


def _titled_picture(title: str, block: Callable[[], Block], text: Callable[[int | None], RenderableType]) -> Picture:
    from rich.console import Group
    from rich.text import Text

    return Picture(
        title, lambda: _titled_svg(block(), title), lambda width: Group(Text(title, style="bold"), text(width))
    )


def _plan_picture(plan: Plan) -> Picture:
    from shardwise.pictures.plan import plan_title
    from shardwise.pictures.plan_svg import plan_block
    from shardwise.pictures.plan_text import plan_rich

    title = plan_title(plan)
    return Picture(title, lambda: _titled_svg(plan_block(plan), title), lambda width: plan_rich(plan, width))


def _titled_svg(block: Block, title: str) -> str:
    from shardwise.pictures.canvas import below, paragraph, svg

    return svg(below([paragraph([title], "head"), block], 8), title)


# -- what fills the slots of the rooms below, importing rich when it is called ------------------------


def layout_text(layout: Layout, shape: tuple[int, ...]) -> str:
    """Return the drawing of a layout on a shape as plain text."""
    from shardwise.pictures.text import layout_rich

    return layout_rich(layout, shape).plain


def table(value: object) -> RenderableType:
    """Return the table of a plan, or of a plan beside its alternatives."""
    from shardwise.pictures.plan import explanation_table, plan_table

    return plan_table(value) if isinstance(value, Plan) else explanation_table(cast(Explanation, value))


def plain(table: RenderableType) -> str:
    """Return what a terminal would show, as plain text.

    >>> plain("[bold]four[/bold]")
    'four'
    """
    from rich.console import Console

    console = Console(width=120, color_system=None, force_terminal=False, legacy_windows=False)
    with console.capture() as capture:
        console.print(table, crop=False)
    return "\n".join(line.rstrip() for line in capture.get().rstrip().splitlines())
