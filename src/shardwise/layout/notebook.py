"""What a notebook shows as a picture."""


class Drawn:
    """A value that a notebook shows as `picture(value)`; what draws is imported then, and not before.

    >>> from shardwise import DeviceMesh
    >>> DeviceMesh((2,), ("x",))._repr_svg_()[:4]
    '<svg'
    """

    __slots__ = ()

    def _repr_html_(self) -> str:
        from shardwise.pictures.drawing import picture

        return picture(self)._repr_html_()

    def _repr_svg_(self) -> str:
        from shardwise.pictures.drawing import picture

        return picture(self).svg
