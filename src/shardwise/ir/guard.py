"""What is looked for in a text before the parser sees it: what would make it hang or run out of memory."""

import re

from shardwise.ir.source import Source

MAX_NESTING = 64
MAX_DIGITS = 400
MAX_DIMS = 64
MAX_AFFINE_CHARACTERS = 1000
# What the aliases of a text may grow to: each use counts as much as what it stands for.
MAX_ALIAS_CHARACTERS = 1 << 22

# Possessive quantifiers never go back, so the time is linear whatever the text.
INTERESTING = re.compile(
    r"""(?P<skipped>//[^\n]*+|->|>=|<=|"(?:[^"\\\n]++|\\[^\n])*+")"""
    rf"""|(?P<dims>(?:[0-9?]++x){{{MAX_DIMS}}}+(?=[0-9?]))|(?P<affine>affine_(?:map|set)\s*+<"""
    rf"""(?:[^>]|(?<=-)>|>=){{{MAX_AFFINE_CHARACTERS}}}+)"""
    r"""|(?P<opening>[({\[<])|(?P<closing>[)}\]>])|(?P<digits>[0-9]++)"""
    r"""|(?P<quote>")|(?P<foreign>[^\x00-\x7f])|(?P<control>[\x00-\x08\x0e-\x1f\x7f])"""
)
FAULTS = {
    "dims": f"a shape of more than {MAX_DIMS} dims.",
    "affine": f"an affine map of more than {MAX_AFFINE_CHARACTERS} characters.",
    "quote": "the string does not end on its line.",
    "foreign": "character {!r} outside of strings and comments.",
    "control": "control character {!r}.",
}
ALIAS = re.compile(r"[!#][A-Za-z_][A-Za-z0-9_$]*+")
ALIAS_DEFINITION = re.compile(r"^[ \t]*+([!#][A-Za-z_][A-Za-z0-9_$]*+)[ \t]*+=([^\n]*+)", re.MULTILINE)


def decode(data: bytes, name: str) -> str:
    """Return the text of bytes, or an error at the first byte that is not UTF-8.

    >>> decode(b"module {}", "m.mlir")
    'module {}'
    """
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = Source(data[: error.start].decode("utf-8"), name)
        raise before.error(error.start, f"byte {data[error.start]:#04x} is not UTF-8.") from None


def check_text(source: Source) -> None:
    """Raise for a text that the parser must not see.

    >>> check_text(Source('"abc', "m.mlir"))
    Traceback (most recent call last):
    shardwise.ParseError: m.mlir:1:1: the string does not end on its line.
      "abc
      ^
    """
    depth = 0
    for match in INTERESTING.finditer(source.text):
        kind, text = match.lastgroup, match[0]
        if kind == "opening":
            depth += 1
        elif kind == "closing":
            depth = max(0, depth - 1)
        if depth > MAX_NESTING:
            raise source.error(match.start(), f"brackets nest deeper than {MAX_NESTING} levels.")
        if kind == "digits" and len(text) > MAX_DIGITS:
            raise source.error(match.start(), f"an int of {len(text)} digits; at most {MAX_DIGITS} are read.")
        if kind in FAULTS:
            raise source.error(match.start(), FAULTS[kind].format(text))
    _check_aliases(source)


def _check_aliases(source: Source) -> None:
    """Raise where aliases that use aliases grow beyond all bounds: ten lines can stand for gigabytes."""
    weights: dict[str, int] = {}
    for match in ALIAS_DEFINITION.finditer(source.text):
        body = match[2]
        weight = len(body) + sum(weights.get(name, 0) for name in ALIAS.findall(body))
        if weight > MAX_ALIAS_CHARACTERS:
            raise source.error(match.start(1), f"the alias stands for more than {MAX_ALIAS_CHARACTERS} characters.")
        weights[match[1]] = weight
    if not weights:
        return
    total = 0
    for match in ALIAS.finditer(source.text):
        total += weights.get(match[0], 0)
        if total > 4 * MAX_ALIAS_CHARACTERS:
            raise source.error(match.start(), f"aliases stand for more than {4 * MAX_ALIAS_CHARACTERS} characters.")
