"""A server of Python's standard library: server.py PORT MODE."""

import http.server
import os
import socket
import ssl
import sys
import threading
import time

PORT, MODE = int(sys.argv[1]), sys.argv[2]
BODY = b"Hello, World!\n" * 20
# "pool=K": so many calls are worked on at once, each for 100 ms.
POOL = threading.Semaphore(int(MODE.removeprefix("pool="))) if MODE.startswith("pool=") else None

# Over TLS where there is a certificate; each write is a record of its own.
TLS = None
if "BENCH_TLS_CERT" in os.environ:
    TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    TLS.load_cert_chain(os.environ["BENCH_TLS_CERT"], os.environ["BENCH_TLS_KEY"])


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # As the standard library has it, unbuffered: head and body are a write each. "whole" gathers them.
    wbufsize = 0 if MODE == "split" else -1

    def setup(self):
        if TLS:
            self.request = TLS.wrap_socket(self.request, server_side=True)
        super().setup()
        if MODE == "reverse":
            try:
                socket.gethostbyaddr(self.client_address[0])
            except OSError:
                pass

    def finish(self):
        super().finish()
        if TLS:
            self.request.close()

    def do_GET(self):
        if MODE.startswith("burn"):
            # So many milliseconds of work.
            until = time.process_time() + float(MODE.removeprefix("burn=")) / 1e3
            while time.process_time() < until:
                pass
        if POOL:
            with POOL:
                time.sleep(0.1)
        self.send_response(200)
        self.send_header("Content-Length", str(len(BODY)))
        self.end_headers()
        self.wfile.write(BODY)
        self.wfile.flush()

    def log_message(self, *args):
        pass


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128

    def handle_error(self, *args):
        pass  # who leaves in the handshake is no error of ours


if MODE == "single":
    # One connection after the other, as http.server.HTTPServer has it.
    Handler.timeout = 30
    http.server.HTTPServer(("0.0.0.0", PORT), Handler).serve_forever()
Server(("0.0.0.0", PORT), Handler).serve_forever()
