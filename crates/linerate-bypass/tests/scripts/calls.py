"""Accepts one connection and makes calls on it that a kernel's socket answers the same way. Prints `done`."""
import array
import ctypes
import errno
import fcntl
import os
import select
import socket
import stat
import struct
import subprocess
import sys
import termios

listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
listener.bind((sys.argv[1], int(sys.argv[2])))
listener.listen(8)
print("listening", flush=True)
conn, peer = listener.accept()


def fails(call, number):
    try:
        call()
    except OSError as error:
        assert error.errno == number, error
    else:
        raise AssertionError("it succeeded")


# Names, kind and options.
assert conn.getpeername() == peer, (conn.getpeername(), peer)
assert conn.getsockname() == (sys.argv[1], int(sys.argv[2]))
assert stat.S_ISSOCK(os.fstat(conn.fileno()).st_mode)
assert conn.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE) == socket.SOCK_STREAM
assert conn.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
assert conn.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1, "inherited from the listener"
conn.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
assert conn.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
assert conn.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)[0] == 1, "established"
fails(lambda: conn.connect(peer), errno.EISCONN)
fails(lambda: listener.recv(1), errno.ENOTCONN)

# Flags of descriptors.
assert fcntl.fcntl(conn, fcntl.F_GETFL) & os.O_NONBLOCK == 0
assert fcntl.fcntl(conn, fcntl.F_GETFD) & fcntl.FD_CLOEXEC
conn.setblocking(False)
assert fcntl.fcntl(conn, fcntl.F_GETFL) & os.O_NONBLOCK
fails(lambda: conn.recv(1), errno.EAGAIN)
assert select.select([conn], [conn], [conn], 0) == ([], [conn], [])
conn.setblocking(True)
conn.settimeout(None)
conn.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 20000))
fails(lambda: conn.recv(1), errno.EAGAIN)
conn.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 0))

# Receiving in all forms. The peer sends ten bytes for each byte that it gets.
conn.sendall(b"x")
assert conn.recv(10, socket.MSG_PEEK | socket.MSG_WAITALL) == b"0123456789"
waiting = array.array("i", [0])
fcntl.ioctl(conn, termios.FIONREAD, waiting)
assert waiting[0] == 10, waiting
assert os.read(conn.fileno(), 2) == b"01"
buffers = [bytearray(1), bytearray(2)]
assert os.readv(conn.fileno(), buffers) == 3 and buffers == [b"2", b"34"]
got, _, flags, _ = conn.recvmsg(2)
assert (got, flags) == (b"56", 0)
assert conn.recvfrom(2)[0] == b"78"
libc = ctypes.CDLL(None, use_errno=True)
one = ctypes.create_string_buffer(1)
assert libc.syscall(0, conn.fileno(), one, 1) == 1 and one.raw == b"9", "read by syscall()"

# Copies of a descriptor are one socket.
copy = os.dup(conn.fileno())
os.write(copy, b"x")
poll = select.poll()
poll.register(copy, select.POLLIN)
assert poll.poll() == [(copy, select.POLLIN)]
os.dup2(conn.fileno(), 77)
os.close(copy)
assert os.read(77, 10) == b"0123456789"
os.close(77)
fails(lambda: os.read(copy, 1), errno.EBADF)

# epoll, with a pipe of the kernel's.
reader, writer = os.pipe()
epoll = select.epoll()
epoll.register(conn, select.EPOLLIN)
epoll.register(reader, select.EPOLLIN)
assert epoll.poll(0) == []
os.write(writer, b"p")
assert epoll.poll() == [(reader, select.EPOLLIN)]
os.read(reader, 1)
conn.send(b"x")
assert epoll.poll() == [(conn.fileno(), select.EPOLLIN)]
assert conn.recv(10, socket.MSG_WAITALL) == b"0123456789"
fails(lambda: epoll.register(conn, 0), errno.EEXIST)
epoll.unregister(conn)
fails(lambda: epoll.unregister(conn), errno.ENOENT)

# What is not there has the errno for which programs have another way.
if "LINERATE_BYPASS" in os.environ:
    fails(lambda: conn.setsockopt(socket.IPPROTO_TCP, 31, b"tls"), errno.ENOENT)
    fails(lambda: os.splice(conn.fileno(), writer, 1), errno.EINVAL)
    fails(lambda: conn.send(b"x", 0x4000000), errno.ENOBUFS)

# A child has nothing of it.
if "LINERATE_BYPASS" in os.environ:
    child = os.fork()
    if child == 0:
        try:
            os.read(conn.fileno(), 1)
        except OSError as error:
            os._exit(error.errno)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == errno.ENOTCONN
assert os.system("exit 3") >> 8 == 3
assert subprocess.run(["true"], close_fds=True, preexec_fn=os.getpid).returncode == 0
assert subprocess.run(["true"]).returncode == 0

# TCP_INFO: what a program asks for, in bands that the kernel's values are in too. `s`: bytes sent, `r`: received.
def tcp_info():
    raw = conn.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 240)
    assert len(raw) >= 236, len(raw)
    word = lambda at: struct.unpack_from("I", raw, at)[0]
    long = lambda at: struct.unpack_from("Q", raw, at)[0]
    return raw, word, long


raw, word, long = tcp_info()
sent, received = long(120), long(128)
conn.sendall(b"x" * 400)
assert len(conn.recv(4000, socket.MSG_WAITALL)) == 4000
raw, word, long = tcp_info()
assert (long(120) - sent, long(128) - received) == (400, 4000), "bytes_acked, bytes_received"
assert sent < 100 and received == 10 * sent, (sent, received)
assert raw[0] == 1 and raw[5] & 7 == 7, "state; timestamps, SACK and window scaling"
assert raw[6] & 15 <= 14 and 0 < raw[6] >> 4 <= 14, "shifts"
assert 200_000 <= word(8) < 2_000_000, ("rto", word(8))
assert word(16) == word(84) == 1448, ("snd_mss, advmss", word(16), word(84))
assert word(24) == word(28) == word(32) == word(36) == 0, "unacked, sacked, lost, retrans"
assert word(44) < 1000, ("last_data_sent", word(44))
assert 0 < word(68) < 1_000_000 and word(72) <= 2 * word(68), ("rtt, rttvar", word(68), word(72))
assert word(76) == 0x7FFFFFFF and 10 <= word(80) < 1000, ("snd_ssthresh, snd_cwnd", word(76), word(80))
assert 14_000 < word(96) < 1 << 24, ("rcv_space", word(96))
assert word(100) == word(144) == 0, "total_retrans, notsent_bytes"
assert 0 < word(148) <= word(68) + 4 * word(72) + 1, ("min_rtt, rtt", word(148), word(68))
assert word(152) >= 2 and word(156) >= 2, ("data_segs_in, data_segs_out", word(152), word(156))
assert long(200) == long(120), ("bytes_sent", long(200))
assert word(216) == word(220) == word(224) == 0, "dsack_dups, reord_seen, rcv_ooopack"
assert 14_000 < word(228) < 1 << 26 and 14_000 < word(232) < 1 << 26, ("windows", word(228), word(232))

# Half-closed: all that was sent arrives, and both ends see the end.
conn.sendmsg([b"x", b"x"])
conn.shutdown(socket.SHUT_WR)
assert conn.recv(20, socket.MSG_WAITALL) == b"01234567890123456789"
assert conn.recv(1) == b""
number = conn.fileno()
conn.close()
fails(lambda: os.fstat(number) and os.read(number, 1), errno.EBADF)
print("done", flush=True)
