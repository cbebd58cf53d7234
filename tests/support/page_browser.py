"""A real browser, Chromium without a window, and in it the page of `nmt serve`, before a server whose answers each test decides."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import translation_site
from translation_site import Site
from waiting import wait_until

webdriver = pytest.importorskip("selenium.webdriver", reason="the page is tested with selenium")

BROWSERS, DRIVER = ("chromium", "chromium-browser", "google-chrome"), shutil.which("chromedriver")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)
needs_browser = pytest.mark.skipif(
    not (BROWSER and DRIVER), reason=f"a browser ({', '.join(BROWSERS)}) and chromedriver are not installed"
)
DROP = """
const transfer = new DataTransfer();
transfer.items.add(new File(["a man"], arguments[0]));
for (const kind of ["dragover", "drop"]) document.body.dispatchEvent(new DragEvent(kind, { bubbles: true, cancelable: true, dataTransfer: transfer }));
"""


SAID = """
window.said = [];
for (const id of ["status", "document-status"]) {
  const element = document.getElementById(id);
  new MutationObserver(() => said.push(element.textContent)).observe(element, { childList: true, characterData: true, subtree: true });
}
"""
"""Notes what the page says: some of it stays for a second only."""


class Page:
    """The page in the browser, by the ids of its elements."""

    def __init__(self, driver: Any, site: Site) -> None:
        self.driver, self.site = driver, site

    def open(self) -> Page:
        """Load the page and wait until its languages are there."""
        self.driver.get(self.site.address)
        self.run(SAID)
        self.until(lambda: self("target-name").text or self("target").is_displayed() or self.status)
        return self

    def __call__(self, name: str) -> Any:
        return self.driver.find_element("id", name)

    def all(self, selector: str) -> list[Any]:
        return list(self.driver.find_elements("css selector", selector))

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def cdp(self, command: str, **parameters: Any) -> None:
        self.driver.execute_cdp_cmd(command, parameters)

    def type(self, text: str) -> None:
        """Add a text, in one piece: letter by letter, a busy machine would have time to translate the first letters."""
        self.run("arguments[0].focus(); arguments[0].setSelectionRange(1e9, 1e9)", self("text"))
        self.cdp("Input.insertText", text=text)

    def put(self, text: str) -> None:
        """Make this the text, whatever it holds."""
        self.run(
            "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input'))", self("text"), text
        )

    def press(self, *keys: str) -> None:
        self.driver.switch_to.active_element.send_keys("".join(keys))

    def screen(self, width: int, height: int = 740, mobile: bool = True) -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 2, "mobile": mobile}
        self.cdp("Emulation.setDeviceMetricsOverride", **metrics)

    def point(self, element: Any) -> None:
        webdriver.ActionChains(self.driver, duration=0).move_to_element(element).perform()

    @property
    def status(self) -> str:
        return str(self("status").text)

    def says(self, text: str) -> None:
        """Wait until the page has said this, even if it says something else by now."""
        self.until(lambda: text in self.run("return said"))

    @property
    def translation(self) -> str:
        return str(self("translation").get_property("textContent"))

    def word(self, side: str, text: str) -> Any:
        """The element of a word."""
        return next(element for element in self.all(f"#{side} .word") if element.get_property("textContent") == text)

    def weights(self, side: str) -> dict[str, float]:
        """The marked words with the weights that they are marked with."""
        found = self.run(
            "return [...document.querySelectorAll(`#${arguments[0]} .word`)].map(w => [w.textContent, w.style.getPropertyValue('--weight')])",
            side,
        )
        return {word: float(weight) for word, weight in found if weight}

    def until(self, condition: Callable[..., object]) -> None:
        """Wait until this holds."""
        wait_until(
            condition,
            lambda: f"status: {self.status!r}; translation: {self.translation!r}; requests: {self.site.requests[-3:]}",
        )

    def settle(self) -> None:
        """Wait until the page has had the time to take in what was sent before: it asks for something and gets it."""
        self.driver.execute_async_script("fetch('health').finally(() => setTimeout(arguments[0]))")

    def translated(self, text: str) -> None:
        """Wait until this is the translation."""
        self.until(lambda: self.translation == text)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for argument in ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", "window-size=1280,800"):
        options.add_argument(f"--{argument}")
    options.add_argument("--force-color-profile=srgb")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(DRIVER))
    try:
        yield driver
    finally:
        driver.quit()


@pytest.fixture
def page(browser: Any) -> Iterator[Page]:
    """The page, not yet open. At the end it must have said nothing to the console; a request that the server refused is noted there by the browser itself."""
    with translation_site.serve() as site:
        browser.get_log("browser")
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
        page = Page(browser, site)
        try:
            yield page
            assert [entry for entry in browser.get_log("browser") if entry["source"] != "network"] == []
        finally:
            browser.get("about:blank")
