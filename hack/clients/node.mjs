// The client for Node: list, create, watch, patch, delete.
import * as k8s from '@kubernetes/client-node';
import assert from 'node:assert/strict';

process.env.NODE_TLS_REJECT_UNAUTHORIZED = '0';
const config = new k8s.KubeConfig();
config.loadFromFile(process.env.KUBECONFIG);
const core = config.makeApiClient(k8s.CoreV1Api);
const apps = config.makeApiClient(k8s.AppsV1Api);
const namespace = 'default';

const before = await core.listNamespacedConfigMap({ namespace });
const seen = [];
const done = new Promise((resolve, reject) => {
  new k8s.Watch(config)
    .watch(`/api/v1/namespaces/${namespace}/configmaps`, { resourceVersion: before.metadata.resourceVersion }, (type, object) => {
      if (object.metadata.name === 'node') seen.push(type);
      if (type === 'DELETED') resolve();
    }, (error) => (error ? reject(error) : resolve()))
    .catch(reject);
});
const made = await core.createNamespacedConfigMap({ namespace, body: { metadata: { name: 'node' }, data: { a: '1' } } });
assert.ok(made.metadata.uid);
const patched = await core.patchNamespacedConfigMap(
  { name: 'node', namespace, body: [{ op: 'add', path: '/data/b', value: '2' }] },
  k8s.setHeaderOptions('Content-Type', k8s.PatchStrategy.JsonPatch),
);
assert.deepEqual(patched.data, { a: '1', b: '2' });
const merged = await core.patchNamespacedConfigMap(
  { name: 'node', namespace, body: { data: { a: null } } },
  k8s.setHeaderOptions('Content-Type', k8s.PatchStrategy.MergePatch),
);
assert.deepEqual(merged.data, { b: '2' });
const applied = await core.patchNamespacedConfigMap(
  { name: 'node', namespace, body: { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'node' }, data: { c: '3' } }, fieldManager: 'node', force: true },
  k8s.setHeaderOptions('Content-Type', k8s.PatchStrategy.ServerSideApply),
);
assert.deepEqual(applied.data, { b: '2', c: '3' });
await core.deleteNamespacedConfigMap({ name: 'node', namespace });
await done;
assert.deepEqual(seen, ['ADDED', 'MODIFIED', 'MODIFIED', 'MODIFIED', 'DELETED']);

const labels = { app: 'node' };
await apps.createNamespacedDeployment({ namespace, body: { metadata: { name: 'node', labels }, spec: { selector: { matchLabels: labels }, template: { metadata: { labels }, spec: { containers: [{ name: 'c', image: 'i' }] } } } } });
const list = await apps.listNamespacedDeployment({ namespace, labelSelector: 'app=node' });
assert.equal(list.items.length, 1);
assert.equal(list.items[0].spec.replicas, 1);
await apps.deleteNamespacedDeployment({ name: 'node', namespace });
await assert.rejects(core.readNamespacedPod({ name: 'none', namespace }), (error) => error.code === 404);
process.exit(0);
