// A table of any kind: the server's columns, pages as they come, changes as they happen. Only the rows in view are drawn.

import { ago, empty, failure, h, put } from "./dom.js";
import { collection, forever, json, kinds, lines } from "./api.js";

const TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1";
const HEIGHT = 32;
const PAGE = 500;

/** Words that tell at a glance how it stands. */
export const tone = (text) => {
  if (/^(Running|Ready|Active|Bound|Succeeded|Completed|Complete|Available|True|Established|Normal)$/.test(text)) return "good";
  if (/^(Pending|ContainerCreating|Terminating|PodInitializing|Init:|Released|Unknown|Waiting)/.test(text)) return "warn";
  if (/(BackOff|Error|Failed|Evicted|OOMKilled|NotReady|Lost|Warning|Invalid|Unschedulable)/.test(text)) return "bad";
  return "";
};

export async function list(context, group, resource) {
  const { main, query, signal, state } = context;
  const kind = (await kinds()).find((one) => one.group === group && one.resource === resource);
  if (signal.aborted) return;
  if (!kind) return put(main, h("div.page", h("div.head", h("h1", resource || "Nothing")), empty("There is no such kind", `The server knows no ${resource}${group ? " in " + group : ""}.`)));
  const namespace = kind.namespaced ? query.get("ns") ?? state.namespace : "";
  const all = namespace === "*";
  const path = collection(kind, all ? "" : namespace);
  const table = new Rows(kind, all);
  const count = h("span.soft", { "aria-live": "polite" }), live = h("span.state", h("span.dot"), h("span", "loading"));
  const filter = h("input", { type: "search", placeholder: "Filter", "aria-label": "Filter rows", value: query.get("q") ?? "" });
  const said = h("div");
  const where = await namespaces(kind, namespace, state, context);
  put(main, h("div.page.full", h("div.head", h("h1", context.plural(kind)), count, h("span.grow"), live, where, filter), said, table.element));
  filter.addEventListener("input", () => { table.filter(filter.value); told(); });
  table.filter(filter.value);
  const told = () => {
    const shown = table.shown.length, total = table.rows.size + (table.remaining ?? 0);
    put(count, shown === total ? `${total}` : `${shown} of ${total}`);
  };
  const tell = (mark, text) => put(live, h("span.dot." + mark), h("span", text));
  let last = "";
  const everything = async () => {
    let more = "";
    table.begin();
    do {
      const page = await json(`${path}?limit=${PAGE}${more ? "&continue=" + encodeURIComponent(more) : ""}`, { accept: TABLE, signal });
      table.columns(page.columnDefinitions);
      (page.rows ?? []).forEach((row) => table.set(row));
      more = page.metadata.continue ?? "";
      table.remaining = page.metadata.remainingItemCount ?? 0;
      last = page.metadata.resourceVersion;
      table.draw();
      told();
    } while (more && !signal.aborted);
    table.end();
    put(said);
    told();
  };
  try {
    await everything();
  } catch (error) {
    if (signal.aborted) return;
    tell("bad", "not shown");
    put(said, failure(error));
    if (error.code === 403 || error.code === 404) return table.element.remove();
  }
  if (!kind.verbs.includes("watch")) return tell("", "not watched");
  let fails = 0;
  await forever(signal, async () => {
    if (!last) await everything();
    tell("good", "live");
    await lines(`${path}?watch=1&allowWatchBookmarks=true&resourceVersion=${last}`, {
      accept: TABLE, signal, each(line) {
        fails = 0;
        const { type, object } = JSON.parse(line);
        if (type === "ERROR") { last = ""; throw new Error(object.message); }
        const row = object.rows?.[0];
        last = row?.object?.metadata?.resourceVersion ?? object.metadata?.resourceVersion ?? last;
        if (type === "BOOKMARK" || !row) return;
        if (type === "DELETED") table.remove(row); else table.set(row, true);
        table.soon();
        told();
      },
    });
  }, (what, error) => {
    if (what === "live") return;
    tell("warn", "behind, trying again");
    if (++fails > 1 || error.code === 410) last = "";
  });
}

