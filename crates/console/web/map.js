// Who owns, selects and mounts whom, in one namespace.

import { empty, failure, h, put, svg } from "./dom.js";
import { collection, findKind, forever, json, lines } from "./api.js";

const COLUMNS = [
  [["networking.k8s.io", "Ingress"]], [["", "Service"]], [["apps", "Deployment"], ["apps", "StatefulSet"], ["apps", "DaemonSet"], ["batch", "CronJob"]],
  [["apps", "ReplicaSet"], ["batch", "Job"]], [["", "Pod"]], [["", "PersistentVolumeClaim"], ["", "ConfigMap"], ["", "Secret"]],
];
const WIDTH = 168, HIGH = 40, GAP = 62, ROW = 52;
/** Of each kind; more cannot be read. */
const MOST = 60;

export const mapBox = () => h("div.mapbox", { tabindex: "0", role: "group", "aria-label": "Objects and how they belong together" }, h("p.soft.body", "Reading…"));
export const legend = () => h("div.legend", h("span", "—— owns"), h("span", "– – selects or routes to"), h("span", "· · · mounts"));

export async function map(context) {
  const { main, signal, state, query } = context;
  const namespace = query.get("ns") ?? state.namespace;
  const box = mapBox();
  const pick = h("input", { "aria-label": "Namespace", value: namespace, list: "spaces", onchange: () => context.go(context.link("map", { ns: pick.value })) });
  const spaces = h("datalist", { id: "spaces" });
  put(main, h("div.page.full", h("div.head", h("h1", "Map"), h("span.soft", "who owns, selects and mounts whom"), h("span.grow"), h("label.row", "Namespace", pick), spaces),
    legend(), box));
  json("/api/v1/namespaces?limit=500").then((found) => put(spaces, found.items.map((one) => h("option", { value: one.metadata.name })))).catch(() => {});
  // Of each column its kinds, and of each kind its objects by uid.
  const known = COLUMNS.map((kinds) => kinds.map(() => new Map()));
  let waiting = false;
  const soon = () => { if (!waiting) { waiting = true; setTimeout(() => { waiting = false; if (!signal.aborted) show(box, known, namespace); }, 200); } };
  await Promise.all(COLUMNS.flatMap((kinds, column) => kinds.map(async ([group, name], at) => {
    const kind = await findKind(group, name);
    if (!kind) return;
    const objects = known[column][at];
    const keep = (object) => { if (objects.has(object.metadata.uid) || objects.size < MOST) objects.set(object.metadata.uid, { kind, object, uid: object.metadata.uid }); };
    const read = async () => {
      const found = await json(`${collection(kind, namespace)}?limit=${MOST}`, { signal });
      objects.clear();
      found.items.forEach(keep);
      return found.metadata.resourceVersion;
    };
    let last;
    try { last = await read(); } catch (error) { if (error.code !== 403) throw error; return; }
    forever(signal, async () => {
      if (!last) { last = await read(); soon(); }
      await lines(`${collection(kind, namespace)}?watch=1&allowWatchBookmarks=true&resourceVersion=${last}`, {
        signal, each(line) {
          const { type, object } = JSON.parse(line);
          if (type === "ERROR") { last = ""; throw new Error(object.message); }
          last = object.metadata.resourceVersion;
          if (type === "BOOKMARK") return;
          if (type === "DELETED") objects.delete(object.metadata.uid); else keep(object);
          soon();
        },
      });
    }, (what) => { if (what !== "live") last = ""; });
  }))).catch((error) => { put(box, failure(error)); throw error; });
  if (!signal.aborted) show(box, known, namespace);
}

/** The map of a revision that the store still has. */
export async function mapAt(box, namespace, revision, signal) {
  const known = COLUMNS.map((kinds) => kinds.map(() => new Map()));
  await Promise.all(COLUMNS.flatMap((kinds, column) => kinds.map(async ([group, name], at) => {
    const kind = await findKind(group, name);
    if (!kind) return;
    try {
      const found = await json(`${collection(kind, namespace)}?limit=${MOST}${revision ? `&resourceVersion=${revision}&resourceVersionMatch=Exact` : ""}`, { signal });
      for (const object of found.items) known[column][at].set(object.metadata.uid, { kind, object, uid: object.metadata.uid });
    } catch (error) { if (error.code !== 403) throw error; }
  })));
  if (!signal.aborted) show(box, known, namespace);
}

function show(box, known, namespace) {
  const columns = known.map((kinds) => kinds.flatMap((objects) => [...objects.values()]));
  const edges = edgesOf(columns);
  const used = new Set(edges.flatMap(([from, to]) => [from, to]));
  // Of what is only carried along, what somebody mounts; of old ReplicaSets none.
  columns[5] = columns[5].filter((one) => used.has(one));
  columns[3] = columns[3].filter((one) => one.kind.kind !== "ReplicaSet" || one.object.spec.replicas > 0);
  const shown = columns.filter((column) => column.length);
  if (!shown.length) return put(box, empty("Nothing here to draw", `There are no workloads in ${namespace} that you may see.`, "Choose another namespace, or apply a manifest."));
  place(shown, edges);
  // What has the focus keeps it.
  const held = document.activeElement?.closest?.(".mapbox a")?.getAttribute("href");
  put(box, draw(shown, edges));
  if (held) [...box.querySelectorAll("a")].find((one) => one.getAttribute("href") === held)?.focus();
}

