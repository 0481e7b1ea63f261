// Paste or drop a manifest, see what the server would make of it, apply it, and watch it go.

import { add, badge, dialog, h, note, put } from "./dom.js";
import { ask, kinds, objectPath, yaml } from "./api.js";
import { diff, tidy } from "./diff.js";

const MANAGER = "ferry-console";

/** The documents of a manifest, each with what names its object. The server reads the rest. */
export async function documents(text, namespace) {
  const known = await kinds(true);
  const found = [];
  for (const part of text.split(/^---(?:[ \t].*)?$/m)) {
    if (!part.replace(/^\s*#.*$/gm, "").trim()) continue;
    const { apiVersion, kind, name, place } = head(part);
    if (!apiVersion || !kind || !name) throw new Error("A document needs apiVersion, kind and metadata.name: " + part.trim().slice(0, 80));
    const [group, version] = apiVersion.includes("/") ? apiVersion.split("/") : ["", apiVersion];
    const one = known.find((row) => row.group === group && row.kind === kind);
    if (!one) throw new Error(`The server has no kind ${kind} in ${apiVersion}.`);
    const own = { ...one, version };
    const at = one.namespaced ? place || namespace || "default" : "";
    found.push({ text: part, kind: own, name, namespace: at, path: objectPath(own, at, name) });
  }
  if (!found.length) throw new Error("There is no object in this manifest.");
  return found;
}

const plain = (text) => text?.trim().replace(/\s+#.*$/, "").replace(/^(["'])(.*)\1$/, "$2");

function head(part) {
  if (/^\s*\{/.test(part)) {
    const value = JSON.parse(part);
    return { apiVersion: value.apiVersion, kind: value.kind, name: value.metadata?.name, place: value.metadata?.namespace };
  }
  const top = (name) => plain(new RegExp("^" + name + ":(.*)$", "m").exec(part)?.[1]);
  const block = /^metadata:[ \t]*(\{.*\})?[ \t]*(?:#.*)?\n?((?:[ \t]+.*(?:\n|$)|[ \t]*\n|#.*\n)*)/m.exec(part);
  const flow = (name) => plain(new RegExp("[{,]\\s*" + name + ":\\s*([^,}]+)").exec(block?.[1] ?? "")?.[1]);
  const indent = /^([ \t]+)\S/m.exec((block?.[2] ?? "").replace(/^[ \t]*#.*$/gm, ""))?.[1] ?? "  ";
  const inner = (name) => plain(new RegExp("^" + indent + name + ":(.*)$", "m").exec(block?.[2] ?? "")?.[1]);
  return { apiVersion: top("apiVersion"), kind: top("kind"), name: flow("name") ?? inner("name"), place: flow("namespace") ?? inner("namespace") };
}

/** Server-side apply; with `dry` nothing is kept. */
export async function applyOne(one, { dry, force }) {
  const query = new URLSearchParams({ fieldManager: MANAGER, fieldValidation: "Strict" });
  if (dry) query.set("dryRun", "All");
  if (force) query.set("force", "true");
  const response = await ask(one.path + "?" + query, { method: "PATCH", type: "application/apply-patch+yaml", accept: "application/yaml", body: one.text });
  return { yaml: tidy(await response.text()), created: response.status === 201, warnings: warnings(response) };
}

const warnings = (response) => (response.headers.get("warning") ?? "").split(/,\s*(?=299)/).map((one) => /^299 - "(.*)"$/.exec(one)?.[1]).filter(Boolean);

const EXAMPLE = `apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  replicas: 2
  selector:
    matchLabels: { app: web }
  template:
    metadata:
      labels: { app: web }
    spec:
      containers:
        - name: web
          image: nginx
`;

export function openApply(state, text = "") {
  if (document.querySelector("dialog")) return;
  dialog("Apply a manifest", (close, box) => {
    const area = h("textarea.mono", { rows: "12", autofocus: true, spellcheck: "false", "aria-label": "Manifest, YAML or JSON", placeholder: EXAMPLE, value: text });
    const force = h("input", { type: "checkbox" });
    const said = h("div.stack", { "aria-live": "polite" });
    const ready = h("button.primary", { type: "button", disabled: true, id: "apply-now" }, "Apply");
    let checked = [];
    const fresh = () => { ready.disabled = true; checked = []; };
    area.addEventListener("input", fresh);
    const drop = async (file) => { if (file) { area.value = await file.text(); fresh(); } };
    box.addEventListener("dragover", (event) => event.preventDefault());
    box.addEventListener("drop", (event) => { event.preventDefault(); drop(event.dataTransfer.files[0]); });
    const title = (one) => h("strong", `${one.kind.kind} ${one.name}`, one.namespace && h("span.soft", ` in ${one.namespace}`));
    const refused = (one, error) => note("bad", "", title(one), h("p", error.message),
      error.code === 409 ? h("p.soft", "Somebody else manages these fields. “Take over fields” makes them yours.") : null);
    const check = async () => {
      fresh();
      put(said, h("p.soft", "Asking the server…"));
      try {
        const wanted = await documents(area.value, state.namespace);
        put(said);
        let good = true;
        for (const one of wanted) {
          try {
            const before = await yaml(one.path).catch((error) => { if (error.code === 404) return ""; throw error; });
            const result = await applyOne(one, { dry: true, force: force.checked });
            add(said, h("section.stack", h("div.row", title(one), badge(before ? "changes" : "new", before ? "" : "good")),
              result.warnings.map((text) => note("warn", "", text)), diff(tidy(before), result.yaml)));
          } catch (error) {
            good = false;
            // Its namespace may come with it.
            if (error.code === 404 && wanted.some((other) => other.kind.kind === "Namespace" && other.name === one.namespace)) {
              good = true;
              add(said, note("warn", "", title(one), h("p", "Its namespace is not there yet: it cannot be tried before.")));
            } else add(said, refused(one, error));
          }
        }
        checked = good ? wanted : [];
        ready.disabled = !good;
      } catch (error) {
        put(said, note("bad", "", error.message));
      }
    };
    ready.addEventListener("click", async () => {
      ready.disabled = true;
      put(said);
      let last;
      for (const one of checked) {
        try {
          const result = await applyOne(one, { force: force.checked });
          add(said, note("good", "", title(one), result.created ? " was created." : " was applied."));
          last = one;
        } catch (error) {
          add(said, refused(one, error));
          return;
        }
      }
      close();
      location.hash = last && checked.length === 1 ? "#/o" + last.path + "?tab=hops" : "#/hops";
    });
    const file = h("input", { type: "file", accept: ".yaml,.yml,.json", "aria-label": "Read a file", onchange: () => drop(file.files[0]) });
    return {
      body: [h("p.soft", "Paste, drop a file, or choose one. The server tries it first and keeps nothing of it."), area, h("div.row", file), said],
      footer: [h("label.row.grow", force, "Take over fields of others"), h("button", { type: "button", id: "apply-try", onclick: check }, "Try it"), ready],
    };
  });
}
