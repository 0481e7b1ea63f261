"""Objects to measure with: pods COUNT KUBECONFIG NAME | services COUNT ENDPOINTS KUBECONFIG | manifest COUNT NAME (to standard output)."""

import sys

from bed import Api, create

PER_SPACE = 1_000


def pods(count, kubeconfig, name):
    """As large as pods are: environment, probes, volumes, conditions. None has a node."""
    api = Api(kubeconfig)
    spaces = ["default"]
    if count > PER_SPACE:
        spaces = [f"{name}-{n}" for n in range(count // PER_SPACE)]
        for space in spaces:
            api.ask("POST", "/api/v1/namespaces", {"metadata": {"name": space}})
    probe = {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 10}
    container = {
        "name": "app",
        "image": "registry.example.com/team/app:v1.2.3",
        "env": [{"name": f"SETTING_{n}", "value": f"some value number {n}"} for n in range(10)],
        "ports": [{"name": "http", "containerPort": 8080}],
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}},
        "readinessProbe": probe,
        "livenessProbe": probe,
        "volumeMounts": [{"name": "config", "mountPath": "/etc/app"}],
    }
    spec = {"containers": [container], "volumes": [{"name": "config", "configMap": {"name": "app"}}]}

    def pod(n):
        meta = {"name": f"{name}-{n}", "labels": {"app": name, "tier": "backend"}}
        return f"/api/v1/namespaces/{spaces[n % len(spaces)]}/pods", {"metadata": meta, "spec": spec}

    create(kubeconfig, map(pod, range(count)))


def services(count, endpoints, kubeconfig):
    """Services with a slice of endpoints each, of pods that nobody runs."""

    def address(n):
        return f"10.{64 + (n >> 16)}.{n >> 8 & 255}.{n & 255}"

    def both(n):
        ports = [{"name": "http", "port": 80, "targetPort": 8080}]
        yield "/api/v1/namespaces/default/services", {"metadata": {"name": f"s{n}"}, "spec": {"ports": ports}}
        ready = {"ready": True, "serving": True, "terminating": False}
        ends = [{"addresses": [address(n * endpoints + e)], "conditions": ready} for e in range(endpoints)]
        meta = {"name": f"s{n}-1", "labels": {"kubernetes.io/service-name": f"s{n}"}}
        piece = {"metadata": meta, "addressType": "IPv4", "endpoints": ends}
        piece["ports"] = [{"name": "http", "port": 8080, "protocol": "TCP"}]
        yield "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", piece

    create(kubeconfig, (thing for n in range(count) for thing in both(n)))


def manifest(count, name):
    for n in range(count):
        print(f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}-{n}}}\ndata: {{key: {'x' * 200}}}\n---")


what, rest = sys.argv[1], [int(word) if word.isdigit() else word for word in sys.argv[2:]]
{"pods": pods, "services": services, "manifest": manifest}[what](*rest)
