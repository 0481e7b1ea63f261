// A shell in a container: exec over a WebSocket (v5.channel.k8s.io) and a small screen of its own.

import { h, note, put } from "./dom.js";
import { socket } from "./api.js";

const SHELLS = ["/bin/sh", "/bin/bash", "/bin/ash"];

export function terminal(context, body, pod) {
  const container = h("select", { "aria-label": "Container" }, pod.spec.containers.map((one) => h("option", { value: one.name }, one.name)));
  const shell = h("select", { "aria-label": "Shell" }, SHELLS.map((one) => h("option", { value: one }, one)));
  const said = h("div"), screen = new Screen();
  let open;
  const connect = () => {
    open?.close();
    put(said);
    screen.reset();
    const query = new URLSearchParams({ container: container.value, command: shell.value, stdin: "true", stdout: "true", stderr: "true", tty: "true" });
    const link = open = socket(`/api/v1/namespaces/${pod.metadata.namespace}/pods/${pod.metadata.name}/exec?${query}`, "v5.channel.k8s.io");
    const decoder = new TextDecoder(), encoder = new TextEncoder();
    const send = (channel, text) => {
      if (link.readyState !== WebSocket.OPEN) return;
      const bytes = encoder.encode(text), frame = new Uint8Array(bytes.length + 1);
      frame[0] = channel;
      frame.set(bytes, 1);
      link.send(frame);
    };
    screen.input = (text) => send(0, text);
    screen.resized = (columns, rows) => send(4, JSON.stringify({ Width: columns, Height: rows }));
    link.onopen = () => { screen.measure(); screen.resized(screen.columns, screen.rows); screen.element.focus(); };
    link.onmessage = ({ data }) => {
      const bytes = new Uint8Array(data), channel = bytes[0], text = () => decoder.decode(bytes.subarray(1), { stream: true });
      if (channel === 1 || channel === 2) screen.write(text());
      if (channel === 3) {
        const status = JSON.parse(new TextDecoder().decode(bytes.subarray(1)) || "{}");
        put(said, note(status.status === "Success" ? "good" : "warn", "", status.message ?? "The shell has ended."));
      }
    };
    link.onclose = (event) => { if (open === link && !said.children.length) put(said, note("warn", "The connection is closed.", event.reason || "You may not exec into this pod, its container does not run, or it has no such shell.")); };
  };
  put(body, h("div.row", container, shell, h("button.primary", { type: "button", id: "connect", onclick: connect }, "Connect"), h("span.soft.small", "Ctrl+Shift+V pastes; Escape then Tab leaves the screen")), said, screen.element);
  context.signal.addEventListener("abort", () => open?.close());
  connect();
}

const KEYS = { Enter: "\r", Backspace: "\x7f", Tab: "\t", Escape: "\x1b", ArrowUp: "\x1b[A", ArrowDown: "\x1b[B", ArrowRight: "\x1b[C", ArrowLeft: "\x1b[D", Home: "\x1b[H", End: "\x1b[F", Delete: "\x1b[3~", PageUp: "\x1b[5~", PageDown: "\x1b[6~" };
const SCROLLBACK = 2000;
/** Knows how wide a character is. */
const PEN = document.createElement("canvas").getContext("2d");

/** Rows of characters with a cursor: what shells, less and top need of a VT100. */
export class Screen {
  constructor() {
    this.element = h("div.term", { tabindex: "0", role: "textbox", "aria-multiline": "true", "aria-label": "Terminal" });
    this.columns = 80;
    this.rows = 24;
    this.input = this.resized = () => {};
    this.reset();
    this.element.addEventListener("keydown", (event) => this.key(event));
    this.element.addEventListener("paste", (event) => { event.preventDefault(); this.input(event.clipboardData.getData("text").replace(/\r?\n/g, "\r")); });
    new ResizeObserver(() => { if (this.measure()) this.resized(this.columns, this.rows); }).observe(this.element);
  }

  reset() {
    Object.assign(this, { lines: [[]], top: 0, x: 0, y: 0, style: "", rest: "", escaped: false });
    this.soon();
  }

  measure() {
    PEN.font = getComputedStyle(this.element).font;
    const columns = Math.max(20, Math.floor((this.element.clientWidth - 26) / (PEN.measureText("0".repeat(100)).width / 100))), rows = Math.max(5, Math.floor((this.element.clientHeight - 20) / 18));
    const changed = columns !== this.columns || rows !== this.rows;
    Object.assign(this, { columns, rows });
    return changed;
  }

  key(event) {
    if (event.key === "Tab" && this.escaped) { this.escaped = false; return; }
    this.escaped = event.key === "Escape";
    let text = KEYS[event.key];
    if (event.ctrlKey && !event.altKey && /^[a-z\[\]\\]$/.test(event.key)) text = String.fromCharCode(event.key.toLowerCase().charCodeAt(0) & 31);
    else if (!text && event.key.length === 1 && !event.ctrlKey && !event.metaKey) text = event.key;
    if (!text) return;
    event.preventDefault();
    this.input(text);
  }

