"""Waits for connections in two processes: one that ends soon, and one that sleeps in epoll_pwait meanwhile."""

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
epoll = waiting()
library = ctypes.CDLL(None)
library.epoll_pwait(epoll.fileno(), ctypes.create_string_buffer(12), 1, -1, None)
connection, _ = listener.accept()
connection.sendall(b"here")
connection.recv(1)
