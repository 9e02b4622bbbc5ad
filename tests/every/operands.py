"""Operands: a global value, the layout that it is given in, and what each device holds of it."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from shardwise import Layout, Tensor, current_engine, from_shards
from tests.every.meshes import layout_code
from tests.layout.oracle import Box, held_box, position


@dataclass(frozen=True, eq=False)
class Operand:
    """A value and its layout; a host array where there is none. Several terms are the contributions to a reduction."""

    value: np.ndarray
    layout: Layout | None = None
    terms: tuple[np.ndarray, ...] = ()

    @property
    def is_pending(self) -> bool:
        """Whether devices hold contributions to it."""
        return self.layout is not None and bool(self.layout.partial)

    @property
    def size(self) -> np.ndarray:
        """How large the numbers are that it is the sum of, by element; those that are not finite do not count."""
        with np.errstate(all="ignore"):
            wide = [
                np.abs(x.astype("complex128" if x.dtype.kind == "c" else "float64"))
                for x in self.terms or (self.value,)
            ]
            return sum((np.where(np.isfinite(x), x, 0.0) for x in wide), np.zeros(self.value.shape))

    def shard(self, device: int) -> np.ndarray:
        """What a device holds, zeros where its halo is padded."""
        assert self.layout is not None
        terms = self.terms or (self.value,)
        at = position(self.layout.mesh, self.layout.partial, device)
        return part(terms[at], held_box(self.layout, self.value.shape, device))

    def make(self) -> Tensor | np.ndarray:
        """A new tensor on the current engine, from the shards of the devices in this process."""
        if self.layout is None:
            return self.value.copy()
        mesh = self.layout.mesh
        shards = {device: self.shard(device) for device in current_engine().addressable(mesh)}
        return from_shards(shards, mesh, self.layout, self.value.shape, dtype=self.value.dtype)

    def code(self, mesh: str) -> str:
        """The operand as Python text, given the name of its mesh."""
        if self.layout is None:
            return array_code(self.value)
        layout = layout_code(self.layout, mesh)
        if not self.is_pending:
            return f"shard({array_code(self.value)}, {mesh}, {layout})"
        shards = [array_code(self.shard(device)) for device in range(self.layout.mesh.num_devices)]
        return f"from_shards([{', '.join(shards)}], {mesh}, {layout}, {self.value.shape})"


def part(value: np.ndarray, box: Box) -> np.ndarray:
    """A box of an array, with zeros where it is outside."""
    out = np.zeros([stop - start for start, stop in box], value.dtype)
    inside = [(max(a, 0), max(max(a, 0), min(b, n))) for (a, b), n in zip(box, value.shape, strict=True)]
    target = tuple(slice(a - start, b - start) for (a, b), (start, _) in zip(inside, box, strict=True))
    out[(*target, ...)] = value[tuple(slice(a, b) for a, b in inside)]
    return out


def array_code(value: np.ndarray) -> str:
    """An array as Python text."""
    if not value.size:
        return f"np.zeros({value.shape}, {str(value.dtype)!r})"
    plain = value if value.dtype.kind in "biuc" else value.astype("float64")
    return f"np.array({_nested(plain.tolist())}).astype({str(value.dtype)!r})"


def _nested(item: Any) -> str:
    if isinstance(item, list):
        return f"[{', '.join(map(_nested, item))}]"
    if isinstance(item, complex):
        return f"complex({_nested(item.real)}, {_nested(item.imag)})"
    return repr(item).replace("nan", "np.nan").replace("inf", "np.inf")
