"""Chains: where collectives move exactly the bytes of an exchange, those of fewest rounds are found and written."""

import random
from collections import Counter
from fractions import Fraction
from math import prod
from unittest.mock import patch

import pytest
from xdsl.dialects.builtin import ModuleOp

from shardwise.ir import print_module, verify
from shardwise.ir.passes import cost, partition, resharding
from shardwise.ir.passes.chains import find_chain
from shardwise.ir.passes.partitioning import partition_with_plans
from shardwise.layout.cut import Cut
from shardwise.layout.layout import Layout
from shardwise.plan.plan import plan_reshard
from shardwise.plan.steps import Step
from tests.ir.passes.chains import Collectives
from tests.ir.passes.devices import mesh_named
from tests.ir.passes.transitions import Split, check, module_of, shape_for, splits, transitions

SENDING = ("recv", "all_to_all", "all_gather", "all_reduce", "reduce_scatter")
EXAMPLE: tuple[Split, Split] = (((0,), (), (1,)), ((), (0,), ()))


def layout_of(grid: tuple[int, ...], split: Split) -> Layout:
    return Layout(mesh_named(*grid), [[f"axis{a}" for a in axes] for axes in split])


def exchange(grid: tuple[int, ...], shape: tuple[int, ...], src: Split, dst: Split) -> Step | None:
    steps = plan_reshard(layout_of(grid, src), layout_of(grid, dst), shape, "int32").steps
    return next((step for step in steps if step.kind in ("exchange", "permute")), None)


def sent_by(module: ModuleOp) -> Counter[str]:
    """How many ops of each kind send something."""
    names = Counter(op.name.removeprefix("shard.") for op in module.walk() if op.name.startswith("shard."))
    return Counter({name: names[name] for name in SENDING if names[name]})


# -- which chains there are ------------------------------------------------------------------------------


def check_fewest(grid: tuple[int, ...], rank: int, every: int, base: int = 0) -> Counter[int | None]:
    """Chains have as few rounds as any sequence; with a base, as any on the tensor with each dim as its digits."""
    size = prod(grid)
    shape, counts = (size,) * rank, Counter[int | None]()
    count = len(grid) if base else 1
    plain, fine = Collectives(grid, shape), Collectives(grid, (base,) * rank * count) if base else None
    for src in plain.splits[::every]:
        reached = plain.rounds_from(src)
        finer = fine.rounds_from(apart(src, count)) if fine else {}
        for dst in plain.splits:
            step = exchange(grid, shape, src, dst)
            if step is None:
                continue
            needed = Fraction(plain.needed(src, dst))
            wanted = [
                rounds for rounds in (reached.get((dst, needed)), finer.get((apart(dst, count), needed))) if rounds
            ]
            chain = find_chain(step, shape, "int32")
            if wanted:
                assert chain is not None
                assert chain.rounds <= min(wanted), (src, dst)
            if len(grid) == 2 and base:  # with more axes, some of them may be one digit
                assert (chain and chain.rounds) == min(wanted, default=None), (src, dst)
            counts[chain and chain.rounds] += 1
            if chain is not None:
                steps = chain.steps("int32")
                assert sum(part.received.total for part in steps if part.moves) == step.received.total
    return counts


def apart(split: Split, count: int) -> Split:
    """A sharding of the tensor of which each dim is seen as so many, each split by one axis."""
    return tuple(axes[k : k + 1] for axes in split for k in range(count))


@pytest.mark.parametrize(
    ("grid", "rank", "every", "base"),
    [
        ((2, 2), 2, 1, 2),
        ((3, 3), 1, 1, 3),
        ((2, 2, 2), 1, 4, 2),
        ((2, 3), 2, 1, 0),
        ((4, 2), 2, 1, 0),
        ((2, 2), 3, 7, 0),
    ],
)
def test_no_sequence_of_collectives_has_fewer_rounds(grid: tuple[int, ...], rank: int, every: int, base: int) -> None:
    counts = check_fewest(grid, rank, every, base)
    assert counts[None]
    assert counts[1]
    assert counts[2]


