"""Changes of objects, by the schemas of their kinds: fields set to odd values, taken away, doubled."""

import copy

TEXTS = [
    "", "a", "A", "-a", "a_b", "a.b", "a/b", "a b", "é", "x" * 63, "x" * 64, "x" * 254, "example.com/x", "kubernetes.io/x",
    "10.0.0.1", "010.0.0.1", "::1", "10.0.0.0/8", "http://a", "1", "-1", "70000", "true", "1Gi", "TCP", "*", "../a", "/a", "50%",
    "2026-01-01T00:00:00Z", "None", "default",
]
AMOUNTS = ["1", "0", "-1", "1.5", "100m", "1Gi", "bad", "", "0.0001", "9999999999999999999", 1, None]
NUMBERS = [0, 1, -1, 2, 80, 443, 30080, 65536, 2147483648, 1.5, 1e20, "1", True, None]
ODD = [None, {}, [], "", 0, True, "x", [None], {"a": None}]
# The server's own fields are left alone.
KEPT = {"managedFields", "uid", "creationTimestamp", "deletionTimestamp", "selfLink"}


class Mutator:
    def __init__(self, schemas, random):
        self.schemas, self.random = schemas, random

    def resolve(self, schema):
        while schema and ("$ref" in schema or len(schema.get("allOf", [])) == 1):
            reference = schema.get("$ref") or schema["allOf"][0].get("$ref", "")
            schema = dict(self.schemas.get(reference.split("/")[-1], {}), name=reference)
        return schema or {}

    def value(self, schema, depth=0):
        """A value for a field: mostly of its type."""
        schema, random = self.resolve(schema), self.random
        kind, name = schema.get("type"), schema.get("name", "")
        if random.random() < 0.1:
            return copy.deepcopy(random.choice(ODD))
        if name.endswith(".Quantity"):
            return random.choice(AMOUNTS)
        if kind in ("integer", "number") or name.endswith(".IntOrString"):
            return random.choice(NUMBERS)
        if kind == "boolean":
            return random.choice([True, False, None, "true"])
        if kind == "array":
            return [self.value(schema.get("items"), depth + 1) for _ in range(random.choice([0, 1, 1, 2]))]
        if "properties" in schema:
            needed = schema.get("required", [])
            wanted = [field for field in schema["properties"] if field in needed or random.random() < 0.3 / (depth + 1)]
            return {field: self.value(schema["properties"][field], depth + 1) for field in wanted if field not in KEPT}
        if kind == "object":
            return {random.choice(["a", "cpu", "example.com/x", ""]): self.value(schema.get("additionalProperties"), depth + 1)}
        return random.choice(schema.get("enum") or TEXTS)

    def walk(self, node, schema, path=()):
        """All places of an object, with their schemas."""
        schema = self.resolve(schema)
        yield path, node, schema
        below = schema.get("additionalProperties")
        for key, inner in node.items() if isinstance(node, dict) else ():
            if key not in KEPT:
                field = schema.get("properties", {}).get(key) or (below if isinstance(below, dict) else {})
                yield from self.walk(inner, field, path + (key,))
        for index, inner in enumerate(node if isinstance(node, list) else ()):
            yield from self.walk(inner, schema.get("items"), path + (index,))

    def change(self, body, schema):
        """One change: the place, and what is there now; `...` where it was taken away."""
        places = list(self.walk(body, schema))
        depth = self.random.choice(sorted({len(path) for path, _, _ in places}))
        path, node, schema = self.random.choice([place for place in places if len(place[0]) == depth])
        missing = [field for field in schema.get("properties", {}) if isinstance(node, dict) and field not in node]
        missing = [field for field in missing if field not in KEPT]
        if missing and (not path or self.random.random() < 0.6):
            field = self.random.choice(missing)
            return path + (field,), self.value(schema["properties"][field])
        if isinstance(node, list) and node and self.random.random() < 0.3:
            return path, node + [copy.deepcopy(self.random.choice(node))]
        if not path:
            return ("bogus",), 1
        return path, ... if self.random.random() < 0.25 else self.value(schema)


def put(body, path, value):
    """The object with one change."""
    body = copy.deepcopy(body)
    at = body
    for part in path[:-1]:
        at = at[part]
    if value is not ...:
        at[path[-1]] = value
    else:
        del at[path[-1]]
    return body


def json_patch(path, value):
    pointer = "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)
    return [{"op": "remove", "path": pointer} if value is ... else {"op": "add", "path": pointer, "value": value}]


def merge_patch(body, path, value):
    """The same as a merge patch: lists are replaced as a whole."""
    names = path[: next((n for n, part in enumerate(path) if isinstance(part, int)), len(path))]
    changed = put(body, path, value)
    for part in names:
        changed = changed.get(part) if isinstance(changed, dict) else None
    for part in reversed(names):
        changed = {part: changed}
    return changed
