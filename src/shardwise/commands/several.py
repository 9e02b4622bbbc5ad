"""Commands with an option that takes several values: `--inputs x.npy y.npy`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click


def taking_several(option: str) -> type[click.Command]:
    """Return the class of a command whose option, declared as `multiple`, may be followed by several values.

    >>> list(_repeat_option(["a", "--only", "b", "c", "--quick", "d"], "--only"))
    ['a', '--only', 'b', '--only', 'c', '--quick', 'd']
    """

    class Several(click.Command):
        def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
            return super().parse_args(ctx, list(_repeat_option(args, option)))

    return Several


def _repeat_option(args: Sequence[str], option: str) -> Iterator[str]:
    following = False  # values of the option
    for k, arg in enumerate(args):
        if arg.startswith("-") and arg != "-":
            following = arg == option
        elif following and args[k - 1] != option:
            yield option
        yield arg
