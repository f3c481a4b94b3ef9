"""Another client behind the same address, whose sequence numbers run ahead: collide.py HOST PORT LOW HIGH READY.

It calls from each port of the range that connect() takes first (those of LOW's parity), and the server closes first, so that it
remembers each for a minute (TIME_WAIT). A SYN from the same port with the numbers of this machine is then older than what the server
remembers. READY is written when each port was used once; then each is used again before it is forgotten.
"""

import concurrent.futures
import pathlib
import socket
import struct
import sys
import time

HOST, PORT, LOW, HIGH, READY = sys.argv[1], *map(int, sys.argv[2:5]), sys.argv[5]
REQUEST = f"GET / HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n".encode()
# linux/tcp.h
TCP_REPAIR, TCP_REPAIR_QUEUE, TCP_QUEUE_SEQ = 19, 20, 21
REPAIR_OFF_SILENTLY, SEND_QUEUE = -1, 2
# Linux counts up every 64 ns (RFC 6528); a quarter of all numbers is 69 s ahead.
RATE, AHEAD = 1e9 / 64, 1 << 30
# TIME_WAIT is 60 s.
AGAIN = 20


def call(port, number=None):
    """A call from that port; its first sequence number and when that was."""
    with socket.socket() as s:
        s.settimeout(5)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind(("0.0.0.0", port))
        if number is not None:
            s.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, 1)
            s.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR_QUEUE, SEND_QUEUE)
            s.setsockopt(socket.IPPROTO_TCP, TCP_QUEUE_SEQ, struct.pack("I", number & 0xFFFFFFFF))
            s.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, 0)
        s.connect((HOST, PORT))
        s.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, 1)
        s.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR_QUEUE, SEND_QUEUE)
        first = s.getsockopt(socket.IPPROTO_TCP, TCP_QUEUE_SEQ) & 0xFFFFFFFF
        s.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, REPAIR_OFF_SILENTLY)
        began = time.monotonic()
        s.sendall(REQUEST)
        while s.recv(4096):
            pass
        return first, began


natural, used = {}, {}


def use(port):
    try:
        if port not in natural:
            # The port is free again a round trip later.
            natural[port] = call(port)
            return
        first, began = natural[port]
        call(port, int(first + RATE * (time.monotonic() - began)) + AHEAD)
        used[port] = time.monotonic()
    except OSError:
        # Somebody else has the port just now.
        used[port] = time.monotonic() - AGAIN / 2


with concurrent.futures.ThreadPoolExecutor(48) as pool:
    while True:
        due = [p for p in range(LOW, HIGH + 1, 2) if time.monotonic() - used.get(p, -AGAIN) >= AGAIN]
        list(pool.map(use, due))
        if len(used) >= len(range(LOW, HIGH + 1, 2)):
            pathlib.Path(READY).touch()
        time.sleep(0.5)
