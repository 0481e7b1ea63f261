// Failures on purpose: each button makes one in a namespace of its own, and shows where it gets stuck and how it is named.

import { badge, h, note, put, toast } from "./dom.js";
import { ask, json } from "./api.js";
import { applyOne, documents } from "./apply.js";
import { waterfall } from "./fall.js";

export const NAMESPACE = "ferry-learn";
const pod = (name, spec, labels = "") => `apiVersion: v1\nkind: Pod\nmetadata:\n  name: ${name}\n  namespace: ${NAMESPACE}\n${labels}spec:\n${spec}`;
const container = (more = "") => `  containers:\n    - name: main\n      image: busybox:1.36\n      command: ["sleep", "3600"]\n${more}`;

/** title, what it shows, the manifest, the object to look at */
const LESSONS = [
  ["A wrong image", "The registry has no such image: the kubelet tries again, later each time.", pod("wrong-image", "  containers:\n    - name: main\n      image: example.invalid/no/such:image\n"), "pods/wrong-image"],
  ["A crash", "The program ends with an error, again and again: the kubelet waits longer before each start.", pod("crash", '  containers:\n    - name: main\n      image: busybox:1.36\n      command: ["sh", "-c", "echo cannot open the database; exit 1"]\n'), "pods/crash"],
  ["No room", "It asks for more memory than any node has: the scheduler finds no place.", pod("no-room", container("      resources:\n        requests: { memory: 100Ti }\n")), "pods/no-room"],
  ["No such node", "It wants a node with a label that none has.", pod("no-node", container() + "  nodeSelector: { disk: of-gold }\n"), "pods/no-node"],
  ["Never ready", "It runs, but says that it is not ready: no Service sends anything to it.", pod("not-ready", container('      readinessProbe:\n        periodSeconds: 2\n        exec: { command: ["cat", "/no/such/file"] }\n')), "pods/not-ready"],
  ["A missing ConfigMap", "It names a ConfigMap that is not there: its container cannot be made.", pod("no-config", container("      envFrom:\n        - configMapRef: { name: not-there }\n")), "pods/no-config"],
  ["A volume that never comes", "Its claim asks for a StorageClass that does not exist.", `apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata:\n  name: no-volume\n  namespace: ${NAMESPACE}\nspec:\n  storageClassName: not-there\n  accessModes: [ReadWriteOnce]\n  resources:\n    requests: { storage: 1Gi }\n---\n` + pod("no-volume", container("      volumeMounts:\n        - { name: data, mountPath: /data }\n") + "  volumes:\n    - name: data\n      persistentVolumeClaim: { claimName: no-volume }\n"), "pods/no-volume"],
  ["A Service that selects nobody", "No pod has its labels: there is nobody to send anything to.", `apiVersion: v1\nkind: Service\nmetadata:\n  name: nobody\n  namespace: ${NAMESPACE}\nspec:\n  selector: { app: not-there }\n  ports:\n    - port: 80\n`, "services/nobody"],
  ["Over the quota", "The namespace may have no more pods: the ReplicaSet cannot make the one it wants.", `apiVersion: v1\nkind: ResourceQuota\nmetadata:\n  name: no-jobs\n  namespace: ${NAMESPACE}\nspec:\n  hard: { "requests.cpu": "0" }\n---\napiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: quota\n  namespace: ${NAMESPACE}\nspec:\n  replicas: 1\n  selector:\n    matchLabels: { app: quota }\n  template:\n    metadata:\n      labels: { app: quota }\n    spec:\n      containers:\n        - name: main\n          image: busybox:1.36\n          resources:\n            requests: { cpu: 100m }\n`, "deployments/quota"],
];

export async function learn(context) {
  const { main, signal, query } = context;
  const about = query.get("about");
  const fall = h("div.body.stack"), cards = h("div.cards");
  const clean = h("button.danger", { type: "button", id: "clean", onclick: async () => {
    try {
      await ask("/api/v1/namespaces/" + NAMESPACE, { method: "DELETE" });
      toast("good", `The namespace ${NAMESPACE} goes, and everything in it.`);
      // Whoever has left the page meanwhile stays where they are.
      if (!signal.aborted) context.go("#/learn");
    } catch (error) { toast(error.code === 404 ? "good" : "bad", error.code === 404 ? "There is nothing to clean up." : error.message); }
  } }, "Clean up");
  put(main, h("div.page", h("div.head", h("h1", "Learn"), h("span.soft", "cause a failure, see where it gets stuck and how it is named"), h("span.grow"), clean),
    note("good", "", `Everything happens in the namespace ${NAMESPACE}, which “Clean up” deletes. It takes the right to create a namespace, pods and Services.`),
    about ? h("section.panel", h("header", h("h2.grow", about.split("/").slice(-2).join("/")), h("a", { href: "#/o" + about }, "Details")), fall) : null, cards));
  put(cards, LESSONS.map(([title, text, manifest, object]) => {
    const kindPath = object.startsWith("deployments") ? "/apis/apps/v1" : "/api/v1", path = `${kindPath}/namespaces/${NAMESPACE}/${object}`;
    const cause = h("button", { type: "button", "data-lesson": object, onclick: async () => {
      cause.disabled = true;
      try {
        await ready();
        for (const one of await documents(manifest, NAMESPACE)) await applyOne(one, { force: true });
        context.go(context.link("learn", { about: path }));
      } catch (error) { toast("bad", error.message); }
      cause.disabled = false;
    } }, "Cause it");
    return h("section.panel.card", h("h2", title), h("p.soft.grow", text), h("div.row", cause, about === path ? badge("shown above") : null));
  }));
  if (!about) return;
  put(fall, h("p.soft", "Looking…"));
  while (!signal.aborted) {
    if (await waterfall(fall, about, signal)) { if (!fall.querySelector(".note.bad")) break; }
    await new Promise((resolve) => setTimeout(resolve, 1500));
  }
}

/** The namespace with the service account that pods run as. */
async function ready() {
  // What was cleaned up a moment ago goes first.
  for (let turn = 0; turn < 120; turn++) {
    const old = await json("/api/v1/namespaces/" + NAMESPACE).catch((error) => { if (error.code === 404) return null; throw error; });
    if (!old?.metadata.deletionTimestamp) break;
    await new Promise((resolve) => setTimeout(resolve, 250));
  }
  const [space] = await documents(`apiVersion: v1\nkind: Namespace\nmetadata:\n  name: ${NAMESPACE}\n`, "");
  await applyOne(space, { force: true });
  for (let turn = 0; turn < 40; turn++) {
    try { await json(`/api/v1/namespaces/${NAMESPACE}/serviceaccounts/default`); return; } catch (error) { if (error.code !== 404) throw error; }
    await new Promise((resolve) => setTimeout(resolve, 250));
  }
}

