"""The exception tree: every error that shardwise raises on purpose.

    ShardwiseError
    ├── LayoutError (ValueError)     a mesh, placement, spec or layout is wrong
    │   ├── MeshError                the mesh itself, or a question put to it
    │   ├── BindingError             a layout, or an argument, does not fit this shape or dtype
    │   │   └── RangeError (IndexError)  an index, or a dim that `axis` names, is not there
    │   └── ConversionError          a conversion would lose information
    ├── PlanError (ValueError)       no plan can be made from what was given
    ├── EngineError (RuntimeError)   an engine cannot do what was asked
    │   └── CollectiveError          processes do not come together in a collective
    │       ├── RankLost             a process is gone, or gave up
    │       ├── CollectiveTimeout    a process did not come in time
    │       └── CollectiveMismatch   processes came to different collectives
    ├── ProgramError (RuntimeError)  a module of the `shard` dialect cannot be made or run, or went wrong while it ran
    ├── DerivativeError (ValueError) something cannot be differentiated
    ├── ModuleError (ValueError)     a module of the `shard` dialect is wrong, at a line and column of its text
    │   ├── ParseError               its text cannot be read
    │   └── VerifyError              it says what cannot be
    └── ArgumentError (TypeError)    a value of the wrong kind was passed

Texts say what was got, what was expected and what is available; further lines are indented.
"""

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from difflib import get_close_matches
from numbers import Complex, Real
from operator import index
from typing import Any, TypeGuard, TypeVar, cast

T = TypeVar("T")
# Controls, marks that turn the direction of text, other ends of lines, and halves of pairs, which cannot be written.
UNPRINTABLE = re.compile("[\\x00-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069\\ud800-\\udfff]")


on_discard: "Callable[[ShardwiseError], None] | None" = None  # who is told of an error that nobody has any more


class ShardwiseError(Exception):
    """Base of all errors that shardwise raises on purpose.

    >>> from shardwise import DeviceMesh
    >>> try:
    ...     DeviceMesh((2, 4), ("dp", "tp")).axis("pt")
    ... except ShardwiseError as error:
    ...     print(error)
    unknown mesh axis 'pt'.
      mesh axes: dp=2, tp=4
      did you mean 'tp'?
    """

    def __del__(self) -> None:
        if on_discard is not None:
            on_discard(self)


class LayoutError(ShardwiseError, ValueError):
    """A mesh, placement, spec or layout is wrong.

    >>> from shardwise import DeviceMesh, Layout
    >>> Layout(DeviceMesh((2,), ("x",)), ["x", "x"])
    Traceback (most recent call last):
    shardwise.LayoutError: mesh axis 'x' is used twice in ['x', 'x'].
      each mesh axis may split one dim, or be partial, once.
    """


class MeshError(LayoutError):
    """A mesh, or a question put to it, is wrong.

    >>> from shardwise import DeviceMesh
    >>> DeviceMesh((2, 4), ("dp", "tp")).coords(8)
    Traceback (most recent call last):
    shardwise.MeshError: device 8 is outside the mesh (dp=2, tp=4), which has devices 0 to 7.
    """


class BindingError(LayoutError):
    """A layout does not fit the shape or dtype it is bound to.

    >>> from shardwise import Cut, DeviceMesh, Layout
    >>> Layout(DeviceMesh((2,), ("x",)), [Cut("x", offsets=(0, 3, 8))]).box((10,), 0)
    Traceback (most recent call last):
    shardwise.BindingError: the offsets (0, 3, 8) of dim 0 must end at its size 10, they end at 8.
    """


class RangeError(BindingError, IndexError):
    """An index, or a dim that `axis` names, is not there; it is an IndexError and a ValueError, as NumPy's are.

    >>> from shardwise import asarray
    >>> asarray([1.0, 2.0])[5]
    Traceback (most recent call last):
    shardwise.RangeError: index 5 is out of range for a dim of 2 elements.
    """


