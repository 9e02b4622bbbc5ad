"""Link files: links as they are saved, and read back with every field looked at."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import isfinite
from pathlib import Path
from typing import Any, TypeAlias

from shardwise.errors import ArgumentError, PlanError, did_you_mean, printable, seal
from shardwise.layout.axis import SUB_AXIS
from shardwise.plan.link import Link

FORMAT, VERSION = "shardwise links", 1
MOST_BYTES = 1 << 20  # of a file: more is none of ours
MOST_SHOWN = 60  # characters of what a file says in an error
FIELDS = ("format", "version", "axes", "default", "compute", "origin")
NUMBERS = ("latency", "bandwidth", "overhead")
PathLike: TypeAlias = "str | os.PathLike[str]"


@seal
@dataclass(frozen=True, slots=True)
class Origin:
    """Where measured links come from: when, on which hosts, with which version and mesh, and how well they fit.

    `factor` is by how much the times that the links predict differ from those that were measured, in the geometric
    mean.

    >>> Origin("2026-01-02T03:04:05Z", ("host",), "0.1.0", "x=4", (1024, 65536), 7, 1.2).mesh
    'x=4'
    """

    when: str
    hosts: tuple[str, ...]
    shardwise: str
    mesh: str
    sizes: tuple[int, ...]
    repeats: int
    factor: float


@dataclass(frozen=True)
class LinkRecord:
    """What a file of links says."""

    axes: Mapping[str, Link]
    default: Link
    compute: float
    origin: Origin | None


def write_links(path: PathLike, record: LinkRecord) -> None:
    """Write links to a file."""
    origin = record.origin
    told = {} if origin is None else {"origin": {f.name: getattr(origin, f.name) for f in fields(origin)}}
    content = {
        "format": FORMAT,
        "version": VERSION,
        **told,
        "axes": {name: _numbers(link) for name, link in record.axes.items()},
        "default": _numbers(record.default),
        "compute": float(record.compute),
    }
    name = _name(path)
    try:
        text = json.dumps(content, indent=2, allow_nan=False)
    except ValueError:
        raise PlanError(f"{name}: links with infinite numbers cannot be saved.") from None
    try:
        Path(path).write_text(text + "\n", encoding="utf-8")
    except (OSError, ValueError) as error:
        raise PlanError(f"{name} cannot be written: {_why(error)}.") from None


def read_links(path: PathLike) -> LinkRecord:
    """Return what a file of links says; whatever is wrong with it is an error that says where."""
    name = _name(path)
    try:
        with Path(path).open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        raise PlanError(f"{name} cannot be read: {_why(error)}.") from None
    if len(content) > MOST_BYTES:
        raise PlanError(f"{name}: a file of links has at most {MOST_BYTES} bytes.")
    return _Reader(name).record(content)


def _numbers(link: Link) -> dict[str, float]:
    return {name: float(getattr(link, name)) for name in NUMBERS}


def _name(path: object) -> str:
    if isinstance(path, str):
        return printable(path, keep="")
    if isinstance(path, os.PathLike):
        return printable(str(path), keep="")  # pyright: ignore[reportUnknownArgumentType]
    raise ArgumentError(f"a file of links is given by its path, got {path!r}.")


def _why(error: OSError | ValueError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


class _Twice(Exception):
    """A field that is there twice."""


class _Reader:
    """Looks at the fields of one file, whose name is in every error."""

    def __init__(self, name: str) -> None:
        self.name = name

    def record(self, content: bytes) -> LinkRecord:
        top = self.table(self.parse(content), "")
        if top.get("format") != FORMAT:
            raise self.error("", f"this is no file of links: its format is not {FORMAT!r}", top.get("format"))
        if top.get("version") != VERSION or isinstance(top["version"], bool):
            known = f"this shardwise reads version {VERSION} of the format"
            raise self.error("version", f"{known}; measure again with shardwise calibrate", top.get("version"))
        self.known(top, "", FIELDS, ("axes", "default", "compute"))
        axes = {
            self.axis(name): self.link(link, f"axes.{name}") for name, link in self.table(top["axes"], "axes").items()
        }
        default, compute = self.link(top["default"], "default"), self.number(top["compute"], "compute", 0, "above 0")
        return LinkRecord(axes, default, compute, self.origin(top["origin"]) if "origin" in top else None)

    def parse(self, content: bytes) -> Any:
        try:
            return json.loads(content.decode("utf-8"), object_pairs_hook=_once, parse_constant=_refuse)
        except UnicodeDecodeError as error:
            line = content[: error.start].count(b"\n") + 1
            raise PlanError(f"{self.name}, line {line}: this is not UTF-8.") from None
        except json.JSONDecodeError as error:
            place = f"line {error.lineno}, column {error.colno}"
            raise PlanError(f"{self.name}, {place}: this is not JSON: {error.msg}.") from None
        except _Twice as error:
            raise PlanError(f"{self.name}: the field {_shown(error.args[0])} is there twice.") from None
        except RecursionError:
            raise PlanError(f"{self.name}: this is no file of links: it is nested too deeply.") from None
        except ValueError as error:  # a number that is none, or has thousands of digits
            raise PlanError(f"{self.name}: {printable(str(error), keep='')[:200]}.") from None

    def origin(self, content: object) -> Origin:
        table, names = self.table(content, "origin"), tuple(f.name for f in fields(Origin))
        self.known(table, "origin.", names, names)
        return Origin(
            self.text(table["when"], "origin.when"),
            tuple(self.text(host, "origin.hosts") for host in self.items(table["hosts"], "origin.hosts")),
            self.text(table["shardwise"], "origin.shardwise"),
            self.text(table["mesh"], "origin.mesh"),
            tuple(self.count(size, "origin.sizes") for size in self.items(table["sizes"], "origin.sizes")),
            self.count(table["repeats"], "origin.repeats"),
            self.number(table["factor"], "origin.factor", 0, "above 0"),
        )

    def link(self, content: object, field: str) -> Link:
        table = self.table(content, field)
        self.known(table, f"{field}.", NUMBERS, NUMBERS[:2])
        bandwidth = self.number(table["bandwidth"], f"{field}.bandwidth", 0, "of bytes per second above 0")
        seconds = [self.number(table.get(n, 0), f"{field}.{n}", None, "of seconds, 0 or more") for n in NUMBERS[::2]]
        return Link(seconds[0], bandwidth, seconds[1])

    # -- values ------------------------------------------------------------------------------------

    def axis(self, name: str) -> str:
        if not SUB_AXIS.fullmatch(name) and (not name or any(c in ":()[]," or c.isspace() for c in name)):
            raise self.error("axes", "a mesh axis is named as in its mesh, a sub-axis 'name:(pre)size'", name)
        return name

    def table(self, value: object, field: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self.error(field, "an object with fields is expected", value)
        return value  # pyright: ignore[reportUnknownVariableType]

    def items(self, value: object, field: str) -> list[Any]:
        if not isinstance(value, list):
            raise self.error(field, "a list is expected", value)
        return value  # pyright: ignore[reportUnknownVariableType]

    def text(self, value: object, field: str) -> str:
        if not isinstance(value, str):
            raise self.error(field, "a text is expected", value)
        return printable(value, keep="")

    def count(self, value: object, field: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise self.error(field, "a whole number above 0 is expected", value)
        return value

    def number(self, value: object, field: str, above: float | None, what: str) -> float:
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300:
            number = float(value)
            if isfinite(number) and (number >= 0 if above is None else number > above):
                return number
        raise self.error(field, f"a number {what} is expected", value)

    def known(self, table: Mapping[str, Any], prefix: str, names: tuple[str, ...], needed: tuple[str, ...]) -> None:
        for name in table:
            if name not in names:
                known = f"\n  fields: {', '.join(names)}{did_you_mean(name, names)}"
                raise PlanError(f"{self.name}: unknown field {_shown(prefix + name)}.{known}")
        for name in needed:
            if name not in table:
                raise PlanError(f"{self.name}: the field {prefix + name!r} is missing.")

    def error(self, field: str, text: str, value: object) -> PlanError:
        where = f", {printable(field, keep='')[:MOST_SHOWN]}" if field else ""
        return PlanError(f"{self.name}{where}: {text}, got {_shown(value)}.")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, value in pairs:
        if name in out:
            raise _Twice(name)
        out[name] = value
    return out


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is no number of a file of links")


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except (RecursionError, ValueError):  # thousands of brackets, or of digits
        return f"a {type(value).__name__}"
    return text if len(text) <= MOST_SHOWN else f"{text[: MOST_SHOWN - 3]}..."
