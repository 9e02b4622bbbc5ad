"""Local shapes and offsets beside those of PyTorch, JAX and MLIR, wherever they can say the layout."""

import re
import subprocess
from collections.abc import Iterator
from itertools import product
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardwise import (
    CPU,
    Cut,
    DeviceMesh,
    Layout,
    P,
    Placement,
    PlacementMapping,
    Replicated,
    Sharded,
    shard_shape,
)
from tests.layout.strategies import Bound

SHAPES = [(16, 8), (10, 7), (3, 5), (1, 2), (0, 4), (9,), (8,), (8, 16, 3)]


@st.composite
def divisible(draw: st.DrawFn, mesh: DeviceMesh, rank: int) -> Bound:
    """Layouts by whole axes in any order, and shapes that they divide."""
    homes = {axis: draw(st.integers(-1, rank - 1)) for axis in draw(st.permutations(mesh.axis_names))}
    dims = [[axis for axis, home in homes.items() if home == dim] for dim in range(rank)]
    shape = [prod(map(mesh.axis_size, axes)) * draw(st.integers(1, 3)) for axes in dims]
    return Bound(Layout(mesh, dims), tuple(shape))


# -- PyTorch -----------------------------------------------------------------------------------------


def torch_cases(mesh: DeviceMesh) -> Iterator[tuple[tuple[int, ...], tuple[Placement, ...]]]:
    """Placements of a mesh as PyTorch cuts them: in chunks, by several axes only where they divide."""
    for shape in SHAPES:
        choices = [Replicated(), *(Sharded(dim, split="chunk") for dim in range(len(shape)))]
        for placements in product(choices, repeat=mesh.ndim):
            dims = [p.axis for p in placements if isinstance(p, Sharded)]
            sizes = [s for p, s in zip(placements, mesh.mesh_shape, strict=True) if isinstance(p, Sharded)]
            uneven = [d for d, s in zip(dims, sizes, strict=True) if shape[d] % prod(sizes)]
            if not any(dims.count(d) > 1 for d in uneven):
                yield shape, placements


@pytest.fixture
def torch_rank() -> Iterator[Any]:
    """Makes this process one rank of a world that is not there."""
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    def become(rank: int, world: int) -> None:
        if dist.is_initialized():
            dist.destroy_process_group()
        dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world)

    yield become
    if dist.is_initialized():
        dist.destroy_process_group()


@pytest.mark.parametrize("sizes", [(8,), (2, 4), (2, 2, 2), (3, 2)])
def test_shards_are_those_of_dtensor(sizes, torch_rank):
    import torch
    from torch.distributed.device_mesh import DeviceMesh as TorchMesh
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    mesh = DeviceMesh(sizes, ("a", "b", "c")[: len(sizes)])
    cases = list(torch_cases(mesh))
    assert len(cases) > 20
    for rank in range(mesh.num_devices):
        torch_rank(rank, mesh.num_devices)
        theirs = TorchMesh("cpu", torch.arange(mesh.num_devices).reshape(sizes))
        for shape, placements in cases:
            said = [Shard(p.axis) if isinstance(p, Sharded) else Replicate() for p in placements]
            local, offset = compute_local_shape_and_global_offset(shape, theirs, said)
            box = PlacementMapping(mesh, placements).to_layout(len(shape)).box(shape, rank)
            assert tuple(stop - start for start, stop in box) == local, (shape, placements)
            assert tuple(start for start, _ in box) == offset, (shape, placements)


@given(st.integers(0, 40), st.integers(1, 12))
def test_chunks_are_those_of_torch_chunk(size, parts):
    import torch

    layout = Layout(DeviceMesh((parts,), ("x",)), [Cut("x", split="chunk")])
    ours = [layout.local_shape((size,), device)[0] for device in range(parts)]
    theirs = [len(piece) for piece in torch.arange(size).chunk(parts)]
    # torch makes no empty pieces, except that nothing at all is one.
    assert [n for n in ours if n] == [n for n in theirs if n]


# -- JAX ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def jax_devices() -> list[Any]:
    """Eight CPU devices of JAX, which it has to be told of before it starts."""
    import jax

    config: Any = jax.config
    if config.jax_num_cpu_devices != 8:
        config.update("jax_platforms", "cpu")
        config.update("jax_num_cpu_devices", 8)
    return jax.devices("cpu")[:8]


@given(st.data())
def test_boxes_are_those_of_named_sharding(jax_devices, data):
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    sizes = data.draw(st.sampled_from([(8,), (2, 4), (4, 2), (2, 2, 2), (2, 1, 4)]))
    ids = data.draw(st.permutations(range(8)))
    names = ("a", "b", "c")[: len(sizes)]
    mesh = DeviceMesh(sizes, names, [CPU(i) for i in ids])
    layout, shape = data.draw(divisible(mesh, data.draw(st.integers(1, 3))))
    theirs = Mesh(np.array([jax_devices[i] for i in ids]).reshape(sizes), names)
    sharding = NamedSharding(theirs, PartitionSpec(*P.from_layout(layout)))
    expected = {
        device.id: tuple(s.indices(n)[:2] for s, n in zip(index, shape, strict=True))
        for device, index in sharding.devices_indices_map(shape).items()
    }
    assert {mesh.device(i).id: layout.box(shape, i) for i in range(8)} == expected
    assert shard_shape(shape, layout) == sharding.shard_shape(shape)


# -- MLIR --------------------------------------------------------------------------------------------


def annotated(layout: Layout, shape: tuple[int, ...]) -> str:
    """A function that does nothing but say how its argument is sharded, in the words of LLVM 19."""
    number = layout.mesh.axis_names.index
    axes = ", ".join(str([number(a.name) for a in cut.axes]) for cut in layout.dims)
    grid, kind = "x".join(map(str, layout.mesh.mesh_shape)), f"tensor<{'x'.join(map(str, shape))}xf32>"
    return f"""
        mesh.mesh @grid(shape = {grid})
        func.func @f(%0: {kind}) -> {kind} {{
          %1 = mesh.shard %0 to <@grid, [{axes}]> : {kind}
          %2 = mesh.shard %1 to <@grid, [{axes}]> annotate_for_users : {kind}
          return %2 : {kind}
        }}"""


@settings(max_examples=25)
@given(st.data())
def test_local_types_are_those_of_mlir(mlir_opt, data):
    sizes = data.draw(st.sampled_from([(8,), (2, 4), (2, 3, 4)]))
    mesh = DeviceMesh(sizes, ("a", "b", "c")[: len(sizes)])
    layout, shape = data.draw(divisible(mesh, data.draw(st.integers(1, 3))))
    command = [mlir_opt, "--pass-pipeline=builtin.module(func.func(mesh-spmdization))"]
    done = subprocess.run(command, input=annotated(layout, shape), capture_output=True, text=True, check=True)
    found = re.search(r"-> tensor<([0-9x]+)xf32>", done.stdout)
    assert found, done.stdout
    assert shard_shape(shape, layout) == tuple(map(int, found[1].split("x")))
