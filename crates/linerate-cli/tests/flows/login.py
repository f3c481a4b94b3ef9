"""A small shop: a login form with a CSRF token, a session cookie, items that belong to a user."""

import http.server
import json
import secrets
import urllib.parse
from http.cookies import SimpleCookie

SESSIONS = {}


class Shop(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def session(self):
        cookies = SimpleCookie(self.headers.get("Cookie", ""))
        return SESSIONS.get(cookies["session"].value) if "session" in cookies else None

    def reply(self, status, text="", *fields):
        self.send_response(status)
        for name, value in fields:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def do_GET(self):
        if self.path == "/login":
            name, csrf = secrets.token_hex(8), secrets.token_hex(8)
            SESSIONS[name] = {"csrf": csrf, "user": None}
            form = f'<form><input type="hidden" name="csrf" value="{csrf}"></form>'
            return self.reply(200, form, ("Set-Cookie", f"session={name}; Path=/; HttpOnly"))
        session = self.session()
        if session is None or session["user"] is None:
            return self.reply(403, "no session")
        user = session["user"]
        if self.path == "/items":
            items = [{"id": f"{user}-1"}, {"id": f"{user}-2"}]
            return self.reply(200, json.dumps({"owner": user, "items": items}))
        return self.reply(200 if self.path == f"/items/{user}-2" else 404, "item")

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        session = self.session()
        if session is None:
            return self.reply(403, "no session")
        if self.path == "/logout":
            session["user"] = None
            return self.reply(204, "", ("Set-Cookie", "session=; Path=/; Max-Age=0"))
        fields = urllib.parse.parse_qs(body)
        if fields.get("csrf") != [session["csrf"]]:
            return self.reply(403, "wrong token")
        session["user"] = fields["user"][0]
        return self.reply(303, "", ("Location", "/items"))


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 256
    daemon_threads = True


if __name__ == "__main__":
    server = Server(("127.0.0.1", 0), Shop)
    print(server.server_address[1], flush=True)
    server.serve_forever()
