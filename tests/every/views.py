"""Views: one call on the local engine, the strict one, the abstract one and between processes, beside NumPy."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import optree

from shardwise import LocalEngine, ReduceOp, ShardwiseError, Tensor, current_engine, engine_context, explain, init
from shardwise.engine.current import use
from tests.every.calls import Call
from tests.every.comparison import Rule, difference
from tests.every.operands import Operand, part
from tests.every.values import reduce_terms
from tests.layout.oracle import held_box, position


class Finding(AssertionError):
    """Something is not as it should be: in which view, of what kind, and what exactly."""

    def __init__(self, view: str, kind: str, what: str) -> None:
        super().__init__(f"{view}: {kind}: {what}")
        self.view, self.kind, self.what = view, kind, what


class Leaf(NamedTuple):
    """What one process shows of a tensor in a result."""

    layout: Any
    shape: tuple[int, ...]
    dtype: np.dtype
    arrays: dict[int, np.ndarray]  # by device
    writeable: bool


@dataclass(frozen=True)
class Outcome:
    """What came of a call: leaves of the result or a refusal, and the bytes between devices by kind of step."""

    leaves: tuple[Any, ...] = ()
    refusal: tuple[str, str] | None = None  # the class of the error, and what it says
    moved: tuple[tuple[str, int], ...] = ()


def run(call: Call, view: str) -> Outcome:
    """Run a call on the current engine; anything but a result or an error of the library is a finding."""
    counters = current_engine().counters
    with quiet():
        try:
            counters.reset()
            result = call.run()
        except ShardwiseError as error:
            return Outcome(refusal=(type(error).__name__, str(error)))
        except Exception as error:
            raise Finding(view, f"raw {type(error).__name__}", _place(error)) from error
        moved = tuple(sorted((kind, size) for kind, size in counters.bytes_moved.items() if size))
        if call.verify is not None and (wrong := call.verify(result)):
            raise Finding(view, "layout", wrong)
        leaves = optree.tree_leaves(result, none_is_leaf=True)
        return Outcome(tuple(_leaf(leaf) if isinstance(leaf, Tensor) else leaf for leaf in leaves), None, moved)


def _leaf(x: Tensor) -> Leaf:
    shards = {shard.index: np.asarray(shard.array) for shard in x.shards}
    return Leaf(x.layout, x.shape, x.dtype, shards, any(array.flags.writeable for array in shards.values()))


@contextmanager
def quiet() -> Iterator[None]:
    """Without what NumPy says about numbers: it says it of the oracle too."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


def _place(error: BaseException) -> str:
    import traceback

    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{error} ({last.filename.rpartition('/')[2]}:{last.lineno} {last.name})"


# -- beside NumPy ----------------------------------------------------------------------------------------------


def check(call: Call, outcome: Outcome, view: str) -> None:
    """A result is what NumPy makes of the global values, on every device; a refusal is one that was stated."""
    if outcome.refusal is not None or call.refusal is not None:
        _check_refusal(call, outcome, view)
        return
    with quiet():
        values = [operand.value.copy() for operand in call.operands.values()]
        try:
            wanted = _several(call.oracle(*values))
        except (TypeError, ValueError, IndexError) as error:
            raise Finding(view, "not refused", f"NumPy refuses it: {error}") from error
        sizes = [operand.size for operand in call.operands.values()]
        scales = [None] * len(wanted) if call.scale is None else _several(call.scale(*sizes))
    if len(outcome.leaves) != len(wanted):
        raise Finding(view, "count", f"{len(outcome.leaves)} results instead of {len(wanted)}")
    for leaf, want, scale in zip(outcome.leaves, wanted, scales, strict=True):
        if isinstance(leaf, Leaf):
            check_leaf(leaf, np.asarray(want), scale, call.rule, view)
        elif wrong := difference(np.asarray(leaf), np.asarray(want), scale, call.rule):
            raise Finding(view, "values", wrong)


def _several(found: Any) -> list[Any]:
    return list(found) if isinstance(found, tuple | list) else [found]


def _check_refusal(call: Call, outcome: Outcome, view: str) -> None:
    if outcome.refusal is None:
        raise Finding(view, "not refused", f"a refusal that says {call.refusal!r} was expected")
    stated = (call.refusal,) if call.refusal is not None else call.may_refuse
    if _is_refused_by_numpy(call):
        return
    if not any(text in outcome.refusal[1] for text in stated):
        raise Finding(view, f"refused, {outcome.refusal[0]}", outcome.refusal[1])


def _is_refused_by_numpy(call: Call) -> bool:
    with quiet():
        try:
            call.oracle(*[operand.value.copy() for operand in call.operands.values()])
        except (TypeError, ValueError, IndexError):
            return True
    return False


