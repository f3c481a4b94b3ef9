"""A server over TLS with one defect: each write is a record of its own."""
import socket, ssl, threading, time

mode = "{mode}"
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("{cert}", "{key}")
context.num_tickets = 2
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind(("127.0.0.1", {port}))
listener.listen(64)
HEAD, BODY = b"HTTP/1.1 200 OK\r\nContent-Length: 40\r\n\r\n", b"x" * 40

def answer(stream):
    if mode == "think":
        time.sleep(0.1)
    if mode == "split":
        stream.sendall(HEAD)
        return stream.sendall(BODY)
    if mode == "cork":
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
    if mode in ("late", "cut"):
        stream.sendall(b"HTTP/1.0 200 OK\r\n\r\nhello")
        if mode == "late":
            time.sleep(0.5)
            stream.unwrap()
        return stream.close()
    stream.sendall(HEAD + BODY)

def serve(stream):
    if mode != "split":
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    unread = b""
    try:
        stream = context.wrap_socket(stream, server_side=True)
        while got := stream.recv(4096):
            unread += got
            while b"\r\n\r\n" in unread:
                unread = unread.split(b"\r\n\r\n", 1)[1]
                answer(stream)
    except (OSError, ValueError):
        pass

while True:
    threading.Thread(target=serve, args=listener.accept()[:1], daemon=True).start()
