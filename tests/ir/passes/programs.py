"""Random programs on whole tensors of ints, with random annotations: axes in any order, uneven, halos, offsets."""

import random
from dataclasses import dataclass, field
from math import prod

import numpy as np

Shape = tuple[int, ...]
SIZES = (1, 2, 3, 4, 6, 8)


def tensor_text(shape: Shape) -> str:
    return f"tensor<{''.join(f'{n}x' for n in shape)}i32>"


@dataclass
class Program:
    """Writes a program op by op; each value may be annotated."""

    rng: random.Random
    grid: Shape
    details: bool  # halos and offsets too
    lines: list[str] = field(default_factory=list)
    values: dict[str, Shape] = field(default_factory=dict)
    raw: set[str] = field(default_factory=set)  # values without annotations
    count: int = 0

    def name(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def add(self, text: str, shape: Shape, annotate: bool = True) -> str:
        made = self.name()
        self.lines.append(f"{made} = {text}")
        return self.annotated(made, shape) if annotate else made

    def annotated(self, value: str, shape: Shape) -> str:
        if self.rng.random() < 0.4 and shape:
            sharding, made = self.sharding(shape), self.name()
            self.lines.append(f"{made} = shard.shard {value} to {sharding} : {tensor_text(shape)}")
            value = made
        self.values[value] = shape
        return value

    def sharding(self, shape: Shape) -> str:
        rng, axes = self.rng, list(range(len(self.grid)))
        rng.shuffle(axes)
        split: list[list[int]] = [[] for _ in shape]
        for axis in axes:
            if rng.random() < 0.7:
                split[rng.randrange(len(shape))].append(axis)
        extra = self.extra(shape, split) if self.details else ""
        made = self.name()
        self.lines.append(f"{made} = shard.sharding @g split_axes = {split} {extra}: !shard.sharding")
        return made

    def extra(self, shape: Shape, split: list[list[int]]) -> str:
        cuts = [(n, prod(self.grid[a] for a in axes)) for n, axes in zip(shape, split, strict=True) if axes]
        if not cuts or self.rng.random() < 0.4:
            return ""
        if self.rng.random() < 0.5:
            offsets = [sorted(self.rng.randint(0, n) for _ in range(parts - 1)) for n, parts in cuts]
            return f"sharded_dims_offsets = {[x for (n, _), o in zip(cuts, offsets, strict=True) for x in (0, *o, n)]} "
        halos = [self.rng.randint(0, n // parts) for n, parts in cuts for _ in range(2)]
        return f"halo_sizes = {halos} "

    # -- ops ---------------------------------------------------------------------------------------

    def pick(self, *shape: int, rank: int | None = None) -> tuple[str, Shape]:
        found = [(v, s) for v, s in self.values.items() if (not shape or s == shape) and rank in (None, len(s))]
        if found:
            value, size = self.rng.choice(found)
        else:
            size = shape or tuple(self.rng.choice(SIZES) for _ in range(rank if rank is not None else 2))
            numbers = np.arange(prod(size), dtype="int32").reshape(size) % 7
            dense = self.rng.choice([str(numbers.tolist()), "3"]) if size else "3"
            value = self.add(f"arith.constant dense<{dense}> : {tensor_text(size)}", size)
        if size and self.rng.random() < 0.2:
            sharding, made = self.sharding(size), self.name()
            if self.lines[-1].startswith("%") and value not in self.seen():
                self.lines.append(
                    f"{made} = shard.shard {value} to {sharding} annotate_for_users : {tensor_text(size)}"
                )
                return made, size
        return value, size

    def seen(self) -> set[str]:
        return {line.split(" = ")[0] for line in self.lines if "annotate_for_users" in line}

    def empty(self, shape: Shape) -> str:
        return self.add(f"tensor.empty() : {tensor_text(shape)}", shape, annotate=False)

    def step(self) -> None:
        getattr(self, self.rng.choice([n for n in dir(self) if n.startswith("op_")]))()

    def op_add(self) -> None:
        a, shape = self.pick()
        b, _ = self.pick(*shape) if shape else (a, shape)
        op = self.rng.choice(["addi", "subi", "maxsi", "muli"])
        self.add(f"arith.{op} {a}, {b} : {tensor_text(shape)}", shape)

    def op_matmul(self) -> None:
        a, (m, k) = self.pick(rank=2)
        b, (_, n) = self.pick(k, self.rng.choice(SIZES))
        c, _ = self.pick(m, n)
        kinds = f"{tensor_text((m, k))}, {tensor_text((k, n))}"
        out = tensor_text((m, n))
        self.add(f"linalg.matmul ins({a}, {b} : {kinds}) outs({c} : {out}) -> {out}", (m, n))

    def op_transpose(self) -> None:
        a, shape = self.pick()
        if not shape:  # on which LLVM 19 crashes
            return
        order = list(range(len(shape)))
        self.rng.shuffle(order)
        out = tuple(shape[k] for k in order)
        kinds = f"ins({a} : {tensor_text(shape)}) outs({self.empty(out)} : {tensor_text(out)})"
        self.add(f"linalg.transpose {kinds} permutation = {order}", out)

    def op_reduce(self) -> None:
        a, shape = self.pick()
        if not shape:
            return
        dims = sorted(self.rng.sample(range(len(shape)), self.rng.randint(1, len(shape))))
        out = tuple(n for k, n in enumerate(shape) if k not in dims)
        init, _ = self.pick(*out) if out else (self.add(f"arith.constant dense<2> : {tensor_text(())}", ()), ())
        op = self.rng.choice(["addi", "maxsi", "minsi", "muli"])
        kinds = f"ins({a} : {tensor_text(shape)}) outs({init} : {tensor_text(out)})"
        self.add(f"linalg.reduce {{ arith.{op} }} {kinds} dimensions = {dims}", out)

    def op_broadcast(self) -> None:
        a, shape = self.pick()
        at = self.rng.randint(0, len(shape))
        if len(shape) == 3:
            return
        out = (*shape[:at], self.rng.choice(SIZES), *shape[at:])
        kinds = f"ins({a} : {tensor_text(shape)}) outs({self.empty(out)} : {tensor_text(out)})"
        self.add(f"linalg.broadcast {kinds} dimensions = [{at}]", out)

    def op_collapse(self) -> None:
        a, shape = self.pick()
        if len(shape) < 2:
            return
        at = self.rng.randrange(len(shape) - 1)
        groups = [[k] for k in range(at)] + [[at, at + 1]] + [[k] for k in range(at + 2, len(shape))]
        out = tuple(prod(shape[k] for k in group) for group in groups)
        self.add(f"tensor.collapse_shape {a} {groups} : {tensor_text(shape)} into {tensor_text(out)}", out)

    def op_expand(self) -> None:
        a, shape = self.pick()
        if not shape or len(shape) == 3:
            return
        at = self.rng.randrange(len(shape))
        first = self.rng.choice([d for d in range(1, shape[at] + 1) if shape[at] % d == 0])
        out = (*shape[:at], first, shape[at] // first, *shape[at + 1 :])
        groups = [[k] for k in range(at)] + [[at, at + 1]] + [[k + 1] for k in range(at + 1, len(shape))]
        sizes = ", ".join(map(str, out))
        kinds = f"{tensor_text(shape)} into {tensor_text(out)}"
        self.add(f"tensor.expand_shape {a} {groups} output_shape [{sizes}] : {kinds}", out)

    def op_slice(self) -> None:
        a, shape = self.pick()
        if not shape:
            return
        whole = [self.rng.random() < 0.5 for _ in shape]
        sizes = tuple(n if w else self.rng.randint(1, n) for n, w in zip(shape, whole, strict=True))
        offsets = [self.rng.randint(0, n - s) for n, s in zip(shape, sizes, strict=True)]
        at = f"[{', '.join(map(str, offsets))}] [{', '.join(map(str, sizes))}] [{', '.join('1' for _ in sizes)}]"
        if self.rng.random() < 0.5:
            self.add(f"tensor.extract_slice {a}{at} : {tensor_text(shape)} to {tensor_text(sizes)}", sizes)
            return
        b, _ = self.pick(*sizes)
        self.add(f"tensor.insert_slice {b} into {a}{at} : {tensor_text(sizes)} into {tensor_text(shape)}", shape)

    def op_concat(self) -> None:
        a, shape = self.pick()
        if not shape:
            return
        dim = self.rng.randrange(len(shape))
        b, _ = self.pick(*shape)
        out = (*shape[:dim], 2 * shape[dim], *shape[dim + 1 :])
        if out[dim] > 12:
            return
        kinds = f"({tensor_text(shape)}, {tensor_text(shape)}) -> {tensor_text(out)}"
        self.add(f"tensor.concat dim({dim}) {a}, {b} : {kinds}", out)

    def op_generic(self) -> None:
        # A product of two tensors summed over one loop, with maps of its own.
        a, (m, k) = self.pick(rank=2)
        b, _ = self.pick(k)
        c, _ = self.pick(m)
        maps = "affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j)>, affine_map<(i, j) -> (i)>"
        kinds = f"{tensor_text((m, k))}, {tensor_text((k,))}"
        self.add(
            f"""linalg.generic {{indexing_maps = [{maps}], iterator_types = ["parallel", "reduction"]}}
  ins({a}, {b} : {kinds}) outs({c} : {tensor_text((m,))}) {{
  ^bb0(%p: i32, %q: i32, %s: i32):
    %t = arith.muli %p, %q : i32
    %u = arith.addi %s, %t : i32
    linalg.yield %u : i32
  }} -> {tensor_text((m,))}""",
            (m,),
        )


def program(seed: int, steps: int = 8, details: bool = True) -> tuple[str, list[np.ndarray]]:
    """A module of random ops, and its inputs."""
    rng = random.Random(seed)
    grid = rng.choice([(2,), (2, 3), (4, 2), (2, 2, 2), (1, 3)])
    made = Program(rng, grid, details)
    shapes = [tuple(rng.choice(SIZES) for _ in range(rng.randint(1, 3))) for _ in range(3)]
    made.values |= {f"%a{k}": shape for k, shape in enumerate(shapes)}
    for _ in range(steps):
        made.step()
    ends = rng.sample(sorted(made.values), min(3, len(made.values)))
    results = ", ".join(tensor_text(made.values[x]) for x in ends)
    lines = "\n  ".join(made.lines)
    arguments = ", ".join(f"%a{k}: {tensor_text(shape)}" for k, shape in enumerate(shapes))
    text = f"""
shard.grid @g(shape = {"x".join(map(str, grid))})
func.func @f({arguments}) -> ({results}) {{
  {lines}
  return {", ".join(ends)} : {results}
}}"""
    values = np.random.default_rng(seed)
    return text, [values.integers(-4, 5, shape, dtype="int32") for shape in shapes]
