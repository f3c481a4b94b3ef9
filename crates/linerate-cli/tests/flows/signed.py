"""A server that takes what is signed: an HMAC over method, target, date and body."""

import hashlib
import hmac
import http.server


class Signed(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        date = self.headers.get("X-Date", "")
        text = f"{self.command}\n{self.path}\n{date}\n".encode() + body
        mac = hmac.new(b"k3y", text, hashlib.sha256).hexdigest()
        good = self.headers.get("Authorization") == f"HMAC {mac}"
        self.send_response(200 if good else 403)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Kind", "echo")
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "13")
        self.end_headers()
        self.wfile.write(b'{"token":"t"}')


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Signed)
print(server.server_port, flush=True)
server.serve_forever()
