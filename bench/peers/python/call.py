"""call.py NAME URL SECONDS IN_FLIGHT: a client of Python on one thread; prints its count as JSON."""

import asyncio
import json
import sys
import time


def send_all(url, seconds, in_flight):
    import linerate

    over = time.monotonic() + seconds

    def requests():
        while time.monotonic() < over:
            # A look at the clock for each request would cost more than the request.
            for _ in range(100):
                yield "/"

    origin = url.rstrip("/")
    answered = 0
    with linerate.Client(origin, pipes=4, depth=max(1, -(-in_flight // 4))) as client:
        for response in client.send_all(requests()):
            if not response.body:
                raise SystemExit("an empty response")
            answered += 1
    return answered


async def many(seconds, in_flight, call):
    over = time.monotonic() + seconds

    async def one():
        answered = 0
        while time.monotonic() < over:
            if not await call():
                raise SystemExit("an empty response")
            answered += 1
        return answered

    return sum(await asyncio.gather(*(one() for _ in range(in_flight))))


async def send_async(url, seconds, in_flight):
    import linerate

    async with linerate.AsyncClient(url.rstrip("/"), pipes=4, depth=max(1, -(-in_flight // 4))) as client:

        async def call():
            return (await client.send("/")).body

        return await many(seconds, in_flight, call)


async def with_aiohttp(url, seconds, in_flight):
    import aiohttp

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=in_flight)) as session:

        async def call():
            async with session.get(url) as response:
                return await response.read()

        return await many(seconds, in_flight, call)


async def with_httpx(url, seconds, in_flight):
    import httpx

    limits = httpx.Limits(max_connections=in_flight, max_keepalive_connections=in_flight)
    async with httpx.AsyncClient(limits=limits, trust_env=False) as client:

        async def call():
            return (await client.get(url)).content

        return await many(seconds, in_flight, call)


def main():
    name, url, seconds, in_flight = sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4])
    begin = time.monotonic()
    if name == "Python send_all":
        answered = send_all(url, seconds, in_flight)
    else:
        call = {"Python send": send_async, "aiohttp": with_aiohttp, "httpx": with_httpx}[name]
        answered = asyncio.run(call(url, seconds, in_flight))
    print(json.dumps({"rate": answered / (time.monotonic() - begin), "answered": answered}))


main()
