"""Local values: what every device holds inside `shard_map`, as one array of the local shape.

Such a value is a stack: one global tensor with a leading dim per mesh axis, split by it, so that each device holds its
own slice. A primitive of it is the same primitive of the stack, with those dims in front. What is there inside
`shard_map` only, the collectives by axis name, are functions of stacks, and that is how they are differentiated.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, NoReturn, cast

from array_api_compat import array_namespace

from shardwise.caches import cache
from shardwise.errors import ArgumentError
from shardwise.layout.layout import Layout, Shape
from shardwise.layout.mesh import DeviceMesh
from shardwise.prim.arithmetic.steps import pull as pull_steps
from shardwise.prim.bind import Traced, new_level
from shardwise.prim.fixed import Fixed
from shardwise.prim.interpreters.batch import Batched, Lead, run_batched
from shardwise.prim.movement.parts import zeros_for, zeros_like
from shardwise.prim.movement.shards import local_map
from shardwise.prim.primitive import Cotangents, Primitive
from shardwise.prim.relayout import relayout
from shardwise.prim.tensor import Tensor, place_everywhere


class LocalTensor(Batched):
    """What every device holds inside `shard_map`, seen as one array of the local shape.

    >>> import numpy as np
    >>> from shardwise import DeviceMesh, P, shard_map
    >>> def look(a):
    ...     print(a, a.shape, a.ndim, a.dtype)
    ...     return a
    >>> _ = shard_map(look, DeviceMesh((4,), ("x",)), P("x"), P("x"))(np.zeros((8, 3)))
    LocalTensor(float64[2, 3] on every device of x=4) (2, 3) 2 float64

    What all devices hold is its stack. Another stack is a local value `beside` it, and a value from outside, which is
    the same on every device, is lifted to one:

    >>> def look(a):
    ...     print(a.is_local, a.stack.shape, a.beside(a.stack * 2.0), a.lift(np.ones(3)))
    ...     return a
    >>> _ = shard_map(look, DeviceMesh((4,), ("x",)), P("x"), P("x"))(np.zeros((8, 3)))
    True (4, 2, 3) LocalTensor(float64[2, 3] on every device of x=4) LocalTensor(float64[3] on every device of x=4)
    """

    __slots__ = ()

    stack: Tensor = Fixed.slot("value", "What all devices hold, with leading dims that are those of the mesh.")

    def __init__(self, stack: Tensor, mesh: DeviceMesh, level: int) -> None:
        """Wrap a stack whose leading dims are those of the mesh, at the level of its `shard_map`."""
        self.level, self.value, self.tangent, self.node, self.lead = level, stack, None, None, mesh.ndim
        self._shape, self._dtype, self._engine = stack.shape[mesh.ndim :], stack.dtype, stack.engine
        self._layout, self._arrays = Layout.replicated(mesh, len(self._shape)), ()

    @Fixed
    def is_local(self) -> bool:
        """Whether it is what devices hold inside `shard_map`: always."""
        return True

    def beside(self, value: Tensor) -> LocalTensor:
        """Return another stack of the same devices as a local value."""
        return LocalTensor(value, self.mesh, self.level)

    def _interpret(self, row: Primitive, operands: tuple[Any, ...], params: dict[str, Any]) -> Tensor:
        """Apply a primitive to what each device holds; operands from outside are the same on all."""
        level, mesh = self.level, self.mesh
        if row.local is not None:
            return row.local(*[self.lift(x) for x in operands], **params)
        mapped = tuple([type(x) is LocalTensor and x.level == level for x in operands])
        values = [x.value if m else _everywhere(x, mesh) for x, m in zip(operands, mapped, strict=True)]
        out = run_batched(row, _lead(mesh), mapped, values, params)
        layout = stack_layout(mesh, out.ndim - mesh.ndim)
        return self.beside(out if out.layout is layout else relayout(out, layout=layout))

    def lift(self, x: Any) -> LocalTensor:
        """Return a value that is the same on every device as a local one; one that is local already as it is."""
        if isinstance(x, LocalTensor) and x.level == self.level:
            return x
        return self.beside(constant_stack(x, self.mesh))

    def _hidden_dims(self) -> Lead:
        # The dims of the mesh.
        return _lead(self.mesh)

    def __repr__(self) -> str:
        return f"LocalTensor({self.dtype}{list(self.shape)} on every device of {self.mesh})"

    # -- as one Python value, which it is not: each device has its own ---------------------------------

    def __len__(self) -> int:
        if not self.shape:
            raise ArgumentError("len() of a local array without dims.")
        return self.shape[0]

    def __bool__(self) -> bool:
        raise self._differs("bool()", "if, while, and, or, not, in, min() and max()")

    def __int__(self) -> int:
        raise self._differs("int()")

    def __float__(self) -> float:
        raise self._differs("float()")

    def __complex__(self) -> complex:
        raise self._differs("complex()")

    def __index__(self) -> int:
        raise self._differs("an index")

    def __contains__(self, value: object) -> bool:
        raise self._differs("in")

    def __iter__(self) -> NoReturn:
        raise ArgumentError(
            f"{self!r} is not iterable: it is one value, which differs from device to device.\n"
            "  x[i] is a part of it on every device; use where(c, a, b) to choose element by element."
        )

    def __format__(self, spec: str) -> str:
        if spec:
            raise self._differs("a format")
        return repr(self)

    def item(self) -> NoReturn:
        """Refused: there is one value per device."""
        raise self._differs("item()")

    def gather(self) -> NoReturn:
        """Refused: what devices hold is brought together along mesh axes."""
        raise ArgumentError(f"gather() is for tensors; inside shard_map, all_gather brings {self!r} together.")

    def _real(self) -> Sequence[Any]:
        raise ArgumentError(
            f"the values of {self!r} were read inside shard_map, where they differ from device to device and may be in "
            "other processes.\n  functions of shardwise work on them; local_call(fn, x) runs one of yours on the "
            "arrays."
        )

    def _differs(self, what: str, also: str = "") -> ArgumentError:
        asked = f"{what}, which {also} ask for too," if also else what
        return ArgumentError(
            f"{asked} needs one Python value, but inside shard_map the value differs from device to device: {self!r}.\n"
            "  use where(c, a, b) to choose element by element, on each device by its own value."
        )


_inside: ContextVar[tuple[DeviceMesh, int] | None] = ContextVar("shard_map", default=None)


@contextmanager
def inside_of(mesh: DeviceMesh) -> Generator[int]:
    """Go inside the devices of a mesh: values of the level that this opens are local."""
    with new_level() as level:
        token = _inside.set((mesh, level))
        try:
            yield level
        finally:
            _inside.reset(token)


def current_inside() -> tuple[DeviceMesh, int] | None:
    """Return the mesh whose devices run the function now, and its level; None outside `shard_map`."""
    return _inside.get()


# -- stacks --------------------------------------------------------------------------------------------


@cache(entries=8192)
def stack_layout(mesh: DeviceMesh, rank: int) -> Layout:
    """Return the layout of a stack: a dim per mesh axis, sharded by it, then the dims of the local array."""
    return Layout(mesh, [*mesh.axis_names, *[None] * rank])


class Devices(Lead):
    """The leading dims of a stack: one per mesh axis, split by it, and nothing else is."""

    __slots__ = ()

    def layout(self, layout: Layout) -> Layout:
        """Return the layout of a stack of arrays of as many dims as a layout has."""
        return stack_layout(self.mesh, layout.rank)

    def open(self) -> AbstractContextManager[int]:
        """Go inside the devices of the mesh."""
        return inside_of(self.mesh)

    def wrap(self, value: Tensor, level: int) -> Tensor:
        """Return a stack as a local value."""
        return LocalTensor(value, self.mesh, level)

    def below(self, x: Tensor, level: int) -> Tensor:
        """Return the stack of a local value; of any other one, the same on every device."""
        return x.value if isinstance(x, LocalTensor) and x.level == level else constant_stack(x, self.mesh)


@cache(entries=1024)
def _lead(mesh: DeviceMesh) -> Devices:
    return Devices(mesh.mesh_shape, stack_layout(mesh, 0).dims, mesh)


def _everywhere(x: Any, mesh: DeviceMesh) -> Any:
    return relayout(x, layout=Layout.replicated(mesh, x.ndim)) if isinstance(x, Tensor) else x


def constant_stack(data: Any, mesh: DeviceMesh) -> Tensor:
    """Return the stack of the same array on every device."""
    x = _everywhere(data, mesh) if isinstance(data, Tensor) else place_everywhere(data, mesh)
    return stack_shards(x, mesh, x.shape)


def stack_shards(x: Tensor, mesh: DeviceMesh, shape: Shape) -> Tensor:
    """Return what the devices hold of a tensor, all of this shape, as a stack."""
    lead = (1,) * mesh.ndim
    return map_stack(x, mesh, shape, partial(reshape_array, shape=lead + shape), partial(reshape_array, shape=shape))


def map_stack(
    x: Tensor, mesh: DeviceMesh, shape: Shape, kernel: Any, transpose: Any, positional: bool = False
) -> Tensor:
    """Return the stack that a linear kernel makes of what each device holds, each an array of this shape."""
    kernels = {"kernel": kernel, "transpose": transpose, "positional": positional}
    return local_map(x, **kernels, layout=stack_layout(mesh, len(shape)), shape=(*mesh.mesh_shape, *shape))


def reshape_array(a: Any, shape: Shape) -> Any:
    """Return a local array in another shape."""
    return array_namespace(a).reshape(a, shape)


# -- primitives of the local view ------------------------------------------------------------------------

Function = Callable[..., LocalTensor]


def local_row(name: str, function: Function, linear: bool = False) -> Primitive:
    """Return the primitive that a function of local values is; its derivatives are those of what it does to stacks.

    >>> import numpy as np
    >>> from shardwise import DeviceMesh, P, shard_map
    >>> double = local_row("double", lambda x: x.beside(x.stack * 2.0))
    >>> shard_map(double, DeviceMesh((2,), ("x",)), P("x"), P("x"))(np.arange(2.0)).numpy()
    array([0., 2.])
    """

    def vjp(ct: Tensor, out: Tensor, *operands: Any, **params: Any) -> Cotangents:
        return tuple([partial(_pull(row, i), ct, *operands, **params) for i in range(len(operands))])

    def jvp(tangents: Sequence[Tensor | None], out: Tensor, *operands: Any, **params: Any) -> Tensor:
        some = tuple(i for i, tangent in enumerate(tangents) if tangent is not None)
        return _push(row, some)(*operands, *[tangents[i] for i in some], **params)

    def run(*operands: Any, **params: Any) -> Tensor:
        raise ArgumentError(f"{name} acts on what one device holds: call it inside shard_map.")

    row = Primitive(name, run, vjp, jvp, linear, local=cast(Any, function))
    return row


@cache(entries=256)
def _pull(row: Primitive, which: int) -> Primitive:
    # The cotangent of one operand.
    function = cast(Function, row.local)

    def pull(ct: LocalTensor, *operands: LocalTensor, **params: Any) -> LocalTensor:
        x = operands[which]

        def steps(stack: Tensor) -> Tensor:
            return function(*operands[:which], x.beside(stack), *operands[which + 1 :], **params).stack

        (cotangent,) = pull_steps(steps, ct.stack, [x.stack], {})
        return x.beside(zeros_for(x.stack) if cotangent is None else relayout(cotangent, layout=x.stack.layout))

    return local_row(row.name, pull)


@cache(entries=256)
def _push(row: Primitive, which: tuple[int, ...]) -> Primitive:
    # The tangent of the result, given those of some operands.
    function = cast(Function, row.local)

    def push(*values: LocalTensor, **params: Any) -> LocalTensor:
        operands, tangents = list(values[: -len(which)]), values[-len(which) :]
        with new_level() as level:
            for i, tangent in zip(which, tangents, strict=True):
                x = operands[i]
                operands[i] = x.beside(Traced(level, x.stack, tangent=tangent.stack))
            out = function(*operands, **params).stack
        if isinstance(out, Traced) and out.level == level and out.tangent is not None:
            return values[0].beside(relayout(out.tangent, layout=out.value.layout))
        return values[0].beside(zeros_like(out, out.shape, out.layout))

    return local_row(row.name, push)
