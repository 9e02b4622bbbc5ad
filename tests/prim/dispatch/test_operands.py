"""Needs: a solver is asked about operands that are brought somewhere, and about what an op sends of its own."""

import numpy as np
import pytest

import shardwise as sw
from shardwise import (
    DeviceMesh,
    GreedyReshard,
    Layout,
    LayoutError,
    NoReshard,
    P,
    PartialsOnly,
    mode,
    plan_reshard,
    roll,
    shard,
)
from shardwise.prim.arithmetic.broadcast import sum_to
from shardwise.prim.arithmetic.cumulate import cumulate
from shardwise.prim.arithmetic.softmax import softmax
from shardwise.prim.dispatch.operands import carry, fetch_operands, may_carry, may_send, rehearse, whole
from shardwise.prim.movement.borders import stretches, surround
from tests.ops.cases import sent

MESH = DeviceMesh((4,), ("x",))
X = shard(np.arange(8.0), MESH, P("x"))
WHOLE = Layout.replicated(MESH, 1)


class Noting(GreedyReshard):
    notes: list[tuple[str, int]] = []  # noqa: RUF012

    def choose(self, question, candidates):
        candidate = super().choose(question, candidates)
        self.notes.append((question.op, question.bytes(candidate)))
        return candidate


def test_a_solver_of_ones_own_is_asked_about_both_kinds():
    Noting.notes.clear()
    with mode(Noting()):
        fetch_operands("first", [X], [WHOLE])
        carry("second", X, (0,), X, WHOLE)
    assert Noting.notes == [("first", 4 * 6 * 8), ("second", 4 * 6 * 8)]


def test_results_may_be_resolved_under_partials_only_and_nothing_else_sent():
    pending = shard(np.ones(2), MESH, P(unreduced=["x"]))
    with mode(PartialsOnly()):
        assert not whole("an op", X, (0,), pending).layout.partial
        with pytest.raises(LayoutError, match="PartialsOnly does not allow what this sends"):
            carry("an op", X, (0,), X, WHOLE)
    with (
        mode(NoReshard()),
        pytest.raises(LayoutError, match=r"an op at .* of its own \(96 bytes in all\)"),
    ):
        whole("an op", X, (0,), pending)


def test_a_rehearsal_sends_nothing_and_finds_all_plans():
    plans, size = sent(lambda: rehearse(lambda x: roll(x, 3), X))
    assert size == 0
    assert sum(plan.received.total for plan in plans) == sent(lambda: roll(X, 3))[1] > 0


class Asked(GreedyReshard):
    questions: list = []  # noqa: RUF012

    def choose(self, question, candidates):
        candidates = list(candidates)
        self.questions.append((question, candidates))
        return super().choose(question, candidates)

    def __eq__(self, other):
        return self is other  # decisions are remembered by solver

    def __hash__(self):
        return id(self)


def test_a_question_says_what_the_operands_are_and_where_they_go():
    y = shard(np.ones((2, 3), "float32"), MESH, P(None, "x"))
    flat = Layout.replicated(MESH, 2)
    Asked.questions.clear()
    with mode(Asked()):
        got = fetch_operands("an op", [X, y], [WHOLE, flat])
    ((question, (candidate,)),) = Asked.questions
    assert [t.layout for t in got] == [WHOLE, flat]
    assert [t.numpy().tolist() for t in got] == [X.numpy().tolist(), y.numpy().tolist()]
    assert (question.op, question.layouts, question.shapes) == ("an op", (X.layout, y.layout), ((8,), (2, 3)))
    assert (question.dtypes, question.out, question.own, question.along) == ((X.dtype, y.dtype), (8,), (), ())
    assert (candidate.operands, candidate.out, candidate.work) == ((WHOLE, flat), WHOLE, 0)


def test_what_an_op_sends_of_its_own_is_asked_with_the_operands_as_they_are():
    y = shard(np.ones((2, 3), "float32"), MESH, P(None, "x"))
    plan = plan_reshard(X.layout, WHOLE, (8,), X.dtype)
    for given, layouts, shapes in ((X, (X.layout,), ((8,),)), ([X, y], (X.layout, y.layout), ((8,), (2, 3)))):
        Asked.questions.clear()
        with mode(Asked()):
            may_send("an op", given, [0, 2], plan, plan)
        ((question, (candidate,)),) = Asked.questions
        assert (question.layouts, question.shapes, question.out) == (layouts, shapes, (8,))
        assert (question.own, question.along) == ((plan, plan), (0, 2))
        assert (candidate.operands, candidate.out) == (layouts, X.layout)


