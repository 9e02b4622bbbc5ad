"""Ops of `tensor` that xDSL checks too strictly."""

from xdsl.dialects import tensor
from xdsl.utils.exceptions import VerifyException

from shardwise.ir.dialects.merge import merge_dialect
from shardwise.ir.types import is_tensor


class ReshapeOp(tensor.ReshapeOp):
    """Gives a tensor a shape that is a value; sizes that are not known (`?`) are left to run time."""

    def verify_(self) -> None:
        """Check the element type, the rank and, where all sizes are known, their product."""
        self.get_irdl_definition().verify(self)
        source, shape, result = self.source.type, self.shape.type, self.result.type
        assert is_tensor(source)
        assert is_tensor(shape)
        assert is_tensor(result)
        if source.element_type != result.element_type:
            raise VerifyException(f"tensor.reshape keeps the element type, got {source} to {result}")
        if shape.has_static_shape() and shape.get_shape() != (len(result.get_shape()),):
            raise VerifyException(f"tensor.reshape to {result} needs a shape of {len(result.get_shape())} sizes")
        static = source.has_static_shape() and result.has_static_shape()
        if static and source.element_count() != result.element_count():
            raise VerifyException(f"tensor.reshape keeps the number of elements, got {source} to {result}")


Tensor = merge_dialect(tensor.Tensor, [ReshapeOp])
"""The dialect as xDSL knows it."""
