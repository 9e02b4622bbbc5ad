"""Methods of tensors: the operators, methods and attributes of the table, which fills this class when it is made."""

from __future__ import annotations


class Methods:
    """What can be done to a tensor with operators and methods: each is the function of the same name.

    >>> from shardwise import DeviceMesh, P, shard
    >>> import numpy as np
    >>> x = shard(np.array([[1.0, -2.0], [3.0, 0.5]]), DeviceMesh((2,), ("x",)), P("x"))
    >>> (2 * x + 1).numpy().tolist(), (x @ x)[0, 1].item(), (x > 0).any().item(), x.sum(0).numpy()
    ([[3.0, -3.0], [7.0, 2.0]], -3.0, True, array([ 4. , -1.5]))
    """

    __slots__ = ()
    __hash__ = object.__hash__
