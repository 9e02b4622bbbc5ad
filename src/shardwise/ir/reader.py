"""xDSL's parser with a place for every op, both vocabularies, and no text that makes it hang."""

import math
import re
from collections.abc import Sequence
from typing import Any, cast

from xdsl.context import Context
from xdsl.dialects.builtin import (
    AnyFloat,
    BytesAttr,
    DenseIntOrFPElementsAttr,
    FileLineColLoc,
    FloatAttr,
    IndexType,
    IntAttr,
    IntegerAttr,
    ModuleOp,
    StringAttr,
    UnknownLoc,
    UnregisteredOp,
    i1,
)
from xdsl.ir import Attribute, Operation
from xdsl.ir import TypeAttribute as Type
from xdsl.parser import AttrParser, Parser
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.utils.lexer import Input
from xdsl.utils.mlir_lexer import MLIRLexer

from shardwise.ir.constants import splat
from shardwise.ir.shard import Sharding19Attr, ShardingOp, ShardOp, ShardOperation
from shardwise.ir.shard.sharding_ops import sharding_of
from shardwise.ir.source import Source

# LLVM 19's words for what newer tools call otherwise.
OP_NAMES = {"mesh.mesh": "shard.grid", "mesh.mesh_shape": "shard.grid_shape"}
PROPERTY_NAMES = {"mesh": "grid", "mesh_axes": "grid_axes", "scatter_dim": "scatter_axis"}

BITS = re.compile(r'<\s*+"0x((?:[0-9A-Fa-f]{2})*+)"\s*+>')
LOCATION_ALIAS = re.compile(r"^(#loc[0-9]*+)[ \t]*+=[ \t]*+(loc\()", re.MULTILINE)
OP_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_$.-]*+")
ONE_VALUE = re.compile(r"<\s*+[^\s\[\">]")


def current_name(name: str) -> str:
    """Return the name an op, attribute or type of the `mesh` dialect has today.

    >>> current_name("mesh.mesh"), current_name("mesh.all_gather"), current_name("func.func")
    ('shard.grid', 'shard.all_gather', 'func.func')
    """
    if not name.startswith("mesh."):
        return name
    return OP_NAMES.get(name, f"shard.{name.removeprefix('mesh.')}")


class BothVocabularies(Context):
    """A context in which the names of the `mesh` dialect mean those of `shard`."""

    def get_optional_op(self, name: str, *, dialect_stack: Sequence[str] = ()) -> type[Operation] | None:
        """Return the class of an op; a name that could not be printed again is refused."""
        if not OP_NAME.fullmatch(name) or name == UnregisteredOp.name:
            raise ValueError(f"{name[:40]!r} is no name of an op")
        return super().get_optional_op(current_name(name), dialect_stack=dialect_stack)

    def get_optional_type(self, name: str) -> type[Type] | None:
        """Return the class of a type."""
        return super().get_optional_type(current_name(name))

    def get_optional_attr(self, name: str) -> type[Attribute] | None:
        """Return the class of an attribute."""
        # LLVM 19's sharding is an attribute that newer tools do not have.
        return super().get_optional_attr(name if name == "mesh.shard" else current_name(name))


class Lexer(MLIRLexer):
    """xDSL's lexer, with strings read in linear time."""

    _unescaped_characters_regex = re.compile(r'"(?:[^"\\\n\v\f]++|\\(?:["nt\\]|[0-9A-Fa-f]{2}))*+"')


class Literal(AttrParser._TensorLiteralElement):  # pyright: ignore[reportPrivateUsage]
    """An element of a dense constant; a hexadecimal one is the bits of a float, as MLIR writes infinities."""

    def to_type(self, parser: AttrParser, type: Any) -> Any:
        """Return the number for an element type."""
        if not isinstance(type, AnyFloat) or not self.span.text.lstrip("-").lower().startswith("0x"):
            return super().to_type(parser, type)
        bits = self.to_int(parser, allow_negative=False)
        if bits >= 1 << 8 * type.compile_time_size:
            parser.raise_error(f"the bits do not fit {type}", self.span)
        (number,) = type.unpack(bits.to_bytes(type.compile_time_size, "little"), 1)
        return number


