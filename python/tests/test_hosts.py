"""Several servers by one client."""

import asyncio
import gc
import os
import pickle
import socket
import tempfile
import threading
import time
import unittest
import warnings

import linerate
from linerate import Request

from test_client import Server, ok


class AtWork:
    """Servers that are at work on a request for 10 ms each, and how many of them were at once."""

    def __init__(self):
        self.lock, self.now, self.most = threading.Lock(), 0, 0

    def does(self, method, path, body):
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
        time.sleep(0.01)
        with self.lock:
            self.now -= 1
        return ok(path.encode())

    def server(self):
        return Server(self.does)


def moved(to):
    return lambda method, path, body: ok(b"", 302, "Location: %s\r\n" % to)


class Blocking(unittest.TestCase):
    def test_each_method_takes_whole_urls(self):
        with Server() as first, Server() as second, linerate.Hosts(timeout=5) as hosts:
            for url in (first.url, second.url):
                response = hosts.get(url + "/a ü", params={"b": [1, 2]})
                self.assertEqual((response.body, response.url), (b"/a%20%C3%BC?b=1&b=2", url + "/a%20%C3%BC?b=1&b=2"))
                hosts.request("POST", url + "/p", json={"c": 1})
                with hosts.stream(Request("PUT", url + "/s"), body=[b"d", "e"]) as streamed:
                    self.assertEqual(streamed.read(), b"/s")
            self.assertEqual([request[0] for request in first.requests], ["GET", "POST", "PUT"])
            self.assertEqual(hosts.open_origins, 2)
            self.assertIsNone(pickle.loads(pickle.dumps(response)).url)

    def test_send_all_keeps_the_order_of_several_servers(self):
        with Server() as first, Server() as second, linerate.Hosts() as hosts:
            urls = [f"{(first, second)[n % 2].url}/{n}" for n in range(500)]
            self.assertEqual([response.url for response in hosts.send_all(urls)], urls)
            results = list(hosts.send_all([first.url + "/a", "/none", second.url + "/b"], return_exceptions=True))
            self.assertIsInstance(results[1], linerate.RequestError)
            self.assertIn("http://HOST:PORT/PATH", str(results[1]))
            self.assertEqual((results[0].body, results[2].body), (b"/a", b"/b"))

    def test_limits_in_all_and_of_origins(self):
        at_work = AtWork()
        with at_work.server() as a, at_work.server() as b, at_work.server() as c:
            with linerate.Hosts(connections=3, origins=2, pipes=3, depth=1) as hosts:
                urls = [f"{(a, b, c)[n % 3].url}/{n}" for n in range(90)]
                for n, response in enumerate(hosts.send_all(urls)):
                    self.assertEqual(response.text(), f"/{n}")
                    self.assertLessEqual(hosts.open_origins, 2)
            self.assertIn(at_work.most, (2, 3))

    def test_a_call_that_gets_no_connection_says_so(self):
        stuck = threading.Event()
        with Server(lambda *_: stuck.wait() and ok(b"late")) as slow, Server() as other:
            with linerate.Hosts(connections=1) as hosts:
                waiting = threading.Thread(target=hosts.get, args=(slow.url,))
                waiting.start()
                while not slow.requests:
                    time.sleep(0.001)
                with self.assertRaises(linerate.Timeout) as raised:
                    hosts.get(other.url, timeout=0.2)
                self.assertEqual(raised.exception.phase, "limit")
                self.assertIn("all connections that Hosts may have", str(raised.exception))
                stuck.set()
                waiting.join()

    def test_redirects_are_followed_unless_the_program_wants_them(self):
        with Server() as end, Server(moved(end.url + "/end")) as first:
            with linerate.Hosts() as hosts, linerate.Hosts(redirects=0) as none:
                response = hosts.get(first.url + "/begin")
                self.assertEqual((response.status, response.url), (200, end.url + "/end"))
                self.assertEqual(none.get(first.url).status, 302)
                with hosts.stream(first.url) as streamed:
                    self.assertEqual(streamed.status, 302)

    def test_addresses_and_sockets_of_hosts(self):
        with Server() as server, Server() as second, tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "s")
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(path)
            listener.listen()
            server.listener, by_tcp = listener, server.listener
            threading.Thread(target=server._accept, daemon=True).start()
            at = "127.0.0.1:%d" % by_tcp.getsockname()[1]
            with linerate.Hosts(resolve={"shop.test": [at], "one.test": second.url[7:]}, unix_sockets={"docker": path}) as hosts:
                self.assertEqual(hosts.get("http://shop.test/a").body, b"/a")
                self.assertEqual(hosts.get("http://one.test/a").body, b"/a")
                self.assertEqual(hosts.get("http://docker/b").body, b"/b")
                self.assertEqual(server.requests[1][2]["host"], "docker")
            by_tcp.close()
            for wrong in ({"resolve": {"a": ["localhost"]}}, {"connections": 0}, {"protocol": "http9"}, {"origin": 1}):
                with self.assertRaises(linerate.BuilderError) as raised:
                    linerate.Hosts(**wrong)
                self.assertIn(next(iter(wrong)), str(raised.exception))
            with self.assertRaises(linerate.BuilderError) as raised:
                linerate.Client("http://a", redirects=3)
            self.assertIn("it is one of Hosts", str(raised.exception))

    def test_one_that_was_not_closed_warns(self):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            linerate.Hosts()
            gc.collect()
        self.assertEqual([warning.category for warning in seen], [ResourceWarning])


class WithAsyncio(unittest.IsolatedAsyncioTestCase):
    async def test_many_at_once_from_several_servers(self):
        with Server() as first, Server() as second:
            async with linerate.AsyncHosts(connections=4) as hosts:
                urls = [f"{(first, second)[n % 2].url}/{n}" for n in range(400)]
                responses = await asyncio.gather(*(hosts.get(url) for url in urls))
                self.assertEqual([response.url for response in responses], urls)
                self.assertEqual([r.url async for r in hosts.send_all(urls)], urls)
                async with hosts.stream(first.url + "/s") as streamed:
                    self.assertEqual(await streamed.read(), b"/s")
                self.assertEqual(hosts.open_origins, 2)


if __name__ == "__main__":
    unittest.main()
