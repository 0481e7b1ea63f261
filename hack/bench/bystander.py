"""Reads from several servers all the time, each over a connection of its own, while a process is killed: WHAT SECONDS PID SERVER..."""

import http.client
import os
import signal
import ssl
import sys
import threading
import time

from bed import at, line

what, seconds, pid, servers = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
PATH = "/api/v1/namespaces/default/configmaps/bystander"
HEADERS = {"Authorization": "Bearer bench-token", "Content-Type": "application/json"}
# It is for loopback.
context = ssl._create_unverified_context()
before, after, failed = [], [], []
killed = time.perf_counter() + seconds / 4
end = killed + seconds * 3 / 4


def connect(server):
    connection = http.client.HTTPSConnection(server, context=context, timeout=30)
    connection.connect()
    return connection


def ask(connection, method, path, body=None):
    connection.request(method, path, body, HEADERS)
    answer = connection.getresponse()
    answer.read()
    return answer.status


def read(server):
    connection = connect(server)
    while time.perf_counter() < end:
        start = time.perf_counter()
        status = ask(connection, "GET", PATH)
        taken = time.perf_counter() - start
        (before if start + taken < killed else after).append(taken)
        if status != 200:
            failed.append(status)
        time.sleep(0.002)


first = connect(servers[0])
ask(first, "POST", os.path.dirname(PATH), '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"bystander"}}')
readers = [threading.Thread(target=read, args=(server,)) for server in servers]
for reader in readers:
    reader.start()
time.sleep(max(0, killed - time.perf_counter()))
os.kill(pid, signal.SIGKILL)
for reader in readers:
    reader.join()
line(
    what,
    reads=len(before) + len(after),
    failed=len(failed),
    before_p99_ms=at(before, 99) * 1000,
    p99_ms=at(after, 99) * 1000,
    longest_ms=max(after) * 1000,
)
