"""Routes: what a round counts, and what one says when nothing is said."""

from shardwise import ReduceOp
from shardwise.engine.call import Call
from shardwise.engine.routes.route import Leg, Message, MessageRound, Part, Route, Sum

CALL = Call("all_gather", (0, 1), (4,), "int8", "[x]", "[-]", None, None, "digest")
WHOLE, HALF = Part(0, (), (4,)), Part(1, (slice(0, 2), ...), (2,))


def test_a_round_counts_the_elements_of_its_messages() -> None:
    round_ = MessageRound(CALL, (Message(1, (WHOLE,), 4), Message(2, (HALF,), 2)), (Message(1, (HALF, HALF), 4),))
    assert round_.sent == 6
    assert round_.received == 4
    quiet = MessageRound(CALL, (), ())
    assert (quiet.sent, quiet.received) == (0, 0)


def test_a_round_talks_unless_it_says_that_it_does_not() -> None:
    plain = MessageRound(CALL, (), ())
    assert plain.talks
    assert not any((plain.spreads, plain.straight, plain.gathers, plain.on_accelerators))
    assert plain.sums == plain.local_copies == ()


def test_routes_with_equal_parts_are_equal() -> None:
    leg = Leg((), (), ((0, WHOLE),), ((WHOLE, HALF),), (("permute", 4),), (), ReduceOp.SUM, None)
    assert Route(((0, 0),), (leg,), ((0, 0),)) == Route(((0, 0),), (leg,), ((0, 0),))
    assert Sum(WHOLE, (HALF, 4)).terms == (HALF, 4)
    assert MessageRound(CALL, (), (), talks=False) != MessageRound(CALL, (), ())
