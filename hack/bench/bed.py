"""What the scripts of the bench share: an API server over one kept connection, percentiles, lines of JSON."""

import base64
import http.client
import json
import os
import ssl
import tempfile
import threading
import urllib.parse


class Api:
    """By a kubeconfig in JSON. One connection, so one thread at a time."""

    def __init__(self, kubeconfig):
        config = json.load(open(kubeconfig))
        self.server = urllib.parse.urlparse(config["clusters"][0]["cluster"]["server"])
        user = config["users"][0]["user"]
        self.headers = {"Authorization": "Bearer " + user["token"]} if "token" in user else {}
        # It is for loopback and namespaces of the bench.
        self.context = ssl._create_unverified_context()
        if "client-certificate-data" in user:
            files = []
            for part in ("certificate", "key"):
                with tempfile.NamedTemporaryFile(delete=False) as file:
                    file.write(base64.b64decode(user[f"client-{part}-data"]))
                    files.append(file.name)
            self.context.load_cert_chain(*files)
            for file in files:
                os.unlink(file)
        self.connection = self.connect()

    def connect(self):
        connection = http.client.HTTPSConnection(self.server.hostname, self.server.port, context=self.context)
        connection.connect()
        return connection

    def ask(self, method, path, body=None, kind="application/json"):
        data = None if body is None else json.dumps(body)
        self.connection.request(method, path, data, {**self.headers, "Content-Type": kind})
        answer = self.connection.getresponse()
        text = answer.read()
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {text.decode()}")
        return json.loads(text)

    def watch(self, path):
        """The objects that events tell of, from now on, over a connection of its own."""
        version = self.ask("GET", path + "?limit=1")["metadata"]["resourceVersion"]
        connection = self.connect()
        connection.request("GET", f"{path}?watch=1&resourceVersion={version}", headers=self.headers)
        answer = connection.getresponse()
        return (json.loads(text)["object"] for text in answer)


def create(kubeconfig, things, threads=8):
    """Creates (path, object) pairs over several connections."""
    things, lock, wrong = iter(things), threading.Lock(), []

    def work():
        try:
            api = Api(kubeconfig)
            while True:
                with lock:
                    thing = next(things, None)
                if thing is None:
                    return
                api.ask("POST", *thing)
        except Exception as error:  # told to the caller, whose thread is another one
            wrong.append(error)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if wrong:
        raise wrong[0]


def at(values, percent):
    return sorted(values)[(len(values) - 1) * percent // 100]


def line(what, **figures):
    rounded = {name: round(figure, 3) if isinstance(figure, float) else figure for name, figure in figures.items()}
    print(json.dumps({"what": what, **rounded}, separators=(",", ":")))


def times(what, seconds, **more):
    """Percentiles of what was measured in seconds, in milliseconds."""
    line(what, rounds=len(seconds), p50_ms=at(seconds, 50) * 1000, p99_ms=at(seconds, 99) * 1000, **more)


def resident(pid):
    """In kilobytes."""
    with open(f"/proc/{pid}/status") as status:
        return next(int(text.split()[1]) for text in status if text.startswith("VmRSS"))
