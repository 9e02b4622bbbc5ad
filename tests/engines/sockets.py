"""What really goes over the wire: the bytes that the kernel counts for the sockets of this process."""

import os
import socket
import struct

TCP_INFO = 11
ACKED, RECEIVED = 120, 128  # where in the kernel's struct tcp_info the counts of bytes are


def counts() -> dict[str, tuple[int, int]]:
    """Per open TCP connection: the bytes that the other end has acknowledged, and those received.

    A connection is known by what the system calls it. Its file may have a copy for a moment, when a thread that ends
    connections looks at it, and is not counted twice for that.
    """
    out = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            connection = os.readlink(f"/proc/self/fd/{name}")
            if not connection.startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(name))) as s:
                if s.family not in (socket.AF_INET, socket.AF_INET6) or s.type != socket.SOCK_STREAM:
                    continue
                info = s.getsockopt(socket.IPPROTO_TCP, TCP_INFO, 256)
        except OSError:
            continue
        if len(info) >= RECEIVED + 8:
            (acked,), (received,) = (struct.unpack_from("Q", info, at) for at in (ACKED, RECEIVED))
            out[connection] = acked, received
    return out


def since(before: dict[str, tuple[int, int]]) -> tuple[int, int]:
    """The bytes acknowledged and received since then, over all connections."""
    sent = received = 0
    for connection, (acked, got) in counts().items():
        old = before.get(connection, (0, 0))
        sent, received = sent + acked - old[0], received + got - old[1]
    return sent, received
