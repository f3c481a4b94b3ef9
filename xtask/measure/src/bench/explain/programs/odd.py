"""A server with an oddity that is easily taken for another fault: odd.py PORT MODE."""

import os
import resource
import socket
import ssl
import sys
import threading
import time

PORT, MODE = int(sys.argv[1]), sys.argv[2]
LOCK, STATE = threading.Lock(), {"calls": 0, "connections": 0}
# "tick=MS": calls are answered on a tick of so many milliseconds.
TICK = float(MODE.removeprefix("tick=")) / 1e3 if MODE.startswith("tick=") else None
TLS = None
if "BENCH_TLS_CERT" in os.environ:
    TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    TLS.load_cert_chain(os.environ["BENCH_TLS_CERT"], os.environ["BENCH_TLS_KEY"])
listener = socket.socket()
if MODE == "sndbuf":
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind(("0.0.0.0", PORT))


def overflow():
    """Another program's listening socket that runs over, again and again."""
    other = socket.socket()
    other.bind(("127.0.0.1", 0))
    other.listen(0)
    while True:
        held = []
        for _ in range(4):
            one = socket.socket()
            one.setblocking(False)
            one.connect_ex(other.getsockname())
            held.append(one)
        time.sleep(0.02)
        for one in held:
            one.close()
        other.setblocking(False)
        try:
            while True:
                other.accept()[0].close()
        except OSError:
            pass


def groups():
    """The control groups of this process."""
    with open("/proc/self/cgroup") as file:
        return file.read()


def holds_lock():
    """A timer's work: it holds the lock that calls want for 90 of each 120 ms."""
    due = time.monotonic()
    while True:
        with LOCK:
            time.sleep(0.09)
        due += 0.12
        time.sleep(max(0, due - time.monotonic()))


def ends_with(parent):
    """A child ends with its parent."""
    while os.getppid() == parent:
        time.sleep(0.2)
    os._exit(0)


def answer(stream, late):
    with LOCK:
        STATE["calls"] += 1
        n = STATE["calls"]
    if TICK:
        # Requests are looked for on each tick.
        time.sleep(TICK - time.monotonic() % TICK)
    if MODE == "boots" and n <= 2:
        # Its workers are not there yet.
        time.sleep(6)
    if MODE == "cold" and n == 1:
        time.sleep(1.5)
    if MODE == "prefork":
        # More than its group has in one period.
        end = time.thread_time() + 0.012
        while time.thread_time() < end:
            pass
    if late:
        time.sleep(0.06)
    if MODE == "late-close":
        stream.sendall(b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\nhello")
        time.sleep(0.5)
        if TLS:
            # Without close_notify the end of such a response cannot be trusted.
            stream.settimeout(1)
            stream = stream.unwrap()
        return stream.close()
    if MODE == "cork":
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
    body = b"x" * (120_000 if MODE in ("sndbuf", "pause") else 40)
    whole = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    for at in range(0, len(whole), 8192):
        if MODE == "pause" and at == 57_344:
            time.sleep(0.3)
        stream.sendall(whole[at : at + 8192])


def serve(stream):
    with LOCK:
        STATE["connections"] += 1
        # The first connection after the warm-up is slow, and no other.
        late = MODE == "one-slow" and STATE["connections"] == 2
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    unread = b""
    try:
        if TLS:
            stream = TLS.wrap_socket(stream, server_side=True)
        while got := stream.recv(4096):
            unread += got
            while b"\r\n\r\n" in unread:
                unread = unread.split(b"\r\n\r\n", 1)[1]
                answer(stream, late)
    except OSError:
        pass


FIRST_GROUPS = groups()
listener.listen(128)
if MODE == "full":
    # Room for one connection.
    resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
    held = []
    try:
        while True:
            held.append(open("/dev/null"))
    except OSError:
        held.pop().close()
if MODE == "prefork":
    # Its group is given to the one that listens; children have the same.
    until = time.monotonic() + 10
    while groups() == FIRST_GROUPS and time.monotonic() < until:
        time.sleep(0.02)
    for _ in range(4):
        if os.fork() == 0:
            threading.Thread(target=ends_with, args=(os.getppid(),), daemon=True).start()
            break
    else:
        os.wait()
if MODE == "overflow":
    threading.Thread(target=overflow, daemon=True).start()
if MODE == "lock":
    threading.Thread(target=holds_lock, daemon=True).start()
while True:
    try:
        connection = listener.accept()[0]
    except OSError:
        time.sleep(0.05)
        continue
    threading.Thread(target=serve, args=(connection,), daemon=True).start()
