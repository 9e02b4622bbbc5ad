"""Functions written op by op and run on every device of a grid."""

from collections.abc import Callable, Sequence
from typing import Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Region, SSAValue

from shardwise.ir import execute_on_devices, verify
from shardwise.ir.passes.writer import Number, Writer
from shardwise.ir.shard import GridOp
from shardwise.layout.mesh import DeviceMesh


def mesh_named(*sizes: int) -> DeviceMesh:
    """The grid @g of these sizes, as a mesh."""
    return DeviceMesh(sizes, [f"axis{k}" for k in range(len(sizes))], name="g")


def module_written(
    mesh: DeviceMesh, write: Callable[..., Sequence[Number]], kinds: Sequence[Any] = ()
) -> tuple[ModuleOp, Writer]:
    """A module with one function, whose body `write(writer, *arguments)` writes and whose results it returns."""
    block = Block(arg_types=kinds)
    writer = Writer(block)
    made: list[SSAValue] = [writer.value(n) for n in write(writer, *block.args)]
    block.add_op(ReturnOp(*made))
    writer.finish(block)
    function = FuncOp("f", (list(kinds), [x.type for x in made]), Region(block))
    module = ModuleOp([GridOp(mesh.name, mesh.mesh_shape), function])
    verify(module)
    return module, writer


def run_written(
    mesh: DeviceMesh, write: Callable[..., Sequence[Number]], kinds: Sequence[Any] = (), inputs: Sequence[Any] = ()
) -> list[Any]:
    """What each device returns."""
    module, _ = module_written(mesh, write, kinds)
    return list(execute_on_devices(module, *inputs))
