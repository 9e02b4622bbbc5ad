"""Convolution and its adjoints against the form they come from, summed element by element."""

from collections.abc import Iterator
from itertools import product
from random import Random
from typing import Any

import numpy as np
import pytest

from shardwise import Cut, DeviceMesh, Layout, P, asarray, conv, grad, jvp, shard
from shardwise.prim.arithmetic.convolve import Reached, convolve, correlate, deconvolve, reaching
from shardwise.prim.arithmetic.slides import Convolution, Slide
from tests.plan.cases import mesh_of

MESH = mesh_of(2, 2)


def slides(sizes: Any, widths: Any, strides: Any, dilations: Any, pads: Any) -> tuple[Slide, ...]:
    out = []
    for size, width, stride, dilation, (low, high) in zip(sizes, widths, strides, dilations, pads, strict=True):
        reach = (width - 1) * dilation + 1
        out.append(Slide(size, width, max(0, (size + low + high - reach) // stride + 1), stride, dilation, low))
    return tuple(out)


def terms(form: Convolution) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Every (index of x, index of w, index of y) whose values are multiplied."""
    inside = form.y[1] // form.groups
    for n, o in product(range(form.y[0]), range(form.y[1])):
        for c in range(form.w[1]):
            channel = o // inside * form.w[1] + c
            for t in product(*(range(s.result) for s in form.slides)):
                for k in product(*(range(s.width) for s in form.slides)):
                    at = tuple(i * s.stride + j * s.dilation - s.low for i, j, s in zip(t, k, form.slides, strict=True))
                    if all(0 <= i < s.size for i, s in zip(at, form.slides, strict=True)):
                        yield (n, channel, *at), (o, c, *k), (n, o, *t)


def oracle(form: Convolution, x: Any = None, w: Any = None, y: Any = None) -> np.ndarray:
    """What the missing one of three values is multiplied with."""
    known = [x, w, y]
    missing = next(i for i, value in enumerate(known) if value is None)
    one, two = (i for i in range(3) if i != missing)
    out = np.zeros((form.x, form.w, form.y)[missing])
    for term in terms(form):
        out[term[missing]] += known[one][term[one]] * known[two][term[two]]
    return out


def form_of(random: Random) -> Convolution:
    space, groups = random.choice([1, 1, 2]), random.choice([1, 1, 2])
    widths, strides, dilations = ([random.randint(1, n) for _ in range(space)] for n in (3, 3, 2))
    sizes = [random.randint(3, 8) for _ in range(space)]
    pads = [(random.randint(0, 3), random.randint(0, 3)) for _ in range(space)]
    found = slides(sizes, widths, strides, dilations, pads)
    batch, channels, outs = random.randint(1, 2), random.randint(1, 2), groups * random.randint(1, 2)
    return Convolution(
        (batch, groups * channels, *sizes),
        (outs, channels, *widths),
        (batch, outs, *(s.result for s in found)),
        found,
        groups,
    )


def cut(random: Random, rank: int) -> list[Any]:
    """Batch, channels or space by some axes, none of them twice."""
    dims: list[Any] = [()] * rank
    for axis in random.sample(["x", "y"], random.randint(0, 2)):
        k = random.randrange(rank)
        dims[k] = (*dims[k], axis)
    return dims


def some(shape: tuple[int, ...], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-3, 4, shape).astype("float64")


@pytest.mark.parametrize("seed", range(16))
def test_each_of_the_three_leaves_one_value_out_of_the_form(seed: int) -> None:
    random = Random(seed)
    form = form_of(random)
    x, w, y = (some(shape, seed + i) for i, shape in enumerate((form.x, form.w, form.y)))
    a, b, c = (shard(v, MESH, Layout(MESH, cut(random, v.ndim))) for v in (x, w, y))
    assert np.array_equal(convolve(a, b, form=form).numpy(), oracle(form, x=x, w=w))
    assert np.array_equal(deconvolve(b, c, form=form).numpy(), oracle(form, w=w, y=y))
    assert np.array_equal(correlate(a, c, form=form).numpy(), oracle(form, x=x, y=y))


@pytest.mark.parametrize("seed", range(4))
def test_derivatives_are_the_other_two(seed: int) -> None:
    random = Random(100 + seed)
    form = form_of(random)
    values = {"x": some(form.x, 1), "w": some(form.w, 2), "y": some(form.y, 3)}
    for row, names, made in ((convolve, "xw", "y"), (deconvolve, "wy", "x"), (correlate, "xy", "w")):
        operands = [shard(values[n], MESH, Layout(MESH, cut(random, values[n].ndim))) for n in names]
        weight = asarray(values[made])
        for i, name in enumerate(names):
            others = {n: values[n] for n in "xwy" if n != name}

            def loss(v: Any, i: int = i, row: Any = row, operands: Any = operands, weight: Any = weight) -> Any:
                return (row(*operands[:i], v, *operands[i + 1 :], form=form) * weight).sum()

            assert np.array_equal(grad(loss)(operands[i]).numpy(), oracle(form, **others))
        tangents = tuple(shard(2 * v.numpy(), MESH, v.layout) for v in operands)
        plain = dict(zip(names, (v.numpy() for v in operands), strict=True))
        _, pushed = jvp(lambda *vs, row=row: row(*vs, form=form), tuple(operands), tangents)
        assert np.array_equal(pushed.numpy(), 4 * oracle(form, **plain))


def test_a_slide_knows_what_it_reaches_and_what_reaches_it() -> None:
    for size, width, stride, dilation, low, high in product((4, 7), (1, 2, 3), (1, 2, 3), (1, 2), (0, 2), (0, 1)):
        (slide,) = slides([size], [width], [stride], [dilation], [(low, high)])
        pairs = {(t, t * stride + k * dilation - low) for t in range(-9, 20) for k in range(width)}
        reach = (width - 1) * dilation + 1
        for start in range(slide.result):
            for stop in range(start + 1, slide.result + 1):
                found = {i for t, i in pairs if start <= t < stop}
                assert slide.before(start, stop) == (min(found), max(found) + 1)
        for start in range(size):
            assert slide.after(start, start)[0] >= slide.after(start, start + 1)[0]
            for stop in range(start + 1, size + 1):
                # Where the kernel stands over them, if only with a gap.
                over = [t for t in range(-9, 20) if t * stride - low < stop and t * stride + reach - low > start]
                first, last = slide.after(start, stop)
                assert (first, last) == (over[0], over[-1] + 1) if over else first == last
        first, last = slide.before(2, 2)
        assert first == 2 * stride - low
        assert last >= first


@pytest.mark.parametrize(
    ("size", "wanted", "offsets", "halo"),
    [
        (8, [(-1, 5), (3, 9)], (0, 3, 8), (0, 2)),
        (8, [(0, 4), (4, 8)], (0, 4, 8), (0, 0)),
        (8, [(0, 3), (5, 8)], (0, 5, 8), (0, 0)),  # what lies between is wanted by nobody
        (9, [(-2, 4), (3, 7), (6, 11)], (0, 3, 6, 9), (0, 1)),
        (4, [(0, 2), (2, 4), (6, 8)], (0, 2, 4, 4), (0, 0)),
        (4, [(0, 1), (-3, -2), (1, 4)], (0, 0, 1, 4), (0, 1)),
        (5, [(0, 9)], (0, 5), (0, 0)),
    ],
)
def test_parts_hold_what_they_want_and_a_halo_after(size: int, wanted: Any, offsets: Any, halo: Any) -> None:
    got = reaching(Cut("x"), size, wanted)
    assert (got.axes, got.offsets, got.halo) == (("x",), offsets, halo)
    for part, (low, high) in enumerate(wanted):
        low, high = min(size, max(0, low)), min(size, high)
        assert offsets[part] <= low or low >= high
        assert part == len(wanted) - 1 or high <= offsets[part + 1] + halo[1]


def test_a_part_that_would_reach_over_its_neighbour_makes_the_dim_whole() -> None:
    assert reaching(Cut("x"), 6, [(0, 5), (2, 4), (4, 6)]) == Cut()  # 3 of a neighbour that has 2
    assert reaching(Cut("x"), 6, [(0, 4), (2, 4), (4, 6)]).halo == (0, 2)


def test_groups_are_not_torn_apart() -> None:
    (slide,) = slides([8], [3], [1], [1], [(1, 1)])
    mesh = DeviceMesh((2, 3), ("x", "y"))
    x, y = mesh.axis("x"), mesh.axis("y")
    for groups, axes, fits in (
        (4, (x,), True),
        (4, (y,), False),
        (4, (x, y), False),
        (6, (x, y), True),
        (1, (y,), True),
    ):
        form = Convolution((1, 12, 8), (12, 12 // groups, 3), (1, 12, 8), (slide,), groups)
        channels = [Cut(), Cut(axes), Cut()]
        found = Reached(form, "y").cuts([channels, [Cut(axes), Cut(), Cut()]], channels)
        assert (found is not None) == fits
    assert Reached(form, "x").shape == form.x
    assert Reached(form, "w").shape == form.w


@pytest.mark.parametrize("missing", ["x", "w", "y"])
def test_space_is_cut_where_the_result_or_what_it_is_made_of_is(missing: str) -> None:
    form = Convolution((1, 1, 8), (1, 1, 3), (1, 1, 8), slides([8], [3], [1], [1], [(1, 1)]), 1)
    space = [Cut(), Cut(), Cut((MESH.axis("x"),))]
    known = {"x": space, "w": [Cut()] * 3, "y": space}
    found = Reached(form, missing).cuts([known[c] for c in "xwy" if c != missing], known[missing])
    assert found is not None
    made = dict(zip((c for c in "xwy" if c != missing), found[0], strict=True)) | {missing: found[1]}
    axes = (MESH.axis("x"),)
    plain, wide = Cut(axes), Cut(axes, offsets=(0, 3, 8), halo=(0, 2))
    assert made["w"][2] == Cut()
    assert (made["x"][2], made["y"][2]) == ((plain, wide) if missing == "x" else (wide, plain))


def test_a_result_without_elements() -> None:
    form = Convolution((1, 1, 2), (1, 1, 3), (1, 1, 0), slides([2], [3], [1], [1], [(0, 0)]), 1)
    x, w = asarray(np.ones(form.x)), asarray(np.ones(form.w))
    got = convolve(x, w, form=form)
    assert got.shape == (1, 1, 0)
    assert np.array_equal(correlate(x, got, form=form).numpy(), np.zeros(form.w))
    assert np.array_equal(deconvolve(w, got, form=form).numpy(), np.zeros(form.x))


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("seed", [1, 4])
def test_small_floats_are_added_up_with_room(seed: int, dtype: str, library: str) -> None:
    random = Random(seed)
    form = form_of(random)
    x, w, y = (some(shape, seed + i) for i, shape in enumerate((form.x, form.w, form.y)))

    def given(value: np.ndarray) -> Any:
        small: Any = value.astype(dtype)
        if library == "torch":
            torch = pytest.importorskip("torch")
            small = torch.tensor(value).to(getattr(torch, dtype))
        return shard(small, MESH, Layout(MESH, [None] * value.ndim))

    a, b, c = map(given, (x, w, y))
    for made, want in (
        (convolve(a, b, form=form), oracle(form, x=x, w=w)),
        (deconvolve(b, c, form=form), oracle(form, w=w, y=y)),
        (correlate(a, c, form=form), oracle(form, x=x, y=y)),
    ):
        assert made.dtype == dtype
        assert np.array_equal(made.numpy().astype("float64"), want.astype(dtype).astype("float64"))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_many_small_floats_are_rounded_once(dtype: str) -> None:
    form = Convolution((1, 4000, 3), (1, 4000, 1), (1, 1, 3), slides((3,), (1,), (1,), (1,), [(0, 0)]), 1)
    x, w = np.ones((1, 4000, 3), dtype), np.ones((1, 4000, 1), dtype)
    made = convolve(shard(x, MESH, Layout(MESH, [None] * 3)), shard(w, MESH, Layout(MESH, [None] * 3)), form=form)
    assert made.numpy().astype("float64").ravel().tolist() == [float(np.array(4000).astype(dtype))] * 3


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_devices_without_a_part_of_the_result_make_nothing(library: str) -> None:
    torch = pytest.importorskip("torch")
    mesh = DeviceMesh((8,), ("x",))
    x, w = np.arange(5.0).reshape(1, 1, 5), np.ones((1, 1, 3))
    given = (torch.tensor(x), torch.tensor(w)) if library == "torch" else (x, w)
    got = conv(shard(given[0], mesh, P(None, None, "x")), shard(given[1], mesh, P()))
    assert got.type_text == "float64[1, 1, 3@x]"
    assert got.numpy().ravel().tolist() == [3.0, 6.0, 9.0]
