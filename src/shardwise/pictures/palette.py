"""Colours that can be told apart by all eyes, on light and on dark ground."""

# After Okabe and Ito, and a grey. Nothing is said by hue alone.
HUES = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#808080")

LIGHT = {"ground": "#ffffff", "ink": "#1f2328", "soft": "#57606a", "edge": "#d0d7de"}
DARK = {"ground": "#0d1117", "ink": "#f0f6fc", "soft": "#9da7b3", "edge": "#3d444d"}

# In a terminal the ground is not known: these read on black and on white.
INKS = ("#2f86c4", "#b37a00", "#00976e", "#c0679a", "#3a93c5", "#d55e00", "#8a8200", "#808080")


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


def mixed(colour: str, ground: str, part: float) -> str:
    """Return so much of a colour over a ground.

    >>> mixed("#ff0000", "#ffffff", 0.5)
    '#ff8080'
    """
    pairs = zip(_channels(colour), _channels(ground), strict=True)
    return "#" + "".join(f"{round(a * part + b * (1 - part)):02x}" for a, b in pairs)


def contrast(a: str, b: str) -> float:
    """Return how far apart two colours are for a reader: 1 (equal) to 21 (black and white), as WCAG defines it.

    >>> round(contrast("#000000", "#ffffff"))
    21
    """
    low, high = sorted((_luminance(a), _luminance(b)))
    return (high + 0.05) / (low + 0.05)


def fills(theme: dict[str, str]) -> list[str]:
    """Return the ground colour of each hue under a theme, on which its ink reads."""
    return [mixed(hue, theme["ground"], 0.38 if theme is LIGHT else 0.42) for hue in HUES]


def _luminance(colour: str) -> float:
    linear = [c / 255 / 12.92 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in _channels(colour)]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def _channels(colour: str) -> list[int]:
    return [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
