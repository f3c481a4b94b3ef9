# PORT CAFILE: requests of aioquic over HTTP/3, a line for each.
import asyncio, sys
from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ConnectionTerminated, StreamReset

class Response:
    def __init__(self):
        self.fields, self.trailers, self.body, self.reset = None, None, b"", None
        self.over = asyncio.get_event_loop().create_future()

class Client(QuicConnectionProtocol):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.h3, self.responses, self.code = H3Connection(self._quic), {}, None
        self.ended = asyncio.get_event_loop().create_future()

    def quic_event_received(self, event):
        if isinstance(event, ConnectionTerminated):
            self.code = event.error_code
            for response in self.responses.values():
                if not response.over.done():
                    response.over.set_result(None)
            if not self.ended.done():
                self.ended.set_result(None)
            return
        if isinstance(event, StreamReset) and event.stream_id in self.responses:
            self.responses[event.stream_id].reset = event.error_code
            self.finish(event.stream_id)
            return
        for it in self.h3.handle_event(event):
            response = self.responses.get(it.stream_id)
            if response is None:
                continue
            if isinstance(it, HeadersReceived):
                if response.fields is None:
                    response.fields = dict(it.headers)
                else:
                    response.trailers = dict(it.headers)
            elif isinstance(it, DataReceived):
                response.body += it.data
            if it.stream_ended:
                self.finish(it.stream_id)

    def finish(self, stream):
        if not self.responses[stream].over.done():
            self.responses[stream].over.set_result(None)

    def begin(self, method, path, body=None, more=(), trailers=None):
        stream = self._quic.get_next_available_stream_id()
        self.responses[stream] = Response()
        head = [(b":method", method), (b":scheme", b"https"), (b":authority", b"localhost"), (b":path", path)]
        self.h3.send_headers(stream, head + list(more), end_stream=body is None)
        if body is not None:
            self.h3.send_data(stream, body, end_stream=trailers is None)
        if trailers is not None:
            self.h3.send_headers(stream, trailers, end_stream=True)
        self.transmit()
        return self.responses[stream]

    async def ask(self, *args, **kwargs):
        response = self.begin(*args, **kwargs)
        await asyncio.wait_for(response.over, 20)
        return response

def configuration():
    made = QuicConfiguration(is_client=True, alpn_protocols=H3_ALPN, server_name="localhost")
    made.load_verify_locations(sys.argv[2])
    return made

def client():
    return connect("127.0.0.1", int(sys.argv[1]), configuration=configuration(), create_protocol=Client)

async def broken(name, send):
    async with client() as end:
        send(end)
        end.transmit()
        await asyncio.wait_for(end.ended, 20)
        print(name, hex(end.code))

async def main():
    async with client() as end:
        hello = await end.ask(b"GET", b"/")
        print("hello", hello.fields[b":status"].decode(), len(hello.body))
        body = bytes(range(256)) * 3000
        echo = await end.ask(b"POST", b"/echo", body)
        print("echo", echo.fields[b":status"].decode(), echo.body == body)
        trailers = await end.ask(b"POST", b"/upper", b"abc", trailers=[(b"x-end", b"1")])
        print("trailers", trailers.body.decode())
        large = await end.ask(b"GET", b"/bytes/4000000")
        print("large", len(large.body))
        many = [end.begin(b"GET", b"/bytes/%d" % n) for n in range(100)]
        await asyncio.wait_for(asyncio.gather(*[response.over for response in many]), 20)
        print("many", all(len(response.body) == n for n, response in enumerate(many)))
        long = await end.ask(b"GET", b"/", more=[(b"x-long", b"y" * 40000)])
        print("long head", long.fields[b":status"].decode())
        wrong = await end.ask(b"GET", b"/", more=[(b"connection", b"close")])
        print("malformed", hex(wrong.reset))
        short = await end.ask(b"POST", b"/echo", b"abc", [(b"content-length", b"5")])
        print("short", hex(short.reset or 0))
        again = await end.ask(b"GET", b"/")
        print("again", again.fields[b":status"].decode())
    def on_request(payload):
        return lambda end: end._quic.send_stream_data(end._quic.get_next_available_stream_id(), payload)
    def on_control(payload):
        return lambda end: end._quic.send_stream_data(end.h3._local_control_stream_id, payload)
    await broken("data first", on_request(b"\x00\x01x"))
    await broken("settings on a request", on_request(b"\x04\x00"))
    await broken("settings twice", on_control(b"\x04\x00"))
    await broken("a frame of http/2", on_control(b"\x06\x00"))
    await broken("push id goes back", on_control(b"\x0d\x01\x04\x0d\x01\x03"))
    await broken("cancel of no push", on_control(b"\x03\x01\x01"))
    await broken("no qpack", on_request(b"\x01\x03\x00\x00\x80"))
    await broken("a push", lambda end: end._quic.send_stream_data(
        end._quic.get_next_available_stream_id(is_unidirectional=True), b"\x01\x00"))
    await broken("a second control stream", lambda end: end._quic.send_stream_data(
        end._quic.get_next_available_stream_id(is_unidirectional=True), b"\x00\x04\x00"))
    await broken("control closed", lambda end: end._quic.send_stream_data(
        end.h3._local_control_stream_id, b"", end_stream=True))
    await broken("control reset", lambda end: end._quic.reset_stream(end.h3._local_control_stream_id, 0x10c))
    async with client() as end:
        print("after all", (await end.ask(b"GET", b"/")).fields[b":status"].decode())

asyncio.run(main())
