"""Rules of one's own: functions whose derivatives are given instead of worked out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import update_wrapper, wraps
from typing import Any, NamedTuple, cast

import numpy as np
import optree

from shardwise.errors import BindingError, DerivativeError, check_function, is_list
from shardwise.layout.layout import Shape
from shardwise.layout.placement import ReduceOp, reductions_of
from shardwise.prim.bind import Traced
from shardwise.prim.interpreters.batch import Batched, Lead
from shardwise.prim.movement.parts import zeros_for
from shardwise.prim.relayout import relayout
from shardwise.prim.tensor import Tensor, asarray
from shardwise.transform.calls import Call, call_of, map_tensors, replace_at, write_call
from shardwise.transform.derivatives import vjp

Function = Callable[..., Any]


class _Custom:
    """A function whose derivative is given: run as it is, inside maps again, or by its rule."""

    def __init__(self, fn: Function) -> None:
        """Take a function."""
        check_function(fn, type(self).__name__)
        update_wrapper(self, fn)
        self._fn, self._name = fn, getattr(fn, "__name__", "the function")

    def __call__(self, *args: Any) -> Any:
        """Run the function."""
        call = call_of(args)
        top: Any = next((leaf for leaf, w in zip(call.leaves, call.watched, strict=True) if w), None)
        if top is None or top.is_recorded:
            return self._fn(*args)
        return _map(top, call, self._inside) if isinstance(top, Batched) else self._differentiate(call)

    def _inside(self, inside: _Inside) -> Function:
        raise NotImplementedError

    def _differentiate(self, call: Call) -> Any:
        raise NotImplementedError


class custom_vjp(_Custom):
    """A function with a reverse derivative of its own.

    `forward(*args)` returns the result and what `backward(kept, cotangent)` needs to return a cotangent for each
    argument, or None. Both may be given at once, or with `defvjp`; they work in `shard_map` and `vmap` too.

    >>> import numpy as np
    >>> from shardwise import exp, grad, log, sum
    >>> @custom_vjp
    ... def log1pexp(x):
    ...     return log(1.0 + exp(x))
    >>> log1pexp.defvjp(lambda x: (log1pexp(x), x), lambda x, ct: (ct * (1.0 - 1.0 / (1.0 + exp(x))),))
    >>> grad(lambda x: sum(log1pexp(x)))(np.array([0.0])).numpy()
    array([0.5])
    """

    def __init__(self, fn: Function, forward: Function | None = None, backward: Function | None = None) -> None:
        """Take a function, and its rules if they are known."""
        super().__init__(fn)
        self._forward, self._backward = forward, backward
        if forward is not None or backward is not None:
            self.defvjp(cast(Any, forward), cast(Any, backward))

    def defvjp(self, forward: Function, backward: Function) -> None:
        """Set the rules."""
        check_function(forward, "custom_vjp: forward")
        check_function(backward, "custom_vjp: backward")
        self._forward, self._backward = forward, backward

    def _inside(self, inside: _Inside) -> Function:
        ahead, behind, name, run = self._forward, self._backward, self._name, inside.run(self._fn)
        if ahead is None or behind is None:
            return custom_vjp(run)

        def backward(kept: Any, cotangent: Any) -> Any:
            with inside.lead.open() as level:
                parts = behind(*inside.wrap((kept, cotangent), level))
                values = inside.lower(_check_cotangents(name, parts, inside.types), level)
                return inside.lead.sum_shared(inside.mapped, values)

        return custom_vjp(run, inside.run(ahead), backward)

    def _differentiate(self, call: Call) -> Any:
        if self._forward is None or self._backward is None:
            raise DerivativeError(
                f"{self._name} has no derivative yet.\n  {self._name}.defvjp(forward, backward) sets it."
            )
        if not any(call.taped):
            raise DerivativeError(
                f"{self._name} has a reverse derivative only, by custom_vjp.\n  custom_jvp gives both."
            )
        backward, name, types = self._backward, self._name, _types(call)
        pair = self._forward(*call.args(call.below))
        out, kept = _check_pair(pair, f"custom_vjp: forward of {name} returns the result and what is kept")
        ends, out_tree = optree.tree_flatten(out)
        tensors = [isinstance(end, Tensor) for end in ends]

        def back(cotangents: list[Tensor]) -> Sequence[Any]:
            rest = iter(cotangents)
            full = [next(rest) if is_tensor else None for is_tensor in tensors]
            return _check_cotangents(name, backward(kept, optree.tree_unflatten(out_tree, full)), types)

        return write_call(name, call, out, back)


class custom_jvp(_Custom):
    """A function with a forward derivative of its own, from which the reverse one follows.

    `rule(primals, tangents)` returns the result and its tangent, which must be linear in the tangents.

    >>> import numpy as np
    >>> from shardwise import grad, jvp, sum
    >>> @custom_jvp
    ... def cube(x):
    ...     return x * x * x
    >>> cube.defjvp(lambda primals, tangents: (cube(*primals), 3.0 * primals[0] * primals[0] * tangents[0]))
    >>> (
    ...     jvp(cube, (np.array([2.0]),), (np.array([1.0]),))[1].numpy(),
    ...     grad(lambda x: sum(cube(x)))(np.array([2.0])).numpy(),
    ... )
    (array([12.]), array([12.]))
    """

    def __init__(self, fn: Function, rule: Function | None = None) -> None:
        """Take a function, and its rule if it is known."""
        super().__init__(fn)
        self._rule = rule
        if rule is not None:
            self.defjvp(rule)

    def defjvp(self, rule: Function) -> None:
        """Set the rule."""
        check_function(rule, "custom_jvp: rule")
        self._rule = rule

    def _inside(self, inside: _Inside) -> Function:
        ahead, run = self._rule, inside.run(self._fn)
        if ahead is None:
            return custom_jvp(run)

        def rule(primals: Any, tangents: Any) -> Any:
            with inside.lead.open() as level:
                return inside.lower(ahead(inside.args(primals, level), inside.args(tangents, level)), level)

        return custom_jvp(run, rule)

    def _differentiate(self, call: Call) -> Any:
        if self._rule is None:
            raise DerivativeError(f"{self._name} has no derivative yet.\n  {self._name}.defjvp(rule) sets it.")
        below = call.below
        spots = [i for i, leaf in enumerate(below) if _is_smooth(leaf)]
        if any(call.taped):
            return write_call(self._name, call, self(*call.args(below)), self._transpose(call, below, spots))
        tangents = list(below)
        for i in spots:
            tangent = call.leaves[i].tangent if call.watched[i] else None
            tangents[i] = zeros_for(below[i]) if tangent is None else tangent
        out, moved = self._run(call, below, tangents)
        ends, out_tree = optree.tree_flatten(out)
        done = [
            Traced(call.level, end, tangent=relayout(tangent, layout=end.layout.resolved()))
            if isinstance(end, Tensor) and _is_smooth(end)
            else end
            for end, tangent in zip(ends, out_tree.flatten_up_to(moved), strict=True)
        ]
        return optree.tree_unflatten(out_tree, done)

    def _run(self, call: Call, primals: list[Any], tangents: list[Any]) -> tuple[Any, Any]:
        pair = cast(Any, self._rule)(call.args(primals), call.args(tangents))
        return _check_pair(pair, f"custom_jvp: the rule of {self._name} returns the result and its tangent")

    def _transpose(self, call: Call, below: list[Any], spots: list[int]) -> Callable[[list[Tensor]], Sequence[Any]]:
        # The tangent is linear in the tangents: its cotangents are those of the result by the arguments.
        def linear(*some: Any) -> Any:
            out, moved = self._run(call, below, replace_at(spots, below, some))
            ends, out_tree = optree.tree_flatten(out)
            pairs = zip(ends, out_tree.flatten_up_to(moved), strict=True)
            return [tangent if _is_smooth(end) else zeros_for(end) for end, tangent in pairs if isinstance(end, Tensor)]

        def back(cotangents: list[Tensor]) -> Sequence[Any]:
            _, pull = vjp(linear, *(zeros_for(below[i]) for i in spots))
            return replace_at(spots, [None] * len(below), pull(cotangents))

        return back


def _check_pair(pair: Any, what: str) -> tuple[Any, Any]:
    if not issubclass(type(pair), tuple) or len(pair) != 2:
        raise DerivativeError(f"{what}, as a pair.")
    return pair


def _is_smooth(leaf: Any) -> bool:
    # Whether there are derivatives by it: numbers that have averages have them.
    return isinstance(leaf, Tensor) and ReduceOp.AVG in reductions_of(leaf.dtype)


class _Types(NamedTuple):
    """What the arguments of a function are: the tree of each, and shape and dtype of every leaf that is a tensor."""

    trees: list[optree.PyTreeSpec]
    leaves: list[tuple[Shape, np.dtype] | None]


def _types(call: Call) -> _Types:
    trees = [optree.tree_structure(arg) for arg in call.args(call.leaves)]
    return _Types(trees, [(leaf.shape, leaf.dtype) if isinstance(leaf, Tensor) else None for leaf in call.leaves])


def _check_cotangents(name: str, cotangents: Any, types: _Types) -> list[Any]:
    # One cotangent for each leaf of the arguments; None for an argument is none for all of its leaves.
    count = len(cotangents) if is_list(cotangents) else type(cotangents).__name__
    if count != len(types.trees):
        raise DerivativeError(
            f"custom_vjp: backward of {name} returns a cotangent for each of {len(types.trees)} arguments, got {count}."
        )
    parts: list[Any] = []
    for number, (tree, cotangent) in enumerate(zip(types.trees, cotangents, strict=True)):
        try:
            parts += [None] * tree.num_leaves if cotangent is None else tree.flatten_up_to(cotangent)
        except (TypeError, ValueError):
            raise DerivativeError(
                f"custom_vjp: the cotangent of argument {number} of {name} has its structure, {tree}, got "
                f"{cotangent!r}."
            ) from None
    out: list[Any] = []
    for number, (part, kind) in enumerate(zip(parts, types.leaves, strict=True)):
        value = None if part is None or kind is None else asarray(part)
        if value is not None and (value.shape, value.dtype) != kind:
            shape, dtype = cast(Any, kind)
            raise BindingError(
                f"custom_vjp: tensor {number} of the arguments of {name} is {dtype}{list(shape)}, and its cotangent "
                f"{value.dtype}{list(value.shape)}."
            )
        out.append(value)
    return out


# -- under maps ------------------------------------------------------------------------------------------


class _Inside(NamedTuple):
    """How a function is run inside a map again, on values below: which of its leaves are mapped, over which dims."""

    lead: Lead
    mapped: list[bool]
    tree: optree.PyTreeSpec
    types: _Types

    def args(self, leaves: Sequence[Any], level: int) -> Any:
        """The arguments, those that are mapped with their dims hidden."""
        pairs = zip(leaves, self.mapped, strict=True)
        return optree.tree_unflatten(self.tree, [self.lead.wrap(leaf, level) if m else leaf for leaf, m in pairs])

    def wrap(self, tree: Any, level: int) -> Any:
        """All tensors of a tree with the dims hidden."""
        return map_tensors(lambda x: self.lead.wrap(x, level), tree)

    def lower(self, tree: Any, level: int) -> Any:
        """All tensors of a tree as they are below, repeated along the dims where they do not have them."""
        return map_tensors(lambda x: self.lead.below(x, level), tree)

    def run(self, fn: Function) -> Function:
        """The function of the values below."""

        @wraps(fn)
        def run(*leaves: Any) -> Any:
            with self.lead.open() as level:
                return self.lower(fn(*self.args(leaves, level)), level)

        return run


def _map(top: Batched, call: Call, make: Callable[[_Inside], Function]) -> Any:
    # The function of the values below, with rules that go inside of the map again.
    lead = top._hidden_dims()  # pyright: ignore[reportPrivateUsage]
    return map_tensors(top.beside, make(_Inside(lead, call.watched, call.tree, _types(call)))(*call.below))