@pytest.mark.long
@pytest.mark.parametrize(
    ("grid", "rank", "every", "base"),
    [((2, 2, 2), 2, 10, 2), ((3, 3), 2, 1, 3), ((2, 2), 3, 1, 2), ((2, 4), 3, 1, 0), ((2, 3, 2), 2, 3, 0)],
)
def test_no_sequence_of_collectives_has_fewer_rounds_on_more_grids(
    grid: tuple[int, ...], rank: int, every: int, base: int
) -> None:
    assert check_fewest(grid, rank, every, base)[2]


def test_dims_that_differ_in_size_are_left_to_rounds() -> None:
    grid, (src, dst) = (2, 2), EXAMPLE
    for shape, found in {(4, 4, 4): True, (4, 4, 3): False, (3, 4, 4): False, (4, 5, 4): False}.items():
        step = exchange(grid, shape, src, dst)
        assert step is not None
        assert (find_chain(step, shape, "int32") is not None) == found


def test_a_dim_that_stays_may_differ_in_size() -> None:
    grid, src, dst = (2, 2, 3), ((0,), (), (1,), (2,)), ((), (0,), (), (2,))
    step = exchange(grid, (4, 4, 4, 7), src, dst)
    assert step is not None
    chain = find_chain(step, (4, 4, 4, 7), "int32")
    assert chain is not None
    assert chain.rounds == 2
    check(grid, (4, 4, 4, 7), src, dst)


def test_what_holds_nothing_is_left_as_it_is() -> None:
    for src, dst in (EXAMPLE, (((0, 1), (), ()), ((), (0,), ()))):
        step = exchange((2, 2), (4, 0, 4), src, dst)
        assert step is None or find_chain(step, (4, 0, 4), "int32") is None


def test_halos_and_offsets_are_left_to_rounds() -> None:
    mesh = mesh_named(2, 2)
    x, y = "axis0", "axis1"
    plain, target = [x, None, y], Layout(mesh, [None, x, None])
    for dim in (0, 2):
        for cut in (Cut(plain[dim], halo=(1, 1), edge="pad"), Cut(plain[dim], offsets=(0, 2, 4))):
            src = Layout(mesh, [cut if k == dim else entry for k, entry in enumerate(plain)])
            for step in plan_reshard(src, target, (4, 4, 4), "int32").steps:
                assert find_chain(step, (4, 4, 4), "int32") is None


def test_contributions_stay_apart_on_the_way() -> None:
    mesh, counts = mesh_named(2, 2, 2), Counter[bool]()
    for rank in (1, 2):
        shape = (8,) * rank
        for src, dst in transitions((2, 2), rank):
            before, after = (
                Layout(mesh, [[f"axis{a}" for a in axes] for axes in split], ["axis2"]) for split in (src, dst)
            )
            steps = plan_reshard(before, after, shape, "int32").steps
            if [step.kind for step in steps] not in (["exchange"], ["permute"]):
                continue
            chain, alone = find_chain(steps[0], shape, "int32"), exchange((2, 2), shape, src, dst)
            assert alone is not None
            without = find_chain(alone, shape, "int32")
            assert (chain and chain.rounds) == (without and without.rounds)
            counts[chain is not None] += 1
            axes = {str(axis) for layout in chain.layouts for axis in layout.sharded_axes} if chain else set[str]()
            assert axes <= {"axis0", "axis1"}
    assert counts[True] > 10
    assert counts[False] > 1


# -- what is written -------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [2, 3, 8, 32])
def test_an_exchange_is_an_all_to_all_and_an_all_gather(size: int) -> None:
    shape = (size,) * 3
    text = print_module(partition(module_of((size, size), shape, *EXAMPLE)))
    half = f"tensor<{size}x1x1xi32>"
    assert [line.strip() for line in text.splitlines() if "%" in line] == [
        f"func.func @f(%0: tensor<1x{size}x1xi32>) -> tensor<{size}x1x{size}xi32> {{",
        "%1 = shard.all_to_all %0 on @g grid_axes = [0] split_axis = 1 concat_axis = 0"
        f" : tensor<1x{size}x1xi32> -> {half}",
        f"%2 = shard.all_gather %1 on @g grid_axes = [1] gather_axis = 2 : {half} -> tensor<{size}x1x{size}xi32>",
        f"func.return %2 : tensor<{size}x1x{size}xi32>",
    ]


