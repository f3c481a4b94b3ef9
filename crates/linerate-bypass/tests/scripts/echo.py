"""Echoes the body of each request. asyncio."""
import asyncio
import sys


async def serve(reader, writer):
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            lines = [line.lower() for line in head.split(b"\r\n")]
            length = sum(int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length:"))
            body = await reader.readexactly(length)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % length + body)
            await writer.drain()
    except asyncio.IncompleteReadError:
        writer.close()


async def main():
    server = await asyncio.start_server(serve, sys.argv[1], int(sys.argv[2]))
    async with server:
        await server.serve_forever()


asyncio.run(main())
