"""The package against a server of a few lines."""

import asyncio
import collections.abc
import gc
import importlib.metadata
import json
import os
import pickle
import shutil
import socket
import ssl
import subprocess
import tempfile
import threading
import time
import unittest

import linerate
from linerate import Request


# Of localhost, for a hundred years.
CERTIFICATE = """\
-----BEGIN CERTIFICATE-----
MIIBkjCCATigAwIBAgIUCVNW9WFtivWFrsz2rZ/6HxW1JugwCgYIKoZIzj0EAwIw
FDESMBAGA1UEAwwJbG9jYWxob3N0MCAXDTI2MTEyMzA2NTcwOVoYDzIxMjYxMDMw
MDY1NzA5WjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjO
PQMBBwNCAAQH98MO7EuWzlJS0+uBqrrjzhXK2cljxQE7o/qnd+coSUolNpoKvUxu
vGc8aQJhyHAy4rPWs8lP2hWNOzV7BEiAo2YwZDAdBgNVHQ4EFgQU8ddICCTjeT0F
lOV4EKcx3V/X3dIwHwYDVR0jBBgwFoAU8ddICCTjeT0FlOV4EKcx3V/X3dIwFAYD
VR0RBA0wC4IJbG9jYWxob3N0MAwGA1UdEwEB/wQCMAAwCgYIKoZIzj0EAwIDSAAw
RQIhAL8Jn1addj7Siy6XePUpIWVpIODDAm7LrbehW7J6L/vDAiABMp2q5Qf+TBKY
vI8GFMVnnpoOKtN6EBlcn83UbKgZwg==
-----END CERTIFICATE-----
"""
KEY = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg2gPHo/ZeOtmA1V9d
31mGl26RPkdD4coN6XI7JihWe9ihRANCAAQH98MO7EuWzlJS0+uBqrrjzhXK2clj
xQE7o/qnd+coSUolNpoKvUxuvGc8aQJhyHAy4rPWs8lP2hWNOzV7BEiA
-----END PRIVATE KEY-----
"""


class Running:
    """A program that serves HTTP/3 and, beside it, HTTP over TCP at the same port."""

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory()
        cert, key = (os.path.join(self.folder.name, name) for name in ("cert.pem", "key.pem"))
        for path, text in ((cert, CERTIFICATE), (key, KEY)):
            with open(path, "w") as file:
                file.write(text)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        words = self.words(port, cert, key)
        quiet = subprocess.DEVNULL
        self.process = subprocess.Popen(words, cwd=self.folder.name, stdout=quiet, stderr=quiet)
        for _ in range(1000):
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                time.sleep(0.02)
        return "https://localhost:%d" % port

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.folder.cleanup()


class Caddy(Running):
    program = "caddy"

    def words(self, port, cert, key):
        site = "https://localhost:%d {\n bind 127.0.0.1\n tls %s %s\n respond {http.request.proto}\n}\n"
        with open(os.path.join(self.folder.name, "Caddyfile"), "w") as file:
            file.write("{\n admin off\n auto_https disable_redirects\n}\n" + site % (port, cert, key))
        return ["caddy", "run", "--adapter", "caddyfile", "--config", file.name]

    @staticmethod
    def check(test, client):
        test.assertEqual(client.get("/version").body, b"HTTP/3.0")

    seen = 0

    @classmethod
    def over_quic(cls, client):
        cls.seen += client.get("/version").body == b"HTTP/3.0"
        return cls.seen


class Ours(Running):
    program = os.environ.get("LINERATE") or os.path.join(
        os.path.dirname(__file__), "../../target/debug/linerate"
    )

    def words(self, port, cert, key):
        given = ["--listen", "127.0.0.1:%d" % port, "--tls-cert", cert, "--tls-key", key]
        with open(os.path.join(self.folder.name, "version"), "w") as file:
            file.write("here")
        return [self.program, "serve", "--http3", "--demo-routes", "--dir", self.folder.name, *given]

    @classmethod
    def check(cls, test, client):
        test.assertGreaterEqual(cls.over_quic(client), 300)

    @staticmethod
    def over_quic(client):
        return json.loads(client.get("/stats").body)["by_protocol"]["HTTP/3.0"]


class Server:
    """Answers requests in order. `does` gives the bytes of a response, or None to close the connection."""

    def __init__(self, does=None, tls=None):
        self.does = does or (lambda method, path, body: ok(path.encode()))
        self.tls = tls
        self.requests = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = "http://127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        if self.tls is not None:
            try:
                connection = self.tls.wrap_socket(connection, server_side=True)
            except OSError:
                return
        with connection, connection.makefile("rb") as lines:
            while True:
                try:
                    line = lines.readline()
                except OSError:
                    return
                if not line:
                    return
                method, path, _ = line.decode().split(" ")
                length, fields = 0, {}
                while (field := lines.readline().strip()):
                    name, value = field.decode().split(": ", 1)
                    fields[name.lower()] = value
                length = int(fields.get("content-length", 0))
                body = lines.read(length)
                self.requests.append((method, path, fields, body))
                response = self.does(method, path, body)
                if response is None:
                    return
                try:
                    connection.sendall(response)
                except OSError:
                    return

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.close()


class Echo(Server):
    """Sends each chunk of a request back when it comes, so that both bodies are under way at once."""

    def _serve(self, connection):
        with connection, connection.makefile("rb") as lines:
            while lines.readline():
                while lines.readline().strip():
                    pass
                connection.sendall(b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n")
                size = 1
                while size:
                    line = lines.readline()
                    if not line:
                        return
                    size = int(line, 16)
                    connection.sendall(line + lines.read(size + 2))


class Refusing(Server):
    """Answers before it has read the body of a request."""

    def _serve(self, connection):
        with connection, connection.makefile("rb") as lines:
            while lines.readline().strip():
                pass
            connection.sendall(ok(b"too much", 413, "Connection: close\r\n"))
            connection.shutdown(socket.SHUT_WR)
            while lines.read(1 << 16):
                pass


def ok(body, status=200, fields=""):
    return b"HTTP/1.1 %d X\r\nX-Test: a\r\n%sContent-Length: %d\r\n\r\n%s" % (
        status,
        fields.encode(),
        len(body),
        body,
    )


def closes_on_post(method, path, body):
    return None if method == "POST" else ok(b"x")


class Blocking(unittest.TestCase):
    def test_calls_and_their_messages(self):
        with Server(lambda method, path, body: ok(b'{"a": "%s %s"}' % (method.encode(), body), 201)) as server:
            with linerate.Client(server.url) as client:
                response = client.send("/a")
                self.assertEqual((response.status, response.json()), (201, {"a": "GET "}))
                self.assertEqual(response.text(), '{"a": "GET "}')
                self.assertEqual((response.header("X-TEST"), response.header("none", "d")), ("a", "d"))
                self.assertIn(("x-test", "a"), response.headers.pairs)
                put = Request("PUT", "/b", headers=[("A", "1"), ("a", "2")], body="text")
                self.assertEqual(client.send(put).json()["a"], "PUT text")
                self.assertEqual((put.method, put.path, put.body), ("PUT", "/b", b"text"))
                self.assertEqual(client.post("/c", bytearray(b"bytes")).json()["a"], "POST bytes")
                client.post("/d", json={"b": 1}, headers={"c": "d"})
                method, path, fields, body = server.requests[-1]
                self.assertEqual((method, path, body), ("POST", "/d", b'{"b": 1}'))
                self.assertEqual((fields["content-type"], fields["c"]), ("application/json", "d"))
                client.get("/e", headers={"f": "g"})
                self.assertEqual(server.requests[-1][2]["f"], "g")

    def test_a_method_for_each_of_http(self):
        with Server(lambda method, path, body: ok(b"" if method == "HEAD" else method.encode() + body)) as server:
            with linerate.Client(server.url) as client:
                self.assertEqual(client.put("/a", b"1", params={"b": "c d", "e": [1, 2]}).body, b"PUT1")
                self.assertEqual(server.requests[-1][1], "/a?b=c+d&e=1&e=2")
                self.assertEqual(client.patch("/a", json={"f": None}).body, b'PATCH{"f": null}')
                self.assertEqual(client.delete("/a?g=h", params=[("i", "\u00fc")]).body, b"DELETE")
                self.assertEqual(server.requests[-1][1], "/a?g=h&i=%C3%BC")
                self.assertEqual(client.head("/a", headers={"J": "k"}).body, b"")
                self.assertEqual((server.requests[-1][0], server.requests[-1][2]["j"]), ("HEAD", "k"))

    def test_many_in_order(self):
        with Server() as server, linerate.Client(server.url, pipes=3, depth=7) as client:
            responses = client.send_all("/%d" % n for n in range(5000))
            self.assertEqual([r.text() for r in responses], ["/%d" % n for n in range(5000)])
            self.assertGreaterEqual(client.statistics()["responses"], 1)
            self.assertEqual(list(client.send_all([])), [])

    def test_leaving_early_gives_the_rest_up(self):
        with Server() as server, linerate.Client(server.url, pipes=1, depth=4) as client:
            for n, response in enumerate(client.send_all("/%d" % n for n in range(10**9))):
                if n == 100:
                    break
            self.assertEqual(client.send("/after").text(), "/after")

    def test_a_slow_iterator_holds_no_request_up(self):
        with Server() as server, linerate.Client(server.url) as client:
            taken = []

            def paths():
                for n in range(1000):
                    time.sleep(0.01)
                    # Each may depend on what came of the last.
                    yield "/%d" % n
                    if len(taken) >= 3:
                        return

            for response in client.send_all(paths()):
                taken.append(response.text())
            self.assertLess(len(taken), 500)
            self.assertEqual(taken, ["/%d" % n for n in range(len(taken))])

    def test_errors_in_their_places(self):
        with Server(lambda m, path, b: ok(b"x" * (100 if path == "/3" else 1))) as server:
            with linerate.Client(server.url, max_body=50) as client:
                results = list(client.send_all(("/%d" % n for n in range(6)), return_exceptions=True))
                self.assertIsInstance(results[3], linerate.TooLarge)
                self.assertEqual((results[3].part, results[3].limit), ("body", 50))
                self.assertEqual(len(results), 6)
                with self.assertRaises(linerate.TooLarge):
                    list(client.send_all("/%d" % n for n in range(6)))

    def test_each_kind_of_error(self):
        with self.assertRaises(linerate.BuilderError) as raised:
            linerate.Client("ftp://a")
        self.assertIsInstance(raised.exception, ValueError)
        with self.assertRaises(linerate.BuilderError):
            linerate.Client("http://127.0.0.1", timeout=0)
        with self.assertRaisesRegex(linerate.BuilderError, "no setting x"):
            linerate.Client("http://127.0.0.1", x=1)
        with self.assertRaises(linerate.RequestError):
            Request("G T", "/")
        with self.assertRaises(linerate.RequestError):
            Request("GET", "/", headers={"a\n": "b"})
        with self.assertRaises(TypeError):
            linerate.Client("http://127.0.0.1").send(1)
        closed = socket.create_server(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        closed.close()
        with linerate.Client("http://127.0.0.1:%d" % port, connect_attempts=1) as client:
            with self.assertRaises(ConnectionError) as raised:
                client.send("/")
            self.assertIsInstance(raised.exception, linerate.ConnectError)
        with Server(closes_on_post) as server, linerate.Client(server.url) as client:
            with self.assertRaises(linerate.OutcomeUnknown) as raised:
                client.post("/order", "one")
            request = raised.exception.request
            self.assertEqual((request.method, request.path, request.body), ("POST", "/order", b"one"))
            self.assertTrue(raised.exception.why)
            self.assertEqual([path for _, path, _, _ in server.requests], ["/order"])

    def test_timeouts_say_what_they_waited_for(self):
        stuck = threading.Event()
        with Server(lambda *_: stuck.wait() and b"") as server:
            with linerate.Client(server.url, timeout=30, first_byte_timeout=0.05) as client:
                with self.assertRaises(TimeoutError) as raised:
                    client.send("/")
                self.assertEqual(raised.exception.phase, "first byte")
            stuck.set()

    def test_https_and_its_settings(self):
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
            file.write(KEY + CERTIFICATE)
            file.flush()
            tls.load_cert_chain(file.name)
        with Server(tls=tls) as server:
            url = server.url.replace("http://127.0.0.1", "https://localhost")
            for settings in ({}, {"protocol": "http1"}):
                with linerate.Client(url, add_root=CERTIFICATE, **settings) as client:
                    bodies = [r.body for r in client.send_all(f"/{n}" for n in range(300))]
                    self.assertEqual(bodies, [b"/%d" % n for n in range(300)])
            by_address = server.url.replace("http://", "https://")
            with linerate.Client(by_address, add_root=CERTIFICATE, server_name="localhost") as client:
                self.assertEqual(client.get("/a").body, b"/a")
            with linerate.Client(url) as stranger:
                with self.assertRaisesRegex(linerate.ConnectError, "TLS"):
                    stranger.get("/")
            # The server speaks HTTP/1.1 alone.
            with linerate.Client(url, add_root=CERTIFICATE, protocol="http2", h2_connections=2) as client:
                with self.assertRaises(linerate.ConnectError):
                    client.get("/")
        with self.assertRaisesRegex(linerate.BuilderError, 'hint: take "either"'):
            linerate.Client(url, protocol="http4")
        with self.assertRaises(linerate.BuilderError):
            linerate.Client(url.replace("https", "http"), protocol="http3")

    def test_http3_and_the_way_to_it(self):
        for server in (Caddy, Ours):
            if shutil.which(server.program) is None:
                print("not run: %s is not installed" % server.program)
                continue
            with server() as url:
                settings = {"add_root": CERTIFICATE, "proxy": ""}
                with linerate.Client(url, protocol="http3", **settings) as client:
                    responses = list(client.send_all(["/version"] * 300))
                    self.assertEqual([response.status for response in responses], [200] * 300)
                    server.check(self, client)
                    big = client.send(Request("POST", "/echo", body=b"x" * 3_000_000))
                    self.assertEqual(big.status, 200)
                with linerate.Client(url, protocol="alt_svc", **settings) as client:
                    before = server.over_quic(client)
                    deadline = time.monotonic() + 20
                    while server.over_quic(client) < before + 2 and time.monotonic() < deadline:
                        client.get("/version")
                    self.assertGreaterEqual(server.over_quic(client), before + 2)
                with linerate.Client(url, protocol="http3", proxy="") as stranger:
                    with self.assertRaisesRegex(linerate.ConnectError, "certificate"):
                        stranger.get("/")

    def test_a_closed_client_and_a_child_of_fork(self):
        with Server() as server:
            client = linerate.Client(server.url)
            client.send("/")
            pid = os.fork()
            if pid == 0:
                try:
                    client.send("/")
                except linerate.Closed:
                    os._exit(7)
                os._exit(1)
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 7)
            client.close()
            client.close()
            for call in (lambda: client.send("/"), lambda: list(client.send_all(["/"]))):
                with self.assertRaises(linerate.Closed):
                    call()

    def test_other_threads_run_while_one_waits(self):
        stuck = threading.Event()
        with Server(lambda *_: stuck.wait() and ok(b"late")) as server, linerate.Client(server.url) as client:
            texts = []
            waiting = threading.Thread(target=lambda: texts.append(client.send("/").text()))
            waiting.start()
            while not server.requests:
                pass
            stuck.set()
            waiting.join()
            self.assertEqual(texts, ["late"])

    def test_a_dropped_client_leaves_no_thread_and_no_descriptor(self):
        def threads():
            return len(os.listdir("/proc/self/task"))

        with Server() as server:
            before = threads(), len(os.listdir("/proc/self/fd"))
            for _ in range(20):
                with linerate.Client(server.url) as client:
                    client.send("/")
                del client
                gc.collect()
            # The threads of the server end when they see the end of their connections.
            deadline = time.monotonic() + 60
            while threads() > before[0] or len(os.listdir("/proc/self/fd")) > before[1]:
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.01)

    def test_a_body_that_is_none_and_two_of_them_are_type_errors(self):
        with Server() as server, linerate.Client(server.url) as client:
            for arguments in [{"body": 5}, {"body": ["a"]}, {"body": b"a", "json": {}}]:
                with self.assertRaises(TypeError):
                    client.post("/x", **arguments)
            self.assertEqual(server.requests, [])

    def test_headers_are_a_mapping(self):
        headers = Request("GET", "/", headers=[("A", "1"), ("b", "\u00fc"), ("a", "2")]).headers
        self.assertIsInstance(headers, collections.abc.Mapping)
        self.assertEqual((headers["A"], headers.get("c"), "B" in headers, len(headers)), ("1", None, True, 2))
        self.assertEqual((headers.get_all("a"), dict(headers)), (["1", "2"], {"a": "1", "b": "\u00fc"}))
        self.assertEqual(headers.pairs, [("a", "1"), ("a", "2"), ("b", "\u00fc")])
        self.assertEqual(Request("GET", "/", headers=headers).headers, headers)
        with self.assertRaises(KeyError):
            headers["c"]
        with self.assertRaises(linerate.RequestError):
            Request("GET", "/", headers={"a": "1\r\nb: 2"})

    def test_a_status_that_says_no_is_an_error_on_request(self):
        with Server(lambda method, path, body: ok(b"no", int(path[1:]))) as server:
            with linerate.Client(server.url) as client:
                response = client.get("/204")
                self.assertIs(response.raise_for_status(), response)
                for status in (400, 503):
                    with self.assertRaisesRegex(linerate.StatusError, str(status)) as raised:
                        client.get("/%d" % status).raise_for_status()
                    self.assertEqual(raised.exception.response.status, status)

    def test_a_call_has_a_time_of_its_own(self):
        stuck = threading.Event()
        with Server(lambda *_: stuck.wait() and b"") as server:
            with linerate.Client(server.url, timeout=60) as client:
                with self.assertRaises(linerate.Timeout) as raised:
                    client.get("/", timeout=0.05)
                self.assertEqual(raised.exception.phase, "response")
                with self.assertRaisesRegex(linerate.RequestError, "timeout is -1"):
                    client.get("/", timeout=-1)
            stuck.set()

    def test_messages_and_errors_can_be_pickled(self):
        with Server(closes_on_post) as server, linerate.Client(server.url) as client:
            response = client.get("/")
            copy = pickle.loads(pickle.dumps(response))
            self.assertEqual((copy.status, copy.headers, copy.body), (200, response.headers, b"x"))
            with self.assertRaises(linerate.OutcomeUnknown) as raised:
                client.post("/p", "body", headers={"a": "\u00fc"})
            copy = pickle.loads(pickle.dumps(raised.exception))
            self.assertEqual((str(copy), copy.why), (str(raised.exception), raised.exception.why))
            request = copy.request
            self.assertEqual((request.method, request.path, request.body), ("POST", "/p", b"body"))
            self.assertEqual(request.headers["a"], "\u00fc")
            with self.assertRaises(linerate.StatusError) as raised:
                linerate.Response(404, headers={"a": "b"}).raise_for_status()
            self.assertEqual(pickle.loads(pickle.dumps(raised.exception)).response.status, 404)

    def test_the_server_may_ask_for_a_certificate(self):
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
            file.write(CERTIFICATE + KEY)
            file.flush()
            tls.load_cert_chain(file.name)
            tls.load_verify_locations(file.name)
        tls.verify_mode = ssl.CERT_REQUIRED
        with Server(tls=tls) as server:
            url = "https://localhost:%s" % server.url.rsplit(":", 1)[1]
            settings = {"add_root": CERTIFICATE, "connect_attempts": 1}
            with linerate.Client(url, client_certificate=(CERTIFICATE, KEY), **settings) as client:
                self.assertEqual(client.get("/a").text(), "/a")
            with linerate.Client(url, **settings) as client, self.assertRaises(linerate.Error):
                client.get("/a")
            with self.assertRaises(linerate.BuilderError):
                linerate.Client(url, client_certificate=("no", "PEM"), **settings)

    def test_the_version_is_that_of_the_distribution(self):
        self.assertEqual(linerate.__version__, importlib.metadata.version("linerate-client"))

    def test_bodies_stream_both_ways_without_being_held(self):
        made = []

        def pieces():
            for n in range(100):
                made.append(n)
                yield bytes([n]) * (1 << 20)

        with Echo() as server, linerate.Client(server.url) as client:
            with client.stream(Request("PUT", "/a"), body=pieces()) as response:
                self.assertEqual((response.raise_for_status().status, response.header("none")), (200, None))
                self.assertLess(len(made), 10, "nobody takes the response, so that the request waits")
                total, farthest = 0, 0
                for piece in response:
                    total += len(piece)
                    farthest = max(farthest, len(made) - (total >> 20))
                self.assertEqual((total, len(made)), (100 << 20, 100))
                self.assertLess(farthest, 30, "sockets hold some of it, and nothing holds all")
            with client.stream(Request("PUT", "/b"), body=iter(["a", b"b", bytearray(b"c")])) as response:
                self.assertEqual(response.read(), b"abc")

    def test_a_streamed_request_that_breaks_off(self):
        def pieces():
            yield b"a"
            raise LookupError("mine")

        with Echo() as server, linerate.Client(server.url) as client:
            with self.assertRaisesRegex(LookupError, "mine"):
                with client.stream(Request("PUT", "/"), body=pieces()) as response:
                    response.read()
            for wrong in ("text", b"bytes", 5):
                with self.assertRaises(TypeError):
                    client.stream(Request("PUT", "/"), body=wrong)
            with self.assertRaisesRegex(TypeError, "int"):
                client.stream(Request("PUT", "/"), body=[b"a", 5]).read()
            with client.stream(Request("PUT", "/"), body=[]) as response:
                self.assertEqual(response.read(), b"")

    def test_a_response_may_come_before_its_request_is_whole(self):
        with Refusing() as server, linerate.Client(server.url) as client:
            pieces = (b"x" * 1000 for _ in iter(int, 1))
            with client.stream(Request("PUT", "/"), body=pieces) as response:
                self.assertEqual((response.status, response.read()), (413, b"too much"))

    def test_what_is_left_of_a_streamed_response_is_given_up(self):
        with Server(lambda m, path, b: ok(b"x" * (64 << 20 if path == "/big" else 1))) as server:
            with linerate.Client(server.url) as client:
                for _ in range(3):
                    with client.stream("/big") as response:
                        next(response)
                    self.assertEqual(client.get("/").text(), "x")
                response = client.stream("/big")
                next(response)
                del response
                self.assertEqual(client.get("/").text(), "x")
            with self.assertRaises(linerate.Closed):
                client.stream("/")

    def test_a_proxy_forwards_and_refuses(self):
        with Server(lambda m, path, b: ok(path.encode(), 407 if m == "CONNECT" else 200)) as proxy:
            settings = {"proxy": proxy.url.replace("//", "//a:b@"), "connect_attempts": 1}
            with linerate.Client("http://shop.test", **settings) as client:
                self.assertEqual(client.get("/a").text(), "http://shop.test/a")
                self.assertEqual(proxy.requests[0][2]["proxy-authorization"], "Basic YTpi")
            with linerate.Client("https://shop.test", **settings) as client:
                with self.assertRaisesRegex(linerate.ProxyError, "does not accept this user") as raised:
                    client.get("/a")
                self.assertEqual(raised.exception.status, 407)
            with linerate.Client(proxy.url, no_proxy_for="127.0.0.0/8", **settings) as client:
                self.assertEqual(client.get("/a").text(), "/a")
            with self.assertRaisesRegex(linerate.BuilderError, "socks5"):
                linerate.Client("http://shop.test", proxy="socks5://a")

    def test_a_client_that_was_not_closed_warns(self):
        with Server() as server:
            client = linerate.Client(server.url)
            client.send("/")
            with self.assertWarns(ResourceWarning):
                del client
                gc.collect()


class Asyncio(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        # Debugging reports callbacks that a busy machine makes slow.
        asyncio.get_running_loop().set_debug(False)

    async def test_calls(self):
        with Server() as server:
            async with linerate.AsyncClient(server.url) as client:
                responses = await asyncio.gather(*(client.send("/%d" % n) for n in range(1000)))
                self.assertEqual([r.text() for r in responses], ["/%d" % n for n in range(1000)])
                self.assertEqual((await client.get("/g", timeout=5)).status, 200)
                self.assertEqual((await client.put("/p?q", "b", params={"r": 1})).text(), "/p?q&r=1")
                await client.post("/p", json=[1])
                self.assertEqual(server.requests[-1][3], b"[1]")

    async def test_many_from_iterables_of_both_kinds(self):
        async def paths():
            for n in range(3000):
                if n % 100 == 0:
                    await asyncio.sleep(0)
                yield "/%d" % n

        with Server() as server:
            async with linerate.AsyncClient(server.url, pipes=2, depth=10) as client:
                texts = [r.text() async for r in client.send_all("/%d" % n for n in range(3000))]
                self.assertEqual(texts, ["/%d" % n for n in range(3000)])
                self.assertEqual([r.text() async for r in client.send_all(paths())], texts)

    async def test_errors(self):
        with Server(closes_on_post) as server:
            async with linerate.AsyncClient(server.url) as client:
                with self.assertRaises(linerate.OutcomeUnknown):
                    await client.post("/order")
                requests = ["/1", Request("POST", "/2"), "/3"]
                results = [r async for r in client.send_all(requests, return_exceptions=True)]
                self.assertIsInstance(results[1], linerate.OutcomeUnknown)
                self.assertEqual([r.status for r in results[::2]], [200, 200])
                with self.assertRaises(linerate.OutcomeUnknown):
                    [r async for r in client.send_all(requests)]

    async def test_cancelling_gives_the_call_up(self):
        stuck = threading.Event()
        with Server(lambda m, path, b: ok(b"x") if path == "/" else stuck.wait() and b"") as server:
            async with linerate.AsyncClient(server.url) as client:
                with self.assertRaises(asyncio.TimeoutError):
                    await asyncio.wait_for(client.send("/stuck"), 0.05)
                self.assertEqual((await client.send("/")).status, 200)
            stuck.set()

    async def test_closing_ends_what_is_under_way(self):
        stuck = threading.Event()
        with Server(lambda *_: stuck.wait() and b"") as server:
            client = linerate.AsyncClient(server.url)
            call = asyncio.ensure_future(client.send("/"))
            while not server.requests:
                await asyncio.sleep(0.001)
            await client.aclose()
            with self.assertRaises(linerate.Closed):
                await call
            stuck.set()

    async def test_bodies_stream_both_ways(self):
        made = []

        async def pieces(count=50):
            for n in range(count):
                made.append(n)
                await asyncio.sleep(0)
                yield bytes([n]) * (1 << 20)

        with Echo() as server:
            async with linerate.AsyncClient(server.url) as client:
                async with client.stream(Request("PUT", "/a"), body=pieces()) as response:
                    await asyncio.sleep(0.05)
                    self.assertLess(len(made), 40, "nobody takes the response, so that the request waits")
                    total = 0
                    async for piece in response:
                        total += len(piece)
                self.assertEqual((response.status, total, len(made)), (200, 50 << 20, 50))
                bodies = [client.stream(Request("PUT", "/"), body=[b"a", "%d" % n]) for n in range(20)]

                async def text(call):
                    async with call as response:
                        return await response.read()

                texts = await asyncio.gather(*map(text, bodies))
                self.assertEqual(texts, [b"a%d" % n for n in range(20)])

    async def test_streams_that_break_off(self):
        async def broken():
            yield b"a"
            raise LookupError("mine")

        async def endless(ended):
            try:
                while True:
                    yield b"x" * 1000
            finally:
                ended.append(True)

        with Echo() as server, Refusing() as refusing:
            async with linerate.AsyncClient(server.url) as client:
                with self.assertRaisesRegex(LookupError, "mine"):
                    async with client.stream(Request("PUT", "/"), body=broken()) as response:
                        await response.read()
                ended = []
                async with client.stream(Request("PUT", "/"), body=endless(ended)) as response:
                    async for piece in response:
                        break
                self.assertEqual(ended, [True])
                with self.assertRaises(asyncio.TimeoutError):
                    await asyncio.wait_for(self.whole(client, endless(ended)), 0.1)
                self.assertEqual(ended, [True, True])
                self.assertEqual(await self.whole(client, [b"abc"]), b"abc")
            async with linerate.AsyncClient(refusing.url) as client:
                self.assertEqual(await self.whole(client, endless(ended)), b"too much")

    async def whole(self, client, body):
        async with client.stream(Request("PUT", "/"), body=body) as response:
            return await response.read()

    async def test_clients_that_were_not_closed_leave_no_thread(self):
        with Server() as server:
            before = len(os.listdir("/proc/self/fd"))
            with self.assertWarns(ResourceWarning):
                for _ in range(20):
                    client = linerate.AsyncClient(server.url)
                    await client.send("/")
                    del client
                gc.collect()
            deadline = time.monotonic() + 60
            while len(os.listdir("/proc/self/fd")) > before:
                self.assertLess(time.monotonic(), deadline)
                await asyncio.sleep(0.01)


if __name__ == "__main__":
    unittest.main()
