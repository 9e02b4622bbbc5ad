"""A sink that keeps what it is given, a small terminal, and what is on it: an oracle for what is drawn."""

import re

from shardwise.engine.launch.sink import Sink


class Kept(Sink):
    """What is put in, in one piece."""

    def __init__(self, name: str = "standard output") -> None:
        super().__init__(None, name)
        self.pieces = list[bytes]()

    def put(self, data: bytes, must: bool = False) -> None:
        self.pieces.append(data)

    @property
    def data(self) -> bytes:
        return b"".join(self.pieces)

    @property
    def lines(self) -> list[str]:
        return self.data.decode().splitlines()


def shown(data: bytes, columns: int = 80) -> list[str]:
    """The rows of a terminal that never scrolls, after all of this was written to it."""
    rows, row, column = [""], 0, 0
    for part in re.findall(r"\x1b\[(?:\d*A|J|K)|\r|\n|[^\r\n\x1b]", data.decode()):
        if part == "\r":
            column = 0
        elif part == "\n":
            row, column = row + 1, 0
            rows += [""] * (row + 1 - len(rows))
        elif part.endswith("A") and part != "A":
            row -= int(part[2:-1] or 1)
        elif part == "\x1b[J":
            rows[row:] = [rows[row][:column]]
        elif part == "\x1b[K":
            rows[row] = rows[row][:column]
        else:
            assert column < columns, "a line that is drawn is longer than the terminal is wide"
            rows[row] = rows[row].ljust(column)[:column] + part + rows[row][column + 1 :]
            column += 1
    assert not any(rows[row + 1 :]), "nothing stands below the cursor"
    return [text.rstrip() for text in rows[: row + 1]]
