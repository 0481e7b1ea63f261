// The front page: who writes what at this moment, a lane for each component, and the way of the chosen object.

import { ago, clock, empty, failure, h, now, put } from "./dom.js";
import { forever, json, lines, objectPath, kinds } from "./api.js";
import { waterfall } from "./fall.js";

const LANES = [
  ["client", "Clients"], ["api", "API server"], ["store", "Store"], ["controllers", "Controllers"], ["scheduler", "Scheduler"],
  ["kubelet", "Kubelet"], ["runtime", "Runtime"], ["network", "Network"], ["proxy", "Services, DNS"],
];
const ROW = 38;
/** So much of the past is drawn, in seconds, and so many writes. */
const WINDOW = 60;
const MOST = 400;

/** Whose hands a write comes from. */
export function author({ user, agent }) {
  if (user === "system:kube-scheduler") return "scheduler";
  if (user.startsWith("system:node:")) return "kubelet";
  if (/^system:serviceaccount:kube-system:endpointslice/.test(user)) return "proxy";
  if (/^system:serviceaccount:kube-system:.*-(controller|collector|autoscaler|binder|publisher|cleaner)$/.test(user) || user === "system:kube-controller-manager") return "controllers";
  if (/^system:(apiserver|kube-proxy)/.test(user)) return user.includes("proxy") ? "proxy" : "api";
  return /kube-controller|controller-manager/.test(agent ?? "") ? "controllers" : "client";
}

/** What a write did, in few words. */
export function deed(write) {
  if (write.removed) return "removed";
  const words = write.changes.map((one) => {
    if (one.what === "node") return "bound to " + one.to;
    if (one.what === "address") return "address " + one.to;
    if (one.what === "container") return `${one.name} ${one.to}${one.reason ? " (" + one.reason + ")" : ""}`;
    if (one.what === "condition") return `${one.name}=${one.to}`;
    if (one.what === "count") return `${one.name} ${one.to}`;
    if (one.what === "endpoint") return `${one.name || one.address} ${one.to}`;
    if (one.what === "spec") return write.created ? "" : "spec changed";
    if (one.what === "deletion") return "is being deleted";
    return `${one.what} ${one.to}`;
  }).filter(Boolean);
  const verb = write.created ? "created" : write.verb + (write.subresource ? " " + write.subresource : "");
  return [verb, ...words].join(", ");
}

/** What the lanes are measured by. */
export const scale = (end) => h("div.scale", { "aria-hidden": "true" }, h("span", `${WINDOW} s ${end === "now" ? "ago" : "before"}`), h("span", `${WINDOW / 2} s`), h("span", end));

const isBad = (write) => write.changes.some((one) => (one.what === "container" && /BackOff|Error|Err|Invalid/.test(one.reason ?? "")) || (one.what === "phase" && one.to === "Failed") || (one.what === "condition" && one.name === "PodScheduled" && one.to === "False"));

