// The waterfall of one object: its hops, who spent the time, and what holds it up.

import { badge, failure, h, note, prose, put, span } from "./dom.js";
import { json } from "./api.js";

const LANES = { client: "client", "API server": "api", controllers: "controllers", scheduler: "scheduler", kubelet: "kubelet", "container runtime": "runtime", runtime: "runtime", network: "network", "image pull": "runtime" };
const lane = (component) => "lane-" + (LANES[component] ?? (/node|kubelet/.test(component) ? "kubelet" : /endpoint|proxy|service/i.test(component) ? "proxy" : "store"));

/** Draws into `element`; says whether the object has arrived. `told` is given what the server says. */
export async function waterfall(element, path, signal, told = () => {}) {
  let trace;
  try {
    trace = await json("/console/trace" + path, { signal });
  } catch (error) {
    if (!signal.aborted) put(element, failure(error));
    return true;
  }
  if (signal.aborted) return true;
  told(trace);
  put(element, head(trace), trace.waits.map(finding), falls(trace), spent(trace), notes(trace));
  return trace.finished && !trace.waits.some((one) => !one.note);
}

function head(trace) {
  const held = trace.waits.find((one) => !one.note);
  const mark = held && !held.underway ? badge("stuck", "bad") : trace.finished ? badge("arrived", "good") : badge("on its way", "warn");
  return h("div.row", mark, h("span.soft", trace.totalMicros ? span(trace.totalMicros) + " from the first hop to the last" : ""));
}

/** A cause with its remedy, as `ferry why` tells it. */
export function finding(one) {
  const tone = one.note ? "good" : one.underway ? "warn" : "bad";
  return h("div.note.finding." + tone, { role: "status" },
    h("h3", (one.note ? "Note: " : one.probably ? "Probably: " : "") + one.cause),
    h("p.soft", `${one.about} · at ${one.hop}`),
    one.details.length ? h("ul", one.details.map((text) => h("li.soft", prose(text)))) : null,
    one.advice.length ? h("ul", one.advice.map((text) => h("li", "→ ", prose(text)))) : null);
}

function falls(trace) {
  if (!trace.hops.length) return h("p.soft", "No hop of it is known.");
  const start = Date.parse(trace.hops[0].at) * 1000 + micros(trace.hops[0].at);
  const total = Math.max(1, trace.totalMicros);
  const row = (hop) => {
    const end = Date.parse(hop.at) * 1000 + micros(hop.at) - start;
    const left = Math.max(0, Math.min(100, ((end - hop.tookMicros) / total) * 100)), width = Math.min(100 - left, (hop.tookMicros / total) * 100);
    return h("li", h("span.number", String(hop.hop).padStart(2, "0")),
      h("div", h("div", hop.name), hop.detail && h("div.faint.small", hop.detail)),
      h("div.track", { "aria-hidden": "true" }, h("i." + lane(hop.component), { title: hop.component, css: { left: Math.min(left, 99.5) + "%", width: width + "%" } })),
      h("span.took", (hop.exact ? "" : "~") + (hop.tookMicros > 0 ? "+" + span(hop.tookMicros) : "0")));
  };
  return h("ol.fall", { "aria-label": "Hops in their order" }, trace.hops.map(row));
}

/** Dates of browsers have milliseconds; the recorder's times have six digits. */
const micros = (time) => parseInt((/\.\d{3}(\d{3})/.exec(time) ?? [0, "0"])[1], 10);

function spent(trace) {
  const total = trace.spentMicros.reduce((sum, one) => sum + one.took, 0);
  if (!total) return null;
  return h("div.stack", h("h3", "Where the time went"),
    h("div.spent", { "aria-hidden": "true" }, trace.spentMicros.map((one) => h("i." + lane(one.component), { css: { width: (one.took / total) * 100 + "%" } }))),
    h("div.legend", trace.spentMicros.map((one) => h("span", h("i." + lane(one.component)), `${one.component} ${span(one.took)}`))));
}

function notes(trace) {
  const more = trace.recorded ? [] : ["You may not ask the flight recorder (get on /debug/flight/*): times are those of the objects, in whole seconds."];
  return [...trace.notes, ...more].map((text) => note("warn", "", h("span.small", text)));
}
