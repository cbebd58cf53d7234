"""The page of `nmt serve` in a real browser: typing, errors, languages, words, files, looks, access; and the real server."""

# ruff: noqa: F401, F811 (fixtures of page_browser)
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("selenium", reason="the page is tested with selenium")
from page_browser import DROP, Page, browser, needs_browser, page
from selenium.webdriver.common.keys import Keys
from translation_site import THREE, Reply, sentence

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


def test_words_of_the_source_and_the_keyboard_do_the_same(page: Page) -> None:
    page.open().type("A man sleeps.")
    page.translated("A MAN SLEEPS.")
    assert page("hint").text.startswith("Point at a word")
    page.point(page.word("mirror", "man"))  # under the text area
    page.until(lambda: page("word").text == "man → MAN 80 %, SLEEPS 20 %")
    assert page.weights("translation") == {"MAN": 0.8, "SLEEPS": 0.2}
    page.press(Keys.HOME)
    page.until(lambda: page("word").text.startswith("A → A 80 %"))
    page.run("arguments[0].focus()", page("translation"))
    left, right = Keys.ARROW_LEFT, Keys.ARROW_RIGHT
    for key, word in ((right, "A"), (right, "MAN"), (Keys.END, "."), (left, "SLEEPS"), (Keys.HOME, "A")):
        page.press(key)
        page.until(lambda word=word: page("word").text.startswith(f"{word} ← "))
    page.type("x")
    assert (page.weights("translation"), page("word").text) == ({}, "")


def test_words_of_pieces_share_their_attention(page: Page) -> None:
    """A word of the translation has the mean of its pieces; a word of the source the sum of its pieces. Normalized pieces are left out."""
    page.open()
    weights = [[0.5, 0.2, 0.1, 0.2], [0.1, 0.1, 0.0, 0.8], [0.0, 0.0, 0.0, 1.0], [0.2, 0.2, 0.3, 0.3]]
    pieces = {"source_tokens": ["▁Don", "au", "▁-", "▁fluss"], "tokens": ["▁DO", "NAU", "▁FLUSS", "</s>"]}
    donau = {"source": "Donau — fluss", "translation": "DONAU FLUSS", "weights": weights, "words": None, **pieces}
    page.site.replies["/translate"] = [Reply(body={"translatedText": "Donau Fluss", "alternatives": []})]
    page.site.replies["/nmt/attention"] = [Reply(body={"sentences": [donau]})]
    page.type("Donau — fluss")
    page.translated("Donau Fluss")
    page.point(page.word("translation", "Donau"))
    page.until(lambda: page("word").text == "Donau ← fluss 50 %, Donau 45 %")


def test_the_page_works_where_attention_is_refused_or_of_another_translation(page: Page) -> None:
    """A server that is busy is asked again at the next word."""
    page.open()
    other = sentence("text") | {"translation": "DIFFERENT", "tokens": ["▁DIFFERENT"]}
    page.site.replies["/nmt/attention"] = [Reply(413), Reply(body={"sentences": [other]}), Reply(503)]
    for text in ("text", "texts", "a man"):
        page.put(text)
        page.translated(text.upper())
        page.point(page.all("#translation .word")[0])
        page.until(lambda text=text: text in [asked["q"] for asked in page.site.asked("/nmt/attention")])
        assert (page.translation, page.weights("mirror")) == (text.upper(), {})
        page.point(page("target-name"))

    def again() -> bool:  # the refusal may not have arrived when the next word is pointed at
        for word in page.all("#translation .word"):
            page.point(word)
        return str(page("word").text).startswith("MAN ← man 80 %")

    page.until(again)
    assert len(page.site.asked("/nmt/attention")) == 4


def test_a_chosen_file_is_translated_and_linked(page: Page, tmp_path: Path) -> None:
    page.open()
    page.site.replies["/translate_file"] = [Reply(goes=(goes := threading.Event()))]
    (tmp_path / "letter.txt").write_text("a man\n", encoding="utf-8")
    page("file").send_keys(str(tmp_path / "letter.txt"))
    page.until(lambda: page("document-status").text == "Translating…")
    shown = page("document-name").text, page("dismiss").text, page("download").is_displayed()
    assert shown == ("letter.txt", "Cancel", False)
    goes.set()
    page.until(lambda: page("document-status").text == "Translated.")
    assert page("download").get_attribute("href") == f"{page.site.address}/download_file/abc"
    assert page.site.asked("/translate_file") == [{"file": b"a man\n", "source": b"en", "target": b"de"}]
    page("dismiss").click()
    assert not page("document").is_displayed()


