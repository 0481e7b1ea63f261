"""The objects of the gateway's figures: begin|many|change KUBECONFIG ADDRESS FOLDER."""

import base64
import http.client
import sys
import time

from bed import Api, create, times

COUNT, CHANGES = 5_000, 300
what, kubeconfig, address, folder = sys.argv[1:]
GROUP = "gateway.networking.k8s.io"
SPACE = "namespaces/default"
api = Api(kubeconfig)


def until_served(path):
    """The gateway brings its definitions."""
    for _ in range(600):
        try:
            return api.ask("GET", path)
        except RuntimeError as error:
            if " 404 " not in str(error):
                raise
        time.sleep(0.1)
    raise RuntimeError(f"{path} is not served")


def route(name, path, hosts=()):
    backend = [{"name": "backend", "port": 80}]
    rules = [{"matches": [{"path": {"type": "PathPrefix", "value": path}}], "backendRefs": backend}]
    spec = {"parentRefs": [{"name": "bench"}], "hostnames": list(hosts), "rules": rules}
    return {"apiVersion": f"{GROUP}/v1", "kind": "HTTPRoute", "metadata": {"name": name}, "spec": spec}


ROUTES = f"/apis/{GROUP}/v1/{SPACE}/httproutes"


def begin():
    secret = {"tls.crt": "cert.pem", "tls.key": "key.pem"}
    data = {key: base64.b64encode(open(f"{folder}/{file}", "rb").read()).decode() for key, file in secret.items()}
    api.ask("POST", f"/api/v1/{SPACE}/secrets", {"metadata": {"name": "bench"}, "type": "kubernetes.io/tls", "data": data})
    ports = [{"name": "http", "port": 80, "targetPort": 9000}]
    api.ask("POST", f"/api/v1/{SPACE}/services", {"metadata": {"name": "backend"}, "spec": {"ports": ports}})
    piece = {
        "metadata": {"name": "backend-1", "labels": {"kubernetes.io/service-name": "backend"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
        "ports": [{"name": "http", "port": 9000, "protocol": "TCP"}],
    }
    api.ask("POST", f"/apis/discovery.k8s.io/v1/{SPACE}/endpointslices", piece)
    listeners = [
        {"name": "http", "port": 8201, "protocol": "HTTP"},
        {"name": "https", "port": 8202, "protocol": "HTTPS", "tls": {"certificateRefs": [{"name": "bench"}]}},
    ]
    gateway = {"metadata": {"name": "bench"}, "spec": {"gatewayClassName": "ferry", "listeners": listeners}}
    gateways = f"/apis/{GROUP}/v1/{SPACE}/gateways"
    until_served(gateways)
    until_served(ROUTES)
    api.ask("POST", gateways, {"apiVersion": f"{GROUP}/v1", "kind": "Gateway", **gateway})
    api.ask("POST", ROUTES, route("all", "/"))


def many():
    create(kubeconfig, ((ROUTES, route(f"one-{n}", f"/{n}", [f"host-{n}.example.com"])) for n in range(COUNT)))


def told(value):
    header = {"set": [{"name": "x-version", "value": value}]}
    return [{"type": "ResponseHeaderModifier", "responseHeaderModifier": header}]


def change():
    """From the moment a write is sent until the first answer that shows it."""
    name = f"change-{time.time_ns()}"
    host = name + ".example.com"
    first = route(name, "/", [host])
    first["spec"]["rules"][0]["filters"] = told("0")
    api.ask("POST", ROUTES, first)
    connection = http.client.HTTPConnection(address, 8201)
    taken = []
    for n in range(1, CHANGES + 1):
        body = [{"op": "replace", "path": "/spec/rules/0/filters", "value": told(str(n))}]
        start = time.perf_counter()
        api.ask("PATCH", f"{ROUTES}/{name}", body, "application/json-patch+json")
        answered = time.perf_counter()
        while True:
            connection.request("GET", "/", headers={"Host": host})
            answer = connection.getresponse()
            answer.read()
            if answer.getheader("x-version") == str(n):
                break
            time.sleep(0.0005)
        taken.append((time.perf_counter() - start, answered - start))
        time.sleep(0.02)
    count = len(api.ask("GET", ROUTES)["items"])
    times(f"gateway, a route in force, from its write on, {count} routes", [both[0] for both in taken])
    times(f"gateway, that write answered, {count} routes", [both[1] for both in taken])


{"begin": begin, "many": many, "change": change}[what]()
