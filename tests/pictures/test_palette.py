"""The palette: texts read on it, and its colours differ for all eyes."""

from itertools import combinations

import numpy as np
import pytest

from shardwise.pictures.palette import DARK, HUES, INKS, LIGHT, fills, mix

# How linear RGB looks without one kind of cone (Machado, Oliveira and Fernandes, 2009).
EYES = {
    "all cones": np.eye(3),
    "no long": np.array([[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]]),
    "no middle": np.array([[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]]),
    "no short": np.array([[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]]),
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
WHITE = np.array([0.9505, 1.0, 1.089])


def linear(colour: str) -> np.ndarray:
    rgb = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def contrast(*colours: str) -> float:
    """How far apart two colours are for a reader: 1 (equal) to 21 (black and white), as WCAG defines it."""
    low, high = sorted(TO_XYZ[1] @ linear(colour) for colour in colours)
    return (high + 0.05) / (low + 0.05)


def seen(colour: str, eye: np.ndarray) -> np.ndarray:
    """A colour in CIELAB, where equal distances look about equal; 2 to 3 is just noticed."""
    xyz = TO_XYZ @ np.clip(eye @ linear(colour), 0, 1) / WHITE
    x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("eye", EYES)
@pytest.mark.parametrize(
    "colours", [fills(LIGHT), fills(DARK), list(INKS)], ids=["on light ground", "on dark ground", "in a terminal"]
)
def test_colours_differ_for_all_eyes(colours, eye):
    places = [seen(colour, EYES[eye]) for colour in colours]
    assert min(np.linalg.norm(a - b) for a, b in combinations(places, 2)) > 9.5


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_texts_read_on_every_ground(theme):
    assert all(contrast(theme["ink"], fill) >= 4.5 for fill in fills(theme))
    assert contrast(theme["ink"], theme["ground"]) >= 7
    assert contrast(theme["soft"], theme["ground"]) >= 4.5


def test_inks_read_on_black_and_on_white():
    assert len(INKS) == len(HUES)
    assert all(contrast(ink, ground) >= 3 for ink in INKS for ground in ("#000000", "#ffffff"))


def test_mixtures():
    assert mix("#123456", "#ffffff", 1) == "#123456"
    assert mix("#123456", "#fedcba", 0) == "#fedcba"
