"""One application for WSGI and ASGI servers: app:wsgi, app:asgi, app:flask, app:fast; what it does says BENCH_MODE.

healthy: answers at once. think: 100 ms of waiting. cold: its first call takes 1.5 s. varied: waiting of any length,
30 ms in the mean. stalls: no answer in the first quarter of each second."""

import asyncio
import os
import random
import threading
import time

MODE = os.environ.get("BENCH_MODE", "healthy")
BODY = b"Hello, World!\n" * 20
LOCK, STATE = threading.Lock(), {"calls": 0}


def pause():
    with LOCK:
        first, STATE["calls"] = STATE["calls"] == 0, STATE["calls"] + 1
    if MODE == "think":
        return 0.1
    if MODE == "varied":
        return random.expovariate(1 / 0.03)
    if MODE == "stalls":
        return max(0.25 - time.time() % 1, 0)
    return 1.5 if MODE == "cold" and first else 0


def wsgi(environ, start_response):
    time.sleep(pause())
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(BODY)))])
    return [BODY]


async def asgi(scope, receive, send):
    if scope["type"] == "lifespan":
        while True:
            await send({"type": (await receive())["type"] + ".complete"})
    await asyncio.sleep(pause())
    head = [(b"content-type", b"text/plain"), (b"content-length", str(len(BODY)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": head})
    await send({"type": "http.response.body", "body": BODY})


try:
    import flask as _flask

    flask = _flask.Flask(__name__)

    @flask.get("/")
    def hello():
        time.sleep(pause())
        return BODY
except ImportError:
    pass

try:
    import fastapi as _fastapi

    fast = _fastapi.FastAPI()

    @fast.get("/")
    def hello_fast():
        time.sleep(pause())
        return BODY.decode()
except ImportError:
    pass