def test_nobody_is_asked_about_what_stays_where_it_is():
    Asked.questions.clear()
    with mode(Asked()):
        assert carry("an op", X, (0,), X, X.layout) is X
        may_carry("an op", X, (0,), X, X.layout)
        assert whole("an op", X, (0,), X) is X
        assert Asked.questions == []
        may_carry("an op", X, (0,), X, WHOLE)
        assert len(Asked.questions) == 1


def test_a_value_that_was_carried_is_whole_everywhere():
    got = carry("an op", X, (0,), X, WHOLE)
    assert got.layout is WHOLE
    assert got.numpy().tolist() == X.numpy().tolist()
    pending = shard(np.array([1.0, 2.0]), MESH, P(unreduced=["x"]))
    made = whole("an op", X, (0,), pending)
    assert made.layout is WHOLE
    assert made.numpy().tolist() == [1.0, 2.0]


def test_a_rehearsal_hears_of_operands_that_are_brought_and_begins_anew():
    plans = [rehearse(lambda x, y: x + y, X, shard(np.ones(8), MESH, Layout(MESH, [None], ["x"]))) for _ in range(2)]
    assert [[plan.received.total for plan in heard] for heard in plans] == [[4 * 3 * 2 * 8]] * 2


TABLE = shard(np.arange(16.0).reshape(8, 2), MESH, P("x"))
PENDING_MAX = shard(np.arange(16.0).reshape(8, 2), MESH, P(unreduced={"x": "max"}))
NAMED = {
    "broadcast_to": lambda: sw.broadcast_to(TABLE[:, :1], (8, 3)),
    "sum": lambda: sum_to(PENDING_MAX, shape=(2,)),
    "conv": lambda: sw.grad(lambda x: sw.conv(x, np.ones((1, 1, 3))).sum())(TABLE.reshape(2, 1, 8)),
    "cumulative_sum": lambda: sw.cumulative_sum(TABLE, axis=0),
    "take": lambda: sw.take(TABLE, np.array([1, 5]), axis=0),
    "scatter": lambda: sw.grad(lambda x: sw.take(x, np.array([1, 5]), axis=0).sum())(TABLE),
    "concat": lambda: sw.concat([TABLE, TABLE]),
    "topk": lambda: sw.topk(X, 2),
    "flip": lambda: sw.flip(TABLE),
    "reshape": lambda: sw.reshape(TABLE, (4, 4)),
    "squeeze": lambda: sw.squeeze(TABLE[:1], axis=0),
    "softmax": lambda: softmax(TABLE, dims=(1,)),
    "pad": lambda: sw.pad(X, (1, 2), mode="wrap"),
    "x.at[...].set": lambda: X.at[1:3].set(np.ones(2)),
    "write_at": lambda: X.at[np.array([1, 5])].set(np.ones(2)),
    "x.at[...].add": lambda: sw.grad(lambda x: x[1:5].sum())(X),
    "exp": lambda: sw.exp(X),
    "where": lambda: sw.where(X > 1.0, X, 0.0),
    "einsum('xy,yz->xz')": lambda: TABLE @ np.ones((2, 3)),
}


@pytest.mark.parametrize("name", NAMED)
def test_a_solver_is_told_which_op_it_is_asked_about(name):
    Asked.questions.clear()
    with mode(Asked()):
        NAMED[name]()
    assert name in {question.op for question, _ in Asked.questions}


@pytest.mark.parametrize("name", ["flip", "pad", "cumulative_sum", "topk"])
def test_every_question_about_one_op_has_its_name(name):
    calls = {
        "flip": lambda: sw.flip(X),
        "pad": lambda: surround(X, stretches=(stretches(8, 1, 1, "wrap"),), layout=X.layout),
        "cumulative_sum": lambda: cumulate(X, dim=0, reverse=False),
        "topk": lambda: sw.topk(X, 2),
    }
    Asked.questions.clear()
    with mode(Asked()):
        calls[name]()
    about = [question for question, _ in Asked.questions]
    assert any(question.own for question in about)
    assert {question.op for question in about if question.own} == {name}