def check_leaf(leaf: Leaf, want: np.ndarray, scale: Any, rule: Rule, view: str) -> None:
    """Every device holds its part of a value or contributions to it, as its replicas do; none can be written to."""
    if leaf.shape != want.shape or leaf.dtype != want.dtype:
        raise Finding(view, "type", f"{leaf.dtype}{list(leaf.shape)} instead of {want.dtype}{list(want.shape)}")
    if leaf.writeable:
        raise Finding(view, "writeable", "a shard that can be written to is handed out")
    size = None if scale is None else np.broadcast_to(np.asarray(scale, "float64"), want.shape)
    groups: dict[Any, dict[int, np.ndarray]] = {}
    for device, array in leaf.arrays.items():
        box = held_box(leaf.layout, leaf.shape, device)
        wide = tuple(stop - start for start, stop in box)
        if array.shape != wide:
            raise Finding(view, "shard", f"device {device} holds the shape {array.shape} instead of {wide}")
        at = position(leaf.layout.mesh, leaf.layout.partial, device)
        first = groups.setdefault(box, {}).setdefault(at, array)
        if first.tobytes() != array.tobytes():
            raise Finding(view, "replicas", f"device {device} holds other values than its replicas")
    terms = int(np.prod([axis.size for axis in leaf.layout.partial]))
    for box, arrays in groups.items():
        if len(arrays) < terms:
            continue  # some of the contributions are in another process
        with np.errstate(all="ignore"):
            ordered = [arrays[at] for at in range(terms)]
            got = reduce_terms(ordered, leaf.layout.reduce_op or ReduceOp.SUM) if terms > 1 else ordered[0]
        wrong = difference(got, part(want, box), None if size is None else part(size, box), rule)
        if wrong:
            raise Finding(view, "values", f"the box {box} of {leaf.layout}: {wrong}")


def merge(outcomes: Sequence[Outcome], view: str) -> Outcome:
    """What several processes show, together."""
    refusals = {outcome.refusal for outcome in outcomes}
    if len(refusals) > 1:
        raise Finding(view, "ranks differ", f"refusals {[outcome.refusal for outcome in outcomes]}")
    if refusals != {None}:
        return outcomes[0]
    leaves = []
    for some in zip(*(outcome.leaves for outcome in outcomes), strict=True):
        if not isinstance(some[0], Leaf):
            leaves.append(some[0])
            continue
        if len({leaf[:3] for leaf in some}) > 1:
            raise Finding(view, "ranks differ", f"{[leaf[:3] for leaf in some]}")
        arrays = {device: array for leaf in some for device, array in leaf.arrays.items()}
        if set(arrays) != set(range(some[0].layout.mesh.num_devices)):
            raise Finding(
                view, "ranks differ", f"the devices {sorted(arrays)} of {some[0].layout.mesh!r} belong to ranks"
            )
        leaves.append(some[0]._replace(arrays=arrays, writeable=any(leaf.writeable for leaf in some)))
    total: dict[str, int] = {}
    for outcome in outcomes:
        for kind, size in outcome.moved:
            total[kind] = total.get(kind, 0) + size
    return Outcome(tuple(leaves), None, tuple(sorted(total.items())))


def compare(call: Call, first: Outcome, other: Outcome, view: str) -> None:
    """Two engines give the same layouts and refusals, and send the same bytes."""
    if first.refusal != other.refusal:
        raise Finding(view, "refusals differ", f"{other.refusal} instead of {first.refusal}")
    for a, b in zip(first.leaves, other.leaves, strict=True):
        if isinstance(a, Leaf) and (a.layout, a.shape, a.dtype) != (b.layout, b.shape, b.dtype):
            raise Finding(
                view, "layouts differ", f"{b.dtype}{b.shape} {b.layout} instead of {a.dtype}{a.shape} {a.layout}"
            )
    if call.bytes and first.moved != other.moved:
        raise Finding(view, "bytes", f"{dict(other.moved)} instead of {dict(first.moved)}")


# -- all views of one process ------------------------------------------------------------------------------------


def strict_engine() -> Any:
    """The local engine in its strict form."""
    before = current_engine()
    try:
        return init("local", strict=True)
    finally:
        use(before)


def check_here(call: Call) -> Outcome:
    """Run a call on all engines of this process, and return what came of it on the local one."""
    engine = LocalEngine()
    with engine_context(engine):
        outcome = run(call, "local engine")
        check(call, outcome, "local engine")
    if call.abstract:
        compare(call, outcome, _abstract(call), "abstract engine")
    with engine_context(strict_engine()):
        other = run(call, "strict engine")
    check(call, other, "strict engine")
    compare(call, outcome, other, "strict engine")
    return outcome


def _abstract(call: Call) -> Outcome:
    names = [name for name, operand in call.operands.items() if operand.layout is not None]
    with quiet():
        given = [call.operands[name].make() for name in names]  # arrays of the host are arrays there too

        def fn(*args: Any) -> Any:
            operands = {name: _Made(arg) for name, arg in zip(names, args, strict=True)}
            return replace(call, operands={**call.operands, **operands}, verify=None).run()

        try:
            found = explain(fn, *given)
        except ShardwiseError as error:
            return Outcome(refusal=(type(error).__name__, str(error)))
        except Exception as error:
            raise Finding("abstract engine", f"raw {type(error).__name__}", _place(error)) from error
    leaves = optree.tree_leaves(found.result, none_is_leaf=True)
    shown = [Leaf(x.layout, x.shape, x.dtype, {}, False) if isinstance(x, Tensor) else x for x in leaves]
    return Outcome(tuple(shown), None, tuple(sorted(found.bytes_by_kind.items())))


class _Made(Operand):
    # An operand that is there already.
    thing: Any

    def __init__(self, thing: Any) -> None:
        super().__init__(np.zeros(0))
        object.__setattr__(self, "thing", thing)

    def make(self) -> Any:
        return self.thing
