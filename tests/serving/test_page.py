"""The page of `nmt serve`, used in a real browser: Chromium without a window, before a server whose answers each test decides."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import translation_site
from translation_site import THREE, Reply, Site

webdriver = pytest.importorskip("selenium.webdriver", reason="the page is tested with selenium")
from selenium.webdriver.common.keys import Keys  # noqa: E402

BROWSERS, DRIVER = ("chromium", "chromium-browser", "google-chrome"), shutil.which("chromedriver")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)
needs_browser = pytest.mark.skipif(not (BROWSER and DRIVER), reason=f"a browser ({', '.join(BROWSERS)}) and chromedriver are not installed")
PATIENCE = 20.0


class Page:
    """The page in the browser, by the ids of its elements."""

    def __init__(self, driver: Any, site: Site) -> None:
        self.driver, self.site = driver, site

    def open(self) -> Page:
        """Load the page and wait until its languages are there."""
        self.driver.get(self.site.address)
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
        self("text").send_keys(text)

    def press(self, *keys: str) -> None:
        self.driver.switch_to.active_element.send_keys("".join(keys))

    def point(self, element: Any) -> None:
        webdriver.ActionChains(self.driver, duration=0).move_to_element(element).perform()

    @property
    def status(self) -> str:
        return str(self("status").text)

    @property
    def translation(self) -> str:
        return str(self("translation").get_property("textContent"))

    def word(self, side: str, text: str) -> Any:
        """The element of a word."""
        return next(element for element in self.all(f"#{side} .word") if element.get_property("textContent") == text)

    def weights(self, side: str) -> dict[str, float]:
        """The marked words with the weights that they are marked with."""
        found = self.run("return [...document.querySelectorAll(`#${arguments[0]} .word`)].map(w => [w.textContent, w.style.getPropertyValue('--weight')])", side)
        return {word: float(weight) for word, weight in found if weight}

    def until(self, condition: Callable[[], object]) -> None:
        """Wait until this holds."""
        end = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < end, f"never so; status: {self.status!r}; translation: {self.translation!r}; requests: {self.site.requests[-3:]}"
            time.sleep(0.02)

    def translated(self, text: str) -> None:
        """Wait until this is the translation."""
        self.until(lambda: self.translation == text)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1280,800", "--force-color-profile=srgb"):
        options.add_argument(argument)
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


pytestmark = pytest.mark.timeout(120)


# Typing


@needs_browser
def test_what_is_typed_is_translated_after_a_pause(page: Page) -> None:
    page.site.settings = {"frontendTimeout": 400}
    page.open().type("a man")
    page.translated("A MAN")
    assert page.site.asked("/translate") == [{"q": "a man", "source": "en", "target": "de", "format": "text", "alternatives": 3}]
    page.until(lambda: re.fullmatch(r"Translated in \d+\.\d\d s\.", page.status))
    assert page("count").text == "5 characters"


@needs_browser
def test_only_a_slow_answer_is_announced_and_an_old_translation_stands_back_meanwhile(page: Page) -> None:
    page.open().type("a man")
    page.translated("A MAN")
    page.site.replies["/translate"] = [Reply(delay=2.0)]
    page.type("s")
    page.until(lambda: page.status == "Translating…")
    assert (page("translation").get_attribute("aria-busy"), page("translation").get_attribute("class")) == ("true", "text stale")
    page.translated("A MANS")
    assert (page("translation").get_attribute("aria-busy"), page("translation").get_attribute("class")) == (None, "text")


@needs_browser
def test_ctrl_enter_translates_at_once(page: Page) -> None:
    page.site.settings = {"frontendTimeout": 600_000}
    page.open().type("now")
    page.press(Keys.CONTROL, Keys.ENTER)
    page.translated("NOW")


@needs_browser
def test_a_stale_answer_is_never_shown(page: Page) -> None:
    page.open()
    page.site.replies["/translate"] = [Reply(delay=1.5)]
    page.type("old")
    page.until(lambda: len(page.site.asked("/translate")) == 1)
    page.type("er")
    page.translated("OLDER")
    time.sleep(1.8)
    assert page.translation == "OLDER"
    assert len(page.site.asked("/translate")) == 2


@needs_browser
def test_an_emptied_text_has_no_translation_even_if_one_is_under_way(page: Page) -> None:
    page.open()
    page.site.replies["/translate"] = [Reply(delay=0.7)]
    page.type("a")
    page.until(lambda: page.site.asked("/translate"))
    page("clear").click()
    time.sleep(1.0)
    assert (page.translation, page.status, page("copy").is_displayed()) == ("", "", False)


@needs_browser
def test_texts_are_shown_as_they_are(page: Page) -> None:
    text = "<img src=x onerror=alert(1)> &amp;\n\n  two  spaces"
    page.open().run("arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input'))", page("text"), text)
    page.translated(text.upper())


@needs_browser
def test_a_very_long_text_is_translated_without_words_to_point_at(page: Page) -> None:
    text = "word " * 20_000
    page.open().run("arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input'))", page("text"), text)
    page.translated(text.upper())
    assert page.all(".word") == []


# Errors


@needs_browser
@pytest.mark.parametrize(("status", "words"), [(429, "Too many requests for now."), (503, "The server is busy.")])
def test_a_busy_server_is_asked_again(page: Page, status: int, words: str) -> None:
    page.open()
    page.site.replies["/translate"] = [Reply(status, headers={"Retry-After": "2"})]
    page.type("text")
    page.until(lambda: page.status == f"{words} Trying again in 2 s.")
    page.translated("TEXT")
    assert page("status").get_attribute("class") == ""


@needs_browser
def test_a_server_that_is_gone_is_asked_until_it_is_back(page: Page) -> None:
    page.open()
    page.cdp("Network.enable")
    page.cdp("Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=-1, uploadThroughput=-1)
    try:
        page.type("text")
        page.until(lambda: page.status.startswith("The server does not answer. Trying again in"))
    finally:
        page.cdp("Network.emulateNetworkConditions", offline=False, latency=0, downloadThroughput=-1, uploadThroughput=-1)
    page.translated("TEXT")


@needs_browser
@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (Reply(413, {"error": "5 characters at most"}), "The text is too long for this server (5 characters at most)."),
        (Reply(400, {"error": "de is not supported"}), "de is not supported"),
        (Reply(500, "no object"), "The server failed with status 500."),
        (Reply(429, headers={"Retry-After": "3600"}), "Too many requests for now. Try again in 60 minutes."),
    ],
)
def test_an_error_that_will_not_pass_is_shown(page: Page, reply: Reply, words: str) -> None:
    page.open()
    page.site.replies["/translate"] = [reply]
    page.type("text")
    page.until(lambda: page.status == words)
    assert page("status").get_attribute("class") == "bad"
    page.type("s")
    page.translated("TEXTS")


@needs_browser
def test_a_server_that_starts_later_is_waited_for(page: Page) -> None:
    page.site.replies["/languages"] = [Reply(503)]
    page.open()
    page.until(lambda: page("target-name").text == "German")


@needs_browser
def test_the_limit_is_counted_in_characters_and_nothing_longer_is_sent(page: Page) -> None:
    page.site.settings = {"charLimit": 5}
    page.open().run("arguments[0].value = '😀😀😀'; arguments[0].dispatchEvent(new Event('input'))", page("text"))
    page.translated("😀😀😀")
    assert page("count").text == "2 characters left"
    page.type("abc")
    page.until(lambda: page.status == "The text is too long: it is not translated.")
    assert page("count").text == "1 character too many"
    assert len(page.site.asked("/translate")) == 1


@needs_browser
def test_a_key_is_asked_for_and_kept_for_the_session(page: Page) -> None:
    page.site.key = "a-good-key"
    page.open().type("text")
    page.until(lambda: page("key").is_displayed())
    assert page.status.startswith("This server needs a valid API key")
    page.until(lambda: page.driver.switch_to.active_element == page("key"))
    page.press("a-good-key", Keys.ENTER)
    page.translated("TEXT")
    assert not page("key").is_displayed()
    page.open().type("again")
    page.translated("AGAIN")
    assert page.run("return [sessionStorage.api_key, localStorage.length]") == ["a-good-key", 0]


# Languages


@needs_browser
def test_one_pair_is_named_and_offers_no_choice(page: Page) -> None:
    page.open()
    assert (page("source-name").text, page("target-name").text) == ("English", "German")
    assert not any(page(name).is_displayed() for name in ("source", "target", "swap"))


@needs_browser
def test_targets_are_those_of_the_source_and_swapping_takes_the_translation(page: Page) -> None:
    page.site.languages = THREE
    page.open()
    options = lambda name: [option.text for option in page(name).find_elements("tag name", "option")]  # noqa: E731
    assert options("source") == ["Auto-detect", "English", "German"]
    page("source").send_keys("English")
    assert options("target") == ["German", "French"]
    page.type("a man")
    page.translated("A MAN")
    page("swap").click()
    page.until(lambda: page.site.asked("/translate")[-1] == {"q": "A MAN", "source": "de", "target": "en", "format": "text", "alternatives": 3})
    assert page("text").get_property("value") == "A MAN"
    page("source").send_keys("English")
    page("target").send_keys("French")
    assert not page("swap").is_enabled()  # nothing translates from French


@needs_browser
def test_a_detected_language_is_named_and_can_be_swapped(page: Page) -> None:
    page.site.languages = THREE
    page.open().type("a man")
    page.until(lambda: page.status.startswith("Detected: English. Translated in"))
    page("swap").click()
    page.until(lambda: page.site.asked("/translate")[-1]["source"] == "de")
    assert page("target").get_property("value") == "en"


@needs_browser
@pytest.mark.parametrize(("text", "direction"), [("שלום עולם", "rtl"), ("hello", "ltr")])
def test_texts_run_in_their_own_direction(page: Page, text: str, direction: str) -> None:
    page.open().type(text)
    page.translated(text.upper())
    assert all(page.run("return arguments[0].matches(`:dir(${arguments[1]})`)", page(name), direction) for name in ("text", "translation"))


# Alternatives, copying


@needs_browser
def test_an_alternative_takes_the_place_of_the_translation(page: Page) -> None:
    page.site.alternatives = ["Ein Mann", "Der Mann"]
    page.open().type("a man")
    page.translated("A MAN")
    assert [button.text for button in page.all("#alternatives button")] == ["Ein Mann", "Der Mann"]
    page.all("#alternatives button")[1].click()
    assert page.translation == "Der Mann"
    assert [button.text for button in page.all("#alternatives button")] == ["Ein Mann", "A MAN"]


@needs_browser
def test_the_translation_is_copied(page: Page) -> None:
    page.open().type("a man")
    page.translated("A MAN")
    page.cdp("Browser.grantPermissions", permissions=["clipboardReadWrite"])
    page("copy").click()
    page.until(lambda: page.status == "Copied.")
    assert page.run("return navigator.clipboard.readText()") == "A MAN"


# Words


@needs_browser
def test_pointing_at_a_word_marks_the_words_it_comes_from(page: Page) -> None:
    page.open().type("A man sleeps. He dreams.")
    page.translated("A MAN SLEEPS. HE DREAMS.")
    assert page.site.asked("/nmt/attention") == []  # asked for when it is needed
    page.point(page.word("translation", "SLEEPS"))
    page.until(lambda: page("word").text == "SLEEPS ← sleeps 80 %, man 20 % · probability 25 %")
    assert page.weights("mirror") == {"sleeps": 0.8, "man": 0.2}
    page.point(page.all("#translation .word")[3])  # a full stop has no probability of its own
    page.until(lambda: page("word").text == ". ← . 80 %, sleeps 20 %")
    page.point(page.word("translation", "DREAMS"))
    assert page.weights("mirror") == {"dreams": 0.8, "He": 0.2}
    page.point(page("target-name"))
    assert (page.weights("mirror"), page("word").text) == ({}, "")
    assert len(page.site.asked("/nmt/attention")) == 1


@needs_browser
def test_pointing_at_a_word_of_the_source_marks_the_words_that_come_from_it(page: Page) -> None:
    page.open().type("A man sleeps.")
    page.translated("A MAN SLEEPS.")
    page.point(page.word("mirror", "man"))  # under the text area
    page.until(lambda: page("word").text == "man → MAN 80 %, SLEEPS 20 %")
    assert page.weights("translation") == {"MAN": 0.8, "SLEEPS": 0.2}
    page.type("x")
    assert (page.weights("translation"), page("word").text) == ({}, "")


@needs_browser
def test_the_keyboard_moves_from_word_to_word_on_both_sides(page: Page) -> None:
    page.open().type("A man sleeps.")
    page.translated("A MAN SLEEPS.")
    page.press(Keys.HOME)
    page.until(lambda: page("word").text.startswith("A → A 80 %"))
    page.run("arguments[0].focus()", page("translation"))
    for key, word in ((Keys.ARROW_RIGHT, "A"), (Keys.ARROW_RIGHT, "MAN"), (Keys.END, "."), (Keys.ARROW_LEFT, "SLEEPS"), (Keys.HOME, "A")):
        page.press(key)
        page.until(lambda word=word: page("word").text.startswith(f"{word} ← "))


@needs_browser
def test_words_of_pieces_share_their_attention(page: Page) -> None:
    """A word of the translation has the mean of its pieces; a word of the source the sum of its pieces. Normalized pieces are left out."""
    page.open()
    weights = [[0.5, 0.2, 0.1, 0.2], [0.1, 0.1, 0.0, 0.8], [0.0, 0.0, 0.0, 1.0], [0.2, 0.2, 0.3, 0.3]]
    sentence = {"source": "Donau — fluss", "translation": "DONAU FLUSS", "source_tokens": ["▁Don", "au", "▁-", "▁fluss"], "tokens": ["▁DO", "NAU", "▁FLUSS", "</s>"], "weights": weights, "words": None}
    page.site.replies["/translate"] = [Reply(body={"translatedText": "Donau Fluss", "alternatives": []})]
    page.site.replies["/nmt/attention"] = [Reply(body={"sentences": [sentence]})]
    page.type("Donau — fluss")
    page.translated("Donau Fluss")
    page.point(page.word("translation", "Donau"))
    page.until(lambda: page("word").text == "Donau ← fluss 50 %, Donau 45 %")


@needs_browser
def test_the_page_works_where_attention_is_refused_or_of_another_translation(page: Page) -> None:
    page.open()
    other = {"source": "text", "translation": "DIFFERENT", "source_tokens": ["▁text"], "tokens": ["▁DIFFERENT"], "weights": [[1.0]], "words": None}
    page.site.replies["/nmt/attention"] = [Reply(413), Reply(body={"sentences": [other]})]
    for text in ("text", "texts"):
        page("text").clear()
        page.type(text)
        page.translated(text.upper())
        page.point(page.word("translation", text.upper()))
        page.until(lambda text=text: page.site.asked("/nmt/attention") and page.site.asked("/nmt/attention")[-1]["q"] == text)
        page.point(page("target-name"))
    assert (page.translation, page.weights("mirror")) == ("TEXTS", {})


@needs_browser
def test_attention_that_a_busy_server_refuses_is_asked_for_again_at_the_next_word(page: Page) -> None:
    page.open()
    page.site.replies["/nmt/attention"] = [Reply(503)]
    page.type("A man")
    page.translated("A MAN")
    page.point(page.word("translation", "A"))
    page.until(lambda: len(page.site.asked("/nmt/attention")) == 1)
    time.sleep(0.3)
    page.point(page.word("translation", "MAN"))
    page.until(lambda: page("word").text.startswith("MAN ← man 80 %"))


# Files


@needs_browser
def test_a_chosen_file_is_translated_and_linked(page: Page, tmp_path: Path) -> None:
    page.open()
    page.site.replies["/translate_file"] = [Reply(delay=1.0)]
    (tmp_path / "letter.txt").write_text("a man\n", encoding="utf-8")
    page("file").send_keys(str(tmp_path / "letter.txt"))
    page.until(lambda: page("document-status").text == "Translating…")
    assert (page("document-name").text, page("dismiss").text, page("download").is_displayed()) == ("letter.txt", "Cancel", False)
    page.until(lambda: page("document-status").text == "Translated.")
    assert page("download").get_attribute("href") == f"{page.site.address}/download_file/abc"
    assert page.site.asked("/translate_file") == [{"file": b"a man\n", "source": b"en", "target": b"de"}]
    page("dismiss").click()
    assert not page("document").is_displayed()


DROP = """
const transfer = new DataTransfer();
transfer.items.add(new File(["a man"], arguments[0]));
for (const kind of ["dragover", "drop"]) document.body.dispatchEvent(new DragEvent(kind, { bubbles: true, cancelable: true, dataTransfer: transfer }));
"""


@needs_browser
def test_a_dropped_file_is_translated_or_refused_by_its_ending(page: Page) -> None:
    page.open().run(DROP, "scan.pdf")
    assert page("document-status").text == "Files of this kind are not translated; choose one of: .txt, .html."
    page.run(DROP, "PAGE.HTML")
    page.until(lambda: page("document-status").text == "Translated.")
    assert len(page.site.asked("/translate_file")) == 1


@needs_browser
def test_a_refused_file_is_said_and_a_busy_server_asked_again(page: Page) -> None:
    page.open()
    page.site.replies["/translate_file"] = [Reply(503, headers={"Retry-After": "1"}), Reply(413, {"error": "too many bytes"})]
    page.run(DROP, "long.txt")
    page.until(lambda: page("document-status").text == "The server is busy. Trying again in 1 s.")
    page.until(lambda: page("document-status").text == "The text is too long for this server (too many bytes).")


@needs_browser
def test_a_cancelled_file_stays_away(page: Page) -> None:
    page.open()
    page.site.replies["/translate_file"] = [Reply(delay=0.6)]
    page.run(DROP, "letter.txt")
    page("dismiss").click()
    time.sleep(0.9)
    assert not page("document").is_displayed()


# Looks and access


@needs_browser
@pytest.mark.parametrize("dark", [False, True])
def test_nothing_is_wider_than_a_phone(page: Page, dark: bool) -> None:
    page.cdp("Emulation.setDeviceMetricsOverride", width=360, height=740, deviceScaleFactor=2, mobile=True)
    page.cdp("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
    page.site.languages, page.site.alternatives = THREE, ["W" * 300]
    page.open().type("W" * 300)
    page.run(DROP, f"{'long' * 60}.txt")
    page.translated("W" * 300)
    assert page.run("return document.documentElement.scrollWidth") == 360
    assert page.run("return getComputedStyle(document.body).backgroundColor") == ("rgb(16, 20, 26)" if dark else "rgb(245, 246, 248)")


@needs_browser
def test_the_text_area_is_as_tall_as_its_text_and_the_mirror_lies_under_it(page: Page) -> None:
    page.open().run("arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input'))", page("text"), "line of a text that is long enough to wrap in its box \n" * 30)
    assert page.run("const t = document.getElementById('text'); return t.scrollHeight <= t.clientHeight")
    boxes = [page.run("const b = arguments[0].getBoundingClientRect(); return [b.x, b.y, b.width, b.height]", page(name)) for name in ("text", "mirror")]
    assert boxes[0] == boxes[1]


@needs_browser
def test_everything_is_reached_by_the_tab_key_and_has_a_name_and_a_visible_focus(page: Page) -> None:
    page.site.languages, page.site.alternatives = THREE, ["other"]
    page.open().type("a man")
    page.translated("A MAN")
    page.run(DROP, "letter.txt")
    page.until(lambda: page("document-status").text == "Translated.")
    page("text").send_keys("")
    for _ in range(3):  # back to the first control
        page.press(Keys.SHIFT, Keys.TAB)
    seen = []
    while not page.run("return document.activeElement === document.body"):
        active = page.driver.switch_to.active_element
        seen.append(active.get_attribute("id") or active.text)
        assert active.accessible_name, seen
        assert page.run("const e = arguments[0], s = getComputedStyle; return s(e).outlineStyle !== 'none' || s(e.closest('.card')).outlineStyle !== 'none'", active), seen
        page.press(Keys.TAB)
    assert seen == ["source", "swap", "target", "text", "clear", "choose", "translation", "copy", "other", "download", "dismiss"]


def themes() -> Iterator[tuple[str, dict[str, str]]]:
    light, dark = re.findall(r":root \{[^}]*?(--ground:[^}]*)\}", (translation_site.FOLDER / "page.css").read_text(encoding="utf-8"))
    for name, text in (("light", light), ("dark", dark)):
        yield name, dict(re.findall(r"--(\w+): (#\w{6});", text))


def luminance(colour: str) -> float:
    """WCAG 2.2's relative luminance of #rrggbb."""
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4 for channel in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def mixed(one: str, other: str, share: float) -> str:
    return "#" + "".join(f"{round(int(one[at : at + 2], 16) * share + int(other[at : at + 2], 16) * (1 - share)):02x}" for at in (1, 3, 5))


