// One object: how it stands, its hops, its YAML, what happened to it, its logs, a terminal in it, and what can be done to it.

import { ago, badge, clock, dialog, empty, failure, h, note, put, span, svg, toast } from "./dom.js";
import { ask, collection, findKind, forever, json, lines, objectPath, read, yaml } from "./api.js";
import { diff, outline, tidy } from "./diff.js";
import { finding, waterfall } from "./fall.js";
import { hints } from "./hints.js";
import { deed } from "./hops.js";
import { logs } from "./logs.js";
import { terminal } from "./terminal.js";
import { tone } from "./list.js";

const WORKLOADS = ["Deployment", "StatefulSet", "DaemonSet", "ReplicaSet"];

export async function details(context, path) {
  const { main, signal, query } = context;
  const named = await read(path);
  if (!named.kind || !named.name) return put(main, h("div.page", h("div.head", h("h1", named.name || named.resource || "Nothing")), empty("There is no such object", path)));
  let object;
  try {
    object = await json(path, { signal });
  } catch (error) {
    if (error.code === 404) return gone(context, named, error);
    throw error;
  }
  const { kind } = named, tab = query.get("tab") ?? "overview";
  const isPod = kind.kind === "Pod" && !kind.group, isWorkload = WORKLOADS.includes(kind.kind) && kind.group === "apps";
  const tabs = [["overview", "Overview"], ["hops", "Hops"], ["yaml", "YAML"], ["events", "Events"], ["history", "History"]];
  if (isPod || isWorkload || kind.kind === "Job") tabs.push(["logs", "Logs"]);
  if (isPod) tabs.push(["terminal", "Terminal"]);
  if (kind.kind === "Node") tabs.push(["pods", "Pods"]);
  const body = h("div.stack.grow", { role: "tabpanel", "aria-label": tab });
  const state = h("span.row");
  const showState = () => put(state, summary(object));
  showState();
  put(main, h("div.page" + (tab === "logs" || tab === "terminal" ? ".full" : ""),
    h("div.head", h("h1", h("span.soft", kind.kind + " "), named.name), named.namespace && badge(named.namespace, "plain"), state, h("span.grow"), actions(context, named, () => object)),
    h("div.tabs", { role: "tablist" }, tabs.map(([id, text]) => h("a", { role: "tab", href: "#/o" + path + "?tab=" + id, "aria-selected": String(id === tab) }, text))), body));
  const views = { overview, hops: hopsOf, yaml: edit, events, history, logs: logsOf, terminal: terminalOf, pods };
  const view = (views[tab] ?? overview)(context, named, object, body);
  Promise.resolve(view).catch((error) => { if (!signal.aborted) put(body, failure(error)); });
  await forever(signal, () => lines(`${collection(kind, named.namespace)}?watch=1&fieldSelector=metadata.name%3D${encodeURIComponent(named.name)}&resourceVersion=${object.metadata.resourceVersion}`, {
    signal, each(line) {
      const event = JSON.parse(line);
      if (event.type === "ERROR") throw new Error(event.object.message);
      if (event.type === "DELETED") { put(state, badge("deleted", "bad")); return; }
      object = event.object;
      showState();
      if (tab === "overview") overview(context, named, object, body);
    },
  }), async (what) => { if (what !== "live") object = await json(path, { signal }).catch(() => object); });
}

/** What is still known of an object that is not there. */
async function gone(context, named, error) {
  const { main, signal, query } = context, { kind } = named;
  const tabs = [["history", "History"], ["events", "Events"]], tab = query.get("tab") === "events" ? "events" : "history";
  const body = h("div.stack.grow", { role: "tabpanel", "aria-label": tab });
  put(main, h("div.page", h("div.head", h("h1", h("span.soft", kind.kind + " "), named.name), named.namespace && badge(named.namespace, "plain"), badge("not there", "bad")),
    note("warn", "There is nothing here.", h("p", error.message), h("p.soft", "It may have been deleted, or the name is another one. Below is what is still known of it.")),
    h("div.tabs", { role: "tablist" }, tabs.map(([id, text]) => h("a", { role: "tab", href: "#/o" + named.path + "?tab=" + id, "aria-selected": String(id === tab) }, text))), body));
  try {
    await (tab === "events" ? events : history)({ signal }, named, undefined, body);
  } catch (error) {
    if (!signal.aborted) put(body, failure(error));
  }
}

