"""Merged dialects: ours in the place of those of the same name, and everything else of theirs."""

from xdsl.dialects import tensor
from xdsl.ir import Attribute, Data, Dialect, Operation

from shardwise.ir.dialects.merge import merge_dialect


class Ours(tensor.ReshapeOp):
    """Stands for an op of the same name."""


class Kind(Data[str]):
    """An attribute that is added."""

    name = "tensor.kind"


def test_ours_replace_those_of_the_same_name_and_are_added_otherwise() -> None:
    made: Dialect = merge_dialect(tensor.Tensor, [Ours], [Kind])
    names = [op.name for op in made.operations]
    assert sorted(names) == sorted(op.name for op in tensor.Tensor.operations)
    assert len(names) == len(set(names))
    found: dict[str, type[Operation]] = {op.name: op for op in made.operations}
    assert found["tensor.reshape"] is Ours
    assert found["tensor.empty"] is tensor.EmptyOp
    kinds: list[type[Attribute]] = list(made.attributes)
    assert kinds == [*tensor.Tensor.attributes, Kind]
    assert made.name == "tensor"
    assert list(merge_dialect(tensor.Tensor, []).operations) == list(tensor.Tensor.operations)
