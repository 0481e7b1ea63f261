"""One endpoint changes among very many: NAME PID KUBECONFIG. The kernel tells when the rules are other ones, and how much was written."""

import select
import socket
import sys
import time

from bed import Api, at, line, times

CHANGES, PATIENCE = 100, 600
NETLINK_NETFILTER, SOL_NETLINK, ADD_MEMBERSHIP, RULES = 12, 270, 1, 7
name, pid, kubeconfig = sys.argv[1:]
kernel = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER)
kernel.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE
kernel.bind((0, 0))
kernel.setsockopt(SOL_NETLINK, ADD_MEMBERSHIP, RULES)


def heard(patience):
    """How many bytes come until it is quiet for that long, and when the first of them came."""
    first, size = None, 0
    while select.select([kernel], [], [], patience)[0]:
        try:
            size += len(kernel.recv(1 << 20))
        except OSError:
            continue  # more came than there is room for
        first = first or time.perf_counter()
    return first, size


def processor():
    """In seconds, with that of the programs that it ran."""
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return sum(int(field) for field in fields[11:15]) / 100


begin = time.perf_counter()
loaded, deadline = None, begin + PATIENCE
while time.perf_counter() < deadline:
    first, size = heard(5)
    if first is None and loaded is not None:
        break
    loaded = time.perf_counter() - 5 - begin if first else loaded
line(f"10,000 Services with 10 endpoints each in force, {name}", seconds=loaded, processor_seconds=processor())
# Not before: a connection that says nothing for so long is closed.
api = Api(kubeconfig)
path = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/s{}-1"
taken, written, sizes, before = [], [], [], processor()
for n in range(CHANGES):
    body = [{"op": "replace", "path": "/endpoints/3/addresses", "value": [f"10.200.{n >> 8}.{n & 255}"]}]
    start = time.perf_counter()
    api.ask("PATCH", path.format(n * 97 % 10_000), body, "application/json-patch+json")
    written.append(time.perf_counter() - start)
    if not select.select([kernel], [], [], 30)[0]:
        sys.exit("the kernel has not heard of a change for half a minute")
    first, size = heard(0.2)
    taken.append(first - start)
    sizes.append(size)
times(f"one endpoint of 100,000, from its write to the kernel, {name}", taken)
times(f"one endpoint of 100,000, that write answered, {name}", written)
line(
    f"one endpoint of 100,000, what it takes, {name}",
    processor_ms=(processor() - before) / CHANGES * 1000,
    kernel_bytes=at(sizes, 50),
    kernel_bytes_most=max(sizes),
)