function summary(object) {
  const status = object.status ?? {};
  if (object.metadata.deletionTimestamp) return badge("being deleted", "warn");
  if (status.phase) return badge(status.phase, tone(status.phase));
  const ready = status.conditions?.find((one) => one.type === "Ready" || one.type === "Available");
  if (ready) return badge(ready.status === "True" ? ready.type : "not " + ready.type.toLowerCase(), ready.status === "True" ? "good" : "bad");
  return null;
}

function facts(pairs) {
  return h("dl.facts", pairs.filter(([, value]) => value !== undefined && value !== "" && value !== null).map(([name, value]) => [h("dt", name), h("dd", value)]));
}

const words = (map) => Object.entries(map ?? {}).map(([key, value]) => badge(key + (value ? "=" + value : ""), "plain"));
const panel = (title, ...body) => h("section.panel", h("header", h("h2", title)), h("div.body.stack", body));

function table(names, rows) {
  return h("table.plain", h("thead", h("tr", names.map((name) => h("th", { scope: "col" }, name)))), h("tbody", rows.map((cells) => h("tr", cells.map((cell) => h("td", cell))))));
}

async function overview(context, named, object, body) {
  const { metadata, spec = {}, status = {} } = object;
  const own = (metadata.ownerReferences ?? []).map((owner) => ownerLink(owner, named.namespace));
  const general = panel("General", facts([
    ["Created", `${ago(metadata.creationTimestamp)} ago, ${metadata.creationTimestamp}`], ["Owned by", own.length ? own : undefined],
    ["Labels", metadata.labels && h("span.row", words(metadata.labels))], ["Node", spec.nodeName && h("a", { href: "#/o/api/v1/nodes/" + spec.nodeName }, spec.nodeName)],
    ["Address", status.podIP ?? spec.clusterIP], ["Replicas", spec.replicas === undefined ? undefined : `${status.readyReplicas ?? 0} of ${spec.replicas} ready, ${status.updatedReplicas ?? 0} up to date`],
    ["Ports", spec.ports?.map((port) => `${port.port}${port.nodePort ? ":" + port.nodePort : ""}/${port.protocol}`).join(", ")],
    ["Finalizers", metadata.finalizers?.join(", ")], ["Type", object.type], ["Data", object.data && Object.keys(object.data).join(", ")],
  ]), forwardHint(named, spec));
  const parts = [general];
  if (status.conditions?.length) {
    parts.push(panel("Conditions", table(["Condition", "Status", "Since", "Reason"], status.conditions.map((one) => [
      one.type, h("span." + (one.status === "Unknown" ? "warn" : "soft"), one.status), ago(one.lastTransitionTime), h("span", one.reason ?? "", one.message && h("div.faint.small", one.message))]))));
  }
  const statuses = [...(status.initContainerStatuses ?? []), ...(status.containerStatuses ?? [])];
  if (statuses.length) {
    parts.push(panel("Containers", table(["Container", "State", "Restarts", "Image"], statuses.map((one) => {
      const [name, state] = Object.entries(one.state ?? {})[0] ?? ["waiting", {}];
      const reason = state?.reason ?? name;
      return [one.name, h("span", badge(reason, name === "running" ? "good" : tone(reason) || "warn"), state?.message && h("div.faint.small", state.message)), String(one.restartCount), h("span.mono", one.image)];
    }))));
  }
  const why = h("div.stack"), use = h("div"), more = h("div.stack");
  put(body, h("div.split", h("div.stack", parts), h("div.stack", panel("Why", why), use, more)));
  await Promise.all([showWhy(context, named, why), related(context, named, object, more), figures(context, named, use)]);
}

