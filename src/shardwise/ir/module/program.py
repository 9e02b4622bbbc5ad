"""Programs: a module made ready to run, its functions and grids by name, and where in it an op stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, Operation, SSAValue

from shardwise.caches import cached_property
from shardwise.errors import ArgumentError, ProgramError, did_you_mean, seal
from shardwise.ir.module.values import DYNAMIC, Poisoned
from shardwise.ir.place import place_of
from shardwise.ir.shard import CollectiveOperation, ProcessLinearIndexOp, ProcessMultiIndexOp, UpdateHaloOp


@dataclass(frozen=True)
class Program:
    """The functions of a module, and the shape of each of its grids."""

    module: ModuleOp
    functions: Mapping[str, FuncOp]
    grids: Mapping[str, tuple[int, ...]]

    @cached_property
    def devices(self) -> int:
        """How many devices the largest grid has; one where there is no grid."""
        return max((prod(shape) for shape in self.grids.values()), default=1)

    def function(self, name: str | None) -> FuncOp:
        """Return the function of this name; without one `main`, or the first function that has a body."""
        known = [n for n, f in self.functions.items() if f.body.blocks]
        wanted = name if name is not None else "main" if "main" in known else next(iter(known), None)
        if wanted is None:
            raise ArgumentError("the module has no function with a body, so there is nothing to run.")
        if wanted not in known:
            raise ArgumentError(
                f"the module has no function @{wanted} with a body.\n"
                f"  functions: {', '.join('@' + n for n in known) or 'none'}{did_you_mean(wanted, known)}"
            )
        return self.functions[wanted]

    def body(self, function: FuncOp) -> Block:
        """Return the ops of a function."""
        if len(function.body.blocks) > 1:
            name = function.sym_name.data
            raise ProgramError(f"@{name} has several blocks, which cannot be run.\n  use scf.if and scf.for, not cf.")
        return function.body.block

    def grid(self, name: str, op: Operation) -> tuple[int, ...]:
        """Return the shape of a grid that an op names."""
        if name not in self.grids:
            known = ", ".join("@" + n for n in self.grids) or "none"
            raise ProgramError(f"{op_text(op)} names the grid @{name}, which the module does not have; grids: {known}.")
        return self.grids[name]


@seal
@dataclass(frozen=True, slots=True)
class Scope:
    """Where an op runs: in which program, on which device (None for the global view), and what values there are."""

    program: Program
    device: int | None = None
    depth: int = 0  # of calls
    values: dict[SSAValue, Any] = field(default_factory=dict[SSAValue, Any])

    def coordinates(self, shape: Sequence[int], op: Operation) -> tuple[int, ...]:
        """Return the multi-index of this device in a grid."""
        if self.device is None:
            raise ProgramError(
                f"{op_text(op)} is for one device of a grid, but the module runs on global values.\n"
                "  a module whose functions hold shard.shard is not partitioned: partition it, or leave the op out."
            )
        if self.device >= prod(shape):
            raise ProgramError(f"device {self.device} is not in the grid of {op_text(op)}, which is {list(shape)}.")
        return tuple(int(i) for i in np.unravel_index(self.device, tuple(shape)))


def program_of(module: ModuleOp, grids: Mapping[str, Sequence[int]] | None = None) -> Program:
    """Return a module made ready to run; `grids` gives the shapes of grids with open sizes."""
    shapes = {name: tuple(int(n) for n in shape) for name, shape in (grids or {}).items()}
    functions: dict[str, FuncOp] = {}
    known: dict[str, tuple[int, ...]] = {}
    for op in module.body.block.ops:
        if isinstance(op, FuncOp):
            functions[op.sym_name.data] = op
        elif op.name == "shard.grid":
            name = symbol(property_of(op, "sym_name"))
            known[name] = _grid_shape(name, ints(property_of(op, "shape")), shapes.pop(name, None))
    if shapes:
        unknown, listed = next(iter(shapes)), ", ".join("@" + n for n in known) or "none"
        raise ArgumentError(
            f"a shape was given for the grid @{unknown}, which the module does not have; grids: {listed}."
        )
    return Program(module, functions, known)


def _grid_shape(name: str, declared: tuple[int, ...], shape: tuple[int, ...] | None) -> tuple[int, ...]:
    text = "x".join("?" if n < 0 else str(n) for n in declared)
    if shape is None:
        if any(n < 0 for n in declared):
            raise ArgumentError(f"the grid @{name} is {text}: say how large, as in grids={{{name!r}: (2, 4)}}.")
        return declared
    if len(shape) != len(declared) or any(
        a not in (DYNAMIC, b) and a >= 0 for a, b in zip(declared, shape, strict=True)
    ):
        raise ArgumentError(f"the grid @{name} is {text}, which {shape} does not fit.")
    return shape


def is_partitioned(module: ModuleOp) -> bool:
    """Whether a module says what each device does, rather than what is done to whole tensors.

    >>> from shardwise.ir.text import parse_module
    >>> text = "func.func @f(%x: tensor<2xf32>) -> tensor<2xf32> { return %x : tensor<2xf32> }"
    >>> is_partitioned(parse_module(text))
    False
    """
    return any(is_local(op) for op in module.walk())


def is_local(op: Operation) -> bool:
    """Whether an op says what one device does."""
    return isinstance(op, CollectiveOperation | UpdateHaloOp | ProcessMultiIndexOp | ProcessLinearIndexOp)


# -- reading ops -----------------------------------------------------------------------------------------


def property_of(op: Operation, name: str) -> Any:
    """Return a property, or the attribute of older text, of an op; None if it has neither."""
    return op.properties.get(name, op.attributes.get(name))


def ints(attribute: Any) -> tuple[int, ...]:
    """Return the ints of an attribute that lists ints, whichever it is; an absent one lists none."""
    if attribute is None:
        return ()
    if hasattr(attribute, "get_values"):
        return tuple(int(n) for n in attribute.get_values())
    return tuple(integer(n) for n in attribute.data)


def ints_of(op: Operation, name: str) -> tuple[int, ...]:
    """Return the ints that a property of an op lists."""
    return ints(property_of(op, name))


def int_of(op: Operation, name: str) -> int:
    """Return the int that a property of an op is."""
    return integer(property_of(op, name))


def integer(attribute: Any) -> int:
    """Return the int of an attribute."""
    while not isinstance(attribute, int):
        attribute = attribute.value if hasattr(attribute, "value") else attribute.data
    return attribute


def symbol(attribute: Any) -> str:
    """Return the name that an attribute holds: a string or a reference to a symbol."""
    while not isinstance(attribute, str):
        attribute = attribute.root_reference if hasattr(attribute, "root_reference") else attribute.data
    return attribute


def fill_open(static: Sequence[int], dynamic: Sequence[Any]) -> tuple[int, ...]:
    """Return a list of constants in which the open places are filled with values, in order.

    >>> fill_open((3, -9223372036854775808, 5), [np.int64(4)])
    (3, 4, 5)
    """
    rest = iter(dynamic)
    return tuple(int(next(rest)) if n == DYNAMIC else int(n) for n in static)


def fill_lists(op: Operation, names: Sequence[str], dynamic: Sequence[Any]) -> list[tuple[int, ...]]:
    """Return several lists of an op as `mixed` does, whose open places are filled one list after the other."""
    rest = list(dynamic)
    lists = [ints_of(op, name) for name in names]
    return [fill_open(static, [rest.pop(0) for n in static if n == DYNAMIC]) for static in lists]


def kept_dims(sizes: Sequence[int], result: Sequence[int]) -> list[int]:
    """Return which dims of a slice its result has, if that has fewer: dims of size one are dropped, the first first.

    >>> kept_dims((1, 4, 1), (4, 1)), kept_dims((1, 1), (1,))
    ([1, 2], [0])
    """
    out: list[int] = []
    spare = len(sizes) - len(result)
    for k, size in enumerate(sizes):
        place = len(out)
        if spare and size == 1 and (place >= len(result) or result[place] != 1):
            spare -= 1
        else:
            out.append(k)
    return out


def op_text(op: Operation) -> str:
    """Return an op as errors name it: its name, its result and where it stands."""
    return f"{op.name}{_result_text(op)}{where(op)}"


def _result_text(op: Operation) -> str:
    names = [name for result in op.results if (name := name_of(result))]
    return f" ({', '.join(names)})" if names else ""


def require_defined(op: Operation, operands: Sequence[Any]) -> None:
    """Raise an error if an op would use a value that nothing has defined."""
    for x in operands:
        if isinstance(x, Poisoned):
            raise ProgramError(f"{op_text(op)} uses an undefined value: {x.origin} left it so.")


def name_of(value: SSAValue) -> str:
    """Return the name of a value in the text of the module, if it has one."""
    return f"%{value.name_hint}" if value.name_hint else ""


def where(op: Operation) -> str:
    """Return where an op stands: its line or, without lines, its function."""
    if place := place_of(op).line:
        return f" at line {place}"
    parent = op.parent_op()
    while parent is not None and not isinstance(parent, FuncOp):
        parent = parent.parent_op()
    return f" in @{parent.sym_name.data}" if parent is not None else ""
