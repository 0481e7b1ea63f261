// How it was: the tables of a past moment, two moments compared, and the writes between them.

import { clock, empty, failure, h, note, put } from "./dom.js";
import { collection, kinds, json } from "./api.js";
import { Rows } from "./list.js";
import { author, deed } from "./hops.js";

const TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1";

export async function time(context) {
  const { main, signal, state, query } = context;
  const known = (await kinds()).filter((kind) => kind.verbs.includes("list"));
  const kind = known.find((one) => `${one.group}/${one.resource}` === (query.get("kind") ?? "/pods")) ?? known[0];
  const said = h("div.stack"), slider = h("input", { type: "range", min: "0", value: "0", "aria-label": "Moment", css: { width: "100%" } });
  const moment = h("strong", { "aria-live": "polite" }), writer = h("span.soft");
  const select = h("select", { "aria-label": "Kind", onchange: () => context.go(context.link("time", { kind: select.value, ns: query.get("ns") ?? "" })) },
    [...known].sort((a, b) => a.kind.localeCompare(b.kind)).map((one) => h("option", { value: `${one.group}/${one.resource}` }, one.kind + (one.group ? " · " + one.group : ""))));
  select.value = `${kind.group}/${kind.resource}`;
  const namespace = query.get("ns") ?? "*";
  const space = h("input", { "aria-label": "Namespace", value: namespace, onchange: () => context.go(context.link("time", { kind: select.value, ns: space.value || "*" })) });
  const other = h("input", { type: "range", min: "0", value: "0", "aria-label": "Other moment", css: { width: "100%" } }), until = h("strong", { "aria-live": "polite" });
  const second = h("div.stack", { hidden: true }, h("div.row", h("span.soft", "compared with"), until), other);
  const compare = h("input", { type: "checkbox" }), holder = h("div.stack.grow");
  put(main, h("div.page.full", h("div.head", h("h1", "Time"), h("span.soft", "how it was, from what the store still has"), h("span.grow"), select, kind.namespaced ? h("label.row", "Namespace (* for all)", space) : null),
    h("section.panel", h("div.body.stack", h("div.row", moment, writer, h("span.grow"), h("label.row", compare, "compare with another moment")), slider, second, said)), holder));
  let writes;
  try {
    writes = await recent(signal);
  } catch (error) {
    return put(said, failure(error), error.code === 403 ? h("p.soft", "The bar shows the flight recorder's writes. It takes get on the non-resource URL /debug/flight/*.") : null);
  }
  if (!writes.length) return put(said, empty("Nothing was written yet", "Moments appear here as the cluster changes."));
  slider.max = String(writes.length - 1);
  slider.value = slider.max;
  // One step further than the last write is now.
  other.max = String(writes.length);
  other.value = other.max;
  const path = collection(kind, namespace === "*" ? "" : namespace);
  const at = (revision) => json(`${path}?limit=500` + (revision ? `&resourceVersion=${revision}&resourceVersionMatch=Exact` : ""), { accept: TABLE, signal });
  let turn = 0;
  const show = async () => {
    const mine = ++turn, write = writes[Number(slider.value)];
    put(moment, `${clock(write.received)}, revision ${write.revision}`);
    const against = writes[Number(other.value)];
    second.hidden = !compare.checked;
    put(until, against ? `${clock(against.received)}, revision ${against.revision}` : "now");
    put(writer, `after ${write.object.kind} ${write.object.name}: ${deed(write)}, by ${author(write)}`);
    try {
      const [then, now] = await Promise.all([at(write.revision), compare.checked ? at(against?.revision ?? "") : null]);
      if (mine !== turn || signal.aborted) return;
      put(said);
      // Whichever is earlier stands on the left.
      const turned = against && Number(against.revision) < Number(write.revision);
      put(holder, compare.checked ? difference(kind, turned ? now : then, turned ? then : now) : table(kind, then, namespace === "*").element);
    } catch (error) {
      if (mine === turn && !signal.aborted) { put(holder); put(said, failure(error)); }
    }
  };
  let waiting;
  for (const one of [slider, other]) one.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(show, 120); });
  compare.addEventListener("change", show);
  await show();
}

/** The writes that the recorder tells at once; the stream is left as soon as they are here. */
async function recent(signal) {
  const { lines } = await import("./api.js");
  const stop = new AbortController(), found = [];
  signal.addEventListener("abort", () => stop.abort());
  let quiet;
  const done = () => { clearTimeout(quiet); quiet = setTimeout(() => stop.abort(), 150); };
  try {
    await lines("/console/feed", { signal: stop.signal, each(line) { const write = JSON.parse(line); if (write.object) found.push(write); done(); } });
  } catch (error) {
    if (!stop.signal.aborted) throw error;
  }
  return found;
}

function table(kind, found, all) {
  const rows = new Rows(kind, all);
  rows.columns(found.columnDefinitions);
  (found.rows ?? []).forEach((row) => rows.set(row));
  rows.draw();
  return rows;
}

function difference(kind, then, now) {
  const key = (row) => Rows.id(row), cells = (row) => row.cells.map((cell) => String(cell ?? ""));
  const columns = (then.columnDefinitions ?? now.columnDefinitions).map((one) => one.name);
  const old = new Map((then.rows ?? []).map((row) => [key(row), row])), fresh = new Map((now.rows ?? []).map((row) => [key(row), row]));
  const lines = [];
  for (const [id, row] of old) if (!fresh.has(id)) lines.push(["gone since", row, "bad"]);
  for (const [id, row] of fresh) {
    const before = old.get(id);
    if (!before) { lines.push(["new since", row, "good"]); continue; }
    const changes = cells(row).map((cell, at) => (columns[at] !== "Age" && cell !== cells(before)[at] ? `${columns[at]}: ${cells(before)[at]} → ${cell}` : "")).filter(Boolean);
    if (changes.length) lines.push([changes.join(", "), row, "warn"]);
  }
  if (!lines.length) return note("good", "", "Nothing that the table shows has changed since.");
  return h("section.panel", h("table.plain", h("thead", h("tr", ["Name", "Namespace", "Change"].map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", lines.map(([what, row, tone]) => h("tr", h("td", row.object.metadata.name), h("td", row.object.metadata.namespace ?? ""), h("td." + tone, what))))));
}
