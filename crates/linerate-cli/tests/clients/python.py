# CAFILE PORT VERSION: a body there and back, then a connection that resumes the session.
import select, socket, ssl, sys
cafile, port, version = sys.argv[1], int(sys.argv[2]), sys.argv[3]
context = ssl.create_default_context(cafile=cafile)
limit = ssl.TLSVersion.TLSv1_2 if version == "1.2" else ssl.TLSVersion.TLSv1_3
context.minimum_version = context.maximum_version = limit
body = b"x" * 3_000_000
def ask(session):
    raw = socket.create_connection(("127.0.0.1", port))
    tls = context.wrap_socket(raw, server_hostname="localhost", session=session)
    head = b"POST /echo HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
    got, rest = bytearray(), memoryview(head + body)
    # One thread for both ways: before Python 3.13 two of them may spoil each other's records.
    tls.setblocking(False)
    while True:
        try:
            while rest:
                rest = rest[tls.send(rest[:65536]):]
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        try:
            while piece := tls.recv(65536):
                got += piece
            break
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            ready = select.select([tls], [tls] if rest else [], [], 30)
            assert any(ready), "nothing came for 30 s"
    assert got.endswith(b"\r\n\r\n" + body), len(got)
    return tls.session, tls.session_reused, tls.version()
session, _, _ = ask(None)
_, reused, agreed = ask(session)
print(agreed, "resumed" if reused else "full")
