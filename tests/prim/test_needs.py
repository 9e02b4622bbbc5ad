"""Needs: a solver is asked about operands that are brought somewhere, and about what an op sends of its own."""

import numpy as np
import pytest

from shardwise import DeviceMesh, GreedyReshard, Layout, LayoutError, NoReshard, P, PartialsOnly, mode, roll, shard
from shardwise.prim.needs import brought, carried, rehearsed, whole
from tests.ops.cases import sent

MESH = DeviceMesh((4,), ("x",))
X = shard(np.arange(8.0), MESH, P("x"))
WHOLE = Layout.replicated(MESH, 1)


class Noting(GreedyReshard):
    notes: list[tuple[str, int]] = []  # noqa: RUF012

    def choose(self, question, ways):
        way = super().choose(question, ways)
        self.notes.append((question.op, question.bytes(way)))
        return way


def test_a_solver_of_ones_own_is_asked_about_both_kinds():
    Noting.notes.clear()
    with mode(Noting()):
        brought("first", [X], [WHOLE])
        carried("second", X, (0,), X, WHOLE)
    assert Noting.notes == [("first", 4 * 6 * 8), ("second", 4 * 6 * 8)]


def test_results_may_be_resolved_under_partials_only_and_nothing_else_sent():
    pending = shard(np.ones(2), MESH, P(unreduced=["x"]))
    with mode(PartialsOnly()):
        assert not whole("an op", X, (0,), pending).layout.partial
        with pytest.raises(LayoutError, match="PartialsOnly does not allow what this sends"):
            carried("an op", X, (0,), X, WHOLE)
    with (
        mode(NoReshard()),
        pytest.raises(LayoutError, match=r"an op at .* of its own \(96 bytes in all\)"),
    ):
        whole("an op", X, (0,), pending)


def test_a_rehearsal_sends_nothing_and_finds_all_plans():
    plans, size = sent(lambda: rehearsed(lambda x: roll(x, 3), X))
    assert size == 0
    assert sum(plan.received.total for plan in plans) == sent(lambda: roll(X, 3))[1] > 0