export async function hops(context) {
  const { main, signal, query } = context;
  const live = h("span.state", h("span.dot"), h("span", "connecting"));
  const lanes = new Lanes((object) => context.go("#/hops?object=" + encodeURIComponent(object)));
  const list = h("div.writes", { tabindex: "0", role: "group", "aria-label": "Latest writes" });
  const chosen = query.get("object");
  const fall = h("div.body.stack");
  const pause = h("button", { type: "button", onclick: () => { lanes.paused = !lanes.paused; pause.textContent = lanes.paused ? "Go on" : "Pause"; } }, "Pause");
  const background = h("input", { type: "checkbox" });
  put(main, h("div.page",
    h("div.head", h("h1", "Hops"), h("span.soft", "what is written now, and by whom"), h("span.grow"), h("label.row.soft", background, "system objects"), live, pause),
    h("section.panel", { "aria-label": "Lanes" }, lanes.element, scale("now")),
    h("div.split",
      h("section.panel", h("header", h("h2", "Latest writes")), list),
      h("section.panel", h("header", h("h2.grow.cut", chosen ? title(chosen) : "One object"), chosen && h("a", { href: "#/o" + chosen }, "Details")), fall))));
  if (chosen) { lanes.choose(chosen); follow(fall, chosen, signal, (trace) => lanes.belong(family(chosen, trace))); }
  else put(fall, empty("Choose an object", "Click a mark or a write to see its hops, who spent the time and what holds it up.", "Or press a to apply a manifest and watch it go."));
  const latest = [];
  const draw = () => put(list, latest.length ? latest.slice(0, 60).map(entry) : empty("Nothing was written yet", "Apply a manifest, and its way appears here."));
  let waiting = false;
  const soon = () => { if (!waiting) { waiting = true; setTimeout(() => { waiting = false; draw(); }, 80); } };
  const seen = [];
  const take = (write) => {
    if (write.object.namespace.startsWith("kube-") && !background.checked) return;
    write.path = path(write.object);
    latest.unshift(write);
    latest.length = Math.min(latest.length, 200);
    lanes.add(write);
  };
  background.addEventListener("change", () => { latest.length = 0; lanes.clear(); seen.forEach(take); soon(); });
  draw();
  lanes.run(signal);
  warnings(lanes, signal);
  let next = 0;
  await forever(signal, () => lines("/console/feed?after=" + next, {
    signal, each(line) {
      const write = JSON.parse(line);
      next = write.next ?? next;
      put(live, h("span.dot.good"), h("span", "live"));
      if (!write.object) return;
      seen.push(write);
      if (seen.length > MOST) seen.shift();
      take(write);
      soon();
    },
  }), (what, error) => {
    if (what === "live") return;
    put(live, h("span.dot.warn"), h("span", what === "refused" ? "not allowed" : "behind, trying again"));
    if (what === "refused") put(list, h("div.body", failure(error), h("p.soft", "The lanes show the flight recorder. It takes get on the non-resource URL /debug/flight/*, and watch on the objects.")));
    // The numbers of a server that was started anew begin again.
    if (error.code === 0) next = 0;
  });
}

export const path = (object) => (object.group ? `/apis/${object.group}/${object.version}` : `/api/${object.version}`) + (object.namespace ? "/namespaces/" + object.namespace : "") + `/${object.resource}/${object.name}`;
const title = (objectPath) => objectPath.split("/").slice(-2).join("/");

function entry(write) {
  return h("a", { href: "#/hops?object=" + encodeURIComponent(write.path) }, h("span.faint.mono", { title: ago(write.received) + " ago" }, clock(write.received)),
    h("i.lane-" + author(write), { title: write.user }), h("span.cut", h("span.soft", write.object.kind + " "), write.object.name), h("span.soft.cut", { title: deed(write) + " by " + write.user }, deed(write)));
}

/** The object and what it led to: its pods, and for a Deployment the ReplicaSets between. */
function family(chosen, trace) {
  const space = /^(.*\/namespaces\/[^/]+)\/([^/]+)\/[^/]+$/.exec(chosen);
  if (!space) return [chosen];
  const place = space[1].replace(/^.*(\/namespaces\/)/, "$1");
  const sets = space[2] === "deployments" ? trace.pods.map((pod) => `/apis/apps/v1${place}/replicasets/${pod.replace(/-[^-]+$/, "")}`) : [];
  return [chosen, ...sets, ...trace.pods.map((pod) => `/api/v1${place}/pods/${pod}`)];
}

/** Looks again until it has arrived. */
async function follow(element, objectPath, signal, told) {
  while (!signal.aborted) {
    if (await waterfall(element, objectPath, signal, told)) return;
    await new Promise((resolve) => setTimeout(resolve, 1500));
  }
}

/** Events of type Warning, in the lane of who tells them. */
function warnings(lanes, signal) {
  forever(signal, async () => {
    const { metadata } = await json("/api/v1/events?limit=1", { signal });
    const known = await kinds();
    await lines("/api/v1/events?watch=1&fieldSelector=type%3DWarning&resourceVersion=" + metadata.resourceVersion, {
      signal, each(line) {
        const { type, object } = JSON.parse(line);
        const about = object.involvedObject;
        if (type !== "ADDED" && type !== "MODIFIED") return;
        const [group, version] = about.apiVersion?.includes("/") ? about.apiVersion.split("/") : ["", about.apiVersion];
        const kind = known.find((one) => one.group === group && one.kind === about.kind);
        if (!kind) return;
        const who = object.reportingComponent || object.source?.component || "";
        const lane = /kubelet/.test(who) ? "kubelet" : /scheduler/.test(who) ? "scheduler" : "controllers";
        const at = Date.parse(object.series?.lastObservedTime ?? object.lastTimestamp ?? object.eventTime ?? object.metadata.creationTimestamp);
        lanes.mark(lane, at, 0, objectPath({ ...kind, version }, about.namespace, about.name), `${about.kind} ${about.name}: ${object.reason}: ${object.message}`, true);
      },
    });
  });
}

