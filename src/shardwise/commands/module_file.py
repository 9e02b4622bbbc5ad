"""The FILE that commands read modules from, and how what is wrong with it is said: in one line, not a traceback."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import click

from shardwise.errors import ShardwiseError


def read(path: str) -> tuple[bytes, str]:
    """Return the bytes of a file and its name in messages; `-` is standard input."""
    if path == "-":
        return sys.stdin.buffer.read(), "<stdin>"
    try:
        return Path(path).read_bytes(), path
    except OSError as error:
        raise click.ClickException(f"{path} cannot be read: {error.strerror}.") from None


@contextmanager
def failures() -> Generator[None]:
    """Turn what users can mend into a message and exit code 1."""
    try:
        yield
    except (ImportError, ShardwiseError) as error:
        raise click.ClickException(str(error)) from error
    except MemoryError as error:
        raise click.ClickException(f"there is not enough memory: {error}") from error
