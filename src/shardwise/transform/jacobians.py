"""Jacobians: all derivatives of all elements of a result by all elements of an argument."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Concatenate, Literal, ParamSpec, cast, overload

import optree

from shardwise.errors import DerivativeError, check_function
from shardwise.layout.layout import Layout
from shardwise.ops.creation import eye, zeros_like
from shardwise.prim.face import public
from shardwise.prim.tensor import Tensor, asarray
from shardwise.prim.views.reshaping import reshape
from shardwise.transform.calls import map_tensors
from shardwise.transform.derivatives import check_argnums, fix_others, jvp, unpack, vjp
from shardwise.transform.mapping import vmap

Rest = ParamSpec("Rest")


@overload
def jacfwd(fn: Callable[Concatenate[Tensor, Rest], Tensor], argnums: Literal[0] = 0) -> Callable[..., Tensor]: ...
@overload
def jacfwd(fn: Callable[..., Any], argnums: int | Sequence[int] = 0) -> Callable[..., Any]: ...
@public()
def jacfwd(fn: Callable[..., Any], argnums: int | Sequence[int] = 0) -> Callable[..., Any]:
    """Return the function that gives the Jacobian of `fn` by its arguments `argnums`, column by column at once.

    For each result, in its tree, there is a tree like the argument; the shape of each is that of the result and then
    that of the argument. It is the better one where results have more elements than arguments.

    >>> import numpy as np
    >>> from shardwise import sin
    >>> jacfwd(lambda x: sin(x)[:1] * x)(np.array([0.0, 1.0])).numpy()
    array([[0., 0.],
           [1., 0.]])
    """
    check_function(fn, "jacfwd")
    chosen = check_argnums(argnums)

    @wraps(fn)
    def jacobian(*args: Any) -> Any:
        partly, primals = fix_others(fn, args, chosen)
        leaves, tree = optree.tree_flatten(cast(Any, primals))
        values = [asarray(leaf) for leaf in leaves]
        if not values:
            return map_tensors(lambda _: unpack(optree.tree_unflatten(tree, []), argnums), partly(*primals))
        columns: list[Any] = []
        for i, value in enumerate(values):

            def column(tangent: Any, i: int = i) -> Any:
                some = [tangent if k == i else zeros_like(v) for k, v in enumerate(values)]
                primal, tangents = (cast(Any, optree.tree_unflatten(tree, xs)) for xs in (values, some))
                return jvp(partly, primal, tangents)[1]

            flat = vmap(column, out_axes=-1)(_units(value))
            columns.append(map_tensors(lambda y, value=value: reshape(y, shape=(*y.shape[:-1], *value.shape)), flat))
        out_tree = optree.tree_structure(columns[0])
        rows = zip(*(optree.tree_leaves(column) for column in columns), strict=True)
        trees = [unpack(optree.tree_unflatten(tree, list(row)), argnums) for row in rows]
        return optree.tree_unflatten(out_tree, trees)

    return jacobian


@overload
def jacrev(fn: Callable[Concatenate[Tensor, Rest], Tensor], argnums: Literal[0] = 0) -> Callable[..., Tensor]: ...
@overload
def jacrev(fn: Callable[..., Any], argnums: int | Sequence[int] = 0) -> Callable[..., Any]: ...
@public()
def jacrev(fn: Callable[..., Any], argnums: int | Sequence[int] = 0) -> Callable[..., Any]:
    """Return the function that gives the Jacobian of `fn` by its arguments `argnums`, row by row at once.

    As `jacfwd`, and the better one where arguments have more elements than results.

    >>> import numpy as np
    >>> from shardwise import sum
    >>> jacrev(lambda x: sum(x * x))(np.array([1.0, 2.0])).numpy()
    array([2., 4.])
    """
    check_function(fn, "jacrev")
    chosen = check_argnums(argnums)

    @wraps(fn)
    def jacobian(*args: Any) -> Any:
        partly, primals = fix_others(fn, args, chosen)
        out, back = vjp(partly, *primals)
        ends, out_tree = optree.tree_flatten(out)
        trees: list[Any] = []
        for i, end in enumerate(ends):
            if not isinstance(end, Tensor):
                raise DerivativeError(f"a Jacobian is that of tensors; the function returned {type(end).__name__}.")

            def row(cotangent: Any, i: int = i) -> Any:
                some = [cotangent if k == i else zeros_like(e) for k, e in enumerate(ends)]
                return back(optree.tree_unflatten(out_tree, some))

            flat = vmap(row)(_units(end))
            shaped = map_tensors(lambda y, end=end: reshape(y, shape=(*end.shape, *y.shape[1:])), flat)
            trees.append(unpack(shaped, argnums))
        return optree.tree_unflatten(out_tree, trees)

    return jacobian


@overload
def hessian(fn: Callable[Concatenate[Tensor, Rest], Tensor], argnums: Literal[0] = 0) -> Callable[..., Tensor]: ...
@overload
def hessian(fn: Callable[..., Any], argnums: int | Sequence[int] = 0) -> Callable[..., Any]: ...
@public()
def hessian(fn: Callable[..., Any], argnums: int | Sequence[int] = 0) -> Callable[..., Any]:
    """Return the function that gives the second derivatives of `fn`.

    >>> import numpy as np
    >>> from shardwise import sum
    >>> hessian(lambda x: sum(x * x * x))(np.array([1.0, 2.0])).numpy()
    array([[ 6.,  0.],
           [ 0., 12.]])
    """
    check_function(fn, "hessian")
    return jacfwd(jacrev(fn, argnums), argnums)


def _units(value: Tensor) -> Tensor:
    # One tensor of the shape of the value for each of its elements, which alone is 1.
    layout = Layout.replicated(value.mesh, 2)
    unit = eye(value.size, dtype=value.dtype, mesh=value.mesh, layout=layout)
    return reshape(unit, shape=(value.size, *value.shape))
