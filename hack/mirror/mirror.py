"""Sends the same requests to two API servers and prints where their answers differ: PORT PORT --seed N --objects N --kinds A,B

Objects begin as those that `testdata/exchanges.jsonl.gz` creates; each is created, updated, patched, applied, read and deleted with changes
at random. Answers are compared in code, warnings and body; ids, times and versions count as equal.
"""

import argparse
import collections
import gzip
import http.client
import json
import os
import pathlib
import random
import re
import ssl
import time

from mutate import Mutator, json_patch, merge_patch, put

NAMESPACE = "mirror"
PATCHES = {
    "json": "application/json-patch+json",
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}
QUERIES = ["", "", "", "fieldValidation=Strict", "fieldValidation=Ignore", "dryRun=All", "fieldManager=other"]
UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
TIME = re.compile(r"20\d\d-\d\d-\d\d[T ][0-9:.]+(Z| \+0000 UTC)?( m=[+-][0-9.]+)?")
ADDRESS = re.compile(r"10\.96\.\d+\.\d+")
SCHEME = re.compile(r'in scheme \\*"[^"]*"')  # The path of a file where the server was built.
PORT = re.compile(r'(nodePort\\*":)\d+')
VERSION = re.compile(r"(object meta: |in record \(|resourceVersion\\*\":\s*\\*\")\d+")


class Server:
    def __init__(self, port):
        context = ssl._create_unverified_context()  # Its certificate was made a moment ago.
        self.connection = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=60)
        self.token = os.environ["TOKEN"]

    def ask(self, method, path, body=None, kind="application/json"):
        headers = {"Authorization": f"Bearer {self.token}", "User-Agent": "mirror", "Accept": "application/json"}
        if body is not None:
            headers["Content-Type"], body = kind, json.dumps(body, separators=(",", ":"), sort_keys=True)
        self.connection.request(method, path, body, headers)
        response = self.connection.getresponse()
        text = response.read()
        warnings = [value for key, value in response.getheaders() if key.lower() == "warning"]
        try:
            return response.status, warnings, json.loads(text)
        except ValueError:
            return response.status, warnings, {"text": text.decode(errors="replace")}

    def wait(self):
        for _ in range(600):
            try:
                if self.ask("GET", "/readyz")[0] == 200:
                    return
            except OSError:
                self.connection.close()
            time.sleep(0.1)
        raise SystemExit("a server does not become ready; see mirror-*.log in the cache")


def comparable(value, key=""):
    if isinstance(value, dict):
        return {name: comparable(inner, name) for name, inner in sorted(value.items())}
    if isinstance(value, list):
        items = [comparable(inner, key) for inner in value]
        # Entries of one second stand in the order of their names, of two in that of their times.
        return sorted(items, key=str) if key == "managedFields" else items
    if isinstance(value, str):
        if key == "resourceVersion":
            return "<version>"
        value = UID.sub("<uid>", TIME.sub("<time>", value))
        value = SCHEME.sub("in scheme", ADDRESS.sub("<address>", PORT.sub(r"\1<port>", value)))
        return VERSION.sub(r"\1<version>", value)
    return "<port>" if key in ("nodePort", "healthCheckNodePort") and value else value


def bases(kinds):
    """One object of each kind that was created while exchanges were recorded, with the path of its collection."""
    found = {}
    exchanges = pathlib.Path(__file__).resolve().parents[2] / "testdata" / "exchanges.jsonl.gz"
    for line in gzip.open(exchanges, "rt"):
        for step in json.loads(line)["steps"]:
            body, path = step.get("body"), step["path"].split("?")[0].replace("{ns}", NAMESPACE)
            whole = isinstance(body, dict) and "metadata" in body and {"apiVersion", "kind"} <= body.keys()
            if step["method"] != "POST" or not whole or "name" not in body["metadata"] or step.get("want", {}).get("code") != 201 or "${" in json.dumps(body):
                continue
            kind = (body["apiVersion"], body["kind"])
            if path.split("/")[-2] in (NAMESPACE, body["apiVersion"].split("/")[-1]) and (not kinds or body["kind"] in kinds):
                found.setdefault(kind, (path, json.loads(json.dumps(body).replace("{ns}", NAMESPACE))))
    return [found[kind] for kind in sorted(found)]


