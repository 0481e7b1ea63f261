"""What 10,000 connections that asked once and stay open cost a proxy: NAME PID ADDRESS PORT."""

import resource
import socket
import sys
import time

from bed import line, resident

COUNT, TOGETHER = 10_000, 100
name, pid, address, port = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
resource.setrlimit(resource.RLIMIT_NOFILE, (COUNT + 1_000, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
before = resident(pid)
connections = []
# All are open before the first has been idle for too long.
for _ in range(COUNT // TOGETHER):
    some = [socket.create_connection((address, port)) for _ in range(TOGETHER)]
    for connection in some:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: bench\r\n\r\n")
    for connection in some:
        assert connection.recv(4096).startswith(b"HTTP/1.1 200"), "no answer"
    connections.extend(some)
time.sleep(2)
after = resident(pid)
time.sleep(10)
later = resident(pid)
line(
    f"gateway, {COUNT} idle connections, {name}",
    kb_each=(after - before) / COUNT,
    kb_each_ten_seconds_later=(later - before) / COUNT,
)
