"""A dialect of xDSL with ops of ours added, or put in the place of its own."""

from collections.abc import Sequence
from typing import Any, ClassVar

from xdsl.ir import Attribute, Dialect, Operation
from xdsl.irdl import IRDLOperation, irdl_op_definition


def merge_dialect(
    dialect: Dialect, operations: Sequence[type[Operation]], attributes: Sequence[type[Attribute]] = ()
) -> Dialect:
    """Return the dialect with our ops, which replace those of the same name."""
    ours = {op.name for op in operations}
    others = [op for op in dialect.operations if op.name not in ours]
    return Dialect(dialect.name, [*others, *operations], [*dialect.attributes, *attributes])


def make_operation(kind: type[IRDLOperation], name: str, **fields: Any) -> type[IRDLOperation]:
    """Return the op of a name that is of a kind, with class variables (in capitals), operands and results of its own.

    >>> from shardwise.ir.dialects.index_ops import IndexBinary
    >>> make_operation(IndexBinary, "index.add").__name__
    'IndexAddOp'
    """
    title = name.title().replace(".", "").replace("_", "")
    annotations = {field: ClassVar[Any] for field in fields if field.isupper()}
    own = {"__doc__": kind.__doc__, "__module__": kind.__module__, "__annotations__": annotations, "name": name}
    return irdl_op_definition(type(f"{title}Op", (kind,), {**own, **fields}))
