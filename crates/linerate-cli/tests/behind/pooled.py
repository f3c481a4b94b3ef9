"""A server that asks a database for each call: pooled.py MODE SIZE DATABASE-PORT ...; it prints its port.

pool: SIZE connections for all calls, to the databases in turns. workers: SIZE calls at once, each with a
connection of its own. open: as many connections as calls. connects: a new one for each call. Only / asks."""
import asyncio, sys

mode, size, ports = sys.argv[1], int(sys.argv[2]), [int(port) for port in sys.argv[3:]]

def plain(status, body):
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)

async def main():
    free, kept, workers = asyncio.Queue(), [], asyncio.Semaphore(size)
    connect = lambda n=0: asyncio.open_connection("127.0.0.1", ports[n % len(ports)])

    async def ask(connection):
        connection[1].write(b"question\n")
        return await connection[0].readline()

    async def asked():
        if mode == "connects":
            connection = await connect()
            row = await ask(connection)
            connection[1].close()
            return row
        connection = await free.get() if mode == "pool" else kept.pop() if kept else await connect()
        row = await ask(connection)
        free.put_nowait(connection) if mode == "pool" else kept.append(connection)
        return row

    async def work(target):
        if target != b"/":
            return plain(b"404 Not Found", b"")
        return plain(b"200 OK", await asked())

    async def serve(reader, writer):
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                target = head.split(b" ")[1]
                if mode == "workers":
                    async with workers:
                        out = await work(target)
                else:
                    out = await work(target)
                writer.write(out)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    if mode == "pool":
        for n in range(size):
            free.put_nowait(await connect(n))
    server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=128)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()

asyncio.run(main())
