from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Literal, Optional, TypedDict, Union, final, overload

from typing_extensions import Self, Unpack

_Headers = Union[Mapping[str, str], Iterable[tuple[str, str]]]
_Body = Union[bytes, bytearray, memoryview, str]
_Params = Union[Mapping[str, Any], Iterable[tuple[str, Any]]]

__version__: str

class Headers(Mapping[str, str]):
    def __init__(self, pairs: Iterable[tuple[str, str]] = ()) -> None: ...
    @property
    def pairs(self) -> list[tuple[str, str]]: ...
    def get_all(self, name: str) -> list[str]: ...
    def __getitem__(self, name: str) -> str: ...
    def __iter__(self) -> Iterator[str]: ...
    def __len__(self) -> int: ...

@final
class Request:
    def __new__(
        cls, method: str, path: str, *, headers: Optional[_Headers] = None, body: Optional[_Body] = None
    ) -> Request: ...
    @property
    def method(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def headers(self) -> Headers: ...
    @property
    def body(self) -> bytes: ...
    def __getnewargs_ex__(self) -> tuple[tuple[str, str], dict[str, Any]]: ...

@final
class Response:
    def __new__(
        cls, status: int, *, headers: Optional[_Headers] = None, body: Optional[_Body] = None
    ) -> Response: ...
    @property
    def status(self) -> int: ...
    @property
    def url(self) -> Optional[str]: ...
    @property
    def headers(self) -> Headers: ...
    @property
    def body(self) -> bytes: ...
    def header(self, name: str, default: Optional[str] = None) -> Optional[str]: ...
    def text(self) -> str: ...
    def json(self) -> Any: ...
    def raise_for_status(self) -> Response: ...
    def __getnewargs_ex__(self) -> tuple[tuple[int], dict[str, Any]]: ...

class Error(Exception): ...
class BuilderError(Error, ValueError): ...
class RequestError(Error, ValueError): ...
class ConnectError(Error, ConnectionError): ...

class ProxyError(ConnectError):
    status: Optional[int]

class Timeout(Error, TimeoutError):
    phase: Literal["queue", "limit", "first byte", "response"]

class Failed(Error):
    failure: str

class TooLarge(Error):
    part: Literal["head", "body"]
    limit: int

class StatusError(Error):
    response: Response

class Mismatch(Error): ...

class OutcomeUnknown(Error):
    request: Request
    why: str

class Closed(Error): ...

class StreamedResponse:
    @property
    def status(self) -> int: ...
    @property
    def headers(self) -> Headers: ...
    def header(self, name: str, default: Optional[str] = None) -> Optional[str]: ...
    def raise_for_status(self) -> StreamedResponse: ...
    def __iter__(self) -> StreamedResponse: ...
    def __next__(self) -> bytes: ...
    def read(self) -> bytes: ...
    def close(self) -> None: ...
    def __enter__(self) -> StreamedResponse: ...
    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        value: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None: ...

class AsyncStreamedResponse:
    @property
    def status(self) -> int: ...
    @property
    def headers(self) -> Headers: ...
    def header(self, name: str, default: Optional[str] = None) -> Optional[str]: ...
    def raise_for_status(self) -> AsyncStreamedResponse: ...
    def __aiter__(self) -> AsyncStreamedResponse: ...
    async def __anext__(self) -> bytes: ...
    async def read(self) -> bytes: ...

class _Settings(TypedDict, total=False):
    queue: Optional[int]
    timeout: Optional[float]
    connect_timeout: Optional[float]
    first_byte_timeout: Optional[float]
    idle_timeout: Optional[float]
    max_head: Optional[int]
    max_body: Optional[int]
    max_discarded: Optional[int]
    connect_attempts: Optional[int]
    tag: Optional[str]
    protocol: Optional[Literal["either", "http1", "http2", "http3", "alt_svc"]]
    h2_connections: Optional[int]
    add_root: Optional[str]
    client_certificate: Optional[tuple[str, str]]
    server_name: Optional[str]
    proxy: Optional[str]
    no_proxy_for: Optional[str]

class _HostsSettings(_Settings, total=False):
    origins: Optional[int]
    connections: Optional[int]
    redirects: Optional[int]
    resolve: Optional[Mapping[str, Sequence[str]]]
    unix_sockets: Optional[Mapping[str, str]]

class _Calls:
    def send(self, request: Union[str, Request], *, timeout: Optional[float] = None) -> Response: ...
    def request(
        self,
        method: str,
        path: str,
        body: Optional[_Body] = None,
        *,
        json: Any = None,
        params: Optional[_Params] = None,
        headers: Optional[_Headers] = None,
        timeout: Optional[float] = None,
    ) -> Response: ...
    def get(
        self, path: str, *, params: Optional[_Params] = None, headers: Optional[_Headers] = None, timeout: Optional[float] = None
    ) -> Response: ...
    def head(
        self, path: str, *, params: Optional[_Params] = None, headers: Optional[_Headers] = None, timeout: Optional[float] = None
    ) -> Response: ...
    def delete(
        self, path: str, *, params: Optional[_Params] = None, headers: Optional[_Headers] = None, timeout: Optional[float] = None
    ) -> Response: ...
    def post(
        self,
        path: str,
        body: Optional[_Body] = None,
        *,
        json: Any = None,
        params: Optional[_Params] = None,
        headers: Optional[_Headers] = None,
        timeout: Optional[float] = None,
    ) -> Response: ...
    def put(
        self,
        path: str,
        body: Optional[_Body] = None,
        *,
        json: Any = None,
        params: Optional[_Params] = None,
        headers: Optional[_Headers] = None,
        timeout: Optional[float] = None,
    ) -> Response: ...
    def patch(
        self,
        path: str,
        body: Optional[_Body] = None,
        *,
        json: Any = None,
        params: Optional[_Params] = None,
        headers: Optional[_Headers] = None,
        timeout: Optional[float] = None,
    ) -> Response: ...
    def stream(
        self,
        request: Union[str, Request],
        *,
        body: Optional[Iterable[_Body]] = None,
        timeout: Optional[float] = None,
    ) -> StreamedResponse: ...
    @overload
    def send_all(
        self, requests: Iterable[Union[str, Request]], *, return_exceptions: Literal[False] = False
    ) -> Iterator[Response]: ...
    @overload
    def send_all(
        self, requests: Iterable[Union[str, Request]], *, return_exceptions: bool
    ) -> Iterator[Union[Response, Error]]: ...
    def close(self) -> None: ...
    def __del__(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        value: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None: ...

class Client(_Calls):
    def __init__(
        self, url: str, pipes: Optional[int] = None, depth: Optional[int] = None, **settings: Unpack[_Settings]
    ) -> None: ...
    def statistics(self) -> dict[str, Optional[int]]: ...

class Hosts(_Calls):
    def __init__(
        self, *, pipes: Optional[int] = None, depth: Optional[int] = None, **settings: Unpack[_HostsSettings]
    ) -> None: ...
    @property
    def open_origins(self) -> int: ...

class _AsyncCalls:
    async def send(self, request: Union[str, Request], *, timeout: Optional[float] = None) -> Response: ...
    async def request(
        self,
        method: str,
        path: str,
        body: Optional[_Body] = None,
        *,
        json: Any = None,
        params: Optional[_Params] = None,
        headers: Optional[_Headers] = None,
        timeout: Optional[float] = None,
    ) -> Response: ...
    async def get(
        self, path: str, *, params: Optional[_Params] = None, headers: Optional[_Headers] = None, timeout: Optional[float] = None
    ) -> Response: ...
    async def head(
        self, path: str, *, params: Optional[_Params] = None, headers: Optional[_Headers] = None, timeout: Optional[float] = None
    ) -> Response: ...
    async def delete(
        self, path: str, *, params: Optional[_Params] = None, headers: Optional[_Headers] = None, timeout: Optional[float] = None
    ) -> Response: ...
    async def post(
        self,
        path: str,
        body: Optional[_Body] = None,
        *,
        json: Any = None,
        params: Optional[_Params] = None,
        headers: Optional[_Headers] = None,
        timeout: Optional[float] = None,
    ) -> Response: ...
    async def put(
        self,
        path: str,
        body: Optional[_Body] = None,
        *,
        json: Any = None,
        params: Optional[_Params] = None,
        headers: Optional[_Headers] = None,
        timeout: Optional[float] = None,
    ) -> Response: ...
    async def patch(
        self,
        path: str,
        body: Optional[_Body] = None,
        *,
        json: Any = None,
        params: Optional[_Params] = None,
        headers: Optional[_Headers] = None,
        timeout: Optional[float] = None,
    ) -> Response: ...
    def stream(
        self,
        request: Union[str, Request],
        *,
        body: Optional[Union[Iterable[_Body], AsyncIterable[_Body]]] = None,
        timeout: Optional[float] = None,
    ) -> AbstractAsyncContextManager[AsyncStreamedResponse]: ...
    @overload
    def send_all(
        self,
        requests: Union[Iterable[Union[str, Request]], AsyncIterable[Union[str, Request]]],
        *,
        return_exceptions: Literal[False] = False,
    ) -> AsyncIterator[Response]: ...
    @overload
    def send_all(
        self,
        requests: Union[Iterable[Union[str, Request]], AsyncIterable[Union[str, Request]]],
        *,
        return_exceptions: bool,
    ) -> AsyncIterator[Union[Response, Error]]: ...
    async def aclose(self) -> None: ...
    def __del__(self) -> None: ...
    async def __aenter__(self) -> Self: ...
    async def __aexit__(
        self,
        kind: Optional[type[BaseException]],
        value: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None: ...

class AsyncClient(_AsyncCalls):
    def __init__(
        self, url: str, pipes: Optional[int] = None, depth: Optional[int] = None, **settings: Unpack[_Settings]
    ) -> None: ...
    def statistics(self) -> dict[str, Optional[int]]: ...

class AsyncHosts(_AsyncCalls):
    def __init__(
        self, *, pipes: Optional[int] = None, depth: Optional[int] = None, **settings: Unpack[_HostsSettings]
    ) -> None: ...
    @property
    def open_origins(self) -> int: ...
