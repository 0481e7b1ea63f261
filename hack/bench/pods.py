"""Pods of a node with containers: start|many KUBECONFIG RUNTIME."""

import sys
import time

from bed import Api, line, times

ROUNDS, BURST, BURSTS = 20, 50, 3
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
PODS = "/api/v1/namespaces/default/pods"
what, kubeconfig, runtime = sys.argv[1:]
api = Api(kubeconfig)


def deployment(name, replicas, container):
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"terminationGracePeriodSeconds": 0, "containers": [container]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return {"metadata": {"name": name}, "spec": spec}


def until_ready(body):
    """From the write of a Deployment until all its pods are ready, as a watch tells."""
    events = api.watch(DEPLOYMENTS)
    begin = time.perf_counter()
    api.ask("POST", DEPLOYMENTS, body)
    want = body["spec"]["replicas"]
    next(one for one in events if one.get("status", {}).get("readyReplicas") == want)
    return time.perf_counter() - begin


def remove(name):
    api.ask("DELETE", f"{DEPLOYMENTS}/{name}?propagationPolicy=Background")
    while api.ask("GET", PODS + "?limit=1")["items"]:
        time.sleep(0.1)
    time.sleep(1)


# Without an initial delay: the figure is the system's, not the probe's.
probe = {"httpGet": {"path": "/", "port": 80}, "periodSeconds": 1}
WEB = {"name": "nginx", "image": "nginx:1.25", "readinessProbe": probe}
PLAIN = {"name": "sleep", "image": "busybox:1.36", "command": ["sleep", "86400"]}


def start():
    # The first round pulls the images.
    for name, container in (("first", WEB), ("second", PLAIN)):
        line(f"apply to three Ready, image pulled, {container['name']}, {runtime}", ms=until_ready(deployment(name, 3, container)) * 1000)
        remove(name)
    for container, how in ((WEB, ""), (PLAIN, "without a probe, ")):
        taken = []
        for round in range(ROUNDS):
            taken.append(until_ready(deployment(f"round-{round}", 3, container)))
            remove(f"round-{round}")
        times(f"apply to three Ready, {how}{runtime}", taken)
    until_ready(deployment("idle", 3, WEB))


def many():
    remove("idle")
    taken = []
    for round in range(BURSTS):
        taken.append(until_ready(deployment(f"many-{round}", BURST, PLAIN)))
        remove(f"many-{round}")
    times(f"{BURST} pods on one node, {runtime}", taken)


{"start": start, "many": many}[what]()