async function showWhy(context, named, element) {
  try {
    const said = await json("/console/why" + named.path, { signal: context.signal });
    put(element, said.fine ? note("good", "Nothing holds it up.") : null, said.findings.map(finding), said.unseen.length ? h("p.faint.small", "Not seen: " + said.unseen.join("; ")) : null);
  } catch (error) {
    if (!context.signal.aborted) put(element, failure(error));
  }
}

function ownerLink(owner, namespace) {
  const text = `${owner.kind} ${owner.name} `, element = h("span", text), group = owner.apiVersion.includes("/") ? owner.apiVersion.split("/")[0] : "";
  findKind(group, owner.kind).then((kind) => { if (kind) put(element, h("a", { href: "#/o" + objectPath(kind, namespace, owner.name) }, text)); });
  return element;
}

function forwardHint(named, spec) {
  const port = named.kind.kind === "Service" ? spec.ports?.[0]?.port : named.kind.kind === "Pod" ? spec.containers?.flatMap((one) => one.ports ?? [])[0]?.containerPort : undefined;
  return port ? h("p.soft.small", "Reach it from here: ", h("code", `ferry kubectl -n ${named.namespace} port-forward ${named.kind.kind.toLowerCase()}/${named.name} 8080:${port}`)) : null;
}

/** What it owns, and whom it selects. */
async function related(context, named, object, element) {
  const { kind } = named, at = (group, kindName) => findKind(group, kindName);
  const below = { Deployment: ["apps", "ReplicaSet"], ReplicaSet: ["", "Pod"], StatefulSet: ["", "Pod"], DaemonSet: ["", "Pod"], Job: ["", "Pod"], CronJob: ["batch", "Job"] }[kind.kind];
  const rows = [];
  const list = async (other, query = "") => (await json(collection(other, named.namespace) + "?limit=500" + query, { signal: context.signal })).items;
  try {
    if (below) {
      const other = await at(...below);
      const selector = Object.entries(object.spec?.selector?.matchLabels ?? {}).map(([key, value]) => `${key}=${value}`).join(",");
      for (const one of await list(other, selector ? "&labelSelector=" + encodeURIComponent(selector) : "")) {
        if (one.metadata.ownerReferences?.some((owner) => owner.uid === object.metadata.uid)) rows.push([other, one]);
      }
    }
    if (kind.kind === "Service" && object.spec.selector) {
      const other = await at("", "Pod"), selector = Object.entries(object.spec.selector).map(([key, value]) => `${key}=${value}`).join(",");
      for (const one of await list(other, "&labelSelector=" + encodeURIComponent(selector))) rows.push([other, one]);
    }
  } catch (error) {
    if (!context.signal.aborted) put(element, failure(error));
    return;
  }
  if (context.signal.aborted || !rows.length) return;
  put(element, panel(kind.kind === "Service" ? "Selects" : "Made by it", table(["Name", "State", "Age"], rows.slice(0, 100).map(([other, one]) => [
    h("a", { href: "#/o" + objectPath(other, named.namespace, one.metadata.name) }, one.metadata.name),
    h("span", summary(one) ?? (one.spec?.replicas !== undefined ? `${one.status?.readyReplicas ?? 0} of ${one.spec.replicas}` : "")), ago(one.metadata.creationTimestamp)]))));
}

