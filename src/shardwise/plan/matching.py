"""Matching: rows and columns of a table, paired so that the entries of the pairs add up to most."""

from __future__ import annotations

from collections.abc import Sequence


def match(table: Sequence[Sequence[int]]) -> list[int]:
    """Return for each row a column of its own, such that the sum of the entries is greatest; rows are not more.

    Rows are added one by one. Prices of columns keep every row at a column that is best for it, and a new row moves
    others along the cheapest path to a column that is free (the Hungarian method).

    >>> match([[2, 3, 0], [1, 3, 0]])
    [0, 1]
    """
    columns = len(table[0]) if table else 0
    owner: list[int] = [-1] * columns
    gains, prices = [0] * len(table), [0] * columns
    for new in range(len(table)):
        slack: list[int | None] = [None] * columns
        came, done, row, last = [-1] * columns, set[int](), new, -1
        while True:
            for column in range(columns):
                if column not in done:
                    loss = gains[row] + prices[column] - table[row][column]
                    known = slack[column]
                    if known is None or loss < known:
                        slack[column], came[column] = loss, last
            _, best = min((slack[column] or 0, column) for column in range(columns) if column not in done)
            step = slack[best] or 0
            gains[new] -= step
            for column in done:
                gains[owner[column]] -= step
                prices[column] += step
            slack = [old if old is None or column in done else old - step for column, old in enumerate(slack)]
            done.add(best)
            last = best
            if owner[best] < 0:
                break
            row = owner[best]
        while last >= 0:
            before = came[last]
            owner[last] = new if before < 0 else owner[before]
            last = before
    out = [-1] * len(table)
    for column, row in enumerate(owner):
        if row >= 0:
            out[row] = column
    return out
