"""The pictures of README: a terminal, the page of `nmt serve`, and a plot of attention, made with the demo's model.

    make demo && make pictures        writes docs/images/terminal.svg, page.png and attention.png

The page needs Chromium and chromedriver. Without them it is left as it is.
"""

from __future__ import annotations

import io
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from urllib.request import urlopen

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

WORK = Path.cwd()
"""Where runs/demo and data/demo are."""
IMAGES = Path(__file__).parents[1] / "docs" / "images"
NMT = str(Path(sys.executable).with_name("nmt"))
SENTENCE = "The clever child whom David listened to drove to Lindenberg."
SECOND = "Stefan wanted to show Laura a castle."
COMMANDS = (
    f"echo '{SENTENCE}' | nmt translate",
    f"echo '{SENTENCE}' | nmt translate --nbest 3",
    r"printf 'The teacher sang.\tDie Lehrerin\n' | nmt translate --prefix-column",
    "nmt score runs/demo/test.de --ref data/demo/text/test.de",
)


def terminal() -> None:
    """Run commands and draw them with what they print."""
    console = Console(record=True, width=100, file=io.StringIO())
    for command in COMMANDS:
        console.print(Text(f"$ {command}", style="bold"))
        done = subprocess.run(
            re.sub(r"(^|\| )nmt ", rf"\1{NMT} ", command),
            shell=True,
            cwd=WORK,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            check=True,
        )
        console.print(Text(done.stdout))
    drawn = console.export_svg(title="nmt", theme=MONOKAI, unique_id="nmt")
    drawn = re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL)  # a picture loads nothing from elsewhere
    drawn = re.sub(r"<!--.*?-->\s*", "", drawn, flags=re.DOTALL)
    (IMAGES / "terminal.svg").write_text(re.sub(r"[ \t]+$", "", drawn, flags=re.MULTILINE), encoding="utf-8")


def attention() -> None:
    """Plot a decoder's attention to the source."""
    command = [
        NMT,
        "attend",
        SENTENCE,
        "--kind",
        "cross",
        "--layer",
        "2",
        "--head",
        "4",
        "--out",
        "build/attend.html",
        "--png",
        "build/attend",
    ]
    subprocess.run(command, cwd=WORK, check=True, stdout=subprocess.DEVNULL)
    (plot,) = (WORK / "build" / "attend").glob("*.png")
    shutil.copyfile(plot, IMAGES / "attention.png")


def page() -> None:
    """Type a sentence into the page of `nmt serve`."""
    from selenium import webdriver

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = subprocess.Popen([NMT, "serve", "--port", str(port)], cwd=WORK)
    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--window-size=1100,860", "--hide-scrollbars"):
        options.add_argument(argument)
    browser = webdriver.Chrome(options=options)
    try:
        wait(lambda: urlopen(f"http://127.0.0.1:{port}/health").status == 200)
        browser.get(f"http://127.0.0.1:{port}/")
        browser.find_element("id", "text").send_keys(f"{SENTENCE}\n{SECOND}")
        wait(lambda: "zeigen" in browser.find_element("id", "translation").text)
        word = browser.find_element("xpath", "//div[@id='translation']//*[contains(text(), 'gefahren')]")
        webdriver.ActionChains(browser).move_to_element(word).perform()
        time.sleep(1)  # the page fades in what is new
        browser.save_screenshot(str(IMAGES / "page.png"))
    finally:
        browser.quit()
        server.terminate()
        server.wait()


def wait(reached: Callable[[], bool]) -> None:
    """Wait up to a minute until `reached()` is true and raises nothing."""
    for _ in range(600):
        try:
            if reached():
                return
        except OSError:
            pass
        time.sleep(0.1)
    raise TimeoutError


if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    terminal()
    attention()
    if shutil.which("chromedriver"):
        page()
