"""The text of a module: where its lines begin, and an error that shows the place."""

from bisect import bisect_right
from dataclasses import dataclass, field

from shardwise.errors import ParseError, seal

# Longer lines are cut in errors: a module may be one line of megabytes.
SHOWN = 100


@seal
@dataclass(frozen=True, slots=True)
class Source:
    """A text with a name; lines and columns count from one.

    >>> Source("a\\nbc", "m.mlir").place(3)
    (2, 2)
    """

    text: str
    name: str = "<text>"
    starts: list[int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        starts = [0]
        end = self.text.find("\n")
        while end >= 0:
            starts.append(end + 1)
            end = self.text.find("\n", end + 1)
        object.__setattr__(self, "starts", starts)

    def place(self, position: int) -> tuple[int, int]:
        """Return the line and column of a position."""
        position = min(max(position, 0), len(self.text))
        line = bisect_right(self.starts, position)
        return line, position - self.starts[line - 1] + 1

    def error(self, position: int, what: str) -> ParseError:
        """Return the error for a position, with its line and a mark below it."""
        line, column = self.place(position)
        start = self.starts[line - 1]
        cut = max(0, column - SHOWN)
        shown = self.text[start + cut : start + cut + 2 * SHOWN].split("\n", 1)[0]
        shown = "".join(char if char.isprintable() else "?" for char in shown)
        return ParseError(self.name, line, column, f"{what}\n  {shown}\n  {' ' * (column - 1 - cut)}^")
