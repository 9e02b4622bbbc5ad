"""Work: what devices do for an op, each on what it holds: a kernel of arrays, and the rule by which dims are split."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from shardwise.engine.arrays import Array
from shardwise.prim.rule import Rule
from shardwise.prim.tensor import Tensor


class Work(NamedTuple):
    """A kernel, and the operands that devices call it on once those lie as the rule asks for.

    A kernel is a pure function of arrays, of whatever library. With `located` it is first told the boxes of its arrays
    of those operands (or of the RESULT). The dtype of the result is there where the kernel cannot be asked for it with
    single elements. A kernel that `takes_lead` may be called on arrays with a leading dim for devices, and one that
    `takes_out` has a parameter `out` for the memory of its result; `run` writes there in any case.

    >>> from shardwise import asarray
    >>> from shardwise.prim.arithmetic.elementwise import multiply
    >>> work = multiply.work(asarray([2.0, 3.0]), 4.0)
    >>> work.run(np.ones(2)), work.takes_lead, work.rule.out
    (array([4., 4.]), True, ('d0',))
    """

    name: str
    kernel: Callable[..., Array]
    rule: Rule
    operands: Sequence[Tensor]
    located: tuple[int, ...] = ()
    dtype: np.dtype | None = None
    takes_lead: bool = False
    takes_out: bool = False

    def run(self, *arrays: Any, out: Any = None) -> Array:
        """Return what the kernel makes of arrays, in the memory of `out` if that is there.

        >>> from shardwise import asarray, exp
        >>> from shardwise.prim.arithmetic.elementwise import exp
        >>> memory = np.empty(1)
        >>> exp.work(asarray([0.0])).run(np.zeros(1), out=memory) is memory, memory
        (True, array([1.]))
        """
        if out is None:
            return self.kernel(*arrays)
        if self.takes_out:
            return self.kernel(*arrays, out=out)
        out[...] = self.kernel(*arrays)
        return out