/** The lanes with their marks; they move with the time, or stand at a moment. */
export class Lanes {
  constructor(chosen) {
    this.moving = h("div.moving");
    this.field = h("div.field", LANES.map((_, at) => h("div.rule", { css: { top: (at + 1) * ROW - 1 + "px" } })), this.moving);
    this.field.style.height = LANES.length * ROW + "px";
    this.element = h("div.lanes", h("ul.names", LANES.map(([id, name]) => h("li", h("i.lane-" + id), name))), this.field);
    this.origin = now();
    this.marks = [];
    this.family = new Set();
    this.field.addEventListener("click", (event) => { const mark = event.target.closest(".mark"); if (mark) chosen(mark.dataset.object); });
  }

  choose(object) { this.family = new Set([object]); this.element.classList.add("choosing"); }

  belong(family) {
    this.family = new Set(family);
    for (const { element } of this.marks) element.classList.toggle("of", this.family.has(element.dataset.object));
  }

  clear() { this.marks = []; put(this.moving); }

  add(write) {
    const at = Date.parse(write.received), handed = Date.parse(write.handed), who = author(write), bad = isBad(write);
    const name = `${write.object.kind} ${write.object.name}: ${deed(write)}, by ${write.user}`;
    this.mark(who, at, 0, write.path, name, bad);
    const stages = Object.entries(write.stages).map(([stage, took]) => `${stage} ${took} µs`).join(", ");
    if (who !== "api") this.mark("api", at, handed - at, write.path, name + ": " + stages);
    this.mark("store", at, 0, write.path, `${write.object.kind} ${write.object.name}: revision ${write.revision}, committed in ${write.stages.commit ?? 0} µs`);
    for (const one of write.changes) {
      if (one.what === "container") this.mark("runtime", at, 0, write.path, `${write.object.name}: container ${one.name} ${one.to} ${one.reason ?? ""}`, /BackOff|Err/.test(one.reason ?? ""));
      if (one.what === "address") this.mark("network", at, 0, write.path, `${write.object.name} has the address ${one.to}`);
      if (one.what === "endpoint" && who !== "proxy") this.mark("proxy", at, 0, write.path, `${one.name || one.address} ${one.to}`);
    }
  }

  mark(lane, at, length, object, text, red) {
    const row = LANES.findIndex(([id]) => id === lane);
    const element = h(`button.mark.lane-${lane}${red ? ".red" : ""}${this.family.has(object) ? ".of" : ""}`, { type: "button", title: text, "aria-label": text, "data-object": object, tabindex: this.family.has(object) ? "0" : "-1" });
    element.style.top = row * ROW + (red ? 10 : 12) + "px";
    this.marks.push({ element, at, length });
    this.moving.append(element);
    this.place(this.marks.at(-1));
    while (this.marks.length > MOST * 4) this.marks.shift().element.remove();
  }

  place({ element, at, length }) {
    element.style.left = (at - this.origin) * this.pace() + "px";
    element.style.width = Math.max(7, length * this.pace()) + "px";
  }

  pace() { return (this.width || this.field.clientWidth || 800) / (WINDOW * 1000); }

  /** Stands at a moment of the past, in milliseconds, and shows the writes before it. */
  standAt(moment, writes) {
    this.clear();
    for (const write of writes) this.add({ ...write, path: path(write.object) });
    this.width = this.field.clientWidth;
    this.marks.forEach((mark) => this.place(mark));
    this.moving.style.transform = `translateX(${this.width - 12 - (moment - this.origin) * this.pace()}px)`;
  }

  /** One movement for all marks; nothing moves while nobody looks. */
  run(signal) {
    const watch = new ResizeObserver(() => { this.width = this.field.clientWidth; this.marks.forEach((mark) => this.place(mark)); });
    watch.observe(this.field);
    signal.addEventListener("abort", () => watch.disconnect());
    const step = () => {
      if (signal.aborted) return;
      const time = now();
      if (!this.paused && !document.hidden) {
        this.moving.style.transform = `translateX(${(this.width ?? this.field.clientWidth) - 12 - (time - this.origin) * this.pace()}px)`;
        while (this.marks.length && time - this.marks[0].at > WINDOW * 10000) this.marks.shift().element.remove();
      }
      // Ten times a second: an open page is to cost next to nothing.
      setTimeout(() => requestAnimationFrame(step), 100);
    };
    step();
  }
}