class ConversionError(LayoutError):
    """A conversion between vocabularies would lose information.

    >>> from shardwise import Cut, DeviceMesh, Layout, P
    >>> P.from_layout(Layout(DeviceMesh((2,), ("x",)), [Cut("x", halo=1)]))
    Traceback (most recent call last):
    shardwise.ConversionError: dim 0 is cut with halo=(1, 1), which a P cannot say: it has axis names only.
      keep the Layout, or use placements such as Sharded(0, split='chunk').
    """


class PlanError(ShardwiseError, ValueError):
    """No plan can be made from what was given.

    >>> from shardwise import DeviceMesh, P, plan_reshard
    >>> plan_reshard(P("x"), P(), (8,), "float32", mesh=DeviceMesh((4,), ("x",)), memory_limit=-1)
    Traceback (most recent call last):
    shardwise.PlanError: memory_limit is 0 bytes or more, got -1.
    """


class EngineError(ShardwiseError, RuntimeError):
    """An engine cannot do what was asked.

    >>> from shardwise import AbstractEngine, engine_context, zeros
    >>> with engine_context(AbstractEngine()):
    ...     zeros(3).numpy()
    Traceback (most recent call last):
    shardwise.EngineError: a tensor on the abstract engine has a layout but no values.
    """


class CollectiveError(EngineError):
    """Processes do not come together in a collective: which ranks, in which step, and its sequence number here.

    >>> error = RankLost("rank 2 was lost.", ranks=(2,), step="all_gather", sequence=5)
    >>> error.ranks, error.step, error.sequence
    ((2,), 'all_gather', 5)
    """

    def __init__(self, text: str, *, ranks: Iterable[int] = (), step: str = "", sequence: int = 0) -> None:
        """Say what happened, to which ranks, in which step and call."""
        super().__init__(text)
        self.ranks, self.step, self.sequence = tuple(ranks), step, sequence


class RankLost(CollectiveError):
    """A process is gone, or gave up, and the others cannot go on without it.

    >>> isinstance(RankLost("rank 2 was lost.", ranks=(2,)), CollectiveError)
    True
    """


class CollectiveTimeout(CollectiveError):
    """A process did not come to a collective, or did not end it, in time.

    >>> CollectiveTimeout("rank 1 did not come to all_gather within 60 s.", ranks=(1,), step="all_gather").ranks
    (1,)
    """


class CollectiveMismatch(CollectiveError):
    """Processes came to different collectives; no data was moved.

    >>> CollectiveMismatch("ranks 0 and 1 came to different calls.", ranks=(0, 1), sequence=7).sequence
    7
    """


class ProgramError(ShardwiseError, RuntimeError):
    """A module of the `shard` dialect cannot be made or run, or went wrong while it ran.

    >>> from shardwise.ir import trace
    >>> trace(float, 1.0)
    Traceback (most recent call last):
    shardwise.ProgramError: ...
    """


class DerivativeError(ShardwiseError, ValueError):
    """Something cannot be differentiated.

    >>> from shardwise import asarray, grad
    >>> grad(lambda x: x * x)(asarray([1.0, 2.0]))
    Traceback (most recent call last):
    shardwise.DerivativeError: a gradient is that of one number, a 0-d tensor; the function returned (2,).
    """


class ModuleError(ShardwiseError, ValueError):
    """A module of the `shard` dialect is wrong: `name:line:column: what`.

    >>> str(ModuleError("m.mlir", 3, 7, "no such grid"))
    'm.mlir:3:7: no such grid'
    """

    def __init__(self, name: str, line: int, column: int, what: str) -> None:
        self.name = name
        self.line = line
        self.column = column
        super().__init__(f"{name}:{line}:{column}: {what}")


class ParseError(ModuleError):
    """The text of a module cannot be read.

    >>> from shardwise.ir import parse_module
    >>> parse_module("shard.grid @g(shape = 2x4", "m.mlir")
    Traceback (most recent call last):
    shardwise.ParseError: m.mlir:1:26: ')' expected.
      shard.grid @g(shape = 2x4
                               ^
    """


