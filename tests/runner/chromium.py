#!/usr/bin/env python3
"""A headless Chromium that is driven over a pair of pipes, with its own protocol, so that no driver
and no package is needed.

chromium.py PAGE.html PICTURE.png [WIDTH HEIGHT [SELECTOR]]: a screenshot, after a click on what the
selector finds."""
import base64
import json
import os
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import zlib

NAMES = ("google-chrome", "google-chrome-stable", "chromium", "chromium-browser")
# Without a sandbox root can start it, too; the pages are our own.
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
         "--disable-extensions", "--disable-background-networking", "--mute-audio",
         "--hide-scrollbars", "--remote-debugging-pipe")
ERRORS = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")


class Refused(Exception):
    """There is no Chromium, or it does not start."""


def find():
    for name in NAMES:
        if shutil.which(name):
            return shutil.which(name)
    raise Refused("there is no chromium; tools/install_deps.sh report installs it where it can")


class Browser:
    """One page. errors: what it has written to the console as warnings or errors, or thrown."""

    def __init__(self, seconds=60):
        self.number, self.loads, self.waiting, self.seconds = 0, 0, b"", seconds
        self.errors = []
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_browser, self.out = os.pipe()
        self.into, from_browser = os.pipe()
        # It reads from descriptor 3 and writes to 4.
        command = f'exec "$@" 3<&{to_browser} 4>&{from_browser}'
        self.process = subprocess.Popen(
            ["bash", "-c", command, "bash", find(), *FLAGS, f"--user-data-dir={self.folder.name}",
             "about:blank"], pass_fds=(to_browser, from_browser), stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        self.session = None
        try:
            self.attach()
        except Refused:
            self.close()
            raise

    def attach(self):
        """Takes the page that it begins with."""
        targets = self.call("Target.getTargets")["targetInfos"]
        (page,) = [t["targetId"] for t in targets if t["type"] == "page"]
        self.session = self.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(domain + ".enable")

    def close(self):
        self.process.terminate()
        self.process.wait()
        os.close(self.out)
        os.close(self.into)
        self.folder.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def receive(self, end):
        while b"\0" not in self.waiting:
            ready, _, _ = select.select([self.into], [], [], max(0, end - time.monotonic()))
            piece = os.read(self.into, 1 << 20) if ready else b""
            if not piece:
                raise Refused("chromium does not answer" if ready else
                              f"chromium did not answer within {self.seconds} s")
            self.waiting += piece
        message, _, self.waiting = self.waiting.partition(b"\0")
        return json.loads(message)

    def note(self, message):
        """Counts pages that are loaded, and keeps what is an error."""
        parameters = message.get("params", {})
        self.loads += message.get("method") == "Page.loadEventFired"
        if message.get("method") not in ERRORS:
            return
        level = parameters.get("type") or parameters.get("entry", {}).get("level")
        if level in (None, "error", "warning", "assert"):
            self.errors.append(json.dumps(parameters))

    def until(self, wanted):
        """The first message that wanted() accepts."""
        end = time.monotonic() + self.seconds
        while True:
            message = self.receive(end)
            self.note(message)
            if wanted(message):
                return message

    def load(self, url):
        before = self.loads
        failed = self.call("Page.navigate", url=url).get("errorText")
        if failed:
            raise RuntimeError(f"{url}: {failed}")
        if self.loads == before:
            self.until(lambda m: self.loads > before)

    def call(self, method, **parameters):
        self.number += 1
        number = self.number
        message = {"id": number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        try:
            os.write(self.out, json.dumps(message).encode() + b"\0")
        except BrokenPipeError as error:
            raise Refused("chromium does not start") from error
        answer = self.until(lambda m: m.get("id") == number)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def open(self, path, width=1400, height=900, dark=False):
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=False)
        self.load("about:blank")  # the same page with another anchor would not be loaded again
        self.load("file://" + os.path.abspath(path))

    def value(self, expression):
        """Of JavaScript, as Python's."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def click(self, x, y):
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left",
                      clickCount=1)

    def screenshot(self, scale=1.0, whole=False):
        """PNG. scale: pixels for each pixel of the page; whole: beyond the window, too."""
        size = self.value("[innerWidth, innerHeight, document.documentElement.scrollHeight]")
        clip = {"x": 0, "y": 0, "width": size[0], "height": size[2 if whole else 1],
                "scale": scale}
        data = self.call("Page.captureScreenshot", format="png", clip=clip,
                         captureBeyondViewport=whole)
        return base64.b64decode(data["data"])


def pixels(png):
    """The pixels of a PNG of 8 bits a channel, as bytes of 3 or 4."""
    at, data, width, height, channels = 8, b"", 0, 0, 0
    while at < len(png):
        length, kind = struct.unpack_from(">I4s", png, at)
        body = png[at + 8:at + 8 + length]
        if kind == b"IHDR":
            width, height, bits, colours = struct.unpack_from(">IIBB", body)
            assert bits == 8 and colours in (2, 6), "an unknown kind of PNG"
            channels = {2: 3, 6: 4}[colours]
        data += body if kind == b"IDAT" else b""
        at += length + 12
    rows, stride = zlib.decompress(data), width * channels
    before, found = bytes(stride), []
    for y in range(height):
        start = y * (stride + 1)
        before = unfilter(rows[start], rows[start + 1:start + 1 + stride], before, channels)
        found += [before[i:i + channels] for i in range(0, stride, channels)]
    return found


def unfilter(kind, row, above, channels):
    line = bytearray(row)
    for i in range(len(line)):
        left = line[i - channels] if i >= channels else 0
        corner = above[i - channels] if i >= channels else 0
        if kind == 1:
            line[i] = (line[i] + left) & 255
        elif kind == 2:
            line[i] = (line[i] + above[i]) & 255
        elif kind == 3:
            line[i] = (line[i] + (left + above[i]) // 2) & 255
        elif kind == 4:
            line[i] = (line[i] + paeth(left, above[i], corner)) & 255
    return bytes(line)


def paeth(a, b, c):
    """PNG's predictor: the neighbour closest to a + b - c."""
    near = min((abs(b - c), 0), (abs(a - c), 1), (abs(a + b - 2 * c), 2))
    return (a, b, c)[near[1]]


def main():
    page, picture, *size = sys.argv[1:]
    with Browser() as browser, open(picture, "wb") as file:
        browser.open(page, *map(int, size[:2]))
        for selector in size[2:]:
            browser.value(f"document.querySelector({json.dumps(selector)}).click()")
        file.write(browser.screenshot())
        print("\n".join(browser.errors))
        return 1 if browser.errors else 0


if __name__ == "__main__":
    sys.exit(main())
