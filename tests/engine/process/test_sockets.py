"""Connections that are shut from outside: whoever waits for one is told, and others are left alone."""

import gc
import os
import socket
from threading import Thread

import pytest

from shardwise.engine.process.sockets import listening_addresses, shut_connections


def connected(listener: socket.socket) -> tuple[socket.socket, socket.socket]:
    calling = socket.create_connection(listener.getsockname()[:2])
    return calling, listener.accept()[0]


@pytest.mark.parametrize("own", [True, False])
def test_those_of_some_addresses_are_shut_and_others_go_on(own: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mine, socket.create_server(("127.0.0.1", 0)) as other:
        address = ("127.0.0.1", mine.getsockname()[1])
        assert address in listening_addresses()
        one, two = connected(mine), connected(other)
        ends: list[bytes] = []
        shut = one[1] if own else one[0]  # the end that has the address
        waiting = Thread(target=lambda: ends.append(shut.recv(1)))
        waiting.start()
        assert shut_connections({address} if own else set(), set() if own else {address}) == 1
        waiting.join(10)
        assert ends == [b""]
        two[0].sendall(b"x")
        assert two[1].recv(1) == b"x"
        more = connected(mine)  # who listens still does
        for sock in (*one, *two, *more):
            sock.close()


def test_what_had_come_can_be_read_and_answered_before_the_end_is_seen() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        there, here = connected(listener)
        there.sendall(b"ready")
        assert here.recv(5, socket.MSG_PEEK) == b"ready"
        assert shut_connections({("127.0.0.1", listener.getsockname()[1])}, set()) == 1
        assert here.recv(5) == b"ready"
        here.sendall(b"data")
        assert there.recv(4) == b"data"
        assert here.recv(1) == b""
        there.close()
        here.close()


def test_looking_opens_nothing_and_takes_nothing_for_a_socket_that_is_none(tmp_path: object) -> None:
    read, write = os.pipe()
    pair = socket.socketpair()
    gc.collect()  # what others left behind is not closed meanwhile
    before = set(os.listdir("/proc/self/fd"))
    for _ in range(3):
        listening_addresses()
        assert shut_connections({("127.0.0.1", 1)}, {("127.0.0.1", 1)}) == 0
    assert set(os.listdir("/proc/self/fd")) == before
    pair[0].sendall(b"x")
    assert pair[1].recv(1) == b"x"
    for sock in pair:
        sock.close()
    os.close(read)
    os.close(write)
