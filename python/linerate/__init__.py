"""An HTTP client that sends requests without waiting for the responses of earlier ones.

>>> with linerate.Client("http://127.0.0.1:8080", pipes=4, depth=64) as client:
...     print(client.send("/a").status)
...     for response in client.send_all(f"/item/{n}" for n in range(1000)):
...         print(response.status, len(response.body))

`AsyncClient` is the same for asyncio. A request is a path (a GET) or a `Request`. `Hosts` and `AsyncHosts` call several
servers, and take whole URLs.
"""

import asyncio as _asyncio
import contextlib as _contextlib
import json as _json
import urllib.parse as _parse
import warnings as _warnings

from . import linerate_native as _native
from ._errors import (
    BuilderError,
    Closed,
    ConnectError,
    Error,
    Failed,
    Mismatch,
    OutcomeUnknown,
    ProxyError,
    RequestError,
    StatusError,
    Timeout,
    TooLarge,
)
from ._headers import Headers
from ._stream import AsyncStreamedResponse, StreamedResponse
from ._stream import head_of as _head_of
from ._stream import upload as _upload
from .linerate_native import Request, Response, __version__

__all__ = [
    "AsyncClient",
    "AsyncHosts",
    "AsyncStreamedResponse",
    "BuilderError",
    "Client",
    "Closed",
    "ConnectError",
    "Error",
    "Failed",
    "Headers",
    "Hosts",
    "Mismatch",
    "OutcomeUnknown",
    "ProxyError",
    "Request",
    "RequestError",
    "Response",
    "StatusError",
    "StreamedResponse",
    "Timeout",
    "TooLarge",
    "__version__",
]


def _request(method, path, *, params=None, headers=None, body=None, json=None):
    if body is not None and json is not None:
        raise TypeError(f"{method.lower()}() takes a body or json, not both")
    if body is not None and not isinstance(body, (str, bytes, bytearray, memoryview)):
        raise TypeError(f"body must be str or bytes, not {type(body).__name__}; json= takes other values")
    if params:
        path += ("&" if "?" in path else "?") + _parse.urlencode(params, doseq=True)
    if isinstance(headers, Headers):
        headers = headers.pairs
    headers = list(headers.items() if hasattr(headers, "items") else headers or ())
    if json is not None:
        body = _json.dumps(json)
        headers.append(("content-type", "application/json"))
    return Request(method, path, headers=headers, body=body)


def _pieces(body):
    if isinstance(body, (str, bytes, bytearray, memoryview)):
        raise TypeError("body must be an iterable of pieces\nhint: give a whole body to the Request")
    return body


class _Methods:
    """One method for each of HTTP's. Each returns what `send` does.

    `params` are the parameters of the query, as a mapping or pairs; a value may be a list. A `body` is text or bytes,
    and `json` any value that becomes one. `timeout` is this call's own, in seconds.
    """

    def request(self, method, path, body=None, *, json=None, params=None, headers=None, timeout=None):
        """Sends a request by any method."""
        return self.send(_request(method, path, body=body, json=json, params=params, headers=headers), timeout=timeout)

    def get(self, path, *, params=None, headers=None, timeout=None):
        """Sends a GET."""
        return self.send(_request("GET", path, params=params, headers=headers), timeout=timeout)

    def head(self, path, *, params=None, headers=None, timeout=None):
        """Sends a HEAD: the response has no body."""
        return self.send(_request("HEAD", path, params=params, headers=headers), timeout=timeout)

    def delete(self, path, *, params=None, headers=None, timeout=None):
        """Sends a DELETE."""
        return self.send(_request("DELETE", path, params=params, headers=headers), timeout=timeout)

    def post(self, path, body=None, *, json=None, params=None, headers=None, timeout=None):
        """Sends a POST. It is never sent twice."""
        return self.send(_request("POST", path, body=body, json=json, params=params, headers=headers), timeout=timeout)

    def put(self, path, body=None, *, json=None, params=None, headers=None, timeout=None):
        """Sends a PUT."""
        return self.send(_request("PUT", path, body=body, json=json, params=params, headers=headers), timeout=timeout)

    def patch(self, path, body=None, *, json=None, params=None, headers=None, timeout=None):
        """Sends a PATCH. It is never sent twice."""
        return self.send(_request("PATCH", path, body=body, json=json, params=params, headers=headers), timeout=timeout)


