"""What devices keep, send, receive and reduce in a round agrees between them, and with the transfers."""

from random import Random
from typing import Any

from hypothesis import given

from shardwise import plan_reshard
from shardwise.layout.tiling import box_size
from shardwise.plan.transfer import Transfer
from shardwise.plan.transition import transitions
from tests.plan.cases import Transition, crowded_moves
from tests.plan.cases import transitions as cases


def check(*move: Any) -> None:
    for transition in transitions(plan_reshard(*move)):
        for _, movement in transition.moves:
            src, dst = movement.holders
            sources, targets = range(src.layout.mesh.num_devices), range(dst.layout.mesh.num_devices)
            came = [d for target in targets for d in movement.arrivals(target)]
            assert sorted(came) == sorted(d for source in sources for d in movement.departures(source))
            numbered = sorted((src.numbers[i], dst.numbers[j], box) for i, j, box in came)
            slots = {*src.numbers, *dst.numbers}
            assert numbered == sorted(tuple(t) for slot in slots for t in movement.incoming(slot))
            assert sum(map(movement.count_received, slots)) == sum(box_size(box) for _, _, box in came)
            stay = [d for target in targets for d in movement.stays(target)]
            assert all(src.numbers[d.source] == dst.numbers[d.target] for d in stay)
            assert all(src.numbers[d.source] != dst.numbers[d.target] for d in came)
            reductions = [r for target in targets for r in movement.reductions(target)]
            parts = [Transfer(i, r.target, r.box) for r in reductions for i in r.sources]
            assert bool(parts) <= movement.reduces
            if movement.reduces:  # what stays and what arrives are the contributions
                assert sorted(d for d in (*stay, *came) if box_size(d.box)) == sorted(
                    d for d in parts if box_size(d.box)
                )
                assert sum(map(movement.count_far, reductions)) == len(came)


@given(cases(partial=True))
def test_senders_and_receivers_agree(case: Transition) -> None:
    check(*case, "int8")


def test_senders_and_receivers_agree_where_devices_stand_in_several_slots() -> None:
    for seed in range(60):
        check(*crowded_moves(Random(seed)))