LARGE: dict[tuple[Split, Split], dict[str, int]] = {
    EXAMPLE: {"all_to_all": 1, "all_gather": 1},
    (((0,), (1,)), ((), (0,))): {"recv": 1, "all_gather": 1},
    (((1, 0), ()), ((), (1,))): {"all_to_all": 1, "all_gather": 1},
    (((0,), ()), ((), (0, 1))): {"all_to_all": 1},
    (((0, 1), ()), ((), (1,))): {"all_to_all": 1, "all_gather": 1},
    (((0, 1),), ((1,),)): {"recv": 1, "all_gather": 1},
    (((0,),), ((1, 0),)): {"recv": 1},
}


@pytest.mark.parametrize(("src", "dst"), LARGE)
def test_a_thousand_devices(src: Split, dst: Split) -> None:
    grid, shape = (32, 32), (32,) * 3 if len(src) == 3 else (1024,) * len(src)
    whole = module_of(grid, shape, src, dst)
    local = partition(whole)
    verify(local)
    total = plan_reshard(layout_of(grid, src), layout_of(grid, dst), shape, "int32").received.total
    assert cost(whole).total == cost(local).total == total
    assert sent_by(local) == LARGE[src, dst]


def test_a_thousand_devices_get_their_parts() -> None:
    check((32, 32), (32, 32, 32), *EXAMPLE)


@pytest.mark.long
@pytest.mark.parametrize(("src", "dst"), list(LARGE)[1:])
def test_a_thousand_devices_get_their_parts_otherwise(src: Split, dst: Split) -> None:
    check((32, 32), (1024, 32)[: len(src)] if src[-1] == () or len(src) == 1 else (1024,) * 2, src, dst)


def some_exchanges(seed: int, count: int) -> list[tuple[tuple[int, ...], tuple[int, ...], Split, Split]]:
    rng, out = random.Random(seed), []
    while len(out) < count:
        grid, rank = rng.choice([(2, 2), (2, 3), (4, 2), (2, 2, 2)]), rng.randint(1, 3)
        every = splits(len(grid), rank)
        src, dst, shape = rng.choice(every), rng.choice(every), shape_for(grid, rank, rng.random() < 0.8)
        if exchange(grid, shape, src, dst) is not None:
            out.append((grid, shape, src, dst))
    return out


def check_written(seed: int, count: int) -> Counter[str]:
    """Exchanges as they are written, run: right, by the bytes of the plan, in no more rounds than by messages alone."""
    kinds = Counter[str]()
    for grid, shape, src, dst in some_exchanges(seed, count):
        check(grid, shape, src, dst)
        whole = module_of(grid, shape, src, dst)
        made_of = partition_with_plans(whole)
        with patch.object(resharding, "find_chain", lambda *_: None):
            messages = partition(module_of(grid, shape, src, dst))
        planned = plan_reshard(layout_of(grid, src), layout_of(grid, dst), shape, "int32").received
        for costs in (cost(whole), cost(made_of.module)):
            assert costs.total == planned.total
            assert costs.received is not None
            assert costs.received >= planned.max
        own, others = sent_by(made_of.module), sent_by(messages)
        is_chain = own != others
        assert own.total() < others.total() if is_chain else own == others
        assert set(others) == {"recv"}
        if is_chain:  # the ops are the steps that costs list
            names = [line.name.replace("permute", "recv") for line in cost(whole).lines]
            assert sum(own.values()) >= len(names)
            assert set(names) == set(own)
        kinds.update(own.keys() if is_chain else ["messages"])
    return kinds


def test_exchanges_as_they_are_written() -> None:
    kinds = check_written(1, 24)
    assert min(kinds[name] for name in ("messages", "all_to_all", "all_gather")) > 1


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 12))
def test_many_exchanges_as_they_are_written(seed: int) -> None:
    check_written(seed, 400)
