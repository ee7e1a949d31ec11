"""A page in headless Chromium, through its own driver: what a person does, and what is seen."""

from __future__ import annotations

import base64
import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--hide-scrollbars",
)  # fmt: skip
_WAIT = 20.0


def missing() -> str:
    """What is not here of what a page is looked at with, '' if all of it is."""
    try:
        import selenium  # noqa: F401
    except ImportError:
        return "selenium is not installed (pip install -e '.[test]')"
    lacking = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    if lacking:
        return f"no {' and no '.join(lacking)} (apt-get install chromium chromium-driver)"
    return ""


class Browser:
    """One Chromium with one page."""

    def __init__(self) -> None:
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service

        options = webdriver.ChromeOptions()
        options.binary_location = str(shutil.which("chromium"))
        for flag in FLAGS:
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(
            options=options, service=Service(shutil.which("chromedriver"))
        )

    def close(self) -> None:
        self.driver.quit()

    def open(
        self,
        path: Path,
        *,
        width: int = 1440,
        height: int = 1000,
        dark: bool = False,
        scale: int = 1,
    ) -> None:
        """Opens a page from disk and waits until it is drawn."""
        size = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        self.emulate("screen", dark=dark)
        self.logs("browser")
        self.logs("performance")
        self.driver.get(path.as_uri())
        self.until(lambda: self.js("return document.documentElement.classList.contains('ready')"))
        self.frame()

    def emulate(self, media: str, *, dark: bool = False) -> None:
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd(
            "Emulation.setEmulatedMedia", {"media": media, "features": [scheme]}
        )

    def js(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def frame(self) -> None:
        """Waits until what was changed is drawn."""
        self.driver.execute_async_script(
            "const done = arguments[0];"
            "requestAnimationFrame(() => requestAnimationFrame(() => done()))"
        )

    def until(self, met: Callable[[], Any]) -> Any:
        end = time.monotonic() + _WAIT
        while not (found := met()):
            if time.monotonic() > end:
                raise AssertionError(f"not within {_WAIT} s: {self.logs('browser')}")
            time.sleep(0.02)
        return found

    def logs(self, kind: str) -> list[Any]:
        return list(self.driver.get_log(kind))

    def requests(self) -> list[str]:
        """Every address asked for since the page was opened."""
        events = (json.loads(entry["message"])["message"] for entry in self.logs("performance"))
        return [
            event["params"]["request"]["url"]
            for event in events
            if event["method"] in ("Network.requestWillBeSent", "Network.webSocketCreated")
        ]

    def all(self, selector: str) -> list[Any]:
        return list(self.driver.find_elements("css selector", selector))

    def one(self, selector: str) -> Any:
        return self.driver.find_element("css selector", selector)

    def text(self, selector: str) -> str:
        return str(self.js("return document.querySelector(arguments[0]).textContent", selector))

    def click(self, selector: str) -> None:
        self.one(selector).click()
        self.frame()

    def keys(self, *keys: str) -> None:
        self.actions().send_keys(*keys).perform()
        self.frame()

    def move(self, side: int, across: float, up: float) -> None:
        """The pointer to a place in a chart, as shares of its width and height."""
        self.pointer(side, across, up).perform()
        self.frame()

    def press(self, side: int, across: float, up: float) -> None:
        self.pointer(side, across, up).click().perform()
        self.frame()

    def drag(self, side: int, start: tuple[float, float], end: tuple[float, float]) -> None:
        over = self.all(".u-over")[side]
        width, height = over.size["width"], over.size["height"]
        across, up = int((end[0] - start[0]) * width), int((start[1] - end[1]) * height)
        self.pointer(side, *start).click_and_hold().move_by_offset(across, up).release().perform()
        self.frame()

    def away(self) -> None:
        """The pointer off charts and rows."""
        self.actions().move_to_element(self.one("h1")).perform()
        self.frame()

    def pointer(self, side: int, across: float, up: float) -> Any:
        over = self.all(".u-over")[side]
        width, height = over.size["width"], over.size["height"]
        offset = int((across - 0.5) * width), int((0.5 - up) * height)
        return self.actions().move_to_element_with_offset(over, *offset)

    def actions(self) -> Any:
        from selenium.webdriver import ActionChains

        return ActionChains(self.driver, duration=0)

    def colour(self, side: int, x: float, y: float) -> list[int]:
        """Red, green, blue at a point of a chart, in its axes' own units."""
        found = self.js(
            """
            const [side, x, y] = arguments;
            const { plot } = memtrace.app.charts[side];
            const at = [plot.valToPos(x, "x", true), plot.valToPos(y, "y", true)].map(Math.round);
            return Array.from(plot.ctx.getImageData(at[0], at[1], 1, 1).data);
            """,
            side, x, y,
        )  # fmt: skip
        return list(found[:3])

    def screenshot(self, path: Path, *, full: bool = False) -> None:
        taken = self.driver.execute_cdp_cmd(
            "Page.captureScreenshot", {"format": "png", "captureBeyondViewport": full}
        )
        path.write_bytes(base64.b64decode(taken["data"]))

    def pdf(self) -> bytes:
        printed = self.driver.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})
        return base64.b64decode(printed["data"])
