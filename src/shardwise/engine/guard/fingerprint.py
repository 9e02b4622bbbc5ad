"""Fingerprints: what a process says about the call that it has come to, for the others to compare."""

from __future__ import annotations

import json
import struct
from hashlib import sha256
from typing import NamedTuple

from shardwise.caches import cache
from shardwise.engine.call import Call

HEAD = struct.Struct("!QQ16s")  # the sequence number, the number of the call in its group, the digest of the call


class Fingerprint(NamedTuple):
    """A call, its number among the calls of its group and among those of its process, and the user's line."""

    call: Call
    number: int
    sequence: int
    line: str

    def __str__(self) -> str:
        call = self.call
        moved = f"{call.before} -> {call.after}" if call.before != call.after else call.before
        words = [f"{call.step} of {call.dtype}{list(call.shape)} {moved}"]
        words += [f"reduction {call.reduction}"] * (call.reduction is not None)
        words += [f"root {call.root}"] * (call.root is not None)
        words += [f"group {_ranks_text(call.ranks)}, call {self.number} of it", f"plan {call.plan}"]
        words += [f"on {call.meshes}"] * bool(call.meshes)
        return f"{', '.join(words)}; sequence {self.sequence}, at {self.line or 'an unknown line'}"


def encode(mark: Fingerprint) -> bytes:
    """Return the bytes that travel.

    >>> call = Call("all_gather", (0, 1), (8,), "float32", "[x]", "[-]", None, None, "ab12")
    >>> decode(encode(Fingerprint(call, 1, 4, "train.py:3")))
    Fingerprint(call=Call(step='all_gather', ...), number=1, sequence=4, line='train.py:3')
    """
    digest, text = _digest_and_text(mark.call)
    return b"".join((HEAD.pack(mark.sequence, mark.number, digest), text, mark.line.encode(errors="replace")))


def decode(body: bytes) -> Fingerprint:
    """Return what another process said."""
    sequence, number, _ = HEAD.unpack_from(body)
    text, _, line = body[HEAD.size :].partition(b"\n")
    step, ranks, shape, *rest = json.loads(text)
    return Fingerprint(Call(step, tuple(ranks), tuple(shape), *rest), number, sequence, line.decode())


def sequence_in(body: bytes) -> int:
    """Return the sequence number of the call in the process that sent this."""
    return int.from_bytes(body[:8], "big")


def agree(mine: bytes, theirs: bytes) -> bool:
    """Whether two fingerprints are of one call: the sequence numbers of the processes and their lines may differ."""
    return mine[8 : HEAD.size] == theirs[8 : HEAD.size]


def differences(a: Fingerprint, b: Fingerprint) -> list[str]:
    """Return the names of what differs.

    >>> call = Call("all_gather", (0, 1), (8,), "float32", "[x]", "[-]", None, None, "ab12")
    >>> differences(Fingerprint(call, 1, 4, ""), Fingerprint(call._replace(dtype="int8", plan="cd"), 1, 4, ""))
    ['dtype', 'plan']
    """
    names = {"ranks": "group", "meshes": "mesh", "before": "layout before", "after": "layout after"}
    out = [names.get(n, n) for n, x, y in zip(Call._fields, a.call, b.call, strict=True) if x != y]
    return out + ["number of calls of the group"] * (a.number != b.number)


@cache(entries=1024)
def _digest_and_text(call: Call) -> tuple[bytes, bytes]:
    text = json.dumps(call, separators=(",", ":")).encode()
    return sha256(text).digest()[:16], text + b"\n"


def _ranks_text(ranks: tuple[int, ...]) -> str:
    if len(ranks) > 2 and ranks == tuple(range(ranks[0], ranks[-1] + 1)):
        return f"{ranks[0]}-{ranks[-1]}"
    return ",".join(map(str, ranks))
