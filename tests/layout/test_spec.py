"""Specs: `P`, `DimSpec` and `ShardingSpec`, and what they cannot say."""

import copy
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwise import (
    ArgumentError,
    BindingError,
    ConversionError,
    Cut,
    DeviceMesh,
    DimSpec,
    Layout,
    LayoutError,
    P,
    ReduceOp,
    ShardingSpec,
    mesh_context,
)
from tests.layout.strategies import bound_layouts

spec: Any = ShardingSpec  # lets the type checker pass wrong arguments
dim: Any = DimSpec
p: Any = P
MESH = DeviceMesh((2, 4), ("dp", "tp"))


@given(bound_layouts(plain=True))
def test_what_names_can_say_comes_back(case):
    layout = case.layout
    short = P.from_layout(layout)
    assert short.to_layout(layout.rank, layout.mesh) is layout
    assert eval(repr(short)) == short
    request = ShardingSpec.from_layout(layout)
    assert request.to_layout() is request.to_layout(layout.rank) is layout
    assert ShardingSpec.from_layout(request.to_layout()) == request
    for value in (short, request):
        for other in (copy.copy(value), copy.deepcopy(value), pickle.loads(pickle.dumps(value))):
            assert other == value
            assert hash(other) == hash(value)


@given(bound_layouts())
def test_what_names_cannot_say_is_refused(case):
    layout = case.layout
    odd = [dim for dim, cut in enumerate(layout.dims) if cut.split != "balanced" or any(cut.halo)]
    for target in (P, ShardingSpec):
        if not odd:
            target.from_layout(layout)
            continue
        with pytest.raises(ConversionError, match=f"dim {odd[0]} is cut with .*, which a {target.__name__}"):
            target.from_layout(layout)


@pytest.mark.parametrize(
    ("cut", "said"),
    [
        (Cut("tp", split="chunk"), "split='chunk'"),
        (Cut("dp", offsets=(0, 1, 5)), "offsets=(0, 1, 5)"),
        (Cut("tp", halo=(1, 0)), "halo=(1, 0)"),
        (Cut(halo=(1, 1), edge="pad"), "halo=(1, 1), edge='pad'"),
    ],
)
@pytest.mark.parametrize("kind", [P, ShardingSpec])
def test_the_refusal_names_what_would_be_lost(cut, said, kind):
    with pytest.raises(ConversionError) as caught:
        kind.from_layout(Layout(MESH, [None, cut]))
    assert str(caught.value) == (
        f"dim 1 is cut with {said}, which a {kind.__name__} cannot say: it has axis names only.\n"
        "  keep the Layout, or use placements such as Sharded(0, split='chunk')."
    )


def test_entries_have_one_form():
    assert p("dp", ["tp"], [], None) == P("dp", "tp", None, None)
    assert P(("dp", "tp")).entries == (("dp", "tp"),)
    short = P("dp", None)
    assert (len(short), list(short), short[0], short[-1]) == (2, ["dp", None], "dp", None)
    assert short != ("dp", None)
    assert repr(P()) == "P()"


def test_unreduced_axes_are_a_set_with_reductions():
    sums = P(None, unreduced=["tp", "dp"])
    same = [
        P(None, unreduced=("dp", "tp")),
        P(None, unreduced={"tp": "sum", "dp": ReduceOp.SUM}),
        p(None, unreduced={"dp", "tp"}),
    ]
    assert all(other == sums and hash(other) == hash(sums) for other in same)
    assert repr(sums) == "P(None, unreduced=('dp', 'tp'))"
    assert repr(P(unreduced={"tp": "max"})) == "P(unreduced={'tp': 'max'})"
    assert P(unreduced="tp") == P(unreduced=["tp"])
    assert p(unreduced=[("tp", "max")]) == P(unreduced={"tp": "max"})
    assert sums != P(None, unreduced=["tp"])


def test_missing_entries_mean_whole_dims():
    assert P("tp").to_layout(3, MESH) is Layout(MESH, ["tp", None, None])
    assert ShardingSpec(MESH, [DimSpec(["tp"])]).to_layout(3) is Layout(MESH, ["tp", None, None])
    with mesh_context(MESH):
        assert P("tp").to_layout(1).mesh is MESH


def test_hints_stay_in_the_spec():
    hinted = ShardingSpec(MESH, [DimSpec(["tp"], is_open=True, priority=2)], ["dp"])
    assert hinted.to_layout() is Layout(MESH, ["tp"])
    assert hinted.replicated_axes == frozenset({"dp"})
    assert spec(MESH, [DimSpec(["tp"], True, 2)], iter(["dp"])) == hinted
    assert spec(MESH, [DimSpec(["tp"], True, 2)], "dp") == hinted
    assert hinted != ShardingSpec(MESH, [DimSpec(["tp"])])
    moved = hinted.to_mesh(DeviceMesh((4, 2, 3), ("tp", "dp", "pp")))
    assert moved.dim_specs == hinted.dim_specs
    assert moved.replicated_axes == hinted.replicated_axes
    assert moved.to_layout().mesh.axis_names == ("tp", "dp", "pp")


def test_a_spec_does_not_change():
    short: Any = P("tp")
    with pytest.raises(AttributeError) as caught:
        short.entries = ()
    assert str(caught.value) == "a P does not change; make a new one instead of setting 'entries'."


@given(st.permutations(["dp", "tp"]))
def test_the_order_of_axes_is_kept(order):
    assert P(tuple(order)).to_layout(1, MESH).dims[0].axes == tuple(map(MESH.axis, order))


