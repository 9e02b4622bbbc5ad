"""Snippets: a case as a small program that shows what is wrong with it, to be pasted anywhere."""

import numpy as np

from tests.every.calls import Call
from tests.every.cases import Case
from tests.every.comparison import Rule
from tests.every.operands import array_code
from tests.every.views import Finding, quiet

HEADER = """\
import ml_dtypes
import numpy as np
import shardwise as sw
from shardwise import CPU, Cut, DeviceMesh, Layout, P, from_shards, shard, shard_map

np.seterr(all="ignore")"""

ALONE = ("values", "type", "count", "not refused", "writeable")  # what a program can show by itself


def write_snippet(case: Case, finding: Finding) -> str:
    """A program that fails as the finding says; in the repository, where it takes more than one line to see."""
    call = case.draw()[0]
    lines = [HEADER]
    for is_mesh in (True, False):
        kinds = [
            (name, code) for name, (code, it) in call.names.items() if (type(it).__name__ == "DeviceMesh") == is_mesh
        ]
        lines += [f"{name} = {code}" for name, code in kinds]
    meshes = {id(thing): name for name, (_, thing) in call.names.items()}
    for name, operand in call.operands.items():
        mesh = meshes.get(id(operand.layout.mesh), "mesh") if operand.layout is not None else ""
        lines.append(f"{name} = {operand.code(mesh)}")
    lines.append("# " + str(finding).replace("\n", "\n# "))
    alone = finding.view == "local engine" and (finding.kind in ALONE or finding.kind.startswith(("raw", "refused,")))
    return "\n".join([*lines, *(_assertions(call, finding) if alone else _check(call, case))]) + "\n"


def _check(call: Call, case: Case) -> list[str]:
    pool = "" if case.processes is None else f", Pool({case.processes})"
    return [
        f"# the call: {call.code}",
        "from tests.engines.pool import Pool",
        "from tests.every.cases import Case, check_case",
        'if __name__ == "__main__":',
        f"    check_case({case!r}{pool})",
    ]


def _assertions(call: Call, finding: Finding) -> list[str]:
    if finding.kind == "not refused":
        return [
            "try:",
            f"    made = {call.code}",
            "except sw.ShardwiseError:",
            "    made = None",
            "assert made is None, made",
        ]
    if call.refusal is not None:
        return [f"made = {call.code}  # to be refused with {call.refusal!r}"]
    with quiet():
        wanted = call.oracle(*[operand.value.copy() for operand in call.operands.values()])
    several = isinstance(wanted, tuple | list)
    out = [f"made = {call.code}"]
    for number, want in enumerate(wanted if several else [wanted]):
        one, value = f"made[{number}]" if several else "made", np.asarray(want)
        if finding.kind == "writeable":
            out.append(f"assert not any(s.array.flags.writeable for s in {one}.shards)")
        out.append(f"got, want = np.asarray({one}), {array_code(value)}")
        out += ["assert (got.shape, got.dtype) == (want.shape, want.dtype), (got, want)", _comparison(call.rule, value)]
    return out


def _comparison(rule: Rule, want: np.ndarray) -> str:
    if want.dtype.kind in "biu" or (rule.exact and not rule.signs):
        return "assert np.array_equal(got, want) or str(got.tolist()) == str(want.tolist()), (got, want)"
    if rule.exact:
        return "assert str(got.tolist()) == str(want.tolist()), (got, want)"
    wide = "complex128" if want.dtype.kind == "c" else "float64"
    few = 0.05 if want.dtype.itemsize <= 2 else 1e-5 if want.dtype.itemsize <= 4 else 1e-10
    return f"assert np.allclose(got.astype({wide!r}), want.astype({wide!r}), {few}, {few}, equal_nan=True), (got, want)"
