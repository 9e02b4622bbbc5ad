"""What is recorded is what the results need, below all derivatives."""

import numpy as np

from shardwise import asarray, grad, sum
from shardwise.ir.tracing.record import record
from shardwise.prim.bind import Node


def names(fn, *args):
    return [step.row.name for step in record(fn, *args).steps if step.row is not None]


def test_steps_come_after_what_they_use():
    found = record(lambda x, y: (x * y, (x + y) * x), asarray([1.0]), asarray([2.0]))
    seen = {id(node) for node in found.inputs}
    for step in found.steps:
        assert all(parent is None or id(parent) in seen for parent in step.parents)
        seen.add(id(step))
    assert all(isinstance(end, Node) and id(end) in seen for end in found.outputs)


def test_what_no_result_needs_is_left_out():
    def wasteful(x):
        _ = x * 3.0
        return x + 1.0

    assert names(wasteful, asarray([1.0])) == ["add"]


def test_constants_are_computed_while_recording():
    c = asarray([2.0])
    assert names(lambda x: x * (c * c + 1.0), asarray([1.0])) == ["multiply"]


def test_of_a_derivative_its_own_steps_are_recorded():
    found = names(grad(lambda x: sum(x * x)), asarray([1.0, 2.0]))
    assert "multiply" in found
    assert "reduce" not in found  # the value itself is not asked for


def test_trees_in_and_out():
    found = record(lambda d: [d["b"], {"c": d["a"] + 1.0, "d": 2.0}], {"a": asarray([1.0]), "b": np.ones(2)})
    assert [node.out.shape for node in found.inputs if node.out is not None] == [(1,), (2,)]
    assert [isinstance(end, Node) for end in found.outputs] == [True, True, False]