  line(y = this.y) {
    while (this.lines.length <= this.top + y) this.lines.push([]);
    return this.lines[this.top + y];
  }

  down() {
    if (this.y < this.rows - 1) { this.y++; this.line(); return; }
    this.top++;
    this.line();
    if (this.top > SCROLLBACK) { this.lines.splice(0, this.top - SCROLLBACK); this.top = SCROLLBACK; }
  }

  write(text) {
    text = this.rest + text;
    this.rest = "";
    for (let at = 0; at < text.length; at++) {
      const one = text[at];
      if (one === "\x1b") {
        const found = /^\x1b(?:\[([0-9;?>]*)([@-~])|\]([^\x07\x1b]{0,4096})(?:\x07|\x1b\\)|[()][A-Z0-9]|([=>A-Z78]))/.exec(text.slice(at, at + 4200));
        if (!found) { if (text.length - at < 4200) { this.rest = text.slice(at); break; } continue; }
        at += found[0].length - 1;
        if (found[2]) this.control(found[2], found[1]);
        continue;
      }
      if (one === "\n") this.down();
      else if (one === "\r") this.x = 0;
      else if (one === "\b") this.x = Math.max(0, this.x - 1);
      else if (one === "\t") this.x = Math.min(this.columns - 1, (Math.floor(this.x / 8) + 1) * 8);
      else if (one >= " ") {
        if (this.x >= this.columns) { this.x = 0; this.down(); }
        const line = this.line();
        while (line.length < this.x) line.push([" ", ""]);
        line[this.x++] = [one, this.style];
      }
    }
    this.soon();
  }

  control(letter, text) {
    const numbers = text.replace(/[?>]/g, "").split(";").map(Number), count = Math.min(numbers[0] || 1, 1000), line = this.line();
    const clear = (y, from, to) => { const one = this.line(y); if (to >= one.length) one.length = Math.min(one.length, from); else for (let x = from; x < to; x++) one[x] = [" ", ""]; };
    if (letter === "A") this.y = Math.max(0, this.y - count);
    if (letter === "B") this.y = Math.min(this.rows - 1, this.y + count);
    if (letter === "C") this.x = Math.min(this.columns - 1, this.x + count);
    if (letter === "D") this.x = Math.max(0, this.x - count);
    if (letter === "G") this.x = Math.min(this.columns - 1, count - 1);
    if (letter === "d") this.y = Math.min(this.rows - 1, count - 1);
    if (letter === "H" || letter === "f") { this.y = Math.min(this.rows - 1, count - 1); this.x = Math.min(this.columns - 1, (numbers[1] || 1) - 1); }
    if (letter === "K") numbers[0] === 1 ? clear(this.y, 0, this.x + 1) : clear(this.y, numbers[0] === 2 ? 0 : this.x, Infinity);
    if (letter === "J") {
      const [from, to] = numbers[0] === 1 ? [0, this.y] : [numbers[0] ? 0 : this.y + 1, this.rows];
      for (let y = from; y < to; y++) clear(y, 0, Infinity);
      if (!numbers[0]) clear(this.y, this.x, Infinity);
    }
    if (letter === "P") line.splice(this.x, count);
    if (letter === "@") line.splice(this.x, 0, ...Array.from({ length: Math.min(count, this.columns) }, () => [" ", ""]));
    if (letter === "m") for (const number of numbers) {
      if (number === 0) this.style = "";
      else if (number === 1) this.style = (this.style + " tb").trim();
      else if ((number >= 30 && number <= 37) || (number >= 90 && number <= 97)) this.style = this.style.replace(/t3\d/, "").trim() + " t3" + (number % 10);
      else if (number === 39) this.style = this.style.replace(/t3\d/, "").trim();
    }
  }

  soon() {
    if (this.waiting) return;
    this.waiting = true;
    setTimeout(() => { this.waiting = false; this.draw(); }, 16);
  }

  draw() {
    const out = [];
    this.lines.slice(-400).forEach((line, index) => {
      const at = index + Math.max(0, this.lines.length - 400), here = at === this.top + this.y;
      const row = h("div"), cells = here && line.length <= this.x ? [...line, ...Array.from({ length: this.x - line.length + 1 }, () => [" ", ""])] : line;
      let text = "", style = null;
      const flush = () => { if (text) row.append(style ? h("span", { class: style }, text) : text); text = ""; };
      for (let x = 0; x < cells.length; x++) {
        const cell = cells[x] ?? [" ", ""], own = here && x === this.x ? (cell[1] + " cursor").trim() : cell[1];
        if (own !== style) { flush(); style = own; }
        text += cell[0];
      }
      flush();
      if (!cells.length) row.append(" ");
      out.push(row);
    });
    put(this.element, out);
    this.element.scrollTop = this.element.scrollHeight;
  }
}
