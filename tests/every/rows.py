"""All rows of the table, and the public functions that have none, each with the reason."""

from tests.every import communication, creation, elementwise, inside, others, products, reductions, shaping  # noqa: F401
from tests.every.calls import MOST, Call, Setting
from tests.every.draws import Draws
from tests.every.table import TABLE

NAMES = sorted(TABLE)

REASONS = {
    **dict.fromkeys(("accelerator", "gpu"), "needs an accelerator; tests/engines/accelerators.py has one"),
    **dict.fromkeys(
        ("from_dtensor", "to_dtensor", "from_torch", "to_torch"),
        "gives the shard of one process to torch; tests/engines/test_dtensors.py",
    ),
    **dict.fromkeys(
        ("accelerator_count", "cache_info", "clear_caches", "current_engine", "current_mesh", "default_device",
         "engine_context", "init", "mesh_context", "mode", "step", "trace_communication"),
        "says or sets where things happen, and makes no tensor",
    ),
    **dict.fromkeys(
        ("as_layout", "global_shape_from_local", "local_shard_shape_from_global", "shard_shape"),
        "a function of layouts and shapes, without tensors; tests/layout",
    ),
    **dict.fromkeys(("explain", "plan_reshard"), "says what would be sent; every row asks it beside the engines"),
    "picture": "draws; tests/pictures",
    **dict.fromkeys(("random.key", "random.split", "random.fold_in"), "keys are numbers, without tensors"),
    # What tensors have beside the functions of the same name.
    **dict.fromkeys(
        ("Tensor.arrays", "Tensor.kept", "Tensor.storage", "Tensor.level", "Tensor.is_recorded", "Tensor.is_local",
         "Tensor.engine"),
        "how a tensor is kept; tests/prim/test_tensor.py",
    ),
    **dict.fromkeys(
        ("Tensor.beside", "Tensor.lead", "Tensor.lift", "Tensor.node", "Tensor.tangent", "Tensor.value"),
        "how a value is mapped or watched; tests/prim/interpreters/test_local.py, tests/prim/interpreters/test_bind.py",
    ),
    **dict.fromkeys(
        ("Tensor.device", "Tensor.dtype", "Tensor.layout", "Tensor.mesh", "Tensor.nbytes", "Tensor.ndim",
         "Tensor.shape", "Tensor.sharding", "Tensor.size", "Tensor.type_text"),
        "says what a tensor is; every row looks at it, or tests/prim/test_tensor.py",
    ),
    **dict.fromkeys(("Tensor.local", "Tensor.shards"), "what this process holds: every row is read by it"),
    **dict.fromkeys(
        ("Tensor.__dlpack__", "Tensor.__dlpack_device__"), "gives memory to other libraries; tests/prim/test_tensor.py"
    ),
    **dict.fromkeys(("Tensor.__iter__", "Tensor.__setitem__"), "is refused always; tests/prim/test_tensor.py"),
    "Tensor.__array_priority__": "a number for NumPy",
    **dict.fromkeys(
        ("Tensor.is_distributed", "Tensor.is_fully_replicated", "Tensor.is_fully_resolved", "Tensor.local_shards",
         "Tensor.mapping", "Tensor.num_shards", "Tensor.placements", "Tensor.rank", "Tensor.to_named_sharding"),
        "says how a tensor is laid out; tests/layout/test_accessors.py",
    ),
    **dict.fromkeys(
        ("Tensor.__contains__", "Tensor.__index__"), "of local values, refused always; tests/ops/test_local_view.py"
    ),
}  # fmt: skip


def draw_call(name: str, draws: Draws, most: int = MOST, among: int | None = None) -> Call:
    """A call of a function in the global view or, some of the times, in the local one."""
    local = draws.rarely(3)
    setting = Setting(draws, most, among)
    call = TABLE[name](setting)
    return setting.in_local_view(call) if local and call.local else call
