"""A dialect of xDSL with ops of ours added, or put in the place of its own."""

from collections.abc import Sequence

from xdsl.ir import Attribute, Dialect, Operation


def merged(
    dialect: Dialect, operations: Sequence[type[Operation]], attributes: Sequence[type[Attribute]] = ()
) -> Dialect:
    """Return the dialect with our ops, which replace those of the same name."""
    ours = {op.name for op in operations}
    kept = [op for op in dialect.operations if op.name not in ours]
    return Dialect(dialect.name, [*kept, *operations], [*dialect.attributes, *attributes])
