"""Colours that can be told apart by all eyes, on light and on dark ground."""

# Hues after Okabe and Ito, and a grey; how much of each is laid over a light and a dark ground; and the ink for a
# terminal, whose ground is not known. The amounts are such that all eyes tell them apart.
ROWS = (
    ("#0072b2", 0.48, 0.28, "#1a80ba"),
    ("#e69f00", 0.60, 0.20, "#c38700"),
    ("#009e73", 0.60, 0.44, "#1aa881"),
    ("#cc79a7", 0.48, 0.52, "#c2739f"),
    ("#56b4e9", 0.36, 0.52, "#2f6380"),
    ("#d55e00", 0.56, 0.60, "#c05500"),
    ("#f0e442", 0.60, 0.28, "#605b1a"),
    ("#808080", 0.20, 0.20, "#737373"),
)
HUES = tuple(row[0] for row in ROWS)
INKS = tuple(row[3] for row in ROWS)

LIGHT = {"ground": "#ffffff", "ink": "#1f2328", "soft": "#57606a", "edge": "#d0d7de"}
DARK = {"ground": "#0d1117", "ink": "#f0f6fc", "soft": "#9da7b3", "edge": "#3d444d"}


def hue(device: int) -> int:
    """Return which hue stands for a device; neighbours along the axes of most meshes differ.

    >>> [hue(device) for device in (0, 1, 7, 8, 9, 256, 512)]
    [0, 1, 7, 1, 2, 4, 1]
    """
    total = 0
    while device:
        total += device
        device //= len(HUES)
    return total % len(HUES)


def mix(colour: str, background: str, part: float) -> str:
    """Return so much of a colour over that of a background.

    >>> mix("#ff0000", "#ffffff", 0.5)
    '#ff8080'
    """
    pairs = zip(_channels(colour), _channels(background), strict=True)
    return "#" + "".join(f"{round(a * part + b * (1 - part)):02x}" for a, b in pairs)


def fills(theme: dict[str, str]) -> list[str]:
    """Return the ground colour of each hue under a theme, on which its ink reads."""
    return [mix(row[0], theme["ground"], row[1] if theme is LIGHT else row[2]) for row in ROWS]


def _channels(colour: str) -> list[int]:
    return [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
