"""Fingerprints: what a process says about the call that it has come to, for the others to compare."""

from __future__ import annotations

import json
import struct
from hashlib import sha256
from typing import Any, NamedTuple, cast

from shardwise.caches import cache
from shardwise.engine.call import Call, what_text
from shardwise.engine.steps import Place, describe, path_text, read_path
from shardwise.errors import printable

# The sequence number; then what must be equal: the number of the call in its group, the digest of the call, how many
# bytes tell of the iteration, and these.
HEAD = struct.Struct("!QQ16sI")


class Fingerprint(NamedTuple):
    """A call, its number among the calls of its group and among those of its process, the user's line and iteration."""

    call: Call
    number: int
    sequence: int
    line: str
    path: tuple[Place, ...] = ()

    def __str__(self) -> str:
        call = self.call
        words = [what_text(call)]
        words += [f"reduction {call.reduction}"] * (call.reduction is not None)
        words += [f"root {call.root}"] * (call.root is not None)
        words += [f"group {_ranks_text(call.ranks)}, call {self.number} of it", f"plan {call.plan}"]
        words += [f"on {call.meshes}"] * bool(call.meshes)
        within = f"in {describe(self.path)}, " if self.path else ""
        text = f"{', '.join(words)}; {within}sequence {self.sequence}, at {self.line or 'an unknown line'}"
        return printable(text, keep="")


def encode(mark: Fingerprint) -> bytes:
    """Return the bytes that travel.

    >>> call = Call("all_gather", (0, 1), (8,), "float32", "[x]", "[-]", None, None, "ab12")
    >>> decode(encode(Fingerprint(call, 1, 4, "train.py:3")))
    Fingerprint(call=Call(step='all_gather', ...), number=1, sequence=4, line='train.py:3', path=())
    """
    return encode_call(mark.call, mark.number, mark.sequence, mark.line, path_text(mark.path))


def encode_call(call: Call, number: int, sequence: int, line: str, within: bytes) -> bytes:
    """Return the same for the parts, where the iteration is in bytes already."""
    digest, text = _digest_and_text(call)
    head = HEAD.pack(sequence, number, digest, len(within))
    return b"".join((head, within, text, line.encode(errors="replace")))


def decode(body: bytes) -> Fingerprint:
    """Return what another process said; raise ValueError if it cannot be read."""
    try:
        sequence, number, _, size = HEAD.unpack_from(body)
        within, rest = body[HEAD.size : HEAD.size + size], body[HEAD.size + size :]
        text, _, line = rest.partition(b"\n")
        call = _read_call(json.loads(text))
    except (struct.error, RecursionError) as error:
        raise ValueError(str(error)) from None
    return Fingerprint(call, number, sequence, line.decode(), read_path(within))


def _read_call(values: Any) -> Call:
    step, ranks, shape, *rest = cast("list[Any]", values if isinstance(values, list) else [None] * 10)
    words, kinds = [step, *rest], [str, str, str, str, str | None, int | None, str, str]
    if len(words) != len(kinds) or not all(map(isinstance, words, kinds)):
        raise ValueError("not the parts of a call")
    return Call(step, _as_ints(ranks), _as_ints(shape), *rest)


def _as_ints(values: Any) -> tuple[int, ...]:
    numbers = cast("list[Any]", values)
    if not isinstance(values, list) or not all(isinstance(number, int) for number in numbers):
        raise ValueError("not a list of ints")
    return tuple(numbers)


def sequence_in(body: bytes) -> int:
    """Return the sequence number of the call in the process that sent this."""
    return int.from_bytes(body[:8], "big")


def line_in(body: bytes) -> str:
    """Return the line of the program that sent this, as it may be shown."""
    return printable(body.rpartition(b"\n")[2].decode(errors="replace"), keep="")


def agree(mine: bytes, theirs: bytes) -> bool:
    """Whether two fingerprints are of one call: the sequence numbers of the processes and their lines may differ."""
    end = HEAD.size + int.from_bytes(mine[HEAD.size - 4 : HEAD.size], "big")
    return mine[8:end] == theirs[8:end]


def differences(a: Fingerprint, b: Fingerprint) -> list[str]:
    """Return the names of what differs.

    >>> call = Call("all_gather", (0, 1), (8,), "float32", "[x]", "[-]", None, None, "ab12")
    >>> differences(Fingerprint(call, 1, 4, ""), Fingerprint(call._replace(dtype="int8", plan="cd"), 1, 4, ""))
    ['dtype', 'plan']
    """
    names = {"ranks": "group", "meshes": "mesh", "before": "layout before", "after": "layout after"}
    out = [names.get(n, n) for n, x, y in zip(Call._fields, a.call, b.call, strict=True) if x != y]
    out += ["iteration"] * (a.path != b.path)
    return out + ["number of calls of the group"] * (a.number != b.number)


@cache(entries=1024)
def _digest_and_text(call: Call) -> tuple[bytes, bytes]:
    text = json.dumps(call, separators=(",", ":")).encode()
    return sha256(text).digest()[:16], text + b"\n"


def _ranks_text(ranks: tuple[int, ...]) -> str:
    if len(ranks) > 2 and ranks == tuple(range(ranks[0], ranks[-1] + 1)):
        return f"{ranks[0]}-{ranks[-1]}"
    return ",".join(map(str, ranks))