class VerifyError(ModuleError):
    """A module says what cannot be.

    >>> from shardwise.ir import parse_module, verify
    >>> verify(parse_module("%s = shard.sharding @g split_axes = [[0]] : !shard.sharding", "m.mlir"))
    Traceback (most recent call last):
    shardwise.VerifyError: m.mlir:1:1: shard.sharding: unknown grid @g.
      the module has no grids.
    """


class ArgumentError(ShardwiseError, TypeError):
    """A value of the wrong kind was passed.

    >>> from shardwise import all_reduce
    >>> all_reduce(3)
    Traceback (most recent call last):
    shardwise.ArgumentError: all_reduce needs a Tensor, got int; make one with shard(x, mesh, P(...)).
    """


def printable(text: str, keep: str = "\n\t") -> str:
    r"""Return a text that came from elsewhere as a terminal may show it: what would control the terminal is escaped.

    >>> print(printable("a name\x1b[2J"))
    a name\x1b[2J
    """
    return UNPRINTABLE.sub(lambda m: m[0] if m[0] in keep else m[0].encode("unicode_escape").decode(), text)


def did_you_mean(got: object, names: Iterable[str]) -> str:
    """Return a line that suggests the nearest of `names`, or nothing.

    >>> did_you_mean("pt", ["dp", "tp"])
    "\\n  did you mean 'tp'?"
    """
    names = list(names)
    near = get_close_matches(str(got), names, n=1, cutoff=0.5)
    # "pt" for "tp": letters swapped in a short name score too low for difflib.
    near = [name for name in names if sorted(name) == sorted(str(got))][:1] or near
    return f"\n  did you mean {near[0]!r}?" if near else ""


def as_int(value: object) -> int | None:
    """Return an int, NumPy's among them, as a plain int; None for anything else, bools included.

    >>> as_int(3), as_int(True), as_int(3.0)
    (3, None, None)
    """
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        return None
    try:
        return index(value)  # type: ignore[arg-type]
    except TypeError:  # an array of several numbers has the method too
        return None


def check_int(value: object, wanted: str) -> int:
    """Return what `as_int` makes of a value; `wanted` begins the error for anything that is no int.

    >>> check_int(2.0, "topk: k is an int")
    Traceback (most recent call last):
    shardwise.ArgumentError: topk: k is an int, got 2.0.
    """
    number = as_int(value)
    if number is None:
        raise ArgumentError(f"{wanted}, got {value!r}.")
    return number


def check_number(value: object, wanted: str) -> Any:
    """Return a number that is no bool, NumPy's among them, as Python's; `wanted` begins the error for anything else.

    >>> check_number("small", "layer_norm: eps is a number")
    Traceback (most recent call last):
    shardwise.ArgumentError: layer_norm: eps is a number, got 'small'.
    """
    whole = as_int(value)
    if whole is not None:
        return whole
    if isinstance(value, bool) or not isinstance(value, Complex):
        raise ArgumentError(f"{wanted}, got {value!r}.")
    return float(value) if isinstance(value, Real) else complex(value)


def check_flag(value: object, wanted: str) -> bool:
    """Return a bool, NumPy's among them, 0 or 1 as a bool; `wanted` begins the error for anything else.

    >>> check_flag("no", "sum: keepdims is a bool")
    Traceback (most recent call last):
    shardwise.ArgumentError: sum: keepdims is a bool, got 'no'.
    """
    if type(value).__name__ in ("bool", "bool_"):
        return bool(value)
    if as_int(value) in (0, 1):
        return as_int(value) == 1
    raise ArgumentError(f"{wanted}, got {value!r}.")


def check_function(value: object, name: str) -> Any:
    """Return what can be called; `name` is that of the transform which takes it.

    >>> check_function(3, "grad")
    Traceback (most recent call last):
    shardwise.ArgumentError: grad takes a function, got 3.
    """
    if not callable(value):
        raise ArgumentError(f"{name} takes a function, got {value!r}.")
    return value