const fits = (selector, labels) => Object.keys(selector ?? {}).length > 0 && Object.entries(selector).every(([key, value]) => labels?.[key] === value);

function edgesOf(columns) {
  const all = columns.flat(), byUid = new Map(all.map((one) => [one.uid, one])), edges = [];
  const named = (kindName, name) => all.find((one) => one.kind.kind === kindName && one.object.metadata.name === name);
  for (const one of all) {
    for (const owner of one.object.metadata.ownerReferences ?? []) if (byUid.has(owner.uid)) edges.push([byUid.get(owner.uid), one, "owns"]);
    if (one.kind.kind === "Service") for (const pod of columns[4]) if (fits(one.object.spec.selector, pod.object.metadata.labels)) edges.push([one, pod, "selects"]);
    if (one.kind.kind === "Ingress") {
      const backends = [one.object.spec.defaultBackend, ...(one.object.spec.rules ?? []).flatMap((rule) => (rule.http?.paths ?? []).map((path) => path.backend))];
      for (const backend of backends) { const service = named("Service", backend?.service?.name); if (service) edges.push([one, service, "selects"]); }
    }
    if (one.kind.kind === "Pod") for (const volume of one.object.spec.volumes ?? []) {
      const to = named("PersistentVolumeClaim", volume.persistentVolumeClaim?.claimName) ?? named("ConfigMap", volume.configMap?.name) ?? named("Secret", volume.secret?.secretName);
      if (to) edges.push([one, to, "mounts"]);
    }
  }
  return edges;
}

/** Each at the height of those it belongs to, as far as there is room. */
function place(columns, edges) {
  columns.forEach((column, at) => {
    column.forEach((one, index) => { one.x = 16 + at * (WIDTH + GAP); one.y = 16 + index * ROW; });
  });
  for (let turn = 0; turn < 3; turn++) {
    for (const column of turn % 2 ? [...columns].reverse() : columns) {
      for (const one of column) {
        const near = edges.filter(([from, to]) => from === one || to === one).map(([from, to]) => (from === one ? to : from)).filter((other) => other.y !== undefined);
        one.wish = near.length ? near.reduce((sum, other) => sum + other.y, 0) / near.length : one.y;
      }
      column.sort((a, b) => a.wish - b.wish);
      column.forEach((one, index) => { one.y = Math.max(index ? column[index - 1].y + ROW : 16, turn ? one.wish : 16 + index * ROW); });
    }
  }
}

const tone = ({ kind, object }) => {
  const status = object.status ?? {};
  if (kind.kind === "Pod") return status.phase === "Running" && status.containerStatuses?.every((one) => one.ready) ? "good" : status.phase === "Succeeded" ? "" : status.phase === "Failed" ? "bad" : "warn";
  if (object.spec?.replicas !== undefined && kind.kind !== "Service") return (status.readyReplicas ?? 0) >= object.spec.replicas ? "good" : "warn";
  return "";
};

function draw(columns, edges) {
  const all = columns.flat();
  const width = Math.max(...all.map((one) => one.x)) + WIDTH + 20, height = Math.max(...all.map((one) => one.y)) + HIGH + 20;
  const cut = (text) => (text.length > 23 ? text.slice(0, 11) + "…" + text.slice(-11) : text);
  const lines = edges.filter(([from, to]) => from.x !== undefined && to.x !== undefined && from.x < to.x).map(([from, to, what]) => {
    const [x1, y1, x2, y2] = [from.x + WIDTH, from.y + HIGH / 2, to.x, to.y + HIGH / 2], half = (x1 + x2) / 2;
    // Past what stands between them, below it: a line behind a box would seem to end there.
    const low = Math.max(from.y, to.y) + HIGH + (ROW - HIGH) / 2;
    const way = x2 - x1 <= GAP ? `C${half},${y1} ${half},${y2} ${x2},${y2}` : `C${x1 + GAP / 2},${y1} ${x1 + GAP / 4},${low} ${x1 + GAP},${low} L${x2 - GAP},${low} C${x2 - GAP / 4},${low} ${x2 - GAP / 2},${y2} ${x2},${y2}`;
    return svg("path." + what, { d: `M${x1},${y1} ${way}` });
  });
  const boxes = all.map((one) => {
    const mark = tone(one), path = collection(one.kind, one.object.metadata.namespace) + "/" + one.object.metadata.name;
    return svg("a", { href: "#/o" + path, "aria-label": `${one.kind.kind} ${one.object.metadata.name}` }, svg("title", `${one.kind.kind} ${one.object.metadata.name}`),
      svg("rect" + (mark ? "." + mark : ""), { x: one.x, y: one.y, width: WIDTH, height: HIGH, rx: 6 }),
      svg("text.kindname", { x: one.x + 10, y: one.y + 15 }, one.kind.kind + " "), svg("text", { x: one.x + 10, y: one.y + 30 }, cut(one.object.metadata.name)));
  });
  return svg("svg", { width, height, viewBox: `0 0 ${width} ${height}` }, lines, boxes);
}
