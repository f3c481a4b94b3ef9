"""Measures what each connection of a server costs in each state, beside nginx, and prints a table.

memory.py LINERATE [--times N] [--io epoll,uring,xdp] [--only clear|tls] [--without-nginx]

For each state a server is started anew, N times its usual number of connections are brought into the
state and held, and the memory of the process (anonymous pages) and of the kernel's sockets is compared
with before. `--io xdp` needs root: the server runs in one network namespace, the clients in another.
The last column says the most that a connection may cost: the larger of 64 kB and twice nginx's, and
4 kB for each stream and each handler that waits. Ends with 1 if a connection costs more.
"""

import argparse
import collections
import contextlib
import ctypes
import os
import pathlib
import re
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import time

STREAMS = 100
LARGE = 20_000_000
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS = 0, 1, 4
END_STREAM, END_HEADERS, ACK = 1, 4, 1
CLONE_NEWNET = 0x40000000
SERVER, CLIENT = "10.99.37.1", "10.99.37.2"

# What each connection sends, what it awaits before it is in its state, how many connections there are,
# and how many streams or handlers each has.
State = collections.namedtuple("State", "name says awaits connections parts http2", defaults=[False])


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def block(path, method):
    fields = [(":method", method), (":scheme", "http"), (":path", path), (":authority", "h")]
    # Literals without indexing (RFC 7541 section 6.2.2).
    return b"".join(
        b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
        for name, value in fields
    )


def streams(path, count, window):
    ours = struct.pack(">HI", 4, window)
    heads = (frame(HEADERS, END_HEADERS | END_STREAM, n * 2 + 1, block(path, "GET")) for n in range(count))
    return PREFACE + frame(SETTINGS, 0, 0, ours) + frame(SETTINGS, ACK, 0) + b"".join(heads)


def uploads(path, count, size):
    """As much as the windows admit at first."""
    heads = (
        frame(HEADERS, END_HEADERS, n * 2 + 1, block(path, "POST")) + frame(DATA, 0, n * 2 + 1, b"u" * size)
        for n in range(count)
    )
    return streams(path, 0, 65_535) + b"".join(heads)


def get(path):
    return f"GET {path} HTTP/1.1\r\nHost: h\r\n\r\n".encode()


def post(path, length):
    return f"POST {path} HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n".encode()


HEAD = get("/small.txt")[:-2] + b"".join(b"x-%d: %s\r\n" % (n, b"y" * 7000) for n in range(3))
STATES = [
    State("nothing sent", b"", None, 200, 0),
    State("idle", get("/small.txt"), b"small", 200, 0),
    State("half a head of 21 kB", HEAD, None, 50, 0),
    State("half a body of 60 kB", post("/echo", 60_000) + b"u" * 30_000, None, 50, 0),
    State("20 MB, 64 kB of it read", get("/large.bin"), 65_536, 5, 0),
    State("64 requests that wait", get("/delay/60000") * 64, None, 10, 64),
    State("64 requests for 20 MB, nothing read", get("/large.bin") * 64, None, 5, 0),
    State("idle, HTTP/2", streams("/small.txt", 1, 65_535), b"small", 200, 0, True),
    State("100 streams that wait", streams("/delay/60000", STREAMS, 65_535), None, 5, STREAMS, True),
    State("4 streams, 15 kB of a body each", uploads("/echo", 4, 15_000), None, 20, 4, True),
    State("100 streams of 20 MB, windows shut", streams("/large.bin", STREAMS, 0), None, 5, STREAMS, True),
    State(
        "100 streams of 20 MB, nothing read",
        streams("/large.bin", STREAMS, (1 << 31) - 1),
        None,
        5,
        STREAMS,
        True,
    ),
]


def tls_context(state):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2" if state.http2 else "http/1.1"])
    return context


def connect(state, address, tls):
    sock = socket.create_connection(address, 30)
    if tls:
        sock = tls.wrap_socket(sock)
    sock.sendall(state.says)
    came = b""
    while state.awaits and (len(came) < state.awaits if isinstance(state.awaits, int) else state.awaits not in came):
        piece = sock.recv(4096)
        assert piece, f"{state.name}: the connection ended behind {came[-200:]!r}"
        came += piece
    return sock


def process_memory(pid):
    """kB of the anonymous pages of a process: without files, which others may share."""
    text = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(re.search(r"^Pss_Anon:\s+(\d+) kB", text, re.M).group(1))


def socket_memory(port):
    """kB of the kernel for the sockets on a port: bytes received, bytes to send, and what is set aside."""
    listed = subprocess.run(["ss", "-tmnH", "sport", "=", f":{port}"], capture_output=True, text=True, check=True)
    memories = re.findall(r"skmem:\(([^)]*)\)", listed.stdout)
    return sum(int(n) for memory in memories for n in re.findall(r"\b[rwf](\d+)", memory)) / 1024


def settled(measure):
    """A figure that no longer changes; within three seconds."""
    before = measure()
    for _ in range(30):
        time.sleep(0.1)
        now = measure()
        if now == before:
            break
        before = now
    return before


@contextlib.contextmanager
def linerate(program, io, tls, folder, within):
    at = (f"{SERVER}:8080", "--interface", "mem0") if io == "xdp" else ("127.0.0.1:0",)
    flags = ["--threads", "1", "--io", io, "--demo-routes", "--dir", folder, "--listen", *at]
    flags += ["--tls-self-signed"] if tls else []
    server = subprocess.Popen([*within, program, "serve", *flags], stderr=subprocess.PIPE, text=True)
    try:
        said = ""
        while not (listens := re.search(r"listening on https?://([\d.]+):(\d+)", said)):
            line = server.stderr.readline()
            assert line, f"linerate ended: {said}"
            said += line
        yield server.pid, (listens.group(1), int(listens.group(2)))
    finally:
        server.kill()
        server.wait()


