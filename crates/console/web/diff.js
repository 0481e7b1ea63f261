// Differences of texts, line by line, and what is left out of an object before it is compared.

import { h } from "./dom.js";

/** Without managedFields and the stamps that every write changes. */
export function tidy(yaml) {
  const out = [];
  let inside = false, skipping = false;
  for (const line of yaml.split("\n")) {
    if (/^\S/.test(line)) { inside = line.startsWith("metadata:"); skipping = false; }
    if (inside && /^ {2}managedFields:/.test(line)) { skipping = true; continue; }
    if (skipping && (/^ {2}-/.test(line) || /^ {3}/.test(line))) continue;
    skipping = false;
    out.push(line);
  }
  return out.join("\n");
}

const withoutStamps = (lines) => lines.filter((line) => !/^ {2}(resourceVersion|generation):/.test(line));

/** The edit script of two lists of lines: [" " | "-" | "+", line]. Bounded: what differs too much is replaced as a whole. */
export function script(before, after) {
  let start = 0;
  while (start < before.length && start < after.length && before[start] === after[start]) start++;
  let end = 0;
  while (end < before.length - start && end < after.length - start && before[before.length - 1 - end] === after[after.length - 1 - end]) end++;
  const a = before.slice(start, before.length - end), b = after.slice(start, after.length - end);
  const same = (list) => list.map((line) => [" ", line]);
  const middle = a.length * b.length > 4e6
    ? [...a.map((line) => ["-", line]), ...b.map((line) => ["+", line])]
    : longest(a, b);
  return [...same(before.slice(0, start)), ...middle, ...same(end ? before.slice(-end) : [])];
}

function longest(a, b) {
  const width = b.length + 1;
  const table = new Uint16Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      table[i * width + j] = a[i] === b[j] ? table[(i + 1) * width + j + 1] + 1 : Math.max(table[(i + 1) * width + j], table[i * width + j + 1]);
    }
  }
  const out = [];
  let i = 0, j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) { out.push([" ", a[i]]); i++; j++; }
    else if (j >= b.length || (i < a.length && table[(i + 1) * width + j] >= table[i * width + j + 1])) out.push(["-", a[i++]]);
    else out.push(["+", b[j++]]);
  }
  return out;
}

/** Two texts as a picture: changed lines with a few around them. */
export function diff(before, after) {
  const steps = script(withoutStamps(before.split("\n")), withoutStamps(after.split("\n")));
  const near = new Set();
  steps.forEach(([mark], at) => { if (mark !== " ") for (let k = at - 3; k <= at + 3; k++) near.add(k); });
  if (!near.size) return h("p.soft", "Nothing changes.");
  const box = h("div.diff", { role: "figure", "aria-label": "What changes", tabindex: "0" });
  let hidden = false;
  steps.forEach(([mark, line], at) => {
    if (!near.has(at)) {
      if (!hidden) box.append(h("div.gap", "⋯"));
      hidden = true;
      return;
    }
    hidden = false;
    box.append(h("div" + (mark === "+" ? ".add" : mark === "-" ? ".cutline" : ""), mark + " " + line));
  });
  return box;
}

/** An object as indented text with its keys in order, for comparing. */
export function outline(value, indent = "") {
  if (Array.isArray(value)) {
    if (!value.length) return " []";
    return value.map((one) => "\n" + indent + "-" + outline(one, indent + "  ").replace(/^\n\s*/, " ")).join("");
  }
  if (value && typeof value === "object") {
    const keys = Object.keys(value).sort();
    if (!keys.length) return " {}";
    return keys.map((name) => "\n" + indent + name + ":" + outline(value[name], indent + "  ")).join("");
  }
  return " " + (typeof value === "string" ? value : JSON.stringify(value));
}
