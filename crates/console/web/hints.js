// Which fields a YAML text may have where the cursor stands, from the server's own OpenAPI documents.

import { h, put } from "./dom.js";
import { json } from "./api.js";

const SHOWN = 60;

/** The names on the way to a line: of its parents, by their indentation, and the line's own. */
export function pathAt(text, cursor) {
  const lines = text.slice(0, cursor).split("\n"), path = [];
  const end = text.indexOf("\n", cursor), last = lines.length - 1;
  lines[last] += text.slice(cursor, end < 0 ? text.length : end);
  // On an empty line the indentation up to the cursor says what it belongs to.
  let least = lines[last].trim() ? Infinity : lines[last].length;
  for (let at = last; at >= 0 && least > 0; at--) {
    const found = /^( *)((?:- +)*)("?)([\w.$\/-]+)\3:(?:\s|$)/.exec(lines[at]);
    if (!found) continue;
    const indent = found[1].length + found[2].length;
    // The dash of a list stands at the height of its parent, or deeper.
    if (indent < least) { path.unshift(found[4]); least = found[2] ? found[1].length + 1 : indent; }
  }
  return path;
}

const references = (schema) => schema?.$ref ?? schema?.allOf?.find((one) => one.$ref)?.$ref;

function resolve(schema, all) {
  for (let turn = 0; turn < 8; turn++) {
    const named = references(schema);
    if (named) schema = { description: schema.description, ...all[named.split("/").pop()] };
    else if (schema?.type === "array") schema = schema.items;
    else break;
  }
  return schema;
}

/** The schema at a path, and as much of the path as it knows. */
export function schemaAt(all, root, path) {
  let schema = resolve(root, all), known = [];
  for (const name of path) {
    const next = schema?.properties?.[name] ?? (typeof schema?.additionalProperties === "object" ? schema.additionalProperties : undefined);
    if (!next) break;
    schema = resolve(next, all);
    known = [...known, name];
  }
  return { schema, known };
}

const typeOf = (schema, all) => {
  if (schema.type === "array") return "list of " + typeOf(schema.items ?? {}, all);
  if (references(schema)) return "object";
  return schema.additionalProperties ? "map" : schema.type ?? (schema["x-kubernetes-int-or-string"] ? "number or text" : "any");
};

/** A box that follows the cursor of `area`. */
export function hints(area, kind, signal) {
  const box = h("section.panel.hints", { "aria-label": "Fields at the cursor", "aria-live": "off" }, h("div.body", h("p.soft", "Fields are told here when the cursor stands in the text.")));
  const file = kind.group ? `/openapi/v3/apis/${kind.group}/${kind.version}` : `/openapi/v3/api/${kind.version}`;
  let all, root, failed = "";
  const load = json(file, { signal }).then((found) => {
    all = found.components?.schemas ?? {};
    root = Object.values(all).find((schema) => (schema["x-kubernetes-group-version-kind"] ?? []).some((one) => one.kind === kind.kind && one.group === kind.group && one.version === kind.version));
  }).catch((error) => { failed = error.message; });
  const show = async () => {
    await load;
    if (signal.aborted) return;
    if (!root) return put(box, h("div.body", h("p.soft", failed || "The server tells no schema of this kind.")));
    const path = pathAt(area.value, area.selectionStart), { schema, known } = schemaAt(all, root, path);
    // Of a field without fields of its own, those beside it.
    const inner = schema?.properties ? { schema, known } : schemaAt(all, root, known.slice(0, -1));
    const fields = Object.entries(inner.schema?.properties ?? {}), required = inner.schema?.required ?? [];
    const row = ([name, one]) => h("tr", h("td", h("code", name), required.includes(name) ? h("span.warn", " required") : null), h("td.soft", typeOf(one, all)), h("td.soft", (one.description ?? "").slice(0, 160)));
    const unknown = path.length > known.length ? h("p.warn", `There is no field ${path[known.length]} in ${known.join(".") || kind.kind}.`) : null;
    put(box, h("div.body.stack", h("h2", inner.known.join(".") || kind.kind), unknown, schema !== inner.schema && schema?.description ? h("p.soft", known.at(-1) + ": " + schema.description.slice(0, 400)) : null,
      h("table.plain", h("tbody", fields.slice(0, SHOWN).map(row)))));
  };
  for (const name of ["keyup", "click", "focus"]) area.addEventListener(name, show);
  return box;
}
