"""A real browser for tests: headless Chromium, driven over its DevTools pipe with nothing but the standard library.

A message is JSON that ends with a zero byte. Chromium reads commands from file descriptor 3 and writes answers to 4.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

with suppress(ImportError):  # Windows has none
    import fcntl

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
#: Why browser tests are skipped; empty where there is a browser.
MISSING = (
    "the browser is driven over a pipe that Windows does not have"
    if sys.platform == "win32"
    else "Chromium is not installed, so no page was opened in a browser"
    if CHROMIUM is None
    else ""
)
#: Seconds of silence after which the browser counts as stuck.
PATIENCE = 60
#: Keys with their codes.
KEYS = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowRight": 39}
FLAGS = ["headless", "no-sandbox", "disable-gpu", "no-first-run", "disable-background-networking", "disable-sync"]
FLAGS += ["disable-extensions", "disable-dev-shm-usage", "hide-scrollbars", "remote-debugging-pipe"]


class Tab:
    """One tab: pages are opened in it, looked at and used with mouse and keyboard."""

    def __init__(self, commands: int, answers: int) -> None:
        self.commands, self.answers, self.unread = commands, answers, b""
        self.number, self.session, self.errors = 0, "", list[str]()
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for part in ("Page", "Runtime", "Log"):
            self.send(f"{part}.enable")

    def send(self, method: str, **options: Any) -> dict[str, Any]:
        """Run a command of the DevTools protocol, and give its result."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": options}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                result: dict[str, Any] = answer["result"]
                return result

    def _read(self) -> dict[str, Any]:
        """The next message; errors of the page are kept."""
        while b"\0" not in self.unread:
            ready, _, _ = select.select([self.answers], [], [], PATIENCE)
            more = os.read(self.answers, 1 << 16) if ready else b""
            if not more:
                raise RuntimeError("the browser ended" if ready else f"the browser said nothing for {PATIENCE} seconds")
            self.unread += more
        content, self.unread = self.unread.split(b"\0", 1)
        message: dict[str, Any] = json.loads(content)
        details = message.get("params", {})
        if message.get("method") == "Runtime.exceptionThrown":
            self.errors.append(str(details["exceptionDetails"].get("exception", details["exceptionDetails"])))
        elif message.get("method") == "Log.entryAdded" and details["entry"]["level"] in ("error", "warning"):
            self.errors.append(details["entry"]["text"])
        elif message.get("method") == "Runtime.consoleAPICalled" and details["type"] in ("error", "warning"):
            self.errors.append(str(details["args"]))
        return message

    def open(self, page: Path, width: int = 1280, height: int = 900, scripts: bool = True) -> None:
        """Open a file in a window of this size, and wait until it is loaded."""
        self.errors.clear()
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.send("Emulation.setScriptExecutionDisabled", value=not scripts)
        self.send("Page.navigate", url=page.resolve().as_uri())
        while self._read().get("method") != "Page.loadEventFired":
            pass

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression."""
        found = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise RuntimeError(str(found["exceptionDetails"]["exception"].get("description")))
        return found["result"].get("value")

    def media(self, scheme: str = "light", kind: str = "screen") -> None:
        """Show pages as on a screen or in print, to a reader who prefers light or dark."""
        self.send("Emulation.setEmulatedMedia", media=kind, features=[{"name": "prefers-color-scheme", "value": scheme}])

    def middle(self, selector: str) -> tuple[float, float]:
        """The middle of the first element that matches, after it was scrolled into view."""
        box = f"const b = document.querySelector({json.dumps(selector)}); b.scrollIntoView({{block: 'center'}});"
        place = "const r = b.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2];"
        x, y = self.run(f"(() => {{ {box} {place} }})()")
        return float(x), float(y)

    def hover(self, selector: str) -> None:
        """Move the mouse onto an element."""
        x, y = self.middle(selector)
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=0, y=0)
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, selector: str) -> None:
        """Click on an element with the mouse."""
        self.hover(selector)
        x, y = self.middle(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, key: str) -> None:
        """Press a key of `KEYS`."""
        options = {"key": key, "windowsVirtualKeyCode": KEYS[key], "text": {"Enter": "\r", " ": " "}.get(key, "")}
        self.send("Input.dispatchKeyEvent", type="keyDown", **options)
        self.send("Input.dispatchKeyEvent", type="keyUp", **options)

    def write(self, selector: str, text: str) -> None:
        """Click into a field and type."""
        self.click(selector)
        self.send("Input.insertText", text=text)

    def picture(self, path: Path, whole: bool = True) -> None:
        """A screenshot of the page as PNG."""
        path.write_bytes(base64.b64decode(self.send("Page.captureScreenshot", captureBeyondViewport=whole)["data"]))

    def pdf(self, path: Path) -> None:
        """The page as it is printed."""
        self.media("light", "")
        path.write_bytes(base64.b64decode(self.send("Page.printToPDF", printBackground=True)["data"]))


@contextmanager
def browser() -> Iterator[Tab]:
    """A running browser with one tab."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process, commands, answers = _start(profile)
        try:
            yield Tab(commands, answers)
        finally:
            os.kill(process, signal.SIGTERM)
            os.waitpid(process, 0)
            os.close(commands)
            os.close(answers)


def _start(profile: str) -> tuple[int, int, int]:
    """Start the browser: its process, where commands are written, and where answers are read."""
    assert CHROMIUM is not None
    commands_in, commands_out = os.pipe()
    answers_in, answers_out = os.pipe()
    actions = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 1, 2)]
    # Copies above 9 first, so that neither end is overwritten before it is copied.
    high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in (commands_in, answers_out)]
    ends = [(os.POSIX_SPAWN_DUP2, end, number) for end, number in zip(high, (3, 4), strict=True)]
    arguments = [CHROMIUM, *(f"--{flag}" for flag in FLAGS), f"--user-data-dir={profile}"]
    process = os.posix_spawn(CHROMIUM, arguments, os.environ, file_actions=[*actions, *ends])
    for end in (commands_in, answers_out, *high):
        os.close(end)
    return process, commands_out, answers_in
