"""The short forms of meshes, shapes and layouts, read back as they are printed in tables."""

from __future__ import annotations

import re
from typing import Any

from shardwise.errors import LayoutError, MeshError
from shardwise.layout.cut import Cut
from shardwise.layout.layout import Layout, Shape
from shardwise.layout.mesh import DeviceMesh
from shardwise.layout.placement import ReduceOp

FORM = "per dim the mesh axes that split it, or -: 'dp,tp', '[dp tp|-]', '[dp|-] sum(tp)'"

_PENDING = re.compile(r"(?P<dims>.*?)\s*\b(?P<op>\w+)\((?P<axes>[^()]*(?:\(\d+\)\d+[^()]*)*)\)", re.DOTALL)
_CUT = re.compile(
    r"(?P<axes>[^/±]*?)"
    r"(?:/(?P<split>chunk|offsets\((?P<offsets>[\d,\s]*)\)))?"
    r"(?:(?:±|\+-)\((?P<low>\d+),\s*(?P<high>\d+)\)(?P<edge>pad)?)?"
)


def read_mesh(text: str) -> DeviceMesh:
    """Return the mesh that `str(mesh)` describes.

    >>> read_mesh("dp=2, tp=4")
    DeviceMesh(dp=2, tp=4)
    """
    names, sizes = list[str](), list[int]()
    for part in filter(None, re.split(r"[,\s]+", text.strip())):
        name, equals, size = part.partition("=")
        if not equals or not size.isdecimal():
            raise MeshError(f"a mesh is written as axes with their sizes, such as dp=2,tp=4, got {part!r} in {text!r}.")
        names.append(name)
        sizes.append(int(size))
    if not names:
        raise MeshError(f"a mesh is written as axes with their sizes, such as dp=2,tp=4, got {text!r}.")
    return DeviceMesh(sizes, names)


def read_shape(text: str) -> Shape:
    """Return the shape that a text such as `1024x4096` gives; the empty text and `0-d` are a scalar's.

    >>> read_shape("1024x4096"), read_shape("0-d")
    ((1024, 4096), ())
    """
    if text.strip() in ("", "0-d"):
        return ()
    parts = [part.strip() for part in re.split("[x,]", text.strip())]
    if not all(part.isdecimal() for part in parts):
        raise LayoutError(f"a shape is written as sizes such as 1024x4096, got {text!r}.")
    return tuple(map(int, parts))


def read_layout(text: str, mesh: DeviceMesh, rank: int) -> Layout:
    """Return the layout that a text describes, for a tensor of `rank` dims.

    Dims are separated by commas or bars, the axes of one dim by spaces; `-` (or nothing) is a whole dim, and dims
    that are not mentioned are whole. After an axis may stand `/chunk`, `/offsets(0,3,8)` and a halo `±(1,1)`
    (or `+-(1,1)`), with `pad` behind it; at the end a reduction that is pending.

    >>> mesh = DeviceMesh((2, 4), ("dp", "tp"))
    >>> read_layout("tp dp, -", mesh, 2), read_layout("[tp/chunk|-] max(dp)", mesh, 2)
    (Layout(mesh(dp=2, tp=4), [('tp', 'dp'), None]),
     Layout(mesh(dp=2, tp=4), [Cut('tp', split='chunk'), None], partial=['dp'], reduce_op='max'))
    """
    dims, op, partial = _pending(text)
    inner = dims.strip()
    if inner.startswith("[") != inner.endswith("]"):
        raise LayoutError(f"brackets do not match in the layout {text!r}.\n  write {FORM}.")
    entries = _split_entries(inner.strip("[]"), text)
    if len(entries) > rank:
        raise LayoutError(f"the layout {text!r} has {len(entries)} dims, the shape has {rank}.\n  write {FORM}.")
    cuts = [_cut(entry, text) for entry in entries]
    for axis in (*(a for cut in cuts for a in cut.axes), *partial):
        mesh.axis(axis, f"the layout {text!r}")
    return Layout(mesh, [*cuts, *[None] * (rank - len(cuts))], partial, op)


def _pending(text: str) -> tuple[str, ReduceOp, list[Any]]:
    # A halo and offsets have brackets too: what is pending is a name that stands alone before its brackets.
    match = _PENDING.fullmatch(text.strip())
    if match is None or (match["dims"] and match["dims"][-1] in "/±"):
        return text, ReduceOp.SUM, []
    axes = [axis for axis in re.split(r"[,\s]+", match["axes"].strip()) if axis]
    return match["dims"], ReduceOp.of(match["op"]), axes


def _split_entries(text: str, whole: str) -> list[str]:
    # Commas inside brackets belong to offsets and halos.
    out, depth = [""], 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if depth < 0:
            break
        if letter in ",|" and depth == 0:
            out.append("")
        else:
            out[-1] += letter
    if depth:
        raise LayoutError(f"brackets do not match in the layout {whole!r}.\n  write {FORM}.")
    return [] if out == [""] else [entry.strip() for entry in out]


def _cut(entry: str, text: str) -> Cut:
    match = _CUT.fullmatch(entry)
    if match is None:
        raise LayoutError(f"{entry!r} in the layout {text!r} says nothing about a dim.\n  write {FORM}.")
    axes = () if match["axes"].strip() in ("", "-") else tuple(match["axes"].split())
    more: dict[str, Any] = {}
    if match["split"]:
        more["split"] = match["split"].partition("(")[0]
    if match["offsets"] is not None:
        more["offsets"] = [int(at) for at in match["offsets"].replace(",", " ").split()]
    if match["low"]:
        more |= {"halo": (int(match["low"]), int(match["high"])), "edge": match["edge"] or "clip"}
    return Cut(axes, **more)
