"""Modules as text: read in both vocabularies, printed in either."""

from io import StringIO
from typing import Literal

from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.exceptions import ParseError as XdslParseError

from shardwise.errors import ArgumentError, ConversionError, ParseError, ShardwiseError
from shardwise.ir.dialects import make_context
from shardwise.ir.guard import check_text, decode
from shardwise.ir.mesh19 import to_mesh19
from shardwise.ir.printer import ModulePrinter
from shardwise.ir.reader import Reader
from shardwise.ir.source import Source

Vocabulary = Literal["shard", "mesh19"]


def parse_module(text: str | bytes, name: str = "<text>", *, allow_unregistered: bool = False) -> ModuleOp:
    """Read a module; every fault of its text is a ParseError with line and column.

    >>> module = parse_module("shard.grid @g(shape = 2x4)")
    >>> print(print_module(module))
    builtin.module {
      shard.grid @g(shape = 2x4)
    }
    """
    source = Source(decode(text, name) if isinstance(text, bytes) else text, name)
    if not source.text.strip():
        raise source.error(0, "the text is empty.")
    check_text(source)
    return _read(source, allow_unregistered)


def _read(source: Source, allow_unregistered: bool) -> ModuleOp:
    reader = None
    try:
        reader = Reader(make_context(allow_unregistered), source)
        return reader.parse_module()
    except XdslParseError as error:
        raise source.error(error.span.start, _sentence(error.msg)) from None
    except RecursionError:
        raise source.error(_position(reader), "nested too deeply.") from None
    # xDSL reports many faults of a text as whatever Python raised: assertions, struct.error, KeyError.
    except Exception as error:
        raise source.error(
            _position(reader), _sentence(f"cannot be read: {str(error) or type(error).__name__}")
        ) from error


def _position(reader: Reader | None) -> int:
    return 0 if reader is None else reader.pos


def _sentence(message: str) -> str:
    message = message.strip().rstrip(".!")
    return f"{message[:1].lower()}{message[1:]}."


def print_module(module: ModuleOp, dialect: Vocabulary = "shard") -> str:
    """Print a module, in today's words or in those of LLVM 19's `mesh` dialect.

    >>> print(print_module(parse_module("shard.grid @g(shape = 2x?)"), dialect="mesh19"))
    builtin.module {
      mesh.mesh @g(shape = 2x?)
    }
    """
    if dialect not in ("shard", "mesh19"):
        raise ArgumentError(f"unknown dialect {dialect!r}.\n  dialects: shard, mesh19")
    try:
        if dialect == "mesh19":
            return _print_text(ModulePrinter(StringIO(), spelling="mesh19"), to_mesh19(module))
        return _print_text(ModulePrinter(StringIO()), module)
    except ShardwiseError:
        raise
    except Exception:  # xDSL's ops raise all kinds of errors where they lack what their text needs
        if dialect == "mesh19":
            raise ConversionError("the module lacks what LLVM 19's text needs; verify(module) says what.") from None
        # A module that does not verify may lack what its text needs; MLIR too prints it in the generic form.
        return _print_text(ModulePrinter(StringIO(), print_generic_format=True), module)


def _print_text(printer: ModulePrinter, module: ModuleOp) -> str:
    printer.print_op(module)
    assert isinstance(printer.stream, StringIO)
    return printer.stream.getvalue()


__all__ = ["ParseError", "parse_module", "print_module"]
