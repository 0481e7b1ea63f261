// Elements, made of text and never of markup: whatever an object says stays text.

/** h("a.button", { href: "#/", onclick: f }, "text", child) */
export function h(what, ...rest) {
  const [tag, ...classes] = what.split(".");
  return fill(document.createElement(tag || "div"), classes, rest);
}

const SVG = "http://www.w3.org/2000/svg";
export function svg(what, ...rest) {
  const [tag, ...classes] = what.split(".");
  return fill(document.createElementNS(SVG, tag), classes, rest);
}

function fill(element, classes, rest) {
  if (classes.length) element.classList.add(...classes);
  for (const part of rest) {
    if (isProperties(part)) {
      for (const [name, value] of Object.entries(part)) set(element, name, value);
    } else add(element, part);
  }
  return element;
}

const isProperties = (part) => part !== null && typeof part === "object" && !(part instanceof Node) && !Array.isArray(part);

function set(element, name, value) {
  if (value === undefined || value === null || value === false) return;
  if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
  else if (name === "css") for (const [key, text] of Object.entries(value)) element.style.setProperty(key, text);
  else if (name === "value" || name === "checked" || name === "disabled") element[name] = value;
  else element.setAttribute(name, value === true ? "" : String(value));
}

export function add(element, ...parts) {
  for (const part of parts.flat(Infinity)) {
    if (part === undefined || part === null || part === false) continue;
    element.append(part instanceof Node ? part : String(part));
  }
  return element;
}

export function put(element, ...parts) {
  element.replaceChildren();
  return add(element, ...parts);
}

/** The state of something, as a coloured word. */
export function badge(text, tone) {
  return h("span.badge" + (tone ? "." + tone : ""), text);
}

export function note(tone, title, ...more) {
  return h("div.note." + tone, { role: tone === "bad" ? "alert" : "status" }, title && h("strong", title), title && more.length ? h("br") : null, ...more);
}

export function empty(title, ...more) {
  return h("div.empty", h("h2", title), ...more.map((part) => (typeof part === "string" ? h("p", part) : part)));
}

/** Text in which commands stand between backticks. */
export const prose = (text) => text.split("`").map((part, at) => (at % 2 ? h("code", part) : part));

/** What went wrong, in words, and what to do about it. */
export function failure(error) {
  if (error.code === 403) {
    return note("warn", "You may not see this.", h("p", error.message), h("p.soft", "The console has no rights of its own. Ask whoever runs the cluster for a Role that allows it."));
  }
  if (error.code === 404) return empty("There is nothing here", error.message, "It may have been deleted, or the name is another one.");
  if (error.code === 410) return note("warn", "That moment is no longer known.", h("p", error.message), h("p.soft", "The store keeps the past for a few minutes. Choose a later moment."));
  if (error.code === 0) return note("bad", "The server does not answer.", h("p", "The page tries again by itself."));
  return note("bad", "That did not work (" + error.code + ").", h("p", error.message));
}

let toasts;
export function toast(tone, text) {
  toasts ??= document.body.appendChild(h("div.toasts", { "aria-live": "polite" }));
  const one = note(tone, "", text);
  toasts.append(one);
  setTimeout(() => one.remove(), tone === "bad" ? 12000 : 5000);
}

/** A dialog; resolves with what close was called with. */
export function dialog(title, build) {
  return new Promise((resolve) => {
    let answer;
    const box = h("dialog", { "aria-label": title });
    const close = (value) => { answer = value; box.close(); };
    box.addEventListener("close", () => { box.remove(); resolve(answer); });
    const { body, footer } = build(close, box);
    add(box, h("header", h("h2.grow", title), h("button.quiet", { type: "button", "aria-label": "Close", onclick: () => close() }, "✕")),
      h("div.body", body), footer && h("footer", footer));
    document.body.append(box);
    box.showModal();
  });
}

/** How far the server's clock is before this machine's, in milliseconds; what the headers of answers tell, in whole seconds. */
let skew = 0;
export function heardTime(date) {
  const found = Date.parse(date) + 500 - Date.now();
  // Less is the time that an answer takes, and the half second.
  if (!Number.isNaN(found)) skew = Math.abs(found) < 3000 ? 0 : Math.abs(found - skew) < 3000 ? skew : found;
}
/** The time by the server's clock: what it writes is of that time. */
export const now = () => Date.now() + skew;

export const ago = (time) => {
  if (!time) return "";
  const seconds = Math.max(0, (now() - Date.parse(time)) / 1000);
  if (seconds < 120) return Math.floor(seconds) + "s";
  const minutes = seconds / 60;
  if (minutes < 10) return Math.floor(minutes) + "m" + (Math.floor(seconds) % 60 ? (Math.floor(seconds) % 60) + "s" : "");
  if (minutes < 180) return Math.floor(minutes) + "m";
  const hours = minutes / 60;
  if (hours < 48) return Math.floor(hours) + "h";
  return Math.floor(hours / 24) + "d";
};

export const span = (micros) => {
  if (micros < 1000) return micros + " µs";
  if (micros < 1e6) return (micros / 1000).toFixed(micros < 1e4 ? 1 : 0) + " ms";
  if (micros < 6e7) return (micros / 1e6).toFixed(micros < 1e7 ? 2 : 1) + " s";
  return Math.floor(micros / 6e7) + " min " + Math.round((micros % 6e7) / 1e6) + " s";
};

export const clock = (time) => new Date(time).toLocaleTimeString([], { hour12: false });
