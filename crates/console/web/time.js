// How it was: the tables, the map and the lanes of a past moment, two moments compared, and the writes between them.

import { clock, empty, failure, h, note, put } from "./dom.js";
import { collection, kinds, json } from "./api.js";
import { Rows } from "./list.js";
import { Lanes, author, deed, path, scale } from "./hops.js";
import { legend, mapAt, mapBox } from "./map.js";

const TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1";
const PAGE = 500;
/** So many rows of a moment are read. */
const MOST = 10000;
const VIEWS = [["table", "Table"], ["map", "Map"], ["lanes", "Lanes"]];

export async function time(context) {
  const { main, signal, state, query } = context;
  const known = (await kinds()).filter((kind) => kind.verbs.includes("list"));
  const kind = known.find((one) => `${one.group}/${one.resource}` === (query.get("kind") ?? "/pods")) ?? known[0];
  const view = VIEWS.some(([id]) => id === query.get("view")) ? query.get("view") : "table";
  const said = h("div.stack"), slider = bar("Moment"), other = bar("Other moment");
  const moment = h("strong", { "aria-live": "polite" }), writer = h("span.soft.cut"), until = h("strong", { "aria-live": "polite" });
  const reach = h("p.soft.small");
  const namespace = query.get("ns") ?? (view === "map" ? state.namespace : "*");
  let chosen = query.get("moment") ?? "";
  const here = (more) => context.link("time", { view, kind: select.value, ns: namespace, moment: chosen, ...more });
  const select = h("select", { "aria-label": "Kind", onchange: () => context.go(here()) },
    [...known].sort((a, b) => a.kind.localeCompare(b.kind)).map((one) => h("option", { value: `${one.group}/${one.resource}` }, one.kind + (one.group ? " · " + one.group : ""))));
  select.value = `${kind.group}/${kind.resource}`;
  const space = h("input", { "aria-label": "Namespace", value: namespace, onchange: () => context.go(here({ ns: space.value || "*" })) });
  const tabs = VIEWS.map(([id, text]) => h("a", { role: "tab", "aria-selected": String(id === view) }, text));
  // Another view is of the same moment.
  const linked = () => tabs.forEach((tab, at) => tab.setAttribute("href", here({ view: VIEWS[at][0], ns: query.get("ns") ?? "" })));
  linked();
  const second = h("div.stack", { hidden: true }, h("div.row", h("span.soft", "compared with"), until), other);
  const compare = h("input", { type: "checkbox" }), holder = h("div.stack.grow");
  put(main, h("div.page.full", h("div.head", h("h1", "Time"), h("span.soft", "how it was, from what the store still has"), h("span.grow"), view === "table" ? select : null,
    view === "map" || (view === "table" && kind.namespaced) ? h("label.row", view === "map" ? "Namespace" : "Namespace (* for all)", space) : null),
    h("div.tabs", { role: "tablist" }, tabs),
    h("section.panel", h("div.body.stack", h("div.row", moment, writer, h("span.grow"), view === "table" ? h("label.row", compare, "compare with another moment") : null), slider, second, reach, said)), holder));
  let writes;
  try {
    writes = await new Writes(signal).begin();
  } catch (error) {
    return put(said, failure(error), error.code === 403 ? h("p.soft", "The bar shows the flight recorder's writes. It takes get on the non-resource URL /debug/flight/*.") : null);
  }
  const newest = await writes.upTo(writes.next - 1);
  if (!newest) return put(said, empty("Nothing was written yet", "Moments appear here as the cluster changes."));
  for (const one of [slider, other]) Object.assign(one, { min: String(writes.first), max: String(writes.next - 1) });
  // One step further than the last write is now.
  other.max = String(writes.next);
  other.value = other.max;
  slider.value = query.get("moment") || slider.max;
  const oldest = await writes.from(writes.first), stored = await writes.storedFrom();
  put(reach, `Writes and lanes since ${clock(oldest?.received ?? newest.received)}; tables and maps since ${stored ? clock(stored.received) : "now"}.`);
  const path = collection(kind, namespace === "*" ? "" : namespace);
  const told = (write) => `${clock(write.received)}, revision ${write.revision}`;
  let turn = 0;
  const show = async () => {
    const mine = ++turn, current = () => mine === turn && !signal.aborted;
    try {
      const write = (await writes.upTo(Number(slider.value))) ?? oldest ?? newest;
      const against = compare.checked && Number(other.value) < writes.next ? await writes.upTo(Number(other.value)) : null;
      if (!current()) return;
      put(moment, told(write));
      second.hidden = !compare.checked;
      put(until, against ? told(against) : "now");
      put(writer, `after ${write.object.kind} ${write.object.name}: ${deed(write)}, by ${author(write)}`);
      chosen = slider.value === slider.max ? "" : slider.value;
      history.replaceState(null, "", here());
      linked();
      if (view === "lanes") return stand(holder, await writes.before(write.number), write, context);
      if (view === "map") {
        const box = mapBox();
        await mapAt(box, namespace, await writes.revisionOf(write), signal);
        if (current()) { put(said); put(holder, legend(), box); }
        return;
      }
      const [one, two] = [await writes.revisionOf(write), against ? await writes.revisionOf(against) : ""];
      const [then, now] = await Promise.all([read(path, one, current), compare.checked ? read(path, two, current) : null]);
      if (!current()) return;
      put(said, [then, now].some((one) => one?.cut) ? note("warn", "", `Of this moment the first ${MOST} rows are shown.`) : null);
      // Whichever is earlier stands on the left.
      const turned = against && Number(against.revision) < Number(write.revision);
      put(holder, compare.checked ? difference(kind, turned ? now : then, turned ? then : now) : table(kind, then, namespace === "*").element);
    } catch (error) {
      if (current()) { put(holder); put(said, failure(error)); }
    }
  };
  const read = async (path, revision, wanted) => {
    let more = "", whole;
    do {
      const page = await json(`${path}?limit=${PAGE}` + (more ? "&continue=" + encodeURIComponent(more) : revision ? `&resourceVersion=${revision}&resourceVersionMatch=Exact` : ""), { accept: TABLE, signal });
      if (whole) whole.rows.push(...(page.rows ?? [])); else whole = { columnDefinitions: page.columnDefinitions, rows: page.rows ?? [] };
      more = page.metadata.continue ?? "";
    } while (more && whole.rows.length < MOST && wanted());
    whole.cut = Boolean(more);
    return whole;
  };
  let waiting;
  for (const one of [slider, other]) one.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(show, 120); });
  compare.addEventListener("change", show);
  await show();
}

