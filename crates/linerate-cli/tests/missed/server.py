"""A small server with one defect, or without: server.py MODE [ADDRESS PORT]; it prints its port."""
import socket, sys, threading, time

mode = sys.argv[1]
listener = socket.socket()
if mode == "sndbuf":
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind((sys.argv[2] if len(sys.argv) > 2 else "127.0.0.1", int(sys.argv[3]) if len(sys.argv) > 3 else 0))
listener.listen(64)
print(listener.getsockname()[1], flush=True)
lock, calls, last = threading.Lock(), 0, 0.0

def plain(body=b"hello", more=b""):
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nContent-Type: text/plain; charset=utf-8\r\n%s\r\n" % (len(body), more) + body

def answer(stream, path):
    global calls
    with lock:
        first, calls = calls == 0, calls + 1
        rested = time.monotonic() - last > 1
    if mode == "cold" and first or mode == "rests" and rested:
        time.sleep(1.5)
    if mode == "cork":
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
    if mode == "think":
        time.sleep(0.2)
    if mode == "timer":
        time.sleep(1)
    if mode == "hangs":
        time.sleep(60)
    if mode == "long":
        stream.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        return time.sleep(60)
    if mode == "chunks":
        stream.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n")
        return time.sleep(60)
    if mode == "events":
        stream.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        for n in range(600):
            stream.sendall(b"data: %d\n\n" % n)
            time.sleep(0.1)
        return
    if mode == "circle":
        to = b"/b" if path == b"/a" else b"/a"
        return stream.sendall(b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: %s\r\n\r\n" % to)
    if mode == "endless":
        to = b"/r%d" % calls
        return stream.sendall(b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: %s\r\n\r\n" % to)
    if mode == "coded":
        return stream.sendall(plain(b"no gzip at all", b"Content-Encoding: gzip\r\n"))
    if mode == "behind":
        return stream.sendall(plain() + b"world")
    if mode == "twice":
        stream.sendall(plain())
        time.sleep(0.01)
        return stream.sendall(plain())
    if mode == "fails":
        return stream.sendall(plain().replace(b"200 OK", b"500 Oops"))
    if mode in ("late", "closes"):
        stream.sendall(b"HTTP/1.0 200 OK\r\n\r\nhello")
        time.sleep(0.5 if mode == "late" else 0)
        return stream.close()
    whole = plain(b"x" * 120_000 if mode in ("sndbuf", "large", "pause", "metered") else b"hello")
    # In pieces, as most servers write: one write may overfill the buffer.
    for at in range(0, len(whole), 8192):
        if mode == "pause" and at == 57_344:
            time.sleep(0.3)
        if mode == "metered" and at > 0:
            time.sleep(8192 / 200_000)
        stream.sendall(whole[at : at + 8192])

def timed(stream, path):
    global last
    answer(stream, path)
    last = time.monotonic()

def serve(stream):
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    unread = b""
    try:
        while got := stream.recv(4096):
            unread += got
            while b"\r\n\r\n" in unread:
                head, unread = unread.split(b"\r\n\r\n", 1)
                timed(stream, head.split(b" ")[1])
    except OSError:
        pass

while True:
    threading.Thread(target=serve, args=listener.accept()[:1], daemon=True).start()
