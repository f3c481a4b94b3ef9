"""Waits for connections in two processes: one that ends soon, and one that sleeps in a call meanwhile."""

import ctypes
import os
import select
import socket
import sys
import time

listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind((sys.argv[1], int(sys.argv[2])))
listener.listen()


def waiting():
    epoll = select.epoll()
    epoll.register(listener, select.EPOLLIN)
    return epoll


if os.fork() == 0:
    waiting().poll(1.5)
    os._exit(0)

# Whoever asks later than the first process waits for its queue.
time.sleep(0.5)
how = sys.argv[3]
if how == "epoll_pwait":
    epoll = waiting()
    library = ctypes.CDLL(None)
    library.epoll_pwait(epoll.fileno(), ctypes.create_string_buffer(12), 1, -1, None)
elif how == "poll":
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    poll.poll()
elif how == "select":
    select.select([listener], [], [])
connection, _ = listener.accept()
connection.sendall(b"here")
connection.recv(1)
