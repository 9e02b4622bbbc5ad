"""A slot calls what fills it, and says so where nothing does."""

import subprocess
import sys

import pytest

from shardwise import ShardwiseError
from shardwise.layout.slot import Slot


def test_an_empty_slot_says_that_it_is_empty() -> None:
    slot: Slot[[int], str] = Slot("shown")
    with pytest.raises(ShardwiseError, match="nothing fills the slot 'shown'"):
        slot(3)


def test_a_slot_passes_arguments_on_and_takes_the_last_function() -> None:
    slot: Slot[..., tuple[int, ...]] = Slot("sizes")
    slot.fill(lambda *sizes, more=0: (*sizes, more))
    assert slot(1, 2, more=3) == (1, 2, 3)
    slot.fill(lambda *sizes, more=0: ())
    assert slot(1) == ()


@pytest.mark.parametrize("module", ["shardwise.layout.layout", "shardwise.plan.plan", "shardwise.pictures.text"])
def test_importing_one_module_fills_all_slots(module: str) -> None:
    code = f"""
import {module}
from shardwise.layout.layout import Layout
from shardwise.layout.mesh import DeviceMesh
from shardwise.plan.plan import plan_reshard
layout = Layout(DeviceMesh((2,), ("x",)), ["x"])
plan = plan_reshard(layout, layout, (4,), "int8")
assert "0:2" in layout.picture((4,)) and layout._repr_svg_().startswith("<svg")
assert "nothing to do" in str(plan) and "nothing to do" in str(plan.explain())
"""
    subprocess.run([sys.executable, "-c", code], check=True)
