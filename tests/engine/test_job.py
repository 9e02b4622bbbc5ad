"""Jobs: which arrays of the operands each array of a result is made of, and how often there is work."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shardwise import DeviceMesh, LocalEngine, P
from shardwise.engine.job import RESULT, Job
from shardwise.engine.storage import storage_of
from tests.layout.oracle import held_box
from tests.prim.cases import SHAPES, host_meshes, layouts_for, spread

MESH = DeviceMesh((2, 2), ("x", "y"))


@given(st.data(), host_meshes(), SHAPES, SHAPES)
def test_every_array_of_a_result_is_made_of_what_its_holder_holds(data, mesh, left, right):
    operands = [storage_of(data.draw(layouts_for(mesh, shape)), shape) for shape in (left, right)]
    out = storage_of(P(tuple(mesh.axis_names)).to_layout(1, mesh), (mesh.num_devices,))
    job = Job(out, tuple(operands))
    pairs = {tuple(s.index(d) for s in operands) for d in range(mesh.num_devices)}
    assert set(job.distinct_sources) == pairs
    assert len(job.distinct_sources) == len(pairs)
    picks = job.picks or tuple(range(out.count))
    for index, device in enumerate(out.firsts):
        assert job.distinct_sources[picks[index]] == tuple(s.index(device) for s in operands)


@given(st.data(), host_meshes(), SHAPES)
def test_a_kernel_is_told_the_box_of_an_operand_or_of_the_result(data, mesh, shape):
    layout = data.draw(layouts_for(mesh, shape))
    store = storage_of(layout, shape)
    boxes = {held_box(layout, shape, d) for d in range(mesh.num_devices)}
    for located in (0, RESULT):
        job = Job(store, (store,), (located,))
        assert set(job.boxes) == {(box,) for box in boxes}
        assert len(job.boxes) == len(job.distinct_sources) == store.count
        assert job.picks is None


def test_devices_that_hold_equal_arrays_work_once():
    x, value = spread(P("x").to_layout(1, MESH), (4,))
    store = x.storage
    engine = LocalEngine()
    seen = []
    made = engine.run_kernel(lambda a: seen.append(len(a)) or a + 1, [x.arrays], Job(store, (store,)))
    assert seen == [2, 2]
    assert np.array_equal(np.concatenate(list(made)), value + 1)
    assert engine.counters.kernel_calls == 2


def test_two_arrays_of_a_result_may_come_of_one_piece_of_work():
    whole, split = storage_of(P().to_layout(1, MESH), (4,)), storage_of(P("y").to_layout(1, MESH), (2,))
    job = Job(split, (whole,))
    assert job.distinct_sources == ((0,),)
    assert job.picks == (0, 0)
    told = Job(split, (whole,), (RESULT,))  # told where its result lies, it is not the same work any more
    assert told.distinct_sources == ((0, 0), (0, 1))
    assert told.boxes == ((((0, 1),),), (((1, 2),),))
    assert told.picks is None
