"""Requests: what a device waits for, as errors say it."""

import numpy as np
import pytest
from xdsl.dialects import test

from shardwise.ir.interpret.request import Collective, Receiving, Request, Sending, devices_text, waiting_text

OP = test.TestOp()


@pytest.mark.parametrize(
    ("devices", "text"),
    [
        ([], "devices "),
        ([3], "device 3"),
        ([0, 1], "devices 0, 1"),
        (range(16), "devices " + ", ".join(map(str, range(16)))),
        (range(17), "devices " + ", ".join(map(str, range(16))) + ", ..."),
    ],
)
def test_many_devices_are_cut_short(devices, text: str) -> None:
    assert devices_text(list(devices)) == text


def test_what_is_waited_for_is_said() -> None:
    assert waiting_text(Request(OP, 3)) == "device 3 waits at test.op"
    receiving = Receiving(OP, 1, (0, 2), np.zeros(1))
    assert waiting_text(receiving) == "device 1 waits at test.op for a message from devices 0, 2"
    assert not receiving.anyone
    assert waiting_text(Sending(OP, 1, 0, np.zeros(1))) == "device 1 waits at test.op"


def test_members_agree_on_the_op_and_its_details() -> None:
    def made(details: tuple[int, ...]) -> Collective:
        return Collective(OP, 0, (0, 1), np.zeros(1), details, lambda values: values)

    assert made((1,)).signature == ("test.op", (1,)) != made((2,)).signature
    assert made((1,)) != made((1,))  # two devices that ask are two requests
