"""The console in Chromium: SERVER KUBECONFIG TOKEN ROWS PID, the last that of the server."""

import os
import sys
import time

from bed import Api, at, line, times
from chromium import Chromium

server, kubeconfig, token, rows, pid = *sys.argv[1:4], int(sys.argv[4]), int(sys.argv[5])
LOADS, CHANGES, SECONDS, REST = 10, 50, 5, 20
FRAMES = """(step) => new Promise((done) => {
  const grid = document.querySelector(".grid"), gaps = [], most = { lines: 0 };
  let before;
  const begin = performance.now();
  const frame = (now) => {
    if (before !== undefined) gaps.push(now - before);
    before = now;
    step(grid, now - begin);
    most.lines = Math.max(most.lines, grid.querySelectorAll(".line").length);
    if (now - begin < SECONDS * 1000) requestAnimationFrame(frame);
    else done({ gaps, lines: most.lines });
  };
  requestAnimationFrame(frame);
})""".replace("SECONDS", str(SECONDS))


def frames(what, step):
    found = page.value(f"({FRAMES})({step})")
    gaps = sorted(found["gaps"])
    late = sum(1 for gap in gaps if gap > 25)
    line(
        f"{rows} rows, {what}", frames_per_second=len(gaps) * 1000 / sum(gaps), p50_ms=at(gaps, 50), p99_ms=at(gaps, 99),
        longest_ms=gaps[-1], late_percent=late * 100 / len(gaps), lines_in_the_page=found["lines"],
    )


def processor(what):
    """What the server uses while nobody does anything."""

    def ticks():
        words = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
        return int(words[11]) + int(words[12])

    before = ticks()
    time.sleep(REST)
    line(what, cpu_percent=(ticks() - before) * 100 / REST / os.sysconf("SC_CLK_TCK"))


def received():
    """Bytes over the wire since the last call."""
    sizes = [one["params"]["encodedDataLength"] for one in page.events if one["method"] == "Network.loadingFinished"]
    page.events.clear()
    return sum(sizes)


if rows <= 10_000:
    processor("console, the API server without a page")
page = Chromium()
page.load(server + "/console/")
page.until("document.querySelector('input[name=token]') !== null")
received()
page.value("document.querySelector('input[name=token]').focus()")
page.command("Input.insertText", text=token)
page.value("document.querySelector('form button, button').click()")
page.until("document.querySelector('nav') !== null")
# First paint of a page that is opened anew, with nothing kept from before.
paints, sizes = [], []
for _ in range(LOADS):
    page.command("Network.clearBrowserCache")
    received()
    page.load("about:blank")
    page.load(server + "/console/#/learn")
    page.until("document.querySelector('.card') !== null")
    paints.append(page.until("performance.getEntriesByName('first-contentful-paint')[0]?.startTime") / 1000)
    page.value("new Promise((done) => setTimeout(done, 300))")
    sizes.append(received())
if rows <= 10_000:
    times("console, first paint, nothing cached", paints, kilobytes=max(sizes) / 1024)
    page.load("about:blank")
    page.load(server + "/console/#/hops")
    page.until("document.querySelector('.head .state')?.innerText === 'live'")
    processor("console, the API server with Hops open")

begin = time.perf_counter()
page.load("about:blank")
page.load(server + "/console/#/r/core/pods?ns=*")
page.until("document.querySelectorAll('.grid .line').length > 10")
first = time.perf_counter() - begin
page.until(f"(document.querySelector('.grid')?.getAttribute('aria-rowcount') ?? 0) >= {rows}")
page.until("document.querySelector('.head .state').innerText === 'live'")
took = time.perf_counter() - begin
page.value("new Promise((done) => setTimeout(done, 500))")
line(f"{rows} rows, opened", first_rows_ms=first * 1000, all_rows_ms=took * 1000, heap_mb=page.heap() / 2**20, tab_mb=page.tab() / 1024)
frames("at rest", "() => {}")
frames("scrolled by 240 pixels a frame", "(grid) => { grid.scrollTop = (grid.scrollTop + 240) % (grid.scrollHeight - grid.clientHeight); }")
frames("scrolled to anywhere each frame", "(grid) => { grid.scrollTop = Math.random() * grid.scrollHeight; }")

# A pod's change, from before its write is sent to the frame that shows it.
api = Api(kubeconfig)
pod = api.ask("GET", "/api/v1/pods?limit=1")["items"][0]["metadata"]
path = f"/api/v1/namespaces/{pod['namespace']}/pods/{pod['name']}/status"
page.value(f"(() => {{ const field = document.querySelector('input[type=search]'); field.value = '{pod['name']}'; field.dispatchEvent(new Event('input')); }})()")
page.until("[...document.querySelectorAll('.grid .line:not(.heads)')].length === 1")
page.value("""globalThis.shown = {}; (function look() {
  const text = document.querySelector(".grid .line:not(.heads)")?.innerText ?? "", mark = /Bench\\d+/.exec(text)?.[0];
  if (mark) shown[mark] ??= Date.now();
  requestAnimationFrame(look);
})()""")
waits = []
for turn in range(CHANGES):
    sent = time.time()
    api.ask("PATCH", path, {"status": {"reason": f"Bench{turn}"}}, "application/merge-patch+json")
    waits.append(page.until(f"shown['Bench{turn}']") / 1000 - sent)
    time.sleep(0.05)
api.ask("PATCH", path, {"status": {"reason": None}}, "application/merge-patch+json")
times(f"{rows} rows, a pod's change on the screen", waits)
line(f"{rows} rows, at the end", heap_mb=page.heap() / 2**20, tab_mb=page.tab() / 1024)
page.end()
