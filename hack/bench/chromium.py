"""Chromium without a window, driven by its DevTools protocol through a pipe: no port is open, and it ends with the pipe."""

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time

FLAGS = [
    "--headless",
    # It runs as root, where Chromium's own sandbox cannot.
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--disable-background-timer-throttling",
    "--disable-renderer-backgrounding",
    "--disable-backgrounding-occluded-windows",
    "--ignore-certificate-errors",
    "--enable-precise-memory-info",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--remote-debugging-pipe",
]


class Chromium:
    """One page."""

    def __init__(self, size=(1440, 900)):
        self.profile = tempfile.mkdtemp(prefix="chromium-")
        down, up = os.pipe(), os.pipe()

        # Chromium reads commands from its third file and answers into its fourth.
        def pipes():
            os.dup2(os.dup(down[0]), 3)
            os.dup2(os.dup(up[1]), 4)

        command = ["chromium", *FLAGS, f"--user-data-dir={self.profile}"]
        log = open(os.path.join(self.profile, "log"), "w")
        ends = (down[0], up[1])
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, close_fds=False, preexec_fn=pipes,
            env={**os.environ, "HOME": self.profile},
        )
        for end in ends:
            os.close(end)
        self.requests, self.answers = os.fdopen(down[1], "wb", 0), os.fdopen(up[0], "rb")
        self.session, self.sent, self.events, self.rest = None, 0, [], b""
        target = self.command("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.command("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "HeapProfiler", "Log"):
            self.command(f"{domain}.enable")
        # Answers are not kept for whoever looks: they would be counted as the page's memory.
        self.command("Network.enable", maxTotalBufferSize=1, maxResourceBufferSize=1)
        self.resize(*size)

    def message(self):
        while b"\0" not in self.rest:
            more = os.read(self.answers.fileno(), 1 << 20)
            if not more:
                raise RuntimeError("Chromium has ended: " + open(os.path.join(self.profile, "log")).read()[-2000:])
            self.rest += more
        text, self.rest = self.rest.split(b"\0", 1)
        return json.loads(text)

    def command(self, method, **parameters):
        self.sent += 1
        request = {"id": self.sent, "method": method, "params": parameters}
        if self.session:
            request["sessionId"] = self.session
        self.requests.write(json.dumps(request).encode() + b"\0")
        while True:
            message = self.message()
            if message.get("id") == request["id"]:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
            self.events.append(message)

    def resize(self, width, height):
        self.command("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def value(self, expression):
        """Of an expression; promises are waited for."""
        answer = self.command("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"].get("exception", {}).get("description", expression))
        return answer["result"].get("value")

    def until(self, expression, patience=120):
        begin = time.monotonic()
        while True:
            try:
                found = self.value(expression)
            except RuntimeError as error:
                found = None if time.monotonic() - begin < patience else str(error)
            if found not in (None, False, 0, ""):
                return found
            if time.monotonic() - begin > patience:
                raise RuntimeError(f"never true: {expression}: {self.value('document.body.innerText')[:2000]}")
            time.sleep(0.02)

    def load(self, url):
        self.command("Page.navigate", url=url)

    def picture(self, path):
        self.value("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.command("Page.captureScreenshot", format="png")["data"]))

    def heap(self):
        """Bytes in use after a collection."""
        self.command("HeapProfiler.collectGarbage")
        return self.command("Runtime.getHeapUsage")["usedSize"]

    def tab(self):
        """Kilobytes that the page's process has for itself: what is not anonymous is mostly the program, which all share."""
        found = []
        for number in filter(str.isdigit, os.listdir("/proc")):
            try:
                words = open(f"/proc/{number}/cmdline").read()
                if self.profile in words and "--type=renderer" in words:
                    status = open(f"/proc/{number}/status")
                    found.append(next(int(line.split()[1]) for line in status if line.startswith("RssAnon")))
            except (OSError, StopIteration):
                pass
        return max(found, default=0)

    def end(self):
        self.requests.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.profile, ignore_errors=True)
