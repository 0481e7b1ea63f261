// The frame: sign-in, navigation, and which page is shown for which link.

import { add, failure, h, put, toast } from "./dom.js";
import { kinds, signIn, signOut, whenSignedOut, whoAmI } from "./api.js";
import { openPalette } from "./palette.js";
import { openApply } from "./apply.js";
import { hops } from "./hops.js";
import { list } from "./list.js";
import { details } from "./details.js";
import { map } from "./map.js";
import { time } from "./time.js";
import { learn } from "./learn.js";

const theme = {
  set(value) {
    document.documentElement.dataset.theme = value;
    localStorage.setItem("ferry-console-theme", value);
  },
  get: () => localStorage.getItem("ferry-console-theme") ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"),
  turn() { theme.set(theme.get() === "dark" ? "light" : "dark"); },
};
theme.set(theme.get());

/** What most people look for, in the order in which they do. The rest is found by discovery. */
const COMMON = [
  ["Workloads", [["", "pods"], ["apps", "deployments"], ["apps", "statefulsets"], ["apps", "daemonsets"], ["batch", "jobs"], ["batch", "cronjobs"]]],
  ["Network", [["", "services"], ["discovery.k8s.io", "endpointslices"], ["networking.k8s.io", "ingresses"], ["networking.k8s.io", "networkpolicies"]]],
  ["Configuration", [["", "configmaps"], ["", "secrets"], ["", "persistentvolumeclaims"], ["", "persistentvolumes"]]],
  ["Cluster", [["", "nodes"], ["", "namespaces"], ["", "events"]]],
];

export const state = { user: null, namespace: localStorage.getItem("ferry-console-namespace") ?? "default", kinds: [] };
let leave = new AbortController();
let main, nav;

export function link(route, query) {
  const text = new URLSearchParams(Object.entries(query ?? {}).filter(([, value]) => value !== "" && value !== undefined)).toString();
  return "#/" + route + (text ? "?" + text : "");
}
export const kindLink = (kind, query) => link(`r/${kind.group || "core"}/${kind.resource}`, query);

function route() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  return { parts: path.split("/").filter(Boolean), query: new URLSearchParams(query ?? "") };
}

function show() {
  if (!main) return;
  leave.abort();
  leave = new AbortController();
  const { parts, query } = route();
  const context = { state, query, signal: leave.signal, main, link, plural, go: (to) => { location.hash = to; } };
  const pages = { hops, map, time, learn };
  put(main);
  main.scrollTop = 0;
  let page;
  if (parts[0] === "r") page = list(context, parts[1] === "core" ? "" : parts[1], parts[2]);
  else if (parts[0] === "o") page = details(context, "/" + parts.slice(1).join("/"));
  else page = (pages[parts[0] ?? "hops"] ?? hops)(context);
  Promise.resolve(page).catch((error) => {
    if (context.signal.aborted) return;
    put(main, h("div.page", h("div.head", h("h1", readable(parts.at(-1) ?? "Hops"))), failure(error)));
    if (error.code === 0) setTimeout(() => { if (!context.signal.aborted) show(); }, 2000);
  });
  for (const one of nav.querySelectorAll("a")) {
    const [own] = one.getAttribute("href").split("?");
    const here = own === "#/" + parts.slice(0, parts[0] === "r" ? 3 : 1).join("/") || (!parts.length && own === "#/hops");
    if (here) one.setAttribute("aria-current", "page"); else one.removeAttribute("aria-current");
  }
}

/** A link that somebody has broken is shown as it is. */
function readable(part) {
  try { return decodeURIComponent(part); } catch { return part; }
}

