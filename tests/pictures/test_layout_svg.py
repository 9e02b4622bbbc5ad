"""Layouts as SVG: every device's box is there, with what it holds; texts never lie on each other."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwise import CPU, Cut, DeviceMesh, Layout, picture
from shardwise.pictures.palette import HUES, hue
from shardwise.pictures.unfolding import MOST_PARTS
from tests.layout.strategies import Bound, bound_layouts, meshes
from tests.pictures.scene import Scene, overlaps, read
from tests.pictures.test_text import named

MESH = DeviceMesh((2, 4), ("dp", "tp"))
BIG = DeviceMesh((64, 64, 256), ("x", "y", "z"))


def boxes(text: str) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(map(int, span.split(":"))) for span in text.split(",")) if text else ()


def drawn(layout: Layout, shape: tuple[int, ...]) -> Scene:
    return read(picture(layout, shape).svg)


@given(meshes(max_devices=24).flatmap(bound_layouts))
def test_every_device_has_its_box(case: Bound):
    layout, shape = case
    if any(dim.parts > MOST_PARTS for dim in layout.tiling(shape).dims):
        return
    found = {}
    for tile in drawn(layout, shape).of("tile"):
        if "..." in tile.data["devices"]:
            return
        for device in (device for group in named(tile.data["devices"]) for device in group):
            assert device not in found
            found[device] = tile
    assert sorted(found) == list(range(layout.mesh.num_devices))
    for device, tile in found.items():
        box, held = layout.box(shape, device), layout.held_box(shape, device)
        assert boxes(tile.data["box"]) == box
        assert f"[{', '.join(f'{a}:{b}' for a, b in box)}]" in tile.title
        assert boxes(tile.data.get("held", tile.data["box"])) == held
        assert any(word.text.endswith(tile.data["devices"]) for word in tile.words)


@given(meshes(max_devices=24).flatmap(bound_layouts))
def test_the_boxes_drawn_cover_the_tensor_once(case: Bound):
    layout, shape = case
    if any(dim.parts > MOST_PARTS for dim in layout.tiling(shape).dims):
        return
    seen: dict[tuple[int, ...], int] = {}
    for tile in drawn(layout, shape).of("tile"):
        for at in product(*(range(a, b) for a, b in boxes(tile.data["box"]))):
            seen[at] = seen.get(at, 0) + 1
    assert seen == dict.fromkeys(product(*map(range, shape)), 1)


@given(bound_layouts())
def test_texts_never_overlap_and_tiles_hold_theirs(case: Bound):
    scene = drawn(*case)
    assert not list(overlaps(scene))
    for tile in scene.of("tile"):
        left, top = min(r[0] for r in tile.rects), min(r[1] for r in tile.rects)
        right, bottom = max(r[0] + r[2] for r in tile.rects), max(r[1] + r[3] for r in tile.rects)
        assert all(left <= w.left and w.right <= right and top <= w.top and w.bottom <= bottom for w in tile.words)


@given(bound_layouts(), st.data())
def test_what_is_not_known_is_not_made_up(case: Bound, data: st.DataObject):
    layout, shape = case
    known = data.draw(st.booleans())
    sizes = [size if known or data.draw(st.booleans()) else f"n{dim}" for dim, size in enumerate(shape)]
    plain = [cut.offsets is None and cut.halo == (0, 0) for cut in layout.dims]
    found = picture(layout, sizes) if all(plain) else picture(layout)
    scene = read(found.svg)
    assert not list(overlaps(scene))
    if not all(plain):
        sizes = [None] * layout.rank
    for tile in scene.of("tile"):
        spans = tile.data["box"].split(",") if tile.data["box"] else []
        for dim, (span, size) in enumerate(zip(spans, sizes, strict=True)):
            told = isinstance(size, int) or layout.dims[dim].offsets is not None
            assert (":" in span) == told
        whole = all(":" in span for span in spans)
        assert ("held" in tile.data) == ("holds [" in tile.title) == (layout.has_halo and whole)


def styles(layout: Layout, shape: tuple[int, ...]) -> list[str]:
    return [rect[-1] for tile in drawn(layout, shape).of("tile") for rect in tile.rects]


def texts(layout: Layout, shape: tuple[int, ...]) -> list[str]:
    return [word.text for word in drawn(layout, shape).words]


def test_replicas_are_cards_and_contributions_have_their_sign():
    replicated = Layout(MESH, [None, "tp"])
    assert styles(replicated, (4, 8)).count("c0") == 2
    assert "cards: equal copies, replicated over dp" in texts(replicated, (4, 8))
    partial = Layout(MESH, ["dp", None], ["tp"])
    assert styles(partial, (4, 8)) == ["c0 pending", "c4 pending"]
    assert "Σ 0+1+2+3" in texts(partial, (4, 8))
    assert "Σ, dashed edge: contributions; the value is their sum over tp" in texts(partial, (4, 8))
    assert "max 0+1+2+3" in texts(Layout(MESH, ["dp", None], ["tp"], "max"), (4, 8))


def test_halos_and_padding_are_drawn_around_what_is_owned():
    clipped = Layout(MESH, [Cut("tp", halo=(1, 2))])
    assert styles(clipped, (12,)).count("halo") == 6
    assert "hatched: halo, held besides what is owned" in texts(clipped, (12,))
    assert {"0:3", "holds 0:5", "holds 2:8", "holds 8:12"} <= set(texts(clipped, (12,)))
    padded = Layout(MESH, [Cut("dp", halo=1, edge="pad"), None])
    found = styles(padded, (4, 4))
    assert (found.count("halo"), found.count("pad")) == (2, 2)
    assert "dotted: padding, outside the tensor" in texts(padded, (4, 4))


def test_corners_between_two_halos_are_drawn():
    layout = Layout(MESH, [Cut("dp", halo=1), Cut("tp", halo=1)])
    middle = drawn(layout, (4, 8)).of("tile")[1]
    assert [rect[-1] for rect in middle.rects].count("halo") == 5  # left, right, below and two corners


def test_empty_shards_are_dashed_and_say_so():
    layout = Layout(MESH, [Cut("tp", offsets=(0, 1, 5, 5, 10)), "dp"])
    tiles = {tile.data["devices"]: tile for tile in drawn(layout, (10, 8)).of("tile")}
    assert [word.text for word in tiles["2"].words] == ["2", "empty"]
    assert [rect[-1] for rect in tiles["2"].rects] == ["empty"]
    assert [word.text for word in tiles["3"].words] == ["3", "5×4"]


def test_larger_shards_are_drawn_larger():
    layout = Layout(MESH, [None, Cut("tp", offsets=(0, 100, 150, 500, 1000))])
    widths = [tile.rects[-1][2] for tile in drawn(layout, (1000, 1000)).of("tile")]
    assert widths[1] < widths[0] < widths[2] < widths[3]


def test_panels_are_labelled_with_their_slices():
    found = texts(Layout(MESH, ["dp", None, "tp"]), (4, 3, 8))
    assert "dim 0 by dp at 0:2" in found
    assert "dim 0 by dp at 2:4" in found


def test_devices_in_another_order_are_named():
    mesh = DeviceMesh((2,), ("x",), [CPU(1), CPU(0)])
    assert "0 is cpu:1, 1 is cpu:0" in texts(Layout(mesh, ["x"]), (4,))
    assert picture(Layout(mesh, ["x"]), (4,)).text.endswith("0 is cpu:1, 1 is cpu:0")


@pytest.mark.parametrize(
    ("layout", "shape"),
    [
        (Layout(BIG, ["x", "y", "z"]), (128, 128, 512)),
        (Layout(BIG, [("x", "y", "z"), None]), (2**20, 4)),
        (Layout(BIG, [None, "z"], ["x", "y"]), (8, 512)),
        (Layout(BIG, [Cut("x", halo=1), Cut("z", halo=1)]), (128, 512)),
        (Layout(DeviceMesh((2,) * 20, tuple("abcdefghijklmnopqrst")), list("abcdefghijklmnopqrst")), (2,) * 20),
    ],
    ids=str,
)
def test_a_million_devices_are_summed_up(layout, shape):
    found = picture(layout, shape)
    assert len(found.svg) < 400_000
    scene = read(found.svg)
    assert 0 < len(scene.of("tile")) <= 256
    assert scene.width < 1400
    assert "devices" not in vars(layout.mesh)
    assert not list(overlaps(scene))
    assert any("…" in word.text for word in scene.words)
    for tile in scene.of("tile"):
        first = int(tile.data["devices"].strip("(").split(",")[0].split("-")[0].split("+")[0].strip("()"))
        assert boxes(tile.data["box"]) == layout.box(shape, first)


def test_a_hue_is_never_all_that_is_said():
    scene = drawn(Layout(MESH, ["dp", "tp"]), (4, 8))
    assert len({rect[-1] for tile in scene.of("tile") for rect in tile.rects}) == len(HUES) == 8
    assert [tile.words[0].text for tile in scene.of("tile")] == [str(device) for device in range(8)]
    assert all(tile.title.startswith(f"device {k}: ") for k, tile in enumerate(scene.of("tile")))


def test_names_that_xml_does_not_have_are_marked():
    mesh = DeviceMesh((2,), ('<"&\x00\ud800',))
    (tile, _) = drawn(Layout(mesh, ['<"&\x00\ud800']), (4,)).of("tile")
    assert tile.data["box"] == "0:2"
    words = texts(Layout(mesh, ['<"&\x00\ud800']), (4,))
    assert r'[<"&\x00\ud800] of 4 on <"&\x00\ud800=2' in words  # as it is printed
    assert 'dim 0 by <"&\ufffd\ufffd' in words


def test_neighbours_have_different_hues():
    for shape in ((8, 8), (16, 16), (2, 4), (64, 64)):
        mesh = DeviceMesh(shape, ("x", "y"))
        for axis, device in product(("x", "y"), range(0, mesh.num_devices, 5)):
            group = mesh.group(device, axis)
            assert hue(group[0]) != hue(group[1])