@pytest.mark.parametrize(("name", "colours"), list(themes()))
def test_colours_have_the_contrast_of_wcag_aa(name: str, colours: dict[str, str]) -> None:
    for back in ("ground", "panel", "hover"):
        assert all(contrast(colours[front], colours[back]) >= 4.5 for front in ("ink", "soft", "mark", "bad")), (name, back)
    assert contrast(colours["ink"], mixed(colours["mark"], colours["panel"], 0.48)) >= 4.5  # the word with the highest weight
    assert contrast(colours["border"], colours["panel"]) >= 3.0


def test_the_page_loads_nothing_from_elsewhere_and_has_nothing_inline() -> None:
    for file in translation_site.FOLDER.iterdir():
        text = file.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://|[\"'(]//|console\.|innerHTML|\sstyle=|\son\w+=\"|<style|<script>", text), file.name


@needs_browser
def test_the_page_is_that_of_nmt_serve(page: Page, tmp_path: Path) -> None:
    """Against the real server: an untrained model's translation, its attention, a file."""
    served = pytest.importorskip("served", reason="nmt serve is not there", exc_type=ImportError)
    untrained = pytest.importorskip("untrained")
    (tmp_path / "letter.txt").write_text("the cat sees a dog.\n", encoding="utf-8")
    with served.running(untrained.write_untrained(tmp_path / "model")) as server:
        page.site.address = server.url
        page.open().type("the cat sees a dog.")
        page.until(lambda: "Translated in" in page.status)
        assert page.translation
        assert page.all("#alternatives button")
        page.run("arguments[0].focus()", page("translation"))
        page.press(Keys.ARROW_RIGHT)
        page.until(lambda: re.search(r" ← .+ · probability \d+ %$", page("word").text))
        page("file").send_keys(str(tmp_path / "letter.txt"))
        page.until(lambda: page("document-status").text == "Translated.")
        assert page("download").get_attribute("href").startswith(f"{server.url}/download_file/")
