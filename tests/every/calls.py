"""Calls: an expression of the library, its operands, and what NumPy makes of their global values."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import shardwise
from shardwise import DeviceMesh, Layout, P, ReduceOp
from shardwise.layout.placement import reductions_of
from tests.every.comparison import Rule
from tests.every.draws import Draws
from tests.every.layouts import draw_layout
from tests.every.meshes import draw_mesh, layout_code, mesh_code
from tests.every.operands import Operand
from tests.every.values import Domain, Shape, draw_terms, draw_values, is_float, is_whole, reduce_terms

MOST = 24  # devices of a mesh
LETTERS = "abcdefgh"
PENDING = tuple(ReduceOp)


@dataclass(frozen=True, eq=False)
class Call:
    """One call of a public function."""

    code: str
    oracle: Callable[..., Any]  # of the values of the operands, in their order
    operands: Mapping[str, Operand]
    names: Mapping[str, tuple[str, Any]]  # others in the code: their own code, and what they are
    rule: Rule = field(default_factory=Rule)
    scale: Callable[..., Any] | None = None
    local: bool | str = False  # the same code means the same in the local view, of one result or of "many"
    refusal: str | None = None  # what its error must say, where it is to be refused
    may_refuse: tuple[str, ...] = ()
    verify: Callable[[Any], str | None] | None = None  # what else is wrong with the tensors that it gives, if anything
    abstract: bool = True  # it needs no values
    bytes: bool = True  # of the abstract engine are those of the others

    def run(self) -> Any:
        """The result, on the current engine."""
        env = ENVIRONMENT | {name: thing for name, (_, thing) in self.names.items()}
        return eval(self.code, env | {name: operand.make() for name, operand in self.operands.items()})


ENVIRONMENT: dict[str, Any] = {
    "sw": shardwise,
    "np": np,
    **{name: getattr(shardwise, name) for name in ("P", "Cut", "Layout", "CPU", "DeviceMesh", "shard_map")},
}


class Setting:
    """What a row draws a call from: a mesh, and choices."""

    def __init__(self, draws: Draws, most: int = MOST, among: int | None = None) -> None:
        self.draws, self._most, self._among = draws, most, among
        self.mesh = draw_mesh(draws, most, among)
        self.operands: dict[str, Operand] = {}
        self.names: dict[str, tuple[str, Any]] = {"mesh": (mesh_code(self.mesh), self.mesh)}
        self._meshes: dict[int, str] = {id(self.mesh): "mesh"}

    # -- choices -----------------------------------------------------------------------------------

    def shape(self, low: int = 0, high: int = 3, least: int = 0, most: int = 7) -> Shape:
        """A shape with `low` to `high` dims, rarely with an empty one."""
        rank = self.draws.between(low, high)
        sizes = [self.draws.between(1, most) for _ in range(high)][:rank]
        if sizes and not least and self.draws.rarely(8):
            sizes[self.draws.below(len(sizes))] = 0
        return tuple(max(least, n) for n in sizes)

    def dtype(self, options: Sequence[np.dtype]) -> np.dtype:
        """One of several dtypes, the first of them more often."""
        return self.draws.choice([options[0], options[0], options[0], *options])

    def dim(self, rank: int) -> int:
        """A dim, counted from the start or from the end."""
        return self.draws.below(rank) - (rank if self.draws.below(2) else 0)

    def dims(self, rank: int) -> int | tuple[int, ...] | None:
        """All dims, one or several."""
        kind = self.draws.choice(["all", "one", "several"]) if rank else "all"
        return None if kind == "all" else self.dim(rank) if kind == "one" else tuple(self.draws.some(range(rank)))

    def other_mesh(self, name: str = "other") -> DeviceMesh:
        """Another mesh, with a name for it; sometimes the same."""
        if not self.draws.below(3):
            return self.mesh
        mesh = draw_mesh(self.draws, self._most, self._among)
        if id(mesh) not in self._meshes:
            self._meshes[id(mesh)] = name
            self.names[name] = (mesh_code(mesh), mesh)
        return mesh

    def everyone(self) -> str:
        """The name of a mesh that every process has a device of."""
        ranks = self._among or 1 + max(device.id for device in self.mesh.devices)
        mesh = DeviceMesh((ranks,), ("everyone",))
        self.names["everyone"] = (mesh_code(mesh), mesh)
        return "everyone"

    def layout(self, shape: Shape, mesh: DeviceMesh | None = None, op: ReduceOp | None = None, **how: bool) -> Layout:
        """A layout of a shape on a mesh."""
        return draw_layout(self.draws, mesh or self.mesh, shape, op, **how)

    def name(self, layout: Layout, name: str = "layout") -> str:
        """A name for a layout, for the code of a call."""
        self.names[name] = (layout_code(layout, self._meshes[id(layout.mesh)]), layout)
        return name

    def mesh_name(self, mesh: DeviceMesh) -> str:
        """The name of a mesh in the code of a call."""
        return self._meshes[id(mesh)]

    # -- operands ----------------------------------------------------------------------------------

    def operand(
        self,
        shape: Shape,
        dtype: np.dtype,
        domain: Domain = "any",
        *,
        pending: bool = True,
        halo: bool = True,
        plain: bool = False,
        mesh: DeviceMesh | None = None,
        value: np.ndarray | None = None,
    ) -> str:
        """An operand in any layout, and its name."""
        op = None
        if pending and value is None and not self.draws.below(3):
            op = self.draws.choice([op for op in PENDING if op in reductions_of(dtype)])
        layout = self.layout(shape, mesh, op, halo=halo, plain=plain)
        terms: list[np.ndarray] = []
        if layout.partial:
            assert op is not None
            count = int(np.prod([axis.size for axis in layout.partial]))
            terms = draw_terms(self.draws, shape, dtype, op, count, domain)
            value = reduce_terms(terms, op)
        elif value is None:
            value = draw_values(self.draws, shape, dtype, domain)
        return self._add(Operand(value, layout, tuple(terms)))

    def given(self, shape: Shape, dtype: np.dtype, layout: Layout) -> str:
        """An operand in a layout that is known."""
        return self._add(Operand(draw_values(self.draws, shape, dtype), layout))

    def host(self, shape: Shape, dtype: np.dtype, domain: Domain = "any") -> str:
        """An array of the host."""
        return self._add(Operand(draw_values(self.draws, shape, dtype, domain)))

    def beside(self, shape: Shape, dtype: np.dtype, domain: Domain = "any", **how: Any) -> str:
        """Another operand: on the same mesh, on another, or an array of the host."""
        kind = self.draws.choice(["same", "same", "same", "same", "host", "other"])
        if kind == "host":
            return self.host(shape, dtype, domain)
        return self.operand(shape, dtype, domain, mesh=self.other_mesh() if kind == "other" else None, **how)

    def _add(self, operand: Operand) -> str:
        name = LETTERS[len(self.operands)]
        self.operands[name] = operand
        return name

    @property
    def values(self) -> list[np.ndarray]:
        """The global values of the operands."""
        return [operand.value for operand in self.operands.values()]

    @property
    def is_pending(self) -> bool:
        """Whether an operand has a pending reduction of rounded numbers."""
        return any(x.is_pending and not is_whole(x.value.dtype) for x in self.operands.values())

    # -- calls -------------------------------------------------------------------------------------

    def spell(self, function: str, *args: str, method: str | None = None) -> str:
        """The code of a call: of the function, or of the method with its name."""
        first = args[0] if args else ""
        if method and first in self.operands and self.operands[first].layout is not None and not self.draws.below(3):
            return f"{first}.{method}({', '.join(args[1:])})"
        return f"sw.{function}({', '.join(args)})"

    def call(self, code: str, oracle: Callable[..., Any], **how: Any) -> Call:
        """The call, exact unless something says otherwise."""
        if self.draws.rarely(5):  # an int is whatever can be an index
            code = re.sub(r"\b(axis|k|shift)=(-?\d+)\b", r"\1=np.int64(\2)", code)
        if ("flip(" in code or ":-" in code) and len(set(self.mesh.devices)) < self.mesh.num_devices:
            # Between processes that hold several slots dims are gathered to be mirrored: there alone more is sent.
            how["bytes"] = False
        call = Call(code, oracle, dict(self.operands), dict(self.names), **how)
        if self.is_pending:  # contributions add up to a zero of either sign
            call = replace(call, rule=replace(call.rule, signs=False))
        return call

    def in_local_view(self, call: Call) -> Call:
        """The same call inside `shard_map`, each device with values of its own."""
        mesh = self.mesh
        operands: dict[str, Operand] = {}
        for name, x in call.operands.items():
            rolled = [np.roll(x.value.ravel(), device).reshape(x.value.shape) for device in range(mesh.num_devices)]
            stack = np.stack(rolled).reshape(*mesh.mesh_shape, *x.value.shape)
            operands[name] = Operand(stack, self.layout(stack.shape, plain=True))
        names, lead = ", ".join(operands), ", ".join("0" * mesh.ndim)
        inner = call.code
        spec = f"P{mesh.axis_names}" if mesh.ndim > 1 else f"P({mesh.axis_names[0]!r})"
        new = ", ".join(["None"] * mesh.ndim)
        taken = ", ".join(f"{name}[{lead}]" for name in operands)
        result = f"(lambda {names}: {inner})({taken})"
        result = f"[y[{new}] for y in {result}]" if call.local == "many" else f"{result}[{new}]"
        code = f"shard_map(lambda {names}: {result}, mesh, {spec}, {spec})({names})"

        def each(function: Callable[..., Any]) -> Callable[..., Any]:
            def mapped(*stacks: np.ndarray) -> Any:
                flat = [stack.reshape(mesh.num_devices, *stack.shape[mesh.ndim :]) for stack in stacks]
                found = [function(*[np.asarray(stack[i]) for stack in flat]) for i in range(mesh.num_devices)]
                many = [list(map(np.asarray, one)) if call.local == "many" else [np.asarray(one)] for one in found]
                stacked = [np.stack(some).reshape(*mesh.mesh_shape, *some[0].shape) for some in zip(*many, strict=True)]
                return stacked if call.local == "many" else stacked[0]

            return mapped

        scale = each(call.scale) if call.scale is not None else None
        how: dict[str, Any] = {"scale": scale, "verify": None, "local": False}
        return replace(call, code=code, operands=operands, oracle=each(call.oracle), **how)


__all__ = ["Call", "P", "Setting", "is_float"]