const bar = (name) => h("input", { type: "range", min: "0", value: "0", "aria-label": name, css: { width: "100%" } });

/** The writes that the recorder has, by their numbers, read in pages. Those of objects that one may not watch are left out. */
class Writes {
  constructor(signal) { Object.assign(this, { signal, pages: new Map() }); }

  async begin() {
    const { first, next, storedSince } = await this.ask(`from=${Number.MAX_SAFE_INTEGER}`);
    return Object.assign(this, { first, next, storedSince: storedSince ?? 0 });
  }

  ask(query) { return json("/console/writes?" + query, { signal: this.signal }); }

  async page(number) {
    const start = Math.floor(number / 256) * 256;
    // The newest page grows.
    if (!this.pages.has(start)) this.pages.set(start, (await this.ask(`from=${start}&most=256`)).writes);
    if (this.pages.size > 64) this.pages.delete(this.pages.keys().next().value);
    return (this.pages.get(start) ?? []).filter((write) => write.number < this.next);
  }

  /** The write at a number, or the last one before it that may be seen. */
  async upTo(number) {
    for (let at = number, turn = 0; at >= this.first && turn < 16; at = Math.floor(at / 256) * 256 - 1, turn++) {
      const found = (await this.page(at)).findLast((write) => write.number <= number);
      if (found) return found;
    }
    return undefined;
  }