def check_ints(values: object, wanted: str) -> tuple[int, ...]:
    """Return an int, or an ordered collection of ints, as a tuple; `wanted` begins the error for anything else.

    >>> check_ints(3, "axis is an int or a tuple of ints"), check_ints([0, 2], "axis is an int or a tuple of ints")
    ((3,), (0, 2))
    """
    one = as_int(values)
    if one is not None:
        return (one,)
    numbers = [as_int(value) for value in as_tuple(values, wanted)]
    if any(number is None for number in numbers):
        raise ArgumentError(f"{wanted}, got {values!r}.")
    return tuple(number for number in numbers if number is not None)


def check_sizes(values: object, wanted: str, what: str, least: int, error: type[ShardwiseError]) -> tuple[int, ...]:
    """Return the sizes of something as a tuple of ints of `least` or more.

    >>> check_sizes((2, 0), "a shape is a tuple of ints", "in a shape", 1, BindingError)
    Traceback (most recent call last):
    shardwise.BindingError: the sizes in a shape are 1 or more, got 0 in (2, 0).
    """
    sizes, out = as_tuple(values, wanted), list[int]()
    for size in sizes:
        number = as_int(size)
        if number is None:
            raise ArgumentError(f"the sizes {what} are ints, got {size!r} in {sizes}.")
        if number < least:
            raise error(f"the sizes {what} are {least} or more, got {number} in {sizes}.")
        out.append(number)
    return tuple(out)


def is_sequence_of(values: object, kinds: type[T] | tuple[type[T], ...]) -> TypeGuard[Sequence[T]]:
    """Whether this is an ordered collection, and no string, of values of these types.

    >>> is_sequence_of([1, 2], int), is_sequence_of("ab", str), is_sequence_of((1, "a"), (int, str))
    (True, False, True)
    """
    if isinstance(values, str) or not isinstance(values, Sequence):
        return False
    return all(isinstance(value, kinds) for value in cast("Sequence[object]", values))


def as_tuple(values: object, wanted: str) -> tuple[Any, ...]:
    """Return an ordered collection as a tuple; `wanted` begins the error for anything else.

    >>> as_tuple("xy", "axis_names is a tuple of names")
    Traceback (most recent call last):
    shardwise.ArgumentError: axis_names is a tuple of names, got 'xy'.
    """
    if isinstance(values, str | bytes | Set | Mapping) or not isinstance(values, Iterable):
        raise ArgumentError(f"{wanted}, got {values!r}.")
    try:
        return tuple(cast("Iterable[Any]", values))
    except TypeError:  # arrays of no dims, and tensors, say that they are iterable and are not
        raise ArgumentError(f"{wanted}, got {values!r}.") from None


def is_list(value: object) -> TypeGuard[list[Any] | tuple[Any, ...]]:
    """Whether a value is a list or a tuple.

    >>> is_list((1, 2)), is_list("xy")
    (True, False)
    """
    return isinstance(value, list | tuple)


def seal(cls: type[T]) -> type[T]:
    """Make a frozen dataclass with slots refuse every name as it refuses those of its fields.

    Python's own refusal of other names speaks of `super`: with slots the class is made anew, and the method still asks
    for the old one.

    >>> from shardwise import Link
    >>> Link().speed = 3
    Traceback (most recent call last):
    dataclasses.FrozenInstanceError: a Link does not change; make a new one instead of setting 'speed'.
    """

    def refuse_set(self: object, key: str, value: object) -> None:
        raise dataclasses.FrozenInstanceError(
            f"a {type(self).__name__} does not change; make a new one instead of setting {key!r}."
        )

    def refuse_del(self: object, key: str) -> None:
        raise dataclasses.FrozenInstanceError(f"a {type(self).__name__} does not change; {key!r} cannot be deleted.")

    cls.__setattr__, cls.__delattr__ = refuse_set, refuse_del
    return cls
