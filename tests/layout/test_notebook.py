"""What a notebook shows is the picture of a value."""

import numpy as np
import pytest

from shardwise import DeviceMesh, Layout, P, picture, plan_reshard, shard
from shardwise.layout.notebook import Drawable

MESH = DeviceMesh((2,), ("x",))
SPLIT = Layout(MESH, ["x"])


@pytest.mark.parametrize(
    "value",
    [MESH, SPLIT, plan_reshard(SPLIT, Layout.replicated(MESH, 1), (4,), "int8"), shard(np.arange(4), MESH, P("x"))],
    ids=lambda value: type(value).__name__,
)
def test_a_notebook_shows_the_picture(value) -> None:
    assert isinstance(value, Drawable)
    shown = picture(value)
    assert value._repr_svg_() == shown.svg
    assert value._repr_svg_().startswith("<svg")
    assert value._repr_html_() == shown._repr_html_()
    assert shown.svg in value._repr_html_()
