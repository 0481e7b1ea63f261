"""The network of a pod by a plug-in that is run as a program: PLUGIN CONFIGURATION COUNT."""

import os
import subprocess
import sys
import time

from bed import times

plugin, configuration, count = sys.argv[1], open(sys.argv[2]).read(), int(sys.argv[3])
taken = []
for n in range(count):
    pod = f"ferry-plugin-{n}"
    subprocess.run(["ip", "netns", "add", pod], check=True)
    environment = {
        "CNI_COMMAND": "ADD",
        "CNI_CONTAINERID": pod,
        "CNI_NETNS": f"/run/netns/{pod}",
        "CNI_IFNAME": "eth0",
        "CNI_PATH": "/usr/lib/cni",
        "PATH": os.environ["PATH"],
    }
    begin = time.perf_counter()
    subprocess.run([plugin], input=configuration, text=True, env=environment, stdout=subprocess.DEVNULL, check=True)
    taken.append(time.perf_counter() - begin)
for n in range(count):
    subprocess.run(["ip", "netns", "delete", f"ferry-plugin-{n}"], check=True)
times(f"network of a pod, by the program {os.path.basename(plugin)}", taken)
