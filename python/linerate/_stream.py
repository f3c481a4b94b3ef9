"""Calls whose bodies come and go piece by piece."""


def _checked(piece):
    if not isinstance(piece, (str, bytes, bytearray, memoryview)):
        raise TypeError(f"a piece of the body must be str or bytes, not {type(piece).__name__}")
    return piece


class _Streamed:
    """Head of a response whose body is taken by iteration, once. The server is held back meanwhile."""

    def __init__(self, stream, head):
        self._stream = stream
        self._head = head

    @property
    def status(self):
        return self._head.status

    @property
    def headers(self):
        return self._head.headers

    def header(self, name, default=None):
        """The first field of this name."""
        return self._head.header(name, default)

    def raise_for_status(self):
        """Returns the response itself, or raises `StatusError` where its status is 400 or more."""
        self._head.raise_for_status()
        return self

    def __repr__(self):
        return f"<{type(self).__name__} {self.status}>"


class StreamedResponse(_Streamed):
    """A response whose body is taken by iteration, once. Leaving its `with` gives up what is left of it."""

    def __init__(self, stream, pieces):
        self._pieces = pieces
        try:
            while True:
                self._turn(stream)
                head = stream.head()
                if head is not None:
                    break
        except BaseException:
            self._end(stream)
            raise
        super().__init__(stream, head)

    def _turn(self, stream):
        """Waits for news of the response. Meanwhile the request takes its pieces."""
        if self._pieces is None or not stream.uploads():
            return stream.wait(False)
        stream.wait(True)
        if not stream.has_room():
            return
        try:
            piece = _checked(next(self._pieces))
        except StopIteration:
            self._pieces = None
            stream.end()
        except BaseException:
            stream.fail()
            raise
        else:
            stream.push(piece)

    def _end(self, stream):
        pieces, self._pieces = self._pieces, None
        stream.close()
        if hasattr(pieces, "close"):
            pieces.close()

    def __iter__(self):
        return self

    def __next__(self):
        while True:
            piece = self._stream.take()
            if piece:
                return piece
            if piece is not None:
                self.close()
                raise StopIteration
            self._turn(self._stream)

    def read(self):
        """The rest of the body."""
        return b"".join(self)

    def close(self):
        """Gives up what is left of the body."""
        self._end(self._stream)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class AsyncStreamedResponse(_Streamed):
    """As `StreamedResponse`, for `async for`."""

    def __init__(self, stream, head, future):
        super().__init__(stream, head)
        self._future = future

    def __aiter__(self):
        return self

    async def __anext__(self):
        while True:
            piece = self._stream.take()
            if piece:
                return piece
            if piece is not None:
                raise StopAsyncIteration
            await _turn(self._stream, self._future, False)

    async def read(self):
        """The rest of the body."""
        return b"".join([piece async for piece in self])


async def _turn(stream, future, for_room):
    made = future()
    stream.notify(made, for_room)
    await made


async def head_of(stream, future):
    """The head of the response, once it has come."""
    while True:
        await _turn(stream, future, False)
        head = stream.head()
        if head is not None:
            return head


async def upload(stream, future, pieces):
    """Passes the pieces of a request on while there is room. Its exception is that of the iterator."""
    try:
        if hasattr(pieces, "__aiter__"):
            async for piece in pieces:
                if not await _give(stream, future, piece):
                    return
        else:
            for piece in pieces:
                if not await _give(stream, future, piece):
                    return
    except BaseException:
        stream.fail()
        raise
    finally:
        if hasattr(pieces, "aclose"):
            await pieces.aclose()
    stream.end()


async def _give(stream, future, piece):
    while stream.uploads() and not stream.has_room():
        await _turn(stream, future, True)
    if not stream.uploads():
        return False
    stream.push(_checked(piece))
    return True