def schemas(server):
    """All schemas of OpenAPI v3, and those of kinds by group, version and kind."""
    every, of_kind = {}, {}
    for group in server.ask("GET", "/openapi/v3")[2]["paths"].values():
        every.update(server.ask("GET", group["serverRelativeURL"])[2].get("components", {}).get("schemas", {}))
    for schema in every.values():
        for kind in schema.get("x-kubernetes-group-version-kind", []):
            of_kind["/".join(filter(None, [kind["group"], kind["version"]])), kind["kind"]] = schema
    return every, of_kind


class Walk:
    """One object on both servers."""

    def __init__(self, servers, report, mutator, schema, path, body):
        self.servers, self.report, self.mutator, self.schema = servers, report, mutator, schema
        self.path, self.body, self.random = path, body, mutator.random
        self.item = f"{path}/{body['metadata'].get('name')}"

    def send(self, method, path, bodies, kind="application/json"):
        answers = [server.ask(method, path, body, kind) for server, body in zip(self.servers, bodies)]
        self.report.compare(self.body["kind"], method, path, bodies[0], answers)
        return answers

    def create(self):
        for query in ["?dryRun=All", "?dryRun=All", ""]:
            place, value = self.mutator.change(self.body, self.schema)
            self.send("POST", self.path + query, [put(self.body, place, value)] * 2)
        return all(answer[0] in (201, 409) for answer in self.send("POST", self.path, [self.body] * 2))

    def change(self):
        live = [server.ask("GET", self.item)[2] for server in self.servers]
        if any(one.get("kind") != self.body["kind"] for one in live):
            return
        place, value = self.mutator.change(self.body, self.schema)
        query = "?" + self.random.choice(QUERIES)
        how = self.random.choice(["put", "get", "delete", *PATCHES])
        try:
            changed = [put(one, place, value) for one in live]
        except (KeyError, IndexError, TypeError):
            changed = live
        if how == "put":
            self.send("PUT", self.item + query, changed)
        elif how in ("get", "delete"):
            self.send(how.upper(), self.item + ("?dryRun=All" if how == "delete" else ""), [None] * 2)
        elif how == "apply":
            query = self.random.choice(["?fieldManager=one", "?fieldManager=two&force=true"])
            self.send("PATCH", self.item + query, [put(self.body, place, value)] * 2, PATCHES[how])
        else:
            patch = json_patch(place, value) if how == "json" else merge_patch(self.body, place, value)
            self.send("PATCH", self.item + query, [patch] * 2, PATCHES[how])

    def remove(self):
        for server in self.servers:
            server.ask("PATCH", self.item, {"metadata": {"finalizers": None}}, PATCHES["merge"])
            server.ask("DELETE", self.item + "?gracePeriodSeconds=0")


class Report:
    def __init__(self):
        self.asked, self.found = 0, collections.Counter()

    def compare(self, kind, method, path, body, answers):
        self.asked += 1
        first, second = (comparable(list(answer)) for answer in answers)
        if first == second:
            return
        self.found[kind] += 1
        print(f"\n{method} {path} {json.dumps(body)[:300]}")
        for name, (code, warnings, answer) in (("upstream", first), ("ferry", second)):
            other = (second if answer is first[2] else first)[2]
            shown, compared = json.dumps(answer), json.dumps(other)
            start = len(os.path.commonprefix([shown, compared]))
            print(f"  {name}: {code} {warnings} …{shown[max(start - 80, 0) : start + 300]}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ports", nargs=2, type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--objects", type=int, default=200)
    parser.add_argument("--kinds", default="")
    options = parser.parse_args()
    servers, report = [Server(port) for port in options.ports], Report()
    for server in servers:
        server.wait()
        server.ask("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        server.ask("POST", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", {"metadata": {"name": "default"}})
    every, of_kind = schemas(servers[0])
    known = bases({kind for kind in options.kinds.split(",") if kind})
    for number in range(options.objects):
        source = random.Random(options.seed * 1_000_003 + number)
        path, body = source.choice(known)
        schema = of_kind.get((body["apiVersion"], body["kind"]), {})
        walk = Walk(servers, report, Mutator(every, source), schema, path, body)
        if walk.create():
            for _ in range(8):
                walk.change()
        walk.remove()
    differing = sum(report.found.values())
    print(f"\n{report.asked} requests, {differing} answers differ; by kind: {dict(report.found.most_common())}")


main()
