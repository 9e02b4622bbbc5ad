"""The dialects around `shard`: xDSL's, with the ops that it lacks."""

from xdsl.dialects.builtin import Builtin
from xdsl.dialects.cf import Cf
from xdsl.dialects.func import Func
from xdsl.dialects.math import Math
from xdsl.dialects.memref import MemRef
from xdsl.dialects.scf import Scf

from shardwise.ir.dialects.arith_ops import Arith
from shardwise.ir.dialects.index_ops import Index
from shardwise.ir.dialects.linalg_ops import Linalg
from shardwise.ir.dialects.tensor_ops import Tensor
from shardwise.ir.dialects.tosa_ops import TOSA
from shardwise.ir.reader import BothVocabularies
from shardwise.ir.shard import Shard

DIALECTS = (Builtin, Func, Arith, Math, Scf, Cf, Tensor, MemRef, Linalg, TOSA, Index, Shard)


def make_context(allow_unregistered: bool = False) -> BothVocabularies:
    """Return a context that knows all these dialects.

    >>> make_context().get_optional_op("mesh.mesh").__name__
    'GridOp'
    """
    context = BothVocabularies(allow_unregistered=allow_unregistered)
    for dialect in DIALECTS:
        context.load_dialect(dialect)
    return context
