"""The page of `nmt serve` in a real browser: typing, errors, languages, alternatives."""

# ruff: noqa: F401, F811 (fixtures of page_browser)
from __future__ import annotations

import re
import threading
from typing import Any

import pytest

pytest.importorskip("selenium", reason="the page is tested with selenium")
from page_browser import Page, browser, needs_browser, page
from selenium.webdriver.common.keys import Keys
from translation_site import THREE, Reply

pytestmark = [pytest.mark.slow, needs_browser]


def test_what_is_typed_is_translated_after_a_pause(page: Page) -> None:
    page.site.settings = {"frontendTimeout": 400}
    typing = "arguments[0].focus(); for (const a of 'a man') document.execCommand('insertText', false, a)"
    page.open().run(typing, page("text"))
    page.translated("A MAN")
    asked = {"q": "a man", "source": "en", "target": "de", "format": "text", "alternatives": 3}
    assert page.site.asked("/translate") == [asked]
    page.until(lambda: re.fullmatch(r"Translated in \d+\.\d\d s\.", page.status))
    assert page("count").text == "5 characters"


def test_only_a_slow_answer_is_announced_and_an_old_translation_stands_back_meanwhile(page: Page) -> None:
    page.open().type("a man")
    page.translated("A MAN")
    page.site.replies["/translate"] = [Reply(goes=(goes := threading.Event()))]
    page.type("s")
    page.until(lambda: page.status == "Translating…")
    box: Any = lambda: [page("translation").get_attribute(name) for name in ("aria-busy", "class")]  # noqa: E731
    assert box() == ["true", "text stale"]
    goes.set()
    page.translated("A MANS")
    page.until(lambda: page.status.startswith("Translated in"))
    assert box() == [None, "text"]


def test_ctrl_enter_translates_at_once(page: Page) -> None:
    page.site.settings = {"frontendTimeout": 600_000}
    page.open().type("now")
    page.press(Keys.CONTROL, Keys.ENTER)
    page.translated("NOW")


@pytest.mark.parametrize("then", ["er", ""])
def test_a_stale_answer_is_never_shown(page: Page, then: str) -> None:
    """Nor is one of a text that was emptied since."""
    page.open()
    page.site.replies["/translate"] = [Reply(goes=(goes := threading.Event()))]
    page.type("old")
    page.until(lambda: len(page.site.asked("/translate")) == 1)
    if then:
        page.type(then)
        page.translated("OLDER")
    else:
        page("clear").click()
    goes.set()
    page.until(lambda: page.site.answered.count("/translate") == 1 + bool(then))
    page.settle()
    assert page.translation == ("OLDER" if then else "")
    assert then or (page.status, page("copy").is_displayed()) == ("", False)
    assert len(page.site.asked("/translate")) == 1 + bool(then)


def test_texts_are_shown_as_they_are_and_very_long_ones_have_no_words_to_point_at(page: Page) -> None:
    page.open()
    for text in ("<img src=x onerror=alert(1)> &amp;\n\n  two  spaces", "word " * 20_000):
        page.put(text)
        page.translated(text.upper())
    assert page.all(".word") == []


# Errors


@pytest.mark.parametrize(("status", "words"), [(429, "Too many requests for now."), (503, "The server is busy.")])
def test_a_busy_server_is_asked_again(page: Page, status: int, words: str) -> None:
    page.open()
    page.site.replies["/translate"] = [Reply(status, headers={"Retry-After": "2"})]
    page.type("text")
    page.says(f"{words} Trying again in 2 s.")
    page.translated("TEXT")
    page.until(lambda: page("status").get_attribute("class") == "")


def test_a_server_that_is_gone_is_asked_until_it_is_back(page: Page) -> None:
    page.open()
    page.cdp("Network.enable")
    network = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    page.cdp("Network.emulateNetworkConditions", offline=True, **network)
    try:
        page.type("text")
        page.says("The server does not answer. Trying again in 1 s.")
    finally:
        page.cdp("Network.emulateNetworkConditions", offline=False, **network)
    page.translated("TEXT")


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


def test_a_server_that_starts_later_is_waited_for(page: Page) -> None:
    page.site.replies["/languages"] = [Reply(503)]
    page.open()
    page.until(lambda: page("target-name").text == "German")


def test_the_limit_is_counted_in_characters_and_nothing_longer_is_sent(page: Page) -> None:
    page.site.settings = {"charLimit": 5}
    page.open().put("😀😀😀")
    page.translated("😀😀😀")
    assert page("count").text == "2 characters left"
    page.type("abc")
    page.until(lambda: page.status == "The text is too long: it is not translated.")
    assert page("count").text == "1 character too many"
    assert len(page.site.asked("/translate")) == 1


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


def test_one_pair_is_named_and_offers_no_choice(page: Page) -> None:
    page.open()
    assert (page("source-name").text, page("target-name").text) == ("English", "German")
    assert not any(page(name).is_displayed() for name in ("source", "target", "swap"))


def test_targets_are_those_of_the_source_and_swapping_takes_the_translation(page: Page) -> None:
    page.site.languages = THREE
    page.open()
    options: Any = lambda name: [option.text for option in page(name).find_elements("tag name", "option")]  # noqa: E731
    assert options("source") == ["Auto-detect", "English", "German"]
    page("source").send_keys("English")
    assert options("target") == ["German", "French"]
    page.type("a man")
    page.translated("A MAN")
    page("swap").click()
    asked = {"q": "A MAN", "source": "de", "target": "en", "format": "text", "alternatives": 3}
    page.until(lambda: page.site.asked("/translate")[-1] == asked)
    assert page("text").get_property("value") == "A MAN"
    page("source").send_keys("English")
    page("target").send_keys("French")
    assert not page("swap").is_enabled()  # nothing translates from French


def test_a_detected_language_is_named_and_can_be_swapped(page: Page) -> None:
    page.site.languages = THREE
    page.open().type("a man")
    page.until(lambda: page.status.startswith("Detected: English. Translated in"))
    page("swap").click()
    page.until(lambda: page.site.asked("/translate")[-1]["source"] == "de")
    assert page("target").get_property("value") == "en"


def test_texts_run_in_their_own_direction(page: Page) -> None:
    page.open()
    for text, direction in (("שלום עולם", "rtl"), ("hello", "ltr")):
        page.put(text)
        page.translated(text.upper())
        for name in ("text", "translation"):
            assert page.run(f"return arguments[0].matches(':dir({direction})')", page(name))


# Alternatives, copying


def test_an_alternative_takes_the_place_of_the_translation_and_is_copied(page: Page) -> None:
    page.site.alternatives = ["Ein Mann", "Der Mann"]
    page.open().type("a man")
    page.translated("A MAN")
    assert [button.text for button in page.all("#alternatives button")] == ["Ein Mann", "Der Mann"]
    page.all("#alternatives button")[1].click()
    assert page.translation == "Der Mann"
    assert [button.text for button in page.all("#alternatives button")] == ["Ein Mann", "A MAN"]
    page.cdp("Browser.grantPermissions", permissions=["clipboardReadWrite"])
    page("copy").click()
    page.until(lambda: page.status == "Copied.")
    assert page.run("return navigator.clipboard.readText()") == "Der Mann"