/** What it uses, as the metrics API tells it: asked for again while the page is open. */
async function figures(context, named, element) {
  const { kind, signal } = { ...named, ...context };
  if (!["Pod", "Node"].includes(kind.kind) || element.dataset.asked) return;
  element.dataset.asked = "1";
  const path = kind.kind === "Node" ? "/apis/metrics.k8s.io/v1beta1/nodes/" + named.name : `/apis/metrics.k8s.io/v1beta1/namespaces/${named.namespace}/pods/${named.name}`;
  const past = { cpu: [], memory: [] };
  while (!signal.aborted && element.isConnected) {
    try {
      const found = await json(path, { signal });
      const sum = (name) => (found.usage ? [found.usage] : found.containers.map((one) => one.usage)).reduce((total, usage) => total + quantity(usage[name]), 0);
      for (const name of ["cpu", "memory"]) { past[name].push(sum(name)); past[name].splice(0, past[name].length - 60); }
      put(element, panel("Use", h("div.row", h("span.grow", `CPU ${(past.cpu.at(-1) * 1000).toFixed(0)}m`, plot(past.cpu)), h("span.grow", `memory ${(past.memory.at(-1) / 2 ** 20).toFixed(0)} MiB`, plot(past.memory)))));
    } catch { return; }
    await new Promise((resolve) => setTimeout(resolve, 10000));
  }
}

const UNITS = { n: 1e-9, u: 1e-6, m: 1e-3, "": 1, k: 1e3, M: 1e6, G: 1e9, T: 1e12, Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40 };
export const quantity = (text) => { const [, number, unit] = /^([0-9.]+)([a-zA-Z]*)$/.exec(text ?? "0") ?? [0, "0", ""]; return Number(number) * (UNITS[unit] ?? 1); };

function plot(values) {
  const most = Math.max(...values, 1e-9), step = 100 / Math.max(1, values.length - 1);
  const points = values.map((value, at) => `${(at * step).toFixed(1)},${(40 - (value / most) * 36).toFixed(1)}`);
  return svg("svg.plot", { viewBox: "0 0 100 42", preserveAspectRatio: "none", "aria-hidden": "true" }, svg("path.area", { d: `M0,42 L${points.join(" L")} L100,42 Z` }), svg("path", { d: "M" + points.join(" L") }));
}

async function hopsOf({ signal }, named, object, body) {
  const inner = h("div.body.stack", h("p.soft", "Reading its way…"));
  put(body, h("section.panel", h("header", h("h2", "From the request to where it is now")), inner));
  while (!signal.aborted && !(await waterfall(inner, named.path, signal))) await new Promise((resolve) => setTimeout(resolve, 1500));
}

