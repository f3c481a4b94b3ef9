"""How a call ends without a response."""


class Error(Exception):
    """What all exceptions of this package are."""


class BuilderError(Error, ValueError):
    """The client cannot be built as it was described."""


class RequestError(Error, ValueError):
    """The request cannot be sent as it is: nothing left."""


class ConnectError(Error, ConnectionError):
    """No connection to the server could be opened. The request was not sent."""


class ProxyError(ConnectError):
    """The proxy opened no way to the server. `status` is that of its response to CONNECT, None without one."""


class Timeout(Error, TimeoutError):
    """No whole response came in time, and sending the request again does no harm.

    `phase` is "queue" or "limit" (it was not sent; `Hosts` had as many connections as it may have), "first byte" or
    "response".
    """


class Failed(Error):
    """The request was sent and failed: the connection ended, or the response broke the rules (`failure`)."""


class TooLarge(Error):
    """The `part` ("head" or "body") of the response exceeds `limit` bytes."""


class StatusError(Error):
    """The status of `response` is 400 or more: what `raise_for_status` raises."""


class Mismatch(Error):
    """The tag of a response names no request in flight on its connection."""


class OutcomeUnknown(Error):
    """`request` was sent, no response came, and it is not idempotent: the server may have acted on it (`why`)."""


class Closed(Error):
    """The client was closed."""