async function namespaces(kind, chosen, state, context) {
  if (!kind.namespaced) return null;
  let known = [];
  try {
    const found = await json("/api/v1/namespaces?limit=1000", { accept: "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1" });
    known = found.items.map((one) => one.metadata.name);
  } catch { /* Who may not list them types one. */ }
  const pick = (value) => {
    if (value !== "*") { state.namespace = value; localStorage.setItem("ferry-console-namespace", value); }
    context.go(context.link(`r/${kind.group || "core"}/${kind.resource}`, { ns: value }));
  };
  if (!known.length) return h("input", { "aria-label": "Namespace", value: chosen, onchange: (event) => pick(event.target.value.trim() || "default") });
  if (!known.includes(chosen) && chosen !== "*") known.unshift(chosen);
  const select = h("select", { "aria-label": "Namespace", onchange: () => pick(select.value) }, h("option", { value: "*" }, "all namespaces"), known.map((one) => h("option", { value: one }, one)));
  select.value = chosen;
  return select;
}

/** The rows, and the part of them that is in view. */
export class Rows {
  constructor(kind, all) {
    Object.assign(this, { kind, all, rows: new Map(), shown: [], order: { column: -1, down: false }, text: "", names: [], drawn: new Map() });
    this.heads = h("div.line.heads", { role: "row" });
    this.space = h("div", { role: "presentation", css: { position: "relative" } });
    this.element = h("div.grid", { role: "grid", tabindex: "0", "aria-label": kind.kind, onscroll: () => this.paint() }, this.heads, this.space);
    this.heads.style.position = "sticky";
    this.element.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.paint()).observe(this.element);
  }

  begin() { this.stale = new Set(this.rows.keys()); }
  end() { for (const id of this.stale ?? []) this.rows.delete(id); this.stale = undefined; this.draw(); }

  columns(definitions) {
    if (!definitions || this.definitions) return;
    this.definitions = definitions.map((one, at) => ({ ...one, at })).filter((one) => one.priority === 0);
    this.names = [...(this.all ? ["Namespace"] : []), ...this.definitions.map((one) => one.name)];
    put(this.heads, this.names.map((name, at) => h("span", { role: "columnheader" }, h("button", { type: "button", onclick: () => this.sort(at) }, name))));
  }

  static id = (row) => row.object.metadata.uid ?? (row.object.metadata.namespace ?? "") + "/" + row.object.metadata.name;

  set(row, fresh) {
    const { metadata } = row.object, id = Rows.id(row);
    const cells = (this.definitions ?? []).map((column) => (column.name === "Age" ? "" : text(row.cells[column.at])));
    if (this.all) cells.unshift(metadata.namespace ?? "");
    this.rows.set(id, { id, cells, name: metadata.name, namespace: metadata.namespace ?? "", created: metadata.creationTimestamp, fresh: fresh ? Date.now() : 0 });
    this.stale?.delete(id);
  }

  remove(row) { this.rows.delete(Rows.id(row)); }
  filter(words) { this.text = words.trim().toLowerCase(); this.draw(); }

  sort(column) {
    this.order = { column, down: this.order.column === column && !this.order.down };
    [...this.heads.children].forEach((head, at) => head.setAttribute("aria-sort", at !== column ? "none" : this.order.down ? "descending" : "ascending"));
    this.draw();
  }

  /** Once for all changes of a moment. */
  soon() {
    if (this.waiting) return;
    this.waiting = true;
    setTimeout(() => { this.waiting = false; this.draw(); }, 50);
  }

  draw() {
    const words = this.text.split(/\s+/).filter(Boolean);
    const fits = (row) => words.every((word) => row.name.includes(word) || row.cells.some((cell) => cell.toLowerCase().includes(word)));
    this.shown = words.length ? [...this.rows.values()].filter(fits) : [...this.rows.values()];
    const { column, down } = this.order;
    if (column >= 0) {
      const age = this.names[column] === "Age";
      const value = (row) => (age ? -Date.parse(row.created) : row.cells[column]);
      const compare = new Intl.Collator(undefined, { numeric: true }).compare;
      this.shown.sort((a, b) => (age ? value(a) - value(b) : compare(value(a), value(b))) * (down ? -1 : 1));
    }
    const widths = this.names.map((name, at) => (name === "Name" || (at === 0 && !this.all) ? "minmax(160px, 2.2fr)" : /^(Age|Ready|Restarts|Type|Status|Namespace)$/.test(name) ? "minmax(84px, 1fr)" : "minmax(96px, 1.3fr)"));
    this.template = widths.join(" ");
    this.heads.style.gridTemplateColumns = this.template;
    this.element.setAttribute("aria-rowcount", String(this.shown.length));
    this.space.style.height = this.shown.length * HEIGHT + "px";
    this.version = (this.version ?? 0) + 1;
    this.paint();
  }

  paint() {
    if (!this.template) return;
    if (!this.shown.length) {
      this.drawn.clear();
      return put(this.space, this.stale ? null : empty(this.text ? "No row fits the filter" : `No ${this.kind.kind} here`, this.text ? "Type less, or clear it." : "Choose another namespace, or apply a manifest."));
    }
    if (!this.drawn.size) put(this.space);
    const top = Math.max(0, this.element.scrollTop - HEIGHT), from = Math.max(0, Math.floor(top / HEIGHT) - 6);
    const to = Math.min(this.shown.length, from + Math.ceil(this.element.clientHeight / HEIGHT) + 14);
    const keep = new Map();
    for (let at = from; at < to; at++) {
      const row = this.shown[at], key = row.id + " " + at + " " + this.version;
      const old = this.drawn.get(key);
      keep.set(key, old ?? this.line(row, at));
      if (!old) this.space.append(keep.get(key));
    }
    for (const [key, element] of this.drawn) if (!keep.has(key)) element.remove();
    this.drawn = keep;
  }

  line(row, at) {
    const href = "#/o" + collection(this.kind, row.namespace) + "/" + encodeURIComponent(row.name);
    const linked = Math.max(0, this.names.indexOf("Name"));
    const cells = row.cells.map((cell, column) => {
      const name = this.names[column];
      const shown = name === "Age" ? ago(row.created) : cell;
      const mark = /^(Status|Phase|Type|Reason|Condition)$/.test(name) ? tone(cell) : "";
      // The link is as large as its row.
      return h("span.cell" + (mark ? "." + mark : ""), { role: "gridcell", title: shown }, column === linked ? h("a", { href, tabindex: "-1" }, shown) : shown);
    });
    const fresh = Date.now() - row.fresh < 1400;
    return h("div.line" + (fresh ? ".fresh" : ""), { role: "row", "aria-rowindex": at + 1, css: { top: at * HEIGHT + "px", "grid-template-columns": this.template } }, cells);
  }

  key(event) {
    const top = (link) => parseInt(link.closest(".line").style.top);
    const lines = [...this.space.querySelectorAll(".line a")].sort((a, b) => top(a) - top(b));
    const at = lines.indexOf(document.activeElement);
    const step = { ArrowDown: 1, ArrowUp: -1, j: 1, k: -1 }[event.key];
    if (!step || !lines.length) return;
    event.preventDefault();
    const visible = lines.findIndex((line) => top(line) >= this.element.scrollTop);
    lines[at < 0 ? Math.max(0, visible) : Math.max(0, Math.min(lines.length - 1, at + step))].focus();
  }
}

const text = (value) => (value === undefined || value === null ? "" : typeof value === "object" ? JSON.stringify(value) : String(value));