async function edit({ signal }, named, object, body) {
  const text = tidy(await yaml(named.path, { signal }));
  const area = h("textarea.mono", { rows: "30", spellcheck: "false", "aria-label": "YAML", value: text });
  const said = h("div.stack", { "aria-live": "polite" });
  const put_ = (dry) => ask(named.path + "?fieldManager=ferry-console&fieldValidation=Strict" + (dry ? "&dryRun=All" : ""), { method: "PUT", type: "application/yaml", accept: "application/yaml", body: area.value });
  const conflict = async () => {
    const now = tidy(await yaml(named.path));
    put(said, note("warn", "Somebody else changed it meanwhile.", h("p", "This is what changed since you began. Take their version, or carry your changes over to it.")), diff(text, now),
      h("div.row", h("button", { type: "button", onclick: () => edit({ signal }, named, object, body) }, "Read it again"),
        h("button", { type: "button", onclick: () => { area.value = area.value.replace(/^( {2}resourceVersion:).*$/m, "$1 " + JSON.stringify(/^ {2}resourceVersion: *"?(\d+)/m.exec(now)?.[1] ?? "")); put(said, note("good", "", "Your text now stands on their version. Try it again before you save.")); } }, "Keep my text, on their version")));
  };
  const run = (dry) => async () => {
    try {
      const result = tidy(await (await put_(dry)).text());
      if (dry) { put(said, h("h3", "What the server would keep"), diff(text, result)); return; }
      toast("good", `${named.kind.kind} ${named.name} was saved.`);
      edit({ signal }, named, object, body);
    } catch (error) {
      if (error.code === 409) await conflict(); else put(said, failure(error));
    }
  };
  put(body, h("div.row", h("button", { type: "button", id: "yaml-try", onclick: run(true) }, "Try it"), h("button.primary", { type: "button", id: "yaml-save", onclick: run(false) }, "Save"), h("span.soft", "managedFields are left out and stay as they are")), said, h("div.split", area, hints(area, named.kind, signal)));
}

async function events({ signal }, named, object, body) {
  const space = named.namespace || "default";
  const found = await json(`/api/v1/namespaces/${space}/events?fieldSelector=${encodeURIComponent(object ? "involvedObject.uid=" + object.metadata.uid : `involvedObject.kind=${named.kind.kind},involvedObject.name=${named.name}`)}&limit=500`, { signal });
  const live = found.items.map((one) => ({
    type: one.type, reason: one.reason, message: one.message, count: one.series?.count ?? one.count ?? 1, from: one.reportingComponent || one.source?.component,
    last: one.series?.lastObservedTime ?? one.lastTimestamp ?? one.eventTime ?? one.metadata.creationTimestamp,
  }));
  const { ended, refusal } = await endedEvents(named, object, signal);
  const rows = [...live, ...ended].sort((a, b) => Date.parse(b.last) - Date.parse(a.last));
  const more = refusal && h("p.faint.small", "Events that have ended are not shown: " + refusal);
  if (!rows.length) return put(body, empty("No Event tells of it", "The cluster keeps Events for an hour, this server the newest of those that ended. The history knows more."), more);
  put(body, h("section.panel", table(["When", "Type", "Reason", "Message", "From"], rows.map((one) => [h("span", { title: one.last }, ago(one.last), one.ended && [" ", badge("ended", "plain")]), badge(one.type, one.type === "Warning" ? "bad" : "plain"), one.reason, (one.message ?? "") + (one.count > 1 ? ` (${one.count} times)` : ""), one.from ?? ""]))), more);
}

/** The Events that are no longer in the store, of this very object. Who may not see them still sees the others. */
async function endedEvents(named, object, signal) {
  try {
    const found = await json("/console/events" + named.path, { signal });
    return { ended: found.events.filter((one) => !object || !one.uid || one.uid === object.metadata.uid).map((one) => ({ ...one, ended: true })) };
  } catch (error) {
    if (signal.aborted) throw error;
    return { ended: [], refusal: error.message };
  }
}

/** With the day, where it is another one. */
const moment = (time) => (new Date(time).toDateString() === new Date().toDateString() ? clock(time) : new Date(time).toLocaleString([], { hour12: false }));

async function history({ signal }, named, object, body) {
  const found = await json("/console/history" + named.path, { signal });
  if (!found.writes.length) return put(body, empty("No write of it is known", "The recorder keeps the newest 32,768 writes of the cluster, and what writes changed in 16 MiB."));
  const bare = (one) => { if (!one) return ""; const { managedFields, resourceVersion, ...metadata } = one.metadata ?? {}; return outline({ ...one, metadata }).trim(); };
  const all = found.writes, authors = [...new Set(all.map((write) => write.user))].sort(), holder = h("div.stack");
  const pick = h("select", { "aria-label": "Author", onchange: () => show() }, h("option", { value: "" }, `all authors (${authors.length})`), authors.map((user) => h("option", { value: user }, user)));
  put(body, h("div.row", h("p.soft.grow", `Newest first. The recorder knows every write since ${found.oldest ? new Date(found.oldest).toLocaleString([], { hour12: false }) : "now"}, of this object also older ones.`), pick), holder);
  const show = () => put(holder, all.filter((write) => !pick.value || write.user === pick.value).map((write) => {
    const inner = h("div.body");
    const box = h("details.panel", h("summary", { css: { padding: "9px 14px", cursor: "pointer" } }, h("span.mono.soft", moment(write.received)), " ", h("strong", deed({ ...write, changes: [], created: write.created || (!write.before && write.after && !write.removed) })), h("span.soft", ` by ${write.user}, revision ${write.revision}, ${span(Object.values(write.stages).reduce((sum, one) => sum + one, 0))}`)), inner);
    box.addEventListener("toggle", () => { if (box.open) put(inner, write.after || write.before ? diff(bare(write.before), bare(write.after)) : write.differences ? fields(write) : h("p.soft", write.removed ? "It was removed. What it was is in the writes before." : "What it changed is not known.")); });
    return box;
  }));
  show();
}

/** What a write changed, field by field. */
function fields({ differences }) {
  if (!differences.length) return h("p.soft", "Nothing but the stamps that every write changes.");
  const line = (mark, one, text) => (text === undefined ? null : h("div" + (mark === "+" ? ".add" : ".cutline"), `${mark} ${one.path}: ${text}`));
  return h("div.diff", { role: "figure", "aria-label": "What changes", tabindex: "0" }, differences.map((one) => [line("-", one, one.before), line("+", one, one.after)]));
}

async function podsOf(named, object, signal) {
  const selector = Object.entries(object.spec.selector?.matchLabels ?? {}).map(([key, value]) => `${key}=${value}`).join(",");
  return (await json(`/api/v1/namespaces/${named.namespace}/pods?limit=100&labelSelector=${encodeURIComponent(selector)}`, { signal })).items;
}

async function logsOf(context, named, object, body) {
  logs(context, body, named.kind.kind === "Pod" ? [object] : await podsOf(named, object, context.signal));
}

function terminalOf(context, named, object, body) { terminal(context, body, object); }

async function pods({ signal }, named, object, body) {
  const found = await json(`/api/v1/pods?limit=500&fieldSelector=${encodeURIComponent("spec.nodeName=" + named.name)}`, { signal });
  const request = (pod, name) => pod.spec.containers.reduce((sum, one) => sum + quantity(one.resources?.requests?.[name]), 0);
  const room = (name) => quantity(object.status?.allocatable?.[name]);
  const bar = (share) => h("div.bar-of", { title: (share * 100).toFixed(1) + " %" }, h("i", { css: { width: Math.min(100, share * 100) + "%" } }));
  const total = (name) => found.items.reduce((sum, pod) => sum + request(pod, name), 0) / Math.max(1e-9, room(name));
  put(body, panel("Requested of what it has", facts([["CPU", bar(total("cpu"))], ["Memory", bar(total("memory"))], ["Pods", `${found.items.length} of ${object.status?.allocatable?.pods ?? "?"}`]])),
    h("section.panel", table(["Pod", "Namespace", "State", "CPU", "Memory"], found.items.map((pod) => [h("a", { href: `#/o/api/v1/namespaces/${pod.metadata.namespace}/pods/${pod.metadata.name}` }, pod.metadata.name), pod.metadata.namespace, summary(pod), bar(request(pod, "cpu") / room("cpu")), bar(request(pod, "memory") / room("memory"))]))));
}

// What can be done to it.
function actions(context, named, object) {
  const { kind, path } = named, can = (verb) => kind.verbs.includes(verb);
  const merge = (body, at = path) => ask(at + "?fieldManager=ferry-console", { method: "PATCH", type: "application/merge-patch+json", body: JSON.stringify(body) });
  const attempt = (text, act) => async () => {
    try { if (await act() !== false) toast("good", text); } catch (error) { toast("bad", error.message); }
  };
  const buttons = [];
  if (kind.subresources.includes("scale")) {
    buttons.push(h("button", { type: "button", onclick: attempt("Scaled.", async () => {
      const wanted = await askNumber("How many replicas?", object().spec.replicas ?? 1);
      if (wanted === undefined) return false;
      await merge({ spec: { replicas: wanted } }, path + "/scale");
    }) }, "Scale"));
  }
  if (["Deployment", "StatefulSet", "DaemonSet"].includes(kind.kind)) {
    buttons.push(h("button", { type: "button", onclick: attempt("Its pods are replaced one after the other.", () =>
      merge({ spec: { template: { metadata: { annotations: { "kubectl.kubernetes.io/restartedAt": new Date().toISOString() } } } } })) }, "Restart"));
  }
  if (kind.kind === "Deployment") buttons.push(h("button", { type: "button", onclick: attempt("The pod template of that revision is in force again.", () => undo(context, named, object())) }, "Undo"));
  if (kind.kind === "Node") {
    const off = Boolean(object().spec.unschedulable);
    buttons.push(h("button", { type: "button", onclick: attempt(off ? "Pods may come again." : "No new pod comes here.", () => merge({ spec: { unschedulable: off ? null : true } })) }, off ? "Uncordon" : "Cordon"));
  }
  if (can("delete")) buttons.push(h("button.danger", { type: "button", onclick: attempt("It is being deleted.", () => remove(context, named, object())) }, "Delete"));
  return h("div.row", buttons);
}

const askNumber = (title, value) => dialog(title, (close) => {
  const input = h("input", { type: "number", min: "0", value: String(value), "aria-label": title });
  return { body: input, footer: [h("button.primary", { type: "button", onclick: () => close(Math.max(0, Math.floor(Number(input.value)))) }, "Set")] };
});

async function undo(context, named, object) {
  const sets = (await json(`/apis/apps/v1/namespaces/${named.namespace}/replicasets?limit=500`)).items.filter((one) => one.metadata.ownerReferences?.some((owner) => owner.uid === object.metadata.uid));
  const revision = (one) => Number(one.metadata.annotations?.["deployment.kubernetes.io/revision"] ?? 0);
  sets.sort((a, b) => revision(b) - revision(a));
  const [now, ...older] = sets;
  const template = (set) => { const { "pod-template-hash": _, ...labels } = set.spec.template.metadata.labels; return { ...set.spec.template, metadata: { ...set.spec.template.metadata, labels } }; };
  const chosen = await dialog("Back to which revision?", (close) => ({
    body: older.length ? older.map((set) => h("section.stack", h("div.row", h("strong.grow", `Revision ${revision(set)}, made ${ago(set.metadata.creationTimestamp)} ago`), h("button", { type: "button", onclick: () => close(set) }, "Go back to it")), diff(outline(template(now)).trim(), outline(template(set)).trim()))) : h("p.soft", "There is no older revision."),
  }));
  if (!chosen) return false;
  await ask(named.path + "?fieldManager=ferry-console", { method: "PATCH", type: "application/json-patch+json", body: JSON.stringify([{ op: "replace", path: "/spec/template", value: template(chosen) }]) });
}

async function remove(context, named, object) {
  const owned = { Deployment: "its ReplicaSets and Pods", ReplicaSet: "its Pods", StatefulSet: "its Pods (volumes stay)", DaemonSet: "its Pods", Job: "its Pods", CronJob: "its Jobs and their Pods", Namespace: "everything in it", CustomResourceDefinition: "all objects of this kind" }[named.kind.kind];
  const sure = await dialog(`Delete ${named.kind.kind} ${named.name}?`, (close) => ({
    body: [h("p", owned ? "With it go " + owned + "." : "Nothing else is known to go with it."), object.metadata.ownerReferences?.length ? note("warn", "", "Its owner makes another one.") : null],
    footer: [h("button", { type: "button", onclick: () => close(false) }, "Keep it"), h("button.danger", { type: "button", id: "delete-now", onclick: () => close(true) }, "Delete")],
  }));
  if (!sure) return false;
  await ask(named.path, { method: "DELETE", type: "application/json", body: JSON.stringify({ kind: "DeleteOptions", apiVersion: "v1", propagationPolicy: "Background", preconditions: { uid: object.metadata.uid } }) });
  context.go("#/r/" + (named.kind.group || "core") + "/" + named.kind.resource);
}
