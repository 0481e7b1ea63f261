"""The Python client: list, create, watch, patch of each kind, apply, delete, custom resources."""
import os

import urllib3
from kubernetes import client, config, dynamic, watch
from kubernetes.client.rest import ApiException

urllib3.disable_warnings()
config.load_kube_config(os.environ["KUBECONFIG"])
core, apps, extensions = client.CoreV1Api(), client.AppsV1Api(), client.ApiextensionsV1Api()

start = core.list_namespaced_config_map("default").metadata.resource_version
made = core.create_namespaced_config_map("default", client.V1ConfigMap(metadata=client.V1ObjectMeta(name="py"), data={"a": "1"}))
assert made.metadata.uid
core.patch_namespaced_config_map("py", "default", {"data": {"b": "2"}})
core.patch_namespaced_config_map("py", "default", [{"op": "replace", "path": "/data/a", "value": "3"}])
assert core.read_namespaced_config_map("py", "default").data == {"a": "3", "b": "2"}
core.delete_namespaced_config_map("py", "default")
seen = []
for event in watch.Watch().stream(core.list_namespaced_config_map, "default", resource_version=start, timeout_seconds=10):
    if event["object"].metadata.name == "py":
        seen.append(event["type"])
    if seen[-1:] == ["DELETED"]:
        break
assert seen == ["ADDED", "MODIFIED", "MODIFIED", "DELETED"], seen

for number in range(5):
    core.create_namespaced_secret("default", client.V1Secret(metadata=client.V1ObjectMeta(name=f"s{number}", labels={"of": "py"}), string_data={"k": "v"}))
page = core.list_namespaced_secret("default", label_selector="of=py", limit=2)
rest = core.list_namespaced_secret("default", label_selector="of=py", limit=5, _continue=page.metadata._continue)
assert len(page.items) + len(rest.items) == 5
assert core.read_namespaced_secret("s0", "default").data == {"k": "dg=="}
core.delete_collection_namespaced_secret("default", label_selector="of=py")
assert core.list_namespaced_secret("default", label_selector="of=py").items == []

template = {"metadata": {"labels": {"app": "py"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
apps.create_namespaced_deployment("default", {"metadata": {"name": "py"}, "spec": {"selector": {"matchLabels": {"app": "py"}}, "template": template}})
assert apps.patch_namespaced_deployment_scale("py", "default", {"spec": {"replicas": 4}}).spec.replicas == 4
apps.delete_namespaced_deployment("py", "default")

try:
    core.create_namespaced_service("default", {"metadata": {"name": "bad"}, "spec": {"ports": []}})
    raise AssertionError("a Service without ports was taken")
except ApiException as refused:
    assert refused.status == 422 and "spec.ports: Required value" in refused.body, refused

schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": {"n": {"type": "integer"}}}}}}
extensions.create_custom_resource_definition({
    "metadata": {"name": "things.py.example.com"},
    "spec": {"group": "py.example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
             "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}]}})
for event in watch.Watch().stream(extensions.list_custom_resource_definition, field_selector="metadata.name=things.py.example.com", timeout_seconds=10):
    if any(c.type == "Established" and c.status == "True" for c in event["object"].status.conditions or []):
        break
things = dynamic.DynamicClient(client.ApiClient()).resources.get(api_version="py.example.com/v1", kind="Thing")
things.create(body={"apiVersion": "py.example.com/v1", "kind": "Thing", "metadata": {"name": "t"}, "spec": {"n": 1}}, namespace="default")
applied = things.server_side_apply(body={"apiVersion": "py.example.com/v1", "kind": "Thing", "metadata": {"name": "t"}, "spec": {"n": 2}}, namespace="default", field_manager="py", force_conflicts=True)
assert applied.spec.n == 2
extensions.delete_custom_resource_definition("things.py.example.com")
