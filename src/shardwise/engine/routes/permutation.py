"""Permutations: whole arrays that go from device to device, as one process does it."""

from __future__ import annotations

from hashlib import sha256
from math import prod

from shardwise.engine.call import Call
from shardwise.engine.execute import Program
from shardwise.engine.routes.route import Leg, Message, MessageRound, Out, Part, Route
from shardwise.layout.device import Accelerator


def permutation_route(program: Program, rank: int) -> Route:
    """Return what the process with a rank does; a device that has the array already keeps it."""
    storage, sources = program.target, program.sources
    assert sources is not None, "a program without a plan is a permutation"
    mesh = storage.layout.mesh
    ranks = [mesh.device(i).id for i in range(mesh.num_devices)]
    own = [i for i, r in enumerate(ranks) if r == rank]
    stays = [s is not None and storage.index(s) == storage.index(i) for i, s in enumerate(sources)]
    coming: dict[int, list[Part]] = {}
    going: dict[int, list[Part]] = {}
    outs: list[Out] = []
    views: list[tuple[int, Part]] = []
    near, talks = 0, False
    for target, source in enumerate(sources):
        shape = storage.local_shape(storage.index(target))
        if target in own:
            here = source is not None and (stays[target] or ranks[source] == rank)
            if source is not None and here:
                near += 0 if stays[target] else prod(shape)
                views.append((target, Part(target if stays[target] else source, (), shape)))
            else:
                outs.append(Out(target, mesh.device(target), shape, source is None))
        if source is None or stays[target] or ranks[source] == ranks[target] or not prod(shape):
            continue
        talks = True
        if target in own:
            coming.setdefault(ranks[source], []).append(Part(target, (), shape))
        elif ranks[source] == rank:
            going.setdefault(ranks[target], []).append(Part(source, (), shape))
    note = program.own_stages[0].steps
    digest = sha256(repr((sources, str(storage.layout), repr(mesh))).encode()).hexdigest()[:16]
    text = str(storage.layout)
    group = tuple(sorted(set(ranks)))
    call = Call("permute", group, storage.shape, str(program.dtype), text, text, None, None, digest, repr(mesh))
    sends, receives = _messages(going), _messages(coming)
    on_accelerators = all(isinstance(mesh.device(i), Accelerator) for i in range(mesh.num_devices))
    one = MessageRound(call, sends, receives, straight=True, on_accelerators=on_accelerators)
    rounds = (one,) if talks and own else ()
    moved = (("permute", near),) if near else ()
    leg = Leg(note, tuple(outs), tuple(views), (), moved, rounds, None, None)
    ends = {storage.index(i): i for i in reversed(own)}
    return Route(tuple((i, storage.index(i)) for i in own), (leg,), tuple(ends.items()))


def _messages(parts: dict[int, list[Part]]) -> tuple[Message, ...]:
    return tuple(
        Message(rank, tuple(some), sum(prod(part.shape) for part in some)) for rank, some in sorted(parts.items())
    )
