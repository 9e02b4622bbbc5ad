"""Reshards in processes: the same bits as on the local engine, and the same bytes between devices."""

from hypothesis import given
from hypothesis import strategies as st

from tests.engines.cases import check, process_moves
from tests.engines.pool import Pool
from tests.engines.programs import carried, resharded, staged


@given(st.data())
def test_any_layout_to_any_other_on_one_mesh_or_between_two(pool: Pool, data: st.DataObject) -> None:
    check(pool, resharded, [data.draw(process_moves(pool.size)) for _ in range(4)])


@given(st.data())
def test_chunks_and_the_gathers_of_the_library_give_the_same(pool: Pool, data: st.DataObject) -> None:
    cases = [data.draw(process_moves(pool.size)) for _ in range(4)]
    check(pool, staged, cases, data.draw(st.sampled_from([None, True])))


def test_a_reduction_of_several_hops_carries_float32(pool: Pool) -> None:
    check(pool, carried, pool.size)