@contextlib.contextmanager
def nginx(http2, tls, folder, hole):
    with tempfile.TemporaryDirectory() as home, socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
        probe.close()
        if tls:
            made = "openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 2 -subj /CN=h"
            subprocess.run(made.split(), cwd=home, check=True, capture_output=True)
        how = ("ssl " if tls else "") + ("http2" if http2 else "")
        lines = "ssl_certificate cert.pem; ssl_certificate_key key.pem;" if tls else ""
        pathlib.Path(home, "nginx.conf").write_text(
            f"""daemon off; master_process off; pid pid; error_log error.log;
            events {{ worker_connections 20000; }}
            http {{ access_log off;
            client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path f; uwsgi_temp_path u; scgi_temp_path s;
            server {{ listen 127.0.0.1:{port} backlog=4096 {how}; {lines} root {folder};
            location ~ ^/(delay|echo) {{ proxy_pass http://127.0.0.1:{hole}; proxy_read_timeout 600; }} }} }}"""
        )
        server = subprocess.Popen(["nginx", "-p", home, "-c", "nginx.conf", "-e", "error.log"])
        try:
            for _ in range(200):
                with contextlib.suppress(ConnectionRefusedError):
                    socket.create_connection(("127.0.0.1", port)).close()
                    break
                time.sleep(0.02)
            yield server.pid, ("127.0.0.1", port)
        finally:
            server.kill()
            server.wait()


def cost(server, state, tls, times, sockets):
    """kB of the process and of the kernel for each connection."""
    tls = tls_context(state) if tls else None
    with server as (pid, address):
        measured = lambda: (process_memory(pid), socket_memory(address[1]) if sockets else 0.0)
        for sock in [connect(state, address, tls) for _ in range(3)]:
            sock.close()
        time.sleep(0.3)
        before = settled(measured)
        count = state.connections * times
        held = [connect(state, address, tls) for _ in range(count)]
        after = settled(measured)
        for sock in held:
            sock.close()
    return [(now - then) / count for now, then in zip(after, before)]


@contextlib.contextmanager
def cable():
    """Two network namespaces with a link between them. This process enters the clients'."""
    names = [f"memory{os.getpid()}{end}" for end in "sc"]
    ip = lambda words: subprocess.run(["ip", *words.split()], check=True)
    own = os.open("/proc/self/ns/net", os.O_RDONLY)
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        for name in names:
            ip(f"netns add {name}")
        ip(f"link add mem0 netns {names[0]} type veth peer name mem1 netns {names[1]}")
        for name, link, address in zip(names, ["mem0", "mem1"], [SERVER, CLIENT]):
            ip(f"-n {name} address add {address}/24 dev {link}")
            ip(f"-n {name} link set {link} up")
        theirs = os.open(f"/run/netns/{names[1]}", os.O_RDONLY)
        assert libc.setns(theirs, CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())
        os.close(theirs)
        yield ["ip", "netns", "exec", names[0]]
    finally:
        assert libc.setns(own, CLONE_NEWNET) == 0
        os.close(own)
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], check=False)


def table(options):
    """Prints the rows; the number of those beyond their bound."""
    beyond = 0
    with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0), backlog=4096) as hole:
        os.chmod(folder, 0o755)
        pathlib.Path(folder, "small.txt").write_text("small")
        with open(pathlib.Path(folder, "large.bin"), "wb") as large:
            large.write(bytes(LARGE))
        port = hole.getsockname()[1]
        with_nginx = not options.without_nginx and shutil.which("nginx")
        print("| kB for each connection | " + " | ".join(options.io) + " | nginx | at most |", flush=True)
        print("| --- |" + " --- |" * (len(options.io) + 2))
        for tls in [kind == "tls" for kind in options.only]:
            for state in STATES:
                theirs = [0.0, 0.0]
                if with_nginx:
                    theirs = cost(nginx(state.http2, tls, folder, port), state, tls, options.times, True)
                most = max(64.0, 2 * sum(theirs)) + 4 * state.parts
                costs = []
                for io in options.io:
                    with cable() if io == "xdp" else contextlib.nullcontext([]) as within:
                        server = linerate(options.program, io, tls, folder, within)
                        costs.append(cost(server, state, tls, options.times, io != "xdp"))
                for io, each in zip(options.io, costs):
                    if sum(each) > most:
                        beyond += 1
                        print(f"over {io}, {state.name}: {sum(each):.1f} kB, at most {most:.0f}", file=sys.stderr)
                cells = [f"{own:.1f} + {kernel:.1f}" for own, kernel in [*costs, theirs]]
                if not with_nginx:
                    cells[-1] = ""
                print(f"| {state.name}{', TLS' if tls else ''} | {' | '.join(cells)} | {most:.0f} |", flush=True)
    return beyond


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--io", type=lambda text: text.split(","), default=["epoll"])
    parser.add_argument("--only", choices=["clear", "tls"], nargs=1, default=["clear", "tls"])
    parser.add_argument("--without-nginx", action="store_true")
    # As by Ctrl-C: what was started ends too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(min(table(parser.parse_args()), 1))


main()
