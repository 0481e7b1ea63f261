// A table of any kind: the server's columns, pages as they come, changes as they happen. Only the rows in view are drawn.

import { ago, empty, failure, h, put } from "./dom.js";
import { collection, forever, json, kinds, lines } from "./api.js";

const TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1";
const HEIGHT = 32;
const PAGE = 500;
/** So many changes of a moment are put in their places one by one. */
const FEW = 200;
/** So long, in milliseconds, a drawing stays at least. */
const MOMENT = 50;
const COLLATOR = new Intl.Collator(undefined, { numeric: true });

/** Words that tell at a glance how it stands. */
export const tone = (text) => {
  if (/^(Running|Ready|Active|Bound|Succeeded|Completed|Complete|Available|True|Established|Normal)$/.test(text)) return "good";
  if (/^(Pending|SchedulingGated|ContainerCreating|Terminating|PodInitializing|Init:|Released|Unknown|Waiting)/.test(text)) return "warn";
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
  filter.addEventListener("input", () => table.filter(filter.value));
  // With each drawing: what is counted is what is shown.
  table.told = () => {
    const shown = table.shown.length, total = table.rows.size + (table.remaining ?? 0);
    const text = shown === total ? `${total}` : `${shown} of ${total}`;
    if (count.textContent !== text) put(count, text);
  };
  table.filter(filter.value);
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
      // The first rows at once; of a long table the others now and then.
      if (table.drawn.size) table.soon(); else table.draw();
    } while (more && !signal.aborted);
    table.end();
    put(said);
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
  const ages = setInterval(() => { if (!document.hidden) table.tick(); }, 10000);
  signal.addEventListener("abort", () => clearInterval(ages));
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
        table.soon(true);
      },
    });
  }, (what, error) => {
    if (what === "live") return;
    tell("warn", "behind, trying again");
    // What is known is only given up where the server refuses to go on from there; a connection that is cut says nothing of it.
    if (error.code === 410 || (error.code >= 400 && ++fails > 1)) last = "";
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
    Object.assign(this, { kind, all, rows: new Map(), shown: [], order: { column: -1, down: false }, text: "", names: [], drawn: new Map(), touched: new Set(), version: 0, drawnAt: 0 });
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
    const known = this.rows.get(id) ?? { id };
    this.rows.set(id, Object.assign(known, { cells, name: metadata.name, namespace: metadata.namespace ?? "", created: metadata.creationTimestamp, fresh: fresh ? Date.now() : 0 }));
    this.stale?.delete(id);
    if (fresh) this.touched.add(known);
  }

  remove(row) {
    const known = this.rows.get(Rows.id(row));
    if (known) this.touched.add(known);
    this.rows.delete(Rows.id(row));
  }

  filter(words) { this.text = words.trim().toLowerCase(); this.draw(); }

  sort(column) {
    this.order = { column, down: this.order.column === column && !this.order.down };
    [...this.heads.children].forEach((head, at) => head.setAttribute("aria-sort", at !== column ? "none" : this.order.down ? "descending" : "ascending"));
    this.draw();
  }

  /** At once after a quiet moment, else once for all changes of a moment; `few`: only rows that were touched have changed. */
  soon(few) {
    this.anew ||= !few;
    if (this.waiting) return;
    this.waiting = true;
    setTimeout(() => { this.waiting = false; this.draw(!this.anew); }, Math.max(0, MOMENT - (performance.now() - this.drawnAt)));
  }

  /** Whether a row fits the filter. */
  fitting() {
    const words = this.text.split(/\s+/).filter(Boolean);
    return words.length ? (row) => words.every((word) => row.name.includes(word) || row.cells.some((cell) => cell.toLowerCase().includes(word))) : () => true;
  }

  /** Which of two rows stands first; undefined where they stand as they came. */
  comparing() {
    const { column, down } = this.order;
    if (column < 0) return undefined;
    const sign = down ? -1 : 1;
    if (this.names[column] === "Age") return (a, b) => (Date.parse(b.created) - Date.parse(a.created)) * sign;
    const { compare } = COLLATOR;
    return (a, b) => compare(a.cells[column], b.cells[column]) * sign;
  }

  /** A few rows find their places among the others, which stay: to sort 100,000 rows with each change would take too long. */
  place() {
    const fits = this.fitting(), compare = this.comparing();
    const fit = (row) => this.rows.get(row.id) === row && fits(row);
    const leaves = (row) => this.touched.has(row) && (compare !== undefined || !fit(row));
    this.shown = this.shown.filter((row) => { if (!leaves(row)) return true; row.shown = false; return false; });
    for (const row of this.touched) {
      if (row.shown || !fit(row)) continue;
      let from = 0, to = this.shown.length;
      if (!compare) from = to;
      while (from < to) { const middle = (from + to) >> 1; if (compare(this.shown[middle], row) <= 0) from = middle + 1; else to = middle; }
      this.shown.splice(from, 0, row);
      row.shown = true;
    }
  }

  draw(few) {
    if (few && this.touched.size <= FEW) this.place();
    else {
      const fits = this.fitting(), compare = this.comparing();
      this.shown = [];
      for (const row of this.rows.values()) if ((row.shown = fits(row))) this.shown.push(row);
      if (compare) this.shown.sort(compare);
    }
    this.anew = false;
    this.touched.clear();
    const widths = this.names.map((name, at) => (name === "Name" || (at === 0 && !this.all) ? "minmax(160px, 2.2fr)" : /^(Age|Ready|Restarts|Type|Status|Namespace)$/.test(name) ? "minmax(96px, 1fr)" : "minmax(96px, 1.3fr)"));
    this.template = widths.join(" ");
    this.heads.style.gridTemplateColumns = this.template;
    this.element.setAttribute("aria-rowcount", String(this.shown.length));
    this.space.style.height = this.shown.length * HEIGHT + "px";
    this.version++;
    this.drawnAt = performance.now();
    this.told?.();
    this.paint();
  }

  /** Ages grow. */
  tick() {
    this.version++;
    this.paint();
  }

  paint() {
    if (!this.template) return;
    const held = this.space.contains(document.activeElement) ? document.activeElement.closest(".line")?.row : undefined;
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
    // Who is on a row stays on it when it is drawn anew.
    if (held && document.activeElement === document.body) [...keep.values()].find((line) => line.row === held)?.querySelector("a")?.focus({ preventScroll: true });
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
    const element = h("div.line" + (fresh ? ".fresh" : ""), { role: "row", "aria-rowindex": at + 1, css: { top: at * HEIGHT + "px", "grid-template-columns": this.template } }, cells);
    return Object.assign(element, { row: row.id });
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
