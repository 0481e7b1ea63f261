// Requests to the API server: with the session's key, as the signed-in user, and with nothing else.

import { heardTime } from "./dom.js";

const KEY = "ferry-console-key";
let key = localStorage.getItem(KEY) ?? "";
let signedOut = () => {};

export const whenSignedOut = (call) => { signedOut = call; };

export class ApiError extends Error {
  constructor(code, message, status) {
    super(message);
    Object.assign(this, { code, status });
  }
}

/** A fetch that carries the key. Answers that are no success become an ApiError with the server's own words. */
export async function ask(path, { method = "GET", accept = "application/json", type, body, headers = {}, signal } = {}) {
  const all = { accept, ...headers };
  if (key) all["x-ferry-console"] = key;
  if (type) all["content-type"] = type;
  let response;
  for (let turn = 0; !response; turn++) {
    try {
      response = await fetch(path, { method, headers: all, body, signal, credentials: "same-origin", cache: "no-store" });
    } catch (error) {
      if (signal?.aborted) throw error;
      // A browser drops its connections when the network of its machine changes; on a node every pod does that.
      if (method !== "GET" || turn === 2) throw new ApiError(0, "the server does not answer");
      await new Promise((resolve) => setTimeout(resolve, 150));
    }
  }
  heardTime(response.headers.get("date"));
  if (response.ok) return response;
  const text = await response.text();
  let status;
  try { status = JSON.parse(text); } catch { /* It is no Status. */ }
  const error = new ApiError(response.status, status?.message ?? inYaml(text) ?? (text.slice(0, 400) || response.statusText), status);
  if (response.status === 401 && !path.startsWith("/console/session")) signedOut(error);
  throw error;
}

/** The message of a Status in YAML: on its line, or in the lines below it. */
function inYaml(text) {
  const found = /^message: (?:[|>][-+]?\n((?: .*\n?)*)|(.*))$/m.exec(text);
  return found && (found[1] ?? found[2]).replace(/^ +/gm, "").trim().replace(/^(["'])([^]*)\1$/, "$2").replace(/''/g, "'");
}

/** Without the text in between: of a page of a large list it would be megabytes that nobody needs again. */
export const json = (path, options) => whole(path, options, (response) => response.json());
export const text = (path, options) => whole(path, options, (response) => response.text());
async function whole(path, options, read) {
  const response = await ask(path, options);
  try {
    return await read(response);
  } catch (error) {
    if (options?.signal?.aborted || error instanceof SyntaxError) throw error;
    throw new ApiError(0, "the connection broke off");
  }
}
export const yaml = (path, options) => text(path, { ...options, accept: "application/yaml" });

export async function whoAmI() {
  try {
    return await json("/console/session");
  } catch (error) {
    if (error.code !== 401) throw error;
    forget();
    return json("/console/session", { headers: {} });
  }
}

export async function signIn({ token, code }) {
  forget();
  const headers = code ? { "x-ferry-console-code": code } : token ? { authorization: "Bearer " + token } : {};
  const who = await json("/console/session", { method: "POST", headers });
  key = who.key;
  localStorage.setItem(KEY, key);
  return who;
}

export async function signOut() {
  try { await ask("/console/session", { method: "DELETE" }); } finally { forget(); }
}

function forget() {
  key = "";
  localStorage.removeItem(KEY);
}

/** Another tab may have signed in or out. */
addEventListener("storage", (event) => { if (event.key === KEY) location.reload(); });

/** A WebSocket of the API. A browser sets no headers there: the key goes as a protocol. */
export function socket(path, protocol) {
  const protocols = key ? [protocol, "console.ferry.dev." + key] : [protocol];
  const made = new WebSocket("wss://" + location.host + path, protocols);
  made.binaryType = "arraybuffer";
  return made;
}

/** Lines of a stream, until it ends or the signal is given. A line without end is cut. */
export async function lines(path, { signal, accept = "application/json", each }) {
  const response = await ask(path, { accept, signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  const MOST = 8 << 20;
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    rest += value;
    let from = 0;
    for (let end = rest.indexOf("\n"); end >= 0; end = rest.indexOf("\n", from)) {
      if (end > from) each(rest.slice(from, end));
      from = end + 1;
    }
    rest = rest.slice(from);
    if (rest.length > MOST) rest = "";
  }
  if (rest) each(rest);
}

/** Runs `attempt` again and again until the signal is given; waits longer each time it fails at once. */
export async function forever(signal, attempt, state = () => {}) {
  let wait = 250;
  while (!signal.aborted) {
    const began = Date.now();
    try {
      state("live");
      await attempt();
    } catch (error) {
      if (signal.aborted) return;
      state(error.code === 403 ? "refused" : "behind", error);
      if (error.code === 403 || error.code === 401) return;
    }
    wait = Date.now() - began > 5000 ? 250 : Math.min(wait * 2, 8000);
    await new Promise((resolve) => setTimeout(resolve, wait));
  }
}

// Discovery: which kinds there are.
let known;
export async function kinds(again) {
  if (known && !again) return known;
  const accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
  const found = await Promise.all(["/api", "/apis"].map((path) => json(path, { accept })));
  known = [];
  for (const group of found.flatMap((list) => list.items ?? [])) {
    const version = group.versions?.[0];
    for (const one of version?.resources ?? []) {
      known.push({
        group: group.metadata?.name ?? "", version: version.version, resource: one.resource, kind: one.responseKind?.kind ?? one.resource,
        namespaced: one.scope === "Namespaced", verbs: one.verbs ?? [], short: one.shortNames ?? [],
        subresources: (one.subresources ?? []).map((sub) => sub.subresource),
      });
    }
  }
  return known;
}

export const root = (kind) => (kind.group ? `/apis/${kind.group}/${kind.version}` : `/api/${kind.version}`);
export const collection = (kind, namespace) => root(kind) + (kind.namespaced && namespace ? `/namespaces/${encodeURIComponent(namespace)}` : "") + "/" + kind.resource;
export const objectPath = (kind, namespace, name) => collection(kind, namespace) + "/" + encodeURIComponent(name);
export const findKind = async (group, kindName) => (await kinds()).find((one) => one.group === group && one.kind === kindName);

/** /apis/apps/v1/namespaces/default/deployments/web → its parts and its kind. */
export async function read(path) {
  let parts;
  try { parts = path.split("/").filter(Boolean).map(decodeURIComponent); } catch { throw new ApiError(404, "This link is no path of an object: " + path); }
  const group = parts[0] === "apis" ? parts[1] : "";
  const rest = parts.slice(parts[0] === "apis" ? 3 : 2);
  const inside = rest[0] === "namespaces" && rest.length >= 4;
  const [namespace, resource, name] = inside ? rest.slice(1, 4) : ["", rest[0], rest[1]];
  const kind = (await kinds()).find((one) => one.group === group && one.resource === resource);
  return { path, kind, namespace, name, resource, group };
}