  /** The first one from a number on. */
  async from(number) {
    for (let at = number, turn = 0; at < this.next && turn < 16; at = Math.floor(at / 256) * 256 + 256, turn++) {
      const found = (await this.page(at)).find((write) => write.number >= number);
      if (found) return found;
    }
    return undefined;
  }

  /** The revision to ask for the moment after a write: what was so then was so until the next write, which may be long after. */
  async revisionOf(write) {
    this.storedSince = (await this.ask(`from=${Number.MAX_SAFE_INTEGER}`)).storedSince ?? 0;
    if (write.revision >= this.storedSince) return write.revision;
    const after = await this.from(write.number + 1);
    return after ? after.revision - 1 : "";
  }

  /** The first of which the store has the moment. */
  async storedFrom() {
    let from = this.first, to = this.next;
    while (from < to) {
      const middle = Math.floor((from + to) / 2), write = await this.from(middle);
      if (!write || write.revision >= this.storedSince) to = middle; else from = middle + 1;
    }
    return (await this.upTo(from - 1)) ?? this.from(from);
  }

  /** Those that the lanes show at a moment. */
  async before(number) {
    const pages = [await this.page(Math.max(this.first, number - 256)), await this.page(number)];
    return [...new Set(pages.flat())].filter((write) => write.number <= number);
  }
}

function stand(holder, writes, write, context) {
  const lanes = new Lanes((object) => context.go("#/o" + object + "?tab=history"));
  put(holder, h("section.panel", { "aria-label": "Lanes" }, lanes.element, scale(clock(write.received))),
    h("section.panel", h("header", h("h2", "The writes before it")), h("div.writes", { tabindex: "0", role: "group", "aria-label": "The writes before it" },
      writes.slice(-60).reverse().map((one) => h("a", { href: "#/o" + path(one.object) + "?tab=history" }, h("span.faint.mono", clock(one.received)), h("i.lane-" + author(one), { title: one.user }),
        h("span.cut", h("span.soft", one.object.kind + " "), one.object.name), h("span.soft.cut", { title: deed(one) + " by " + one.user }, deed(one)))))));
  lanes.standAt(Date.parse(write.received), writes);
}

function table(kind, found, all) {
  const rows = new Rows(kind, all);
  rows.columns(found.columnDefinitions);
  found.rows.forEach((row) => rows.set(row));
  rows.draw();
  return rows;
}

function difference(kind, then, now) {
  const key = (row) => Rows.id(row), cells = (row) => row.cells.map((cell) => String(cell ?? ""));
  const columns = (then.columnDefinitions ?? now.columnDefinitions).map((one) => one.name);
  const old = new Map(then.rows.map((row) => [key(row), row])), fresh = new Map(now.rows.map((row) => [key(row), row]));
  const lines = [];
  for (const [id, row] of old) if (!fresh.has(id)) lines.push(["gone since", row, "bad"]);
  for (const [id, row] of fresh) {
    const before = old.get(id);
    if (!before) { lines.push(["new since", row, "good"]); continue; }
    const was = cells(before);
    const changes = cells(row).map((cell, at) => (columns[at] !== "Age" && cell !== was[at] ? `${columns[at]}: ${was[at]} → ${cell}` : "")).filter(Boolean);
    if (changes.length) lines.push([changes.join(", "), row, "warn"]);
  }
  if (!lines.length) return note("good", "", "Nothing that the table shows has changed since.");
  const shown = lines.slice(0, 1000);
  const link = ({ object: { metadata } }) => h("a", { href: `#/o${collection(kind, metadata.namespace)}/${encodeURIComponent(metadata.name)}?tab=history` }, metadata.name);
  return h("section.panel", h("table.plain", h("thead", h("tr", ["Name", "Namespace", "Change"].map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", shown.map(([what, row, tone]) => h("tr", h("td", link(row)), h("td", row.object.metadata.namespace ?? ""), h("td." + tone, what))))),
    lines.length > shown.length ? h("p.body.soft", `And ${lines.length - shown.length} more.`) : null);
}
