"""Listens, and becomes another program that only accepts, with the listener that it inherits."""

import os
import socket
import sys

ACCEPTS = """
import socket
connection, _ = socket.socket(fileno=9).accept()
connection.sendall(b"here")
connection.recv(1)
"""

listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind((sys.argv[1], int(sys.argv[2])))
listener.listen()
os.dup2(listener.fileno(), 9)
os.execv(sys.executable, [sys.executable, "-c", ACCEPTS])