def test_a_dropped_file_is_translated_or_refused_by_its_ending(page: Page) -> None:
    page.open().run(DROP, "scan.pdf")
    assert page("document-status").text == "Files of this kind are not translated; choose one of: .txt, .html."
    page.run(DROP, "PAGE.HTML")
    page.until(lambda: page("document-status").text == "Translated.")
    assert len(page.site.asked("/translate_file")) == 1


def test_a_refused_file_is_said_and_a_busy_server_asked_again(page: Page) -> None:
    page.open()
    busy, refused = Reply(503, headers={"Retry-After": "1"}), Reply(413, {"error": "too many bytes"})
    page.site.replies["/translate_file"] = [busy, refused]
    page.run(DROP, "long.txt")
    page.says("The server is busy. Trying again in 1 s.")
    page.until(lambda: page("document-status").text == "The text is too long for this server (too many bytes).")


def test_a_cancelled_file_stays_away(page: Page) -> None:
    page.open()
    page.site.replies["/translate_file"] = [Reply(goes=(goes := threading.Event()))]
    page.run(DROP, "letter.txt")
    page.until(lambda: page.site.asked("/translate_file"))
    page("dismiss").click()
    goes.set()
    page.until(lambda: page.site.answered.count("/translate_file") == 1)
    page.settle()
    assert not page("document").is_displayed()


# Looks and access

OUTLINED = """
const outline = element => getComputedStyle(element).outlineStyle;
return outline(arguments[0]) !== 'none' || outline(arguments[0].closest('.card')) !== 'none';
"""


@pytest.mark.parametrize("dark", [False, True])
def test_on_a_phone_nothing_is_too_wide_and_the_result_of_a_file_comes_into_view(page: Page, dark: bool) -> None:
    page.screen(360, 500)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    page.cdp("Emulation.setEmulatedMedia", features=[scheme])
    page.site.languages, page.site.alternatives = THREE, ["W" * 300]
    page.open().put("a line\n" * 60 + "W" * 300)
    page.translated("A LINE\n" * 60 + "W" * 300)  # then the page grows no more
    assert re.match("Tap a word(?!.*(key|Ctrl))", page("hint").text)
    page.run("scrollTo(0, 0)")
    page.run(DROP, f"{'long' * 60}.txt")
    page.until(lambda: page("download").is_displayed())
    seen = "const b = arguments[0].getBoundingClientRect(); return b.top >= 0 && b.bottom <= innerHeight"
    page.until(lambda: page.run(seen, page("download")))
    assert page.run("return document.documentElement.scrollWidth") == 360
    background = "rgb(16, 20, 26)" if dark else "rgb(245, 246, 248)"
    assert page.run("return getComputedStyle(document.body).backgroundColor") == background


def test_the_text_area_is_as_tall_as_its_text_and_the_mirror_lies_under_it(page: Page) -> None:
    page.open().put("line of a text that is long enough to wrap in its box \n" * 30)
    assert page.run("const t = document.getElementById('text'); return t.scrollHeight <= t.clientHeight")
    box = "const b = arguments[0].getBoundingClientRect(); return [b.x, b.y, b.width, b.height]"
    assert page.run(box, page("text")) == page.run(box, page("mirror"))


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
        assert page.run(OUTLINED, active), seen
        page.press(Keys.TAB)
    controls = ["source", "swap", "target", "text", "clear", "choose", "translation", "copy"]
    assert seen == [*controls, "other", "download", "dismiss"]


def test_the_page_is_that_of_nmt_serve(page: Page, model: Path, tmp_path: Path) -> None:
    """Against the real server: an untrained model's translation, its attention, a file."""
    served = pytest.importorskip("served", reason="nmt serve is not there", exc_type=ImportError)
    (tmp_path / "letter.txt").write_text("the cat sees a dog.\n", encoding="utf-8")
    with served.running(model) as server:
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
