// The command palette: every kind, every page and every command by a few letters.

import { h, put } from "./dom.js";

export function openPalette(state, { apply, theme, signOut, kindLink, plural }) {
  if (document.querySelector("dialog")) return;
  const go = (href) => () => { location.hash = href; };
  const entries = [
    ["Hops: what happens now", "page", go("#/hops"), "g"], ["Map: who owns and selects whom", "page", go("#/map")],
    ["Time: how it was", "page", go("#/time")], ["Learn: cause failures", "page", go("#/learn")],
    ["Apply a manifest", "command", apply, "a"], ["Switch between light and dark", "command", theme], ["Sign out", "command", signOut],
    ...state.kinds.filter((kind) => kind.verbs.includes("list")).map((kind) => [plural(kind), kind.group || "core", go(kindLink(kind)), kind.short.join(" ")]),
  ];
  const input = h("input", { type: "text", placeholder: "Go to a kind, a page or a command", "aria-label": "Go to or do", role: "combobox", "aria-expanded": "true", "aria-controls": "palette-list", autocomplete: "off" });
  const listed = h("ul", { id: "palette-list", role: "listbox", "aria-label": "Matches" });
  const box = h("dialog.palette", { "aria-label": "Go to or do" }, input, listed);
  let found = [], chosen = 0;
  const score = ([title, , , more], word) => {
    const text = title.toLowerCase();
    if ((more ?? "").split(" ").includes(word)) return 0;
    if (text.startsWith(word)) return 1;
    return text.includes(word) ? 2 : 9;
  };
  const draw = () => {
    const word = input.value.trim().toLowerCase();
    found = entries.map((entry, at) => [word ? score(entry, word) : 1, at, entry]).filter(([rank]) => rank < 9).sort((a, b) => a[0] - b[0] || a[1] - b[1]).map(([, , entry]) => entry).slice(0, 60);
    chosen = Math.min(chosen, Math.max(0, found.length - 1));
    put(listed, found.map(([title, what, act, more], at) => h("li", { role: "option", id: "palette-" + at, "aria-selected": String(at === chosen), onclick: () => run(act) },
      h("span", title), h("span.faint.small", what + (more ? " · " + more : "")))));
    input.setAttribute("aria-activedescendant", found.length ? "palette-" + chosen : "");
    listed.children[chosen]?.scrollIntoView({ block: "nearest" });
  };
  const run = (act) => { box.close(); act(); };
  input.addEventListener("input", () => { chosen = 0; draw(); });
  box.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      chosen = (chosen + (event.key === "ArrowDown" ? 1 : found.length - 1)) % Math.max(1, found.length);
      draw();
    } else if (event.key === "Enter" && found[chosen]) { event.preventDefault(); run(found[chosen][2]); }
  });
  box.addEventListener("close", () => box.remove());
  document.body.append(box);
  box.showModal();
  draw();
}
