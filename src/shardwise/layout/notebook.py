"""What a notebook or a terminal shows of a value: slots for the pictures and tables that are drawn above this room."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardwise.layout.slot import Slot

if TYPE_CHECKING:
    from rich.console import RenderableType


draw_svg: Slot[[object], str] = Slot("draw_svg")
draw_table: Slot[[object], RenderableType] = Slot("draw_table")
plain_text: Slot[[RenderableType], str] = Slot("plain_text")


class Drawable:
    """A value that a notebook shows as `picture(value)`.

    >>> from shardwise import DeviceMesh
    >>> DeviceMesh((2,), ("x",))._repr_svg_()[:4]
    '<svg'
    """

    __slots__ = ()

    def _repr_html_(self) -> str:
        return f"<div>{draw_svg(self)}</div>"

    def _repr_svg_(self) -> str:
        return draw_svg(self)


class Tabular:
    """A value that prints as a table, in colour on a rich console.

    >>> from shardwise import DeviceMesh, P, plan_reshard
    >>> print(plan_reshard(P("x"), P("x"), (8,), "int8", mesh=DeviceMesh((4,), ("x",))))
    [x] -> [x]  int8[8] on x=4
    nothing to do
    """

    __slots__ = ()

    def __str__(self) -> str:
        return plain_text(self.__rich__())

    def __rich__(self) -> RenderableType:
        return draw_table(self)
