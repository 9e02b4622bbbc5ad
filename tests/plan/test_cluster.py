"""Clusters: who shares a node is found by looking at all devices, and figures are the published ones by arithmetic."""

from itertools import permutations
from math import prod
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwise import CPU, ArgumentError, DeviceMesh, Link, Links, MeshError, P, PlanError, mesh_context, plan_reshard
from shardwise.plan import cluster
from shardwise.plan.cluster import CLUSTERS, Cluster

NAMES = ("a", "b", "c")


def of_node(node: int) -> Cluster:
    return Cluster("for a test", node, Link(1e-6, 1e11), Link(1e-5, 1e10), 1e12, ())


def groups_share_a_node(mesh: DeviceMesh, axis: str, node: int) -> bool:
    """Whether all neighbours along an axis share a node, by the numbers of all devices."""
    return all(len({mesh.devices[i].id // node for i in group}) == 1 for group in mesh.groups(axis))


@st.composite
def meshes(draw) -> DeviceMesh:
    shape = draw(st.lists(st.sampled_from([1, 2, 3, 4, 6, 8]), min_size=1, max_size=3))
    mesh = DeviceMesh(shape, NAMES[: len(shape)])
    kind = draw(st.sampled_from(["plain", "turned", "part", "later", "list"]))
    if kind == "turned":
        mesh = mesh.transpose(*draw(st.permutations(mesh.axis_names)))
    if kind == "part" and mesh.ndim > 1:
        mesh = mesh.fix({mesh.axis_names[0]: draw(st.integers(0, shape[0] - 1))})
    if kind == "later":
        first = draw(st.integers(0, 9))
        mesh = DeviceMesh(shape, mesh.axis_names, [CPU(first + i) for i in range(mesh.num_devices)])
    if kind == "list":
        order = draw(st.permutations(range(min(mesh.num_devices, 12))))
        more = range(len(order), mesh.num_devices)
        mesh = DeviceMesh(shape, mesh.axis_names, [CPU(i) for i in (*order, *more)])
    return mesh


@given(meshes(), st.sampled_from([1, 2, 3, 4, 6, 8, 12, 72]))
def test_axes_inside_share_a_node_and_no_larger_ones_do(mesh: DeviceMesh, node: int) -> None:
    inside, across = of_node(node).axes_inside(mesh)
    assert prod(a.size for a in (*inside, *across)) == mesh.num_devices
    mesh.rest((*inside, *across))  # which refuses axes that overlap
    for axis in inside:
        assert groups_share_a_node(mesh, str(axis), node)
    for axis in across:  # no neighbours along it, or along an inner part of it, could have been inside
        prime = next(p for p in (2, 3, 5, 7) if axis.size % p == 0)
        least = f"{axis.name}:({axis.pre * axis.size // prime}){prime}"
        assert not groups_share_a_node(mesh, least, node)


@given(meshes(), st.sampled_from([1, 2, 3, 4, 6, 8, 12, 72]))
def test_the_formula_for_large_meshes_claims_nothing_that_is_not_so(mesh: DeviceMesh, node: int) -> None:
    exact, _ = of_node(node).axes_inside(mesh)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster, "LISTED", 0)
        inside, across = of_node(node).axes_inside(mesh)
    assert prod(a.size for a in (*inside, *across)) == mesh.num_devices
    assert all(groups_share_a_node(mesh, str(axis), node) for axis in inside)
    if mesh == DeviceMesh(mesh.mesh_shape, mesh.axis_names) and mesh.num_devices > node:
        assert inside == exact


def test_a_million_devices_cost_what_eight_cost() -> None:
    mesh = DeviceMesh((64, 64, 256), ("x", "y", "z"))
    inside, across = CLUSTERS["dgx-h100"].axes_inside(mesh)
    assert (str(inside), str(across)) == ("(z:(32)8,)", "(x, y, z:(1)32)")
    assert "devices" not in vars(mesh)  # nobody has listed them


def test_every_order_of_three_axes() -> None:
    mesh = DeviceMesh((2, 4, 8), NAMES)
    for order in permutations(NAMES):
        inside, _ = CLUSTERS["dgx-a100"].axes_inside(mesh.transpose(*order))
        assert [str(axis) for axis in inside] == ["c"]


def test_links_of_a_cluster() -> None:
    mesh = DeviceMesh((4, 16), ("dp", "tp"))
    h100 = CLUSTERS["dgx-h100"]
    links = Links.cluster("dgx-h100", mesh)
    axes = {"dp": h100.across, "tp:(1)2": h100.across, "tp:(2)8": h100.inside}
    assert links == Links(axes, h100.across, h100.compute)
    links.check(mesh)
    assert links.on(mesh, [mesh.axis("tp")]) == [(2, h100.across), (8, h100.inside)]
    alone = Links.cluster("dgx-h100", DeviceMesh((8,), ("tp",)))
    assert (alone.axes, alone.default) == ((("tp", h100.inside),), h100.inside)
    with mesh_context(mesh):
        assert Links.cluster("dgx-h100") == links
    with pytest.raises(MeshError, match="no mesh was given"):
        Links.cluster("dgx-h100")


def test_a_plan_reduces_inside_the_node_first() -> None:
    mesh = DeviceMesh((4, 8), ("dp", "tp"))
    plan = plan_reshard(
        P(unreduced=["dp", "tp"]), P(), (4096, 4096), "float32", mesh=mesh, links=Links.cluster("dgx-h100", mesh)
    )
    assert str(plan.steps[0]) == "reduce_scatter over tp"


def test_unknown_clusters_list_those_that_exist() -> None:
    mesh = DeviceMesh((8,), ("x",))
    with pytest.raises(PlanError) as caught:
        Links.cluster("tpu-v5", mesh)
    text = str(caught.value)
    assert text.startswith("there is no cluster 'tpu-v5'.\n  clusters: dgx-a100, dgx-h100,")
    assert all(name in text for name in CLUSTERS)
    with pytest.raises(ArgumentError, match="a cluster is given by its name, such as 'dgx-h100', got 8"):
        Links.cluster(8, mesh)  # type: ignore[arg-type]


def test_bandwidths_are_the_published_ones() -> None:
    def both(name: str) -> tuple[float, float]:
        return CLUSTERS[name].inside.bandwidth, CLUSTERS[name].across.bandwidth

    # NVLinks of a GPU, times bytes per second each way; ports of InfiniBand in bits.
    assert both("dgx-a100") == (12 * 25e9, 200e9 / 8)
    assert both("dgx-h100") == (18 * 25e9, 400e9 / 8)
    assert both("dgx-b200") == both("gb200-nvl72") == (18 * 50e9, 400e9 / 8)
    # All of the rack together and both ways: 130 TB/s.
    assert 72 * 2 * CLUSTERS["gb200-nvl72"].inside.bandwidth == pytest.approx(130e12, rel=0.01)
    # Of all ICI of a chip and both ways, what comes in along one of 3 or 2 axes; the data centre network of a pod.
    assert both("tpu-v5p") == (1200e9 / 2 / 3, 50e9 / 8)
    assert both("tpu-v5e") == (400e9 / 2 / 2, 6.4e12 / 256 / 8)
    assert both("tpu-v4") == (2 * 4.5e10, 2.5e10 / 4)  # four chips a host
    assert [both(f"ethernet-{bits}g") for bits in (10, 25, 100)] == [(b * 1e9 / 8,) * 2 for b in (10, 25, 100)]


def test_devices_of_a_node_and_their_operations_are_the_published_ones() -> None:
    nodes = {name: CLUSTERS[name].node for name in CLUSTERS}
    assert nodes["dgx-a100"] == nodes["dgx-h100"] == nodes["dgx-b200"] == 8
    assert (nodes["tpu-v4"], nodes["tpu-v5e"], nodes["tpu-v5p"]) == (16**3, 16**2, 16 * 20 * 28)
    petaflops = {name: 2 * CLUSTERS[name].compute * CLUSTERS[name].node / 1e15 for name in CLUSTERS}
    assert petaflops["dgx-a100"] == pytest.approx(5 / 2, rel=0.01)  # 5 with sparsity
    assert petaflops["dgx-h100"] == pytest.approx(32 / 4, rel=0.02)  # 32 in FP8 with sparsity
    assert petaflops["dgx-b200"] == pytest.approx(72 / 4, rel=0.01)  # 72 in FP8 with sparsity
    assert petaflops["tpu-v4"] == pytest.approx(1.1e3, rel=0.03)
    assert petaflops["tpu-v5e"] == pytest.approx(50.63, rel=0.01)


def test_inside_is_never_slower_and_every_figure_has_a_source() -> None:
    for name, kind in CLUSTERS.items():
        assert kind.inside.bandwidth >= kind.across.bandwidth, name
        assert kind.inside.latency <= kind.across.latency, name
        assert kind.sources, name
        assert all(kind.sources), name
        assert kind.title


def test_the_page_has_a_row_for_every_cluster() -> None:
    page = (Path(__file__).parents[2] / "docs" / "links.md").read_text(encoding="utf-8")
    for name, kind in CLUSTERS.items():
        gigabytes = [f"{link.bandwidth / 1e9:.4g} GB/s" for link in (kind.inside, kind.across)]
        inside = f"{kind.node} devices, {gigabytes[0]}" if kind.node > 1 else "1 device"
        assert f"| `{name}` | {inside} | {gigabytes[1]} |" in page, name
        assert all(source.partition(",")[0] in page for text in kind.sources for source in text.split("; ")), name