AXES = "\n  mesh axes: dp=2, tp=4"
ERRORS = [
    (
        lambda: p("pt", None).to_layout(2, MESH),
        LayoutError,
        f"unknown mesh axis 'pt' in P('pt', None).{AXES}\n  did you mean 'tp'?",
    ),
    (
        lambda: p("dp", unreduced=["pt"]).to_layout(2, MESH),
        LayoutError,
        f"unknown mesh axis 'pt' in P('dp', unreduced=('pt',)).{AXES}\n  did you mean 'tp'?",
    ),
    (
        lambda: p("dp", None).to_layout(1, MESH),
        BindingError,
        "P('dp', None) has 2 entries, the tensor has 1 dims.",
    ),
    (
        lambda: p("dp", "dp").to_layout(2, MESH),
        LayoutError,
        "mesh axis 'dp' is used twice in ['dp', 'dp'].\n  each mesh axis may split one dim, or be partial, once.",
    ),
    (
        lambda: p(3),
        ArgumentError,
        "an entry of a spec is None, an axis name or a tuple of axis names, got 3.",
    ),
    (
        lambda: p({"dp"}),
        ArgumentError,
        "an entry of a spec is None, an axis name or a tuple of axis names, got {'dp'}.",
    ),
    (
        lambda: p(("dp", None)),
        ArgumentError,
        "an entry of a spec is None, an axis name or a tuple of axis names, got ('dp', None).",
    ),
    (lambda: p(unreduced=[3]), ArgumentError, "an unreduced axis is given by its name, got 3."),
    (
        lambda: p(unreduced=[MESH.axis("dp")]),
        ArgumentError,
        "an unreduced axis is given by its name, got dp.",
    ),
    (
        lambda: p(unreduced=3),
        ArgumentError,
        "unreduced axes are a list of names, or a dict to reductions, got 3.",
    ),
    (
        lambda: p(unreduced={"dp": "maxx"}),
        LayoutError,
        "unknown reduction 'maxx'.\n  reductions: sum, avg, min, max, prod, band, bor, bxor\n  did you mean 'max'?",
    ),
    (lambda: dim(["dp"], is_open=1), ArgumentError, "DimSpec.is_open is a bool, got 1."),
    (lambda: dim(["dp"], priority=True), ArgumentError, "DimSpec.priority is an int, got True."),
    (lambda: dim(["dp"], priority=-1), LayoutError, "DimSpec.priority is 0 (first) or more, got -1."),
    (lambda: spec(3, []), ArgumentError, "ShardingSpec needs a DeviceMesh, got 3."),
    (
        lambda: spec(MESH, ["dp"]),
        ArgumentError,
        "ShardingSpec needs one DimSpec per dim, got 'dp'; write DimSpec(['dp']).",
    ),
    (
        lambda: spec(MESH, DimSpec(["dp"])),
        ArgumentError,
        "ShardingSpec needs a list with one DimSpec per dim, got DimSpec(axes=('dp',), is_open=False, priority=0).",
    ),
    (
        lambda: spec(MESH, [dim(["dp"])], ["dp"]),
        LayoutError,
        "mesh axis 'dp' is used twice in [dp] with replicated_axes=['dp'].\n"
        "  each mesh axis may split one dim, or be partial, once.",
    ),
    *(
        (
            lambda names=names: spec(MESH, [dim(["dp"])], names),
            LayoutError,
            "mesh axis 'dp' is used twice in [dp] with replicated_axes=['dp', 'tp', 'tp:(1)2', 'tp:(2)2'].\n"
            "  each mesh axis may split one dim, or be partial, once.",
        )
        for names in ({"tp:(2)2", "dp", "tp", "tp:(1)2"}, ["tp:(1)2", "tp", "tp:(2)2", "dp"])
    ),
    (
        lambda: spec(MESH, [dim(["pt"])]),
        LayoutError,
        f"unknown mesh axis 'pt' in ShardingSpec of [['pt']].{AXES}\n  did you mean 'tp'?",
    ),
    (lambda: spec(MESH, [], [1]), ArgumentError, "replicated_axes are names of mesh axes, got [1]."),
    (lambda: spec(MESH, [], 1), ArgumentError, "replicated_axes are names of mesh axes, got 1."),
    (
        lambda: spec(MESH, [], ["pt"]),
        LayoutError,
        f"unknown mesh axis 'pt' in replicated_axes.{AXES}\n  did you mean 'tp'?",
    ),
    (
        lambda: spec(MESH, [dim(), dim()]).to_layout(1),
        BindingError,
        "ShardingSpec of [[], []] has 2 entries, the tensor has 1 dims.",
    ),
    (
        lambda: spec(MESH, [], [], {"dp": "sum", "tp": "max"}),
        LayoutError,
        "two different reductions are pending in [] with partial dp (sum), tp (max).\n"
        "  resolve one before making the other.",
    ),
]


@pytest.mark.parametrize(("action", "kind", "text"), ERRORS)
def test_errors_say_what_was_got_and_what_there_is(action, kind, text):
    with pytest.raises(kind) as caught:
        action()
    assert type(caught.value) is kind
    assert str(caught.value) == text


def test_a_spec_without_a_mesh_takes_that_of_the_context():
    mesh = DeviceMesh((2,), ("x",))
    with mesh_context(mesh):
        assert ShardingSpec(None, [DimSpec(["x"])]).mesh is mesh  # type: ignore[arg-type]
