"""A headless Chromium under the DevTools protocol, spoken over two pipes: no port, no driver, no package."""

import base64
import fcntl
import itertools
import json
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

EXECUTABLE = shutil.which("chromium") or shutil.which("chromium-browser")
OPTIONS = ("--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run")
COMMANDS_IN, ANSWERS_OUT = 3, 4  # file descriptors that Chromium reads from and writes to


class Chromium:
    """One browser with one page, as a context manager."""

    def __enter__(self) -> "Chromium":
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        commands, self._commands = os.pipe()
        self._answers, answers = os.pipe()
        arguments = [EXECUTABLE, *OPTIONS, f"--user-data-dir={self._profile.name}", "about:blank"]
        null = os.open(os.devnull, os.O_RDWR)
        moved = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in (commands, answers)]  # away from the numbers that they get there
        actions = [(os.POSIX_SPAWN_DUP2, moved[0], COMMANDS_IN), (os.POSIX_SPAWN_DUP2, moved[1], ANSWERS_OUT)]
        actions += [(os.POSIX_SPAWN_DUP2, null, stream) for stream in (0, 1, 2)]
        self._process = os.posix_spawn(EXECUTABLE, arguments, os.environ, file_actions=actions, setsid=True)
        for end in (commands, answers, null, *moved):
            os.close(end)
        self._numbers, self._rest, self.events = itertools.count(1), b"", []
        self._session = None
        targets = self.send("Target.getTargets")["targetInfos"]
        page = next(target["targetId"] for target in targets if target["type"] == "page")
        self._session = self.send("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._commands)
        os.close(self._answers)
        os.killpg(self._process, signal.SIGKILL)  # the process group that was started above
        os.waitpid(self._process, 0)
        self._profile.cleanup()

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its result; what happens meanwhile is kept in ``events``."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters} | ({"sessionId": self._session} if self._session else {})
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        for answer in self._received():
            if answer.get("id") == number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
            self.events.append(answer)
        raise AssertionError(f"Chromium ended during {method}")

    def _received(self) -> Iterator[dict[str, Any]]:
        while True:
            while b"\0" in self._rest:
                message, _, self._rest = self._rest.partition(b"\0")
                yield json.loads(message)
            part = os.read(self._answers, 1 << 20)
            if not part:
                return
            self._rest += part

    def open(self, path: Path, width: int, height: int = 900) -> None:
        """Show a file in a window of this size, as a phone does where it is narrow, and wait until it is loaded."""
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        self.events.clear()
        self.send("Page.navigate", url=path.resolve().as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(next(self._received()))
        self.evaluate("document.fonts.ready.then(() => Promise.all([...document.images].map(image => image.decode().catch(() => null))))")

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression, awaited."""
        answer = self.send("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def errors(self) -> list[str]:
        """Exceptions, failed loads and console errors since the page was opened."""
        kinds = ("Runtime.exceptionThrown", "Network.loadingFailed", "Log.entryAdded", "Runtime.consoleAPICalled")
        return [json.dumps(event["params"]) for event in self.events if event.get("method") in kinds]

    def requested(self) -> list[str]:
        """Addresses that the page asked for since it was opened."""
        return [event["params"]["request"]["url"] for event in self.events if event.get("method") == "Network.requestWillBeSent"]

    def screenshot(self, path: Path) -> None:
        """The whole page as PNG."""
        size = self.send("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        picture = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(picture["data"]))
