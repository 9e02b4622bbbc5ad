"""The verifier: what a module says must be possible; its errors name the place, the op and the grid."""

from collections.abc import Iterator

from xdsl.dialects.builtin import ModuleOp, UnregisteredOp
from xdsl.ir import Operation
from xdsl.irdl import OptionalDef

from shardwise.errors import VerifyError
from shardwise.ir.place import place_of
from shardwise.ir.shard import GridOp, ShardOperation
from shardwise.ir.verifier.collectives import COLLECTIVES
from shardwise.ir.verifier.complaint import Check, Complaints
from shardwise.ir.verifier.grids import GRIDS, Grid, Symbols
from shardwise.ir.verifier.linalgs import linalg_complaints
from shardwise.ir.verifier.order import Order
from shardwise.ir.verifier.shardings import SHARDINGS, grid_name_of

CHECKS: dict[type[ShardOperation], tuple[Check, ...]] = {**GRIDS, **COLLECTIVES, **SHARDINGS}


def verify(module: ModuleOp) -> None:
    """Raise a VerifyError for the first thing in a module that cannot be.

    >>> from shardwise.ir.text import parse_module
    >>> verify(parse_module("shard.grid @g(shape = 2x4)"))
    >>> verify(parse_module("%0 = shard.process_linear_index on @g : index", "m.mlir"))
    Traceback (most recent call last):
    shardwise.VerifyError: m.mlir:1:1: shard.process_linear_index: unknown grid @g.
      the module has no grids.
    """
    for fault in faults(module):
        raise fault


def faults(module: ModuleOp) -> Iterator[VerifyError]:
    """Yield an error for each thing in a module that cannot be, in the order of its text.

    >>> from shardwise.ir.text import parse_module
    >>> [fault.line for fault in faults(parse_module("shard.grid @g(shape = [])\\nshard.grid @h(shape = 0)"))]
    [1, 2]
    """
    symbols, order = Symbols(), Order()
    for op in module.walk():
        complaints = [*symbols.complaints(op), *order.complaints(op)]
        complaints += [*_dialect_complaints(op, symbols)] if isinstance(op, ShardOperation) else []
        # xDSL's own checks come last: what they say of our ops is said better above, and of twins at the second one.
        for complaint in complaints or (() if symbols.has_twins(op) else _structure_complaints(op)):
            yield _fault(op, complaint, symbols)


def _fault(op: Operation, complaint: str, symbols: Symbols) -> VerifyError:
    place = place_of(op)
    grid = symbols.grid(op, grid_name_of(op)) if isinstance(op, ShardOperation) else None
    if isinstance(op, GridOp):
        grid = Grid.of(op)
    on = f" on {grid}" if grid is not None else ""
    name = op.op_name.data if isinstance(op, UnregisteredOp) else op.name
    return VerifyError(place.name, place.line, place.column, f"{name}{on}: {complaint}")


def _dialect_complaints(op: ShardOperation, symbols: Symbols) -> Complaints:
    missing = [name for name in op.get_irdl_definition().properties if _is_missing(op, name)]
    if missing:
        yield f"lacks {', '.join(missing)}."
        return
    name = grid_name_of(op)
    grid = symbols.grid(op, name)
    if name is not None and grid is None:
        yield symbols.unknown(op, name)
        return
    for check in CHECKS[type(op)]:
        try:
            complaints = [*check(op, grid)]
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            # Written in the generic form, an op may have operands and attributes of any number and kind.
            complaints = [*_structure_complaints(op)]
        yield from complaints
        # Later checks of an op take for granted what earlier ones ensure.
        if complaints:
            return


def _is_missing(op: ShardOperation, name: str) -> bool:
    return name not in op.properties and not isinstance(op.get_irdl_definition().properties[name], OptionalDef)


def _structure_complaints(op: Operation) -> Complaints:
    try:
        complaints = [*linalg_complaints(op)]
        if not complaints:
            # verify_ first: what verify raises for the same fault prints the whole module on the way.
            op.verify_()
            op.verify(verify_nested_ops=False)
    except Exception as error:  # xDSL's checks also fail with assertions and whatever else Python raises
        complaints = [f"{str(error).strip().rstrip('.') or type(error).__name__}."]
    yield from complaints