class _Calls(_Methods):
    """What blocking clients do."""

    _core = None
    _is_closed = False

    def __del__(self):
        if self._core is not None and not self._is_closed:
            _warnings.warn(f"unclosed {self!r}", ResourceWarning, source=self)
            # Its thread and descriptors end with the core.

    def send(self, request, *, timeout=None):
        """Sends a request and returns its response. `timeout` is this call's own, in seconds."""
        return self._core.send(request, timeout)

    def stream(self, request, *, body=None, timeout=None):
        """Sends a request and returns its response once its head is there: a `StreamedResponse`, to be used by `with`.

        `body` yields the pieces of the request's body. While it makes none, or nobody takes those of the response, the
        server waits: neither body is held in memory. Both may be under way at once.
        """
        pieces = None if body is None else iter(_pieces(body))
        return StreamedResponse(self._core.stream(request, pieces is not None, timeout), pieces)

    def send_all(self, requests, *, return_exceptions=False):
        """Sends requests as places for them become free, and yields the responses in the order of the requests.

        The first call that fails ends it with its exception. With `return_exceptions` it yields the exception instead.
        """
        group = self._core.group()
        iterator = iter(requests)
        try:
            while True:
                if not group.has_ended():
                    group.fill(iterator)
                group.wait()
                results = group.take()
                if results is None:
                    return
                for result in results:
                    if not return_exceptions and isinstance(result, Exception):
                        raise result
                    yield result
        finally:
            group.close()

    def close(self):
        """Closes all connections. Calls under way end with `Closed`."""
        self._is_closed = True
        self._core.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Client(_Calls):
    """A client of one server. Threads may share it. It waits without holding the interpreter's lock.

    `pipes` are connections, `depth` requests in flight on each. Times (`timeout`, `connect_timeout`,
    `first_byte_timeout`, `idle_timeout`) are in seconds, sizes (`max_head`, `max_body`, `max_discarded`) in bytes. For
    TLS: `add_root`, `client_certificate=(chain, key)` and `server_name`, all PEM texts but the name. `proxy` is the URL
    of an HTTP proxy, and `no_proxy_for` lists hosts without one; without `proxy` the environment's variables count, and
    "" means none.
    """

    def __init__(self, url, pipes=None, depth=None, **settings):
        self._core = _native.Core(url, pipes=pipes, depth=depth, **settings)

    def statistics(self):
        """The client's counts, as of the last time it had nothing to do."""
        return self._core.statistics()


class Hosts(_Calls):
    """A client of several servers, for whole URLs: `hosts.get("https://example.org/")`. Threads may share it.

    Each origin (scheme, host and port) has connections of its own: `pipes`, `depth` and all other settings are those of
    `Client`, for each. `origins` limits how many origins are open at once (64), `connections` the connections to all of
    them together; a call waits for both, at most its time. `redirects` are followed, 10 in a row unless it says
    otherwise, but for `stream`; 0 returns them. `response.url` is where a response came from. `resolve` gives addresses
    of hosts, `{"example.org": ["192.0.2.1:443"]}`, and `unix_sockets` paths, `{"docker": "/run/docker.sock"}`.
    """

    def __init__(self, *, pipes=None, depth=None, **settings):
        self._core = _of_hosts(pipes, depth, **settings)

    @property
    def open_origins(self):
        """How many origins have connections now."""
        return self._core.open_origins()


