"""Order: a value is made before it is used, by an op that its user can see."""

from dataclasses import dataclass, field

from xdsl.dialects.builtin import UnregisteredOp
from xdsl.ir import Block, Operation, OpResult, SSAValue
from xdsl.traits import IsTerminator

from shardwise.ir.verifier.complaint import Complaints


def _says_where_to_go(block: Block) -> bool:
    last = block.last_op
    return last is not None and (isinstance(last, UnregisteredOp) or last.has_trait(IsTerminator))


@dataclass(slots=True)
class Order:
    """The position of each op in its block, counted once per block."""

    positions: dict[Block, dict[Operation, int]] = field(default_factory=dict[Block, dict[Operation, int]])

    def complaints(self, op: Operation) -> Complaints:
        """Complain about values that are made after the op or where it cannot see them, and where it cannot go."""
        for block in op.successors:
            if op.parent is None or block.parent is not op.parent.parent:
                yield "goes to a block of another region."
            elif block.parent is not None and block is block.parent.first_block:
                yield "goes to the first block of its region, which is entered from outside alone."
        for region in op.regions:
            if len(region.blocks) > 1 and not all(map(_says_where_to_go, region.blocks)):
                yield "each of several blocks ends with an op that says where to go on."
        for number, value in enumerate(op.operands):
            if not self._sees(op, value):
                yield f"operand {number} is used before it is made, or where it cannot be seen."

    def _sees(self, op: Operation, value: SSAValue) -> bool:
        home = value.owner.parent if isinstance(value, OpResult) else value.owner
        if not isinstance(home, Block):
            return False
        at: Operation | None = op
        while at is not None and at.parent is not None:
            if at.parent is home:
                return not isinstance(value, OpResult) or self._position(value.op) < self._position(at)
            # Blocks of one region: which one runs first is for the control flow to say.
            if at.parent.parent is home.parent and at.parent.parent is not None:
                return True
            at = at.parent_op()
        return False

    def _position(self, op: Operation) -> int:
        block = op.parent
        assert block is not None
        if block not in self.positions:
            self.positions[block] = {child: number for number, child in enumerate(block.ops)}
        return self.positions[block][op]
