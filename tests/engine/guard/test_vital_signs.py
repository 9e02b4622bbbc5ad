"""What the system tells of processes that say nothing: real ones, in every state that can be made."""

import ctypes
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from time import monotonic, sleep

import pytest

from shardwise.engine.guard import vital_signs
from shardwise.engine.guard.vital_signs import ENDED, HOST_ANSWERS, SILENT_HOST, STATES, UNKNOWN, VitalSigns

HOST = socket.gethostname()


def soon(check: Callable[[], bool]) -> bool:
    end = monotonic() + 20
    while not check() and monotonic() < end:
        sleep(0.01)
    return check()


@pytest.fixture
def unix() -> Iterator[socket.socket]:
    one, other = socket.socketpair()
    yield one
    one.close()
    other.close()


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"])
    yield process
    process.kill()
    process.wait()


def test_a_process_of_this_host_is_told_by_its_state(child: subprocess.Popen[bytes], unix: socket.socket) -> None:
    signs = VitalSigns({0: f"{HOST}:{os.getpid()}", 1: f"{HOST}:{child.pid}"})
    assert soon(lambda: signs.look(1, unix) == STATES["S"])
    os.kill(child.pid, signal.SIGSTOP)
    assert soon(lambda: signs.look(1, unix) == STATES["T"] == "it is stopped by a signal")
    os.kill(child.pid, signal.SIGCONT)
    assert soon(lambda: signs.look(1, unix) == STATES["S"])
    child.kill()
    assert soon(lambda: signs.look(1, unix) == ENDED)  # nobody has waited for it yet
    child.wait()
    assert signs.look(1, unix) == ENDED
    assert signs.look(0, unix) == STATES["R"]


def test_another_process_of_the_same_number_is_not_the_one(
    child: subprocess.Popen[bytes], unix: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    signs = VitalSigns({1: f"{HOST}:{child.pid}"})
    monkeypatch.setattr(vital_signs, "_state", lambda pid: ("S", "7"))
    assert signs.look(1, unix) == ENDED


@pytest.mark.parametrize("name", ["elsewhere:1", f"{HOST}:{1 << 30}"])
def test_of_a_process_that_cannot_be_seen_nothing_is_claimed(name: str, unix: socket.socket) -> None:
    assert VitalSigns({1: name}).look(1, unix) == UNKNOWN
    assert VitalSigns({}).look(1, unix) == UNKNOWN


def test_two_of_one_name_cannot_be_told_apart(unix: socket.socket) -> None:
    """Containers may share the name of a host, and each count its processes from 1."""
    mine = f"{HOST}:{os.getpid()}"
    assert VitalSigns({0: mine, 1: mine}).look(1, unix) == UNKNOWN
    assert VitalSigns({0: mine}).look(0, unix) == STATES["R"]


class Filter(ctypes.Structure):
    """A filter of the system for what comes to a socket: here, one that lets nothing through."""

    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_void_p))


def cut_off(end: socket.socket) -> None:
    code = ctypes.create_string_buffer(b"\x06\0\0\0\0\0\0\0", 8)  # return 0 bytes
    end.setsockopt(socket.SOL_SOCKET, 26, bytes(Filter(1, ctypes.addressof(code))))


def test_a_host_that_acknowledges_is_told_from_one_that_is_cut_off() -> None:
    signs = VitalSigns({1: "elsewhere:1"})
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        far, _ = server.accept()
        with near, far:
            near.send(b"nobody reads this")
            assert soon(lambda: signs.look(1, near) == HOST_ANSWERS)
            cut_off(far)
            near.send(b"and this does not arrive")
            assert soon(lambda: signs.look(1, near) == SILENT_HOST)
        assert signs.look(1, near) == UNKNOWN  # a connection that is closed tells nothing


def test_systems_that_do_not_tell_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        with near, monkeypatch.context() as patch:
            patch.delattr(socket, "TCP_INFO")
            assert VitalSigns({}).look(1, near) == UNKNOWN
            patch.undo()
            assert VitalSigns({}).look(1, near) == HOST_ANSWERS