function frame() {
  main = h("main.main", { id: "main", tabindex: "-1" });
  nav = h("nav.nav", { "aria-label": "Pages" });
  const entry = (href, text) => h("a", { href }, text);
  add(nav, entry("#/hops", "Hops"), entry("#/map", "Map"), entry("#/time", "Time"), entry("#/learn", "Learn"));
  const listed = new Set();
  for (const [title, entries] of COMMON) {
    const found = entries.map(([group, resource]) => state.kinds.find((kind) => kind.group === group && kind.resource === resource)).filter(Boolean);
    found.forEach((kind) => listed.add(kind));
    add(nav, found.length ? h("h2", title) : null, found.map((kind) => entry(kindLink(kind), plural(kind))));
  }
  const others = state.kinds.filter((kind) => !listed.has(kind) && kind.verbs.includes("list"));
  others.sort((a, b) => a.kind.localeCompare(b.kind));
  add(nav, h("details", h("summary", `All other kinds (${others.length})`), others.map((kind) => h("a", { href: kindLink(kind), title: kind.group || "core" }, h("span.cut", plural(kind))))));
  const bar = h("header.bar",
    h("a.brand", { href: "#/hops" }, h("img", { src: "mark.svg", alt: "" }), "Ferry"),
    h("button.search", { type: "button", onclick: palette }, "Go to or do…", h("kbd", { "aria-hidden": "true" }, "Ctrl K")),
    h("span.grow"),
    h("button.primary", { type: "button", id: "apply", onclick: () => openApply(state) }, "Apply"),
    h("button.quiet", { type: "button", onclick: theme.turn, "aria-label": "Switch between light and dark" }, "◐"),
    h("span.soft.wide.cut", { title: "Signed in as " + state.user.user }, state.user.user),
    h("button.quiet.wide", { type: "button", onclick: leaveConsole }, "Sign out"));
  put(document.body, h("a.skip", { href: "#main", onclick: (event) => { event.preventDefault(); main.focus(); } }, "Skip to content"), h("div.shell", bar, nav, main));
  show();
}

export const plural = (kind) => {
  const word = kind.kind;
  if (/(s|x|ch|sh)$/.test(word)) return /Endpoints$|s$/.test(word) && !/ss$/.test(word) ? word : word + "es";
  return /[^aeiou]y$/.test(word) ? word.slice(0, -1) + "ies" : word + "s";
};

function palette() {
  openPalette(state, { apply: () => openApply(state), theme: theme.turn, signOut: leaveConsole, kindLink, plural });
}

async function leaveConsole() {
  try { await signOut(); } catch (error) { toast("bad", error.message); }
  location.hash = "";
  location.reload();
}

function signInPage(problem) {
  main = undefined;
  leave.abort();
  const token = h("input.mono", { type: "password", name: "token", autocomplete: "off", required: true, spellcheck: "false" });
  const said = h("div");
  const enter = h("button.primary", { type: "submit" }, "Sign in");
  const submit = async (event) => {
    event.preventDefault();
    enter.disabled = true;
    try {
      await signIn({ token: token.value.trim() });
      await begin();
    } catch (error) {
      enter.disabled = false;
      put(said, h("p.bad", { role: "alert" }, error.code === 401 ? "The server does not accept this token." : error.message));
    }
  };
  put(document.body, h("main.signin", h("form", { onsubmit: submit },
    h("div.brand", h("img", { src: "mark.svg", alt: "" }), h("h1", "Ferry")),
    problem && h("p.warn", { role: "alert" }, problem),
    h("p.soft", "With a kubeconfig: run this command and open the link that it prints."),
    h("pre", "ferry console"),
    h("p.soft", "Or with a bearer token, such as one of a service account:"),
    h("label", "Token", token), said, enter,
    h("p.soft.small", "The console acts with your rights and has none of its own. A session ends after twelve hours."))));
  token.focus();
}

async function begin(problem) {
  const code = /^#code=(.+)$/.exec(location.hash)?.[1];
  if (code) {
    history.replaceState(null, "", location.pathname);
    try { await signIn({ code }); } catch (error) { return signInPage(error.message); }
  }
  try {
    state.user = await whoAmI();
  } catch (error) {
    if (error.code !== 0) return signInPage(problem);
    put(document.body, h("main.signin", failure(error)));
    setTimeout(begin, 2000);
    return;
  }
  if (state.user.by === "nothing") return signInPage(problem);
  try {
    state.kinds = await kinds(true);
  } catch (error) {
    state.kinds = [];
    if (error.code === 401) return signInPage(problem);
    toast("bad", error.message);
  }
  frame();
}

whenSignedOut((error) => { if (main) signInPage(error.message); });
addEventListener("hashchange", () => (/^#code=/.test(location.hash) ? begin() : show()));
addEventListener("keydown", (event) => {
  if (!main) return;
  const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName) || event.target.closest?.(".term");
  if ((event.ctrlKey || event.metaKey) && event.key === "k") { event.preventDefault(); palette(); }
  else if (typing || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog")) return;
  else if (event.key === ":" || event.key === "?") { event.preventDefault(); palette(); }
  else if (event.key === "/") { const filter = document.querySelector("input[type=search]"); if (filter) { event.preventDefault(); filter.focus(); } }
  else if (event.key === "a") openApply(state);
  else if (event.key === "g") location.hash = "#/hops";
});

begin();