class _AsyncCalls(_Methods):
    """What clients for asyncio do."""

    _core = None
    _loop = None
    _is_closed = False

    def __del__(self):
        if self._core is None or self._is_closed:
            return
        _warnings.warn(f"unclosed {self!r}", ResourceWarning, source=self)
        # The loop holds the core, with its thread and descriptors.
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(_release, self._loop, self._core)

    def _future(self):
        loop = _asyncio.get_running_loop()
        if loop is not self._loop:
            if self._loop is not None:
                raise Error("the client belongs to another event loop\nhint: make one in each loop")
            loop.add_reader(self._core.descriptor(), self._core.settle)
            self._loop = loop
        return loop.create_future()

    async def send(self, request, *, timeout=None):
        """As `Client.send`. Cancelling gives the call up."""
        future = self._future()
        call = self._core.send_to(future, request, timeout)
        try:
            return await future
        except _asyncio.CancelledError:
            call.abort()
            raise

    @_contextlib.asynccontextmanager
    async def stream(self, request, *, body=None, timeout=None):
        """As `Client.stream`, for `async with`. The `body` may be asynchronous as well; a task of its own takes it."""
        if body is not None and not hasattr(body, "__aiter__"):
            body = iter(_pieces(body))
        self._future().cancel()
        stream = self._core.stream(request, body is not None, timeout)
        pump = None
        if body is not None:
            pump = _asyncio.ensure_future(_upload(stream, self._future, body))
        try:
            yield AsyncStreamedResponse(stream, await _head_of(stream, self._future), self._future)
        except RequestError:
            if pump is not None and pump.done() and not pump.cancelled() and pump.exception() is not None:
                # The iterator's own exception says more.
                raise pump.exception() from None
            raise
        finally:
            stream.close()
            if pump is not None:
                pump.cancel()
                await _asyncio.wait([pump])
                if not pump.cancelled():
                    # It was raised above, or the response was there before it.
                    pump.exception()

    async def send_all(self, requests, *, return_exceptions=False):
        """As `Client.send_all`. `requests` may be asynchronous as well."""
        group = self._core.group()
        pump = None
        if hasattr(requests, "__aiter__"):
            pump = _asyncio.ensure_future(_pump(group, requests))
        else:
            iterator = iter(requests)
        try:
            while True:
                if pump is None and not group.has_ended():
                    group.fill(iterator)
                future = self._future()
                group.notify(future)
                await future
                results = group.take()
                if results is None:
                    break
                for result in results:
                    if not return_exceptions and isinstance(result, Exception):
                        raise result
                    yield result
            if pump is not None:
                # Its exception, if it ended by one.
                await pump
        finally:
            group.close()
            if pump is not None:
                pump.cancel()

    async def aclose(self):
        """Closes all connections. Calls under way end with `Closed`."""
        self._is_closed = True
        if self._loop is not None:
            self._loop.remove_reader(self._core.descriptor())
        self._core.close()
        # Calls that ended by it.
        self._core.settle()

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        await self.aclose()


class AsyncClient(_AsyncCalls):
    """A client of one server for asyncio. It belongs to the event loop of its first call. Settings are those of `Client`."""

    def __init__(self, url, pipes=None, depth=None, **settings):
        self._core = _native.Core(url, pipes=pipes, depth=depth, **settings)

    def statistics(self):
        """The client's counts, as of the last time it had nothing to do."""
        return self._core.statistics()


class AsyncHosts(_AsyncCalls):
    """As `Hosts`, for asyncio. It belongs to the event loop of its first call."""

    def __init__(self, *, pipes=None, depth=None, **settings):
        self._core = _of_hosts(pipes, depth, **settings)

    @property
    def open_origins(self):
        """How many origins have connections now."""
        return self._core.open_origins()


def _of_hosts(
    pipes, depth, *, origins=None, connections=None, redirects=None, resolve=None, unix_sockets=None, **settings
):
    ways = [(host, [at] if isinstance(at, str) else list(at)) for host, at in (resolve or {}).items()]
    return _native.Core.of_hosts(
        pipes=pipes,
        depth=depth,
        origins=origins,
        connections=connections,
        redirects=redirects,
        resolve=ways,
        unix_sockets=list((unix_sockets or {}).items()),
        **settings,
    )


def _release(loop, core):
    """Ends the core of a client that was not closed."""
    loop.remove_reader(core.descriptor())
    core.close()
    core.settle()


async def _pump(group, requests):
    """Passes requests on while there is room."""
    try:
        async for request in requests:
            while group.is_full():
                await _asyncio.sleep(0.001)
            group.push(request)
    finally:
        group.end()
