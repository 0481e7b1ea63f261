// Logs of containers: followed, of one pod or of all of a workload, searched. Bounded: the newest lines are kept.

import { failure, h, put } from "./dom.js";
import { ask } from "./api.js";

const MOST_LINES = 5000;
const LONGEST = 4096;
/** So much is kept of them, and so much is drawn. */
const MOST_KEPT = 8 << 20;
const MOST_DRAWN = 256 << 10;
/** What moves the cursor or colours the screen is left out. */
const ESCAPES = /\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])|[\x00-\x08\x0b-\x1f\x7f]/g;

export function logs(context, body, pods) {
  const choices = pods.flatMap((pod) => [...(pod.spec.initContainers ?? []), ...pod.spec.containers].map((one) => ({ pod, name: one.name })));
  const select = h("select", { "aria-label": "Container" }, choices.length > 1 ? h("option", { value: "*" }, "all containers") : null,
    choices.map((one, at) => h("option", { value: String(at) }, (pods.length > 1 ? one.pod.metadata.name + " " : "") + one.name)));
  const previous = h("input", { type: "checkbox" }), follow = h("input", { type: "checkbox", checked: true });
  const search = h("input", { type: "search", placeholder: "Search", "aria-label": "Search lines" });
  const box = h("div.log", { tabindex: "0", role: "log", "aria-label": "Log" }), said = h("div");
  let stop = new AbortController(), kept = [], bytes = 0, waiting = false;
  put(body, h("div.row", select, h("label.row", previous, "previous"), h("label.row", follow, "follow"), h("span.grow"), search), said, box);
  const line = (text) => {
    const word = search.value;
    const at = word ? text.toLowerCase().indexOf(word.toLowerCase()) : -1;
    return at < 0 ? h("div", text || " ") : h("div", text.slice(0, at), h("mark", text.slice(at, at + word.length)), text.slice(at + word.length));
  };
  const fits = (text) => !search.value || text.toLowerCase().includes(search.value.toLowerCase());
  const draw = () => {
    waiting = false;
    const bottom = box.scrollHeight - box.scrollTop - box.clientHeight < 40;
    const shown = kept.filter(fits).slice(-1500);
    let from = shown.length, size = 0;
    while (from > 0 && size < MOST_DRAWN) size += shown[--from].length;
    put(box, shown.slice(from).map(line));
    if (bottom || follow.checked) box.scrollTop = box.scrollHeight;
  };
  const soon = () => { if (!waiting) { waiting = true; setTimeout(draw, 60); } };
  const take = (text, prefix) => {
    kept.push(prefix + (text.length > LONGEST ? text.slice(0, LONGEST) + " … (cut)" : text).replace(ESCAPES, ""));
    bytes += kept.at(-1).length;
    let gone = 0;
    for (; kept.length - gone > MOST_LINES || bytes > MOST_KEPT; gone++) bytes -= kept[gone].length;
    if (gone) kept.splice(0, gone);
    soon();
  };
  const begin = async () => {
    stop.abort();
    stop = new AbortController();
    const { signal } = stop;
    context.signal.addEventListener("abort", () => stop.abort(), { once: true });
    kept = [];
    bytes = 0;
    put(said);
    draw();
    const wanted = select.value === "*" ? choices : [choices[Number(select.value)]];
    await Promise.all(wanted.filter(Boolean).slice(0, 20).map(async ({ pod, name }) => {
      const query = new URLSearchParams({ container: name, tailLines: "500", timestamps: "false", follow: String(follow.checked && !previous.checked), previous: String(previous.checked) });
      try {
        const response = await ask(`/api/v1/namespaces/${pod.metadata.namespace}/pods/${pod.metadata.name}/log?${query}`, { accept: "*/*", signal });
        await stream(response, (text) => take(text, wanted.length > 1 ? `${pod.metadata.name}/${name} | ` : ""));
      } catch (error) {
        if (!signal.aborted) put(said, failure(error));
      }
    }));
    if (!kept.length && !signal.aborted && !said.children.length) put(box, h("div", "Nothing was logged."));
  };
  for (const one of [select, previous, follow]) one.addEventListener("change", begin);
  search.addEventListener("input", draw);
  begin();
}

/** Lines as they come. A line that does not end is told in pieces, so that nothing is held for it. */
async function stream(response, each) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    const parts = (rest + value).split("\n");
    rest = parts.pop();
    parts.forEach((part) => each(part));
    if (rest.length > LONGEST) { each(rest); rest = ""; }
  }
  if (rest) each(rest);
}