class Reader(Parser):
    """Reads one source; each op without a location of its own gets the place where it is written."""

    def __init__(self, context: Context, source: Source) -> None:
        super().__init__(context, "", source.name)
        self.source = source
        self._parser_state.lexer = Lexer(Input(source.text, source.name))
        self._parser_state.current_token = self._parser_state.lexer.lex()

    def parse_module(self, allow_implicit_module: bool = True) -> ModuleOp:
        """Read the module and put the shardings that LLVM 19 writes as attributes before the ops that name them."""
        self._read_location_aliases()
        module = super().parse_module(allow_implicit_module)
        if isinstance(module.location, UnknownLoc):
            module.location = self._location(0)
        for op in list(module.walk()):
            # The sharding is the last operand, also of an op that lacks others and is the verifier's to report.
            sharding = op.operands[-1].owner if isinstance(op, ShardOp) and op.operands else None
            if isinstance(sharding, ShardingOp) and sharding.parent is None:
                sharding.location = op.location
                Rewriter.insert_op(sharding, InsertPoint.before(op))
        return module

    def _read_location_aliases(self) -> None:
        """Read the aliases of locations first: MLIR writes them last, after their uses."""
        for match in LOCATION_ALIAS.finditer(self.source.text):
            self._resume_from(match.start(2))
            location = self.parse_optional_location()
            if location is not None:
                self.attribute_aliases[match[1]] = location
        self._resume_from(0)

    def _parse_alias_def(self) -> None:
        match = LOCATION_ALIAS.match(self.source.text, self.pos)
        if match is None:
            super()._parse_alias_def()
            return
        self._resume_from(match.start(2))
        self.parse_optional_location()

    def parse_operation(self) -> Operation:
        """Read an op and note where it begins."""
        position = self._current_token.span.start
        op = super().parse_operation()
        if isinstance(op.location, UnknownLoc):
            op.location = self._location(position)
        return op

    def _location(self, position: int) -> FileLineColLoc:
        line, column = self.source.place(position)
        return FileLineColLoc(StringAttr(self.source.name), IntAttr(line), IntAttr(column))

    def _get_op_by_name(self, name: str) -> type[Operation]:
        # The class behind ops that are not known is no op that a text can name.
        if name == UnregisteredOp.name:
            self.raise_error(f"operation {name} is not registered")
        return super()._get_op_by_name(name)

    def _parse_attribute_entry(self) -> tuple[str, Attribute]:
        start = self.pos
        entry = super()._parse_attribute_entry()
        # xDSL keeps the names of ops that are not known under this one.
        if entry[0] == "op_name__":
            self.raise_error("the name op_name__ is taken", start, self.pos)
        return entry

    def _parse_generic_operation(self, op_type: type[Operation]) -> Operation:
        op = super()._parse_generic_operation(op_type)
        if isinstance(op, ShardOperation):
            for old, new in PROPERTY_NAMES.items():
                _rename(op, old, new)
        if isinstance(op, ShardOp) and isinstance(op.properties.get("shard"), Sharding19Attr):
            sharding = sharding_of(cast("Sharding19Attr", op.properties.pop("shard")))
            op.operands = [*op.operands, sharding.result]
        return op

    def parse_optional_builtin_int_or_float_attr(self) -> IntegerAttr | FloatAttr | None:
        """Read a number; an index has 64 bits."""
        start = self.pos
        number = super().parse_optional_builtin_int_or_float_attr()
        if not isinstance(number, IntegerAttr) or not isinstance(number.type, IndexType):
            return number
        if not -(1 << 63) <= number.value.data < 1 << 63:
            self.raise_error("the int does not fit 64 bits", start, self.pos)
        return number

    def parse_dense_int_or_fp_elements_attr(self, type: Any) -> DenseIntOrFPElementsAttr:
        """Read a dense constant, which takes no more memory than what is written."""
        bits = BITS.match(self.source.text, self.pos)
        if bits is None and ONE_VALUE.match(self.source.text, self.pos) is None:
            return super().parse_dense_int_or_fp_elements_attr(type)
        literal = None
        with self.in_angle_brackets():
            if bits is not None:
                self.parse_str_literal()
            else:
                (literal,), _ = self._parse_tensor_literal()
        if type is None:
            self.parse_punctuation(":")
            type = self._parse_dense_literal_type()
        if literal is not None:
            # xDSL makes a list of as many values as the tensor has elements, and packs each of them.
            return splat(type, literal.to_type(self, type.element_type))
        assert bits is not None
        return (self._truths if type.element_type == i1 else self._numbers)(bytes.fromhex(bits[1]), type)

    def _numbers(self, data: bytes, kind: Any) -> DenseIntOrFPElementsAttr:
        """Return the constant of which the bytes are written, those of all elements or of one that all are equal to."""
        size, count = kind.element_type.compile_time_size, math.prod(kind.get_shape())
        if len(data) == size and count != 1:
            (number,) = kind.element_type.unpack(data, 1)
            return splat(kind, number)
        if len(data) != size * count:
            self.raise_error(f"{len(data)} bytes do not hold {count} elements of {size} bytes")
        return DenseIntOrFPElementsAttr(kind, BytesAttr(data))

    def _truths(self, data: bytes, kind: Any) -> DenseIntOrFPElementsAttr:
        """Return a constant of i1, which MLIR writes with a bit for each element, the lowest first; or one for all."""
        count = math.prod(kind.get_shape())
        if data in (b"\x00", b"\xff") and count > 8:
            return splat(kind, data[0] & 1)
        if len(data) != -(-count // 8):
            self.raise_error(f"{len(data)} bytes do not hold {count} elements of i1")
        return DenseIntOrFPElementsAttr.from_list(kind, [data[n // 8] >> n % 8 & 1 for n in range(count)])

    def _parse_tensor_literal_element(self) -> Literal:
        element = super()._parse_tensor_literal_element()
        return Literal(element.is_negative, element.value, element.span)


def _rename(op: ShardOperation, old: str, new: str) -> None:
    known = op.get_irdl_definition().properties
    for attributes in (op.properties, op.attributes):
        if old in attributes and old not in known and new in known:
            op.properties[new] = attributes.pop(old)
