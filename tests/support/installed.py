"""Try the installed package as a user does: `python tests/support/installed.py [MODEL]` fails where it fails.

Of the Python that runs this, it starts the command `nmt`: --help, translate in fp32 and in int8, and serve, which has to
answer a request with the translation of nmt translate. It needs no other packages than they do; without MODEL, it makes
a model, which needs torch.
"""

import json
import platform
import re
import signal
import subprocess
import sys
import sysconfig
import tempfile
import urllib.request
from pathlib import Path

NMT = Path(sysconfig.get_path("scripts"), "nmt")
SENTENCE = "the small cat sees a red house."


def run(*arguments: str, text: str = "") -> str:
    """Return the output of `nmt` with these arguments and `text` as its input. Raises AssertionError if it fails."""
    done = subprocess.run([NMT, *arguments], input=text, capture_output=True, encoding="utf-8", timeout=120)
    assert done.returncode == 0, f"nmt {' '.join(arguments)}: exit status {done.returncode}\n{done.stderr}"
    return done.stdout


def answer(model: str) -> str:
    """Return the translation of SENTENCE by a server of `model`. Raises AssertionError if it fails."""
    command = [str(NMT), "serve", "--model", model, "--port", "0", "--device", "cpu", "--precision", "fp32"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, encoding="utf-8") as server:
        assert server.stderr
        lines: list[str] = []
        for line in server.stderr:
            lines.append(line)
            if found := re.search(r"http://\S+?:\d+", line):
                break
        else:
            raise AssertionError("nmt serve: it ends\n" + "".join(lines))
        try:
            browser = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            question = json.dumps({"q": SENTENCE, "source": "en", "target": "de"}).encode()
            request = urllib.request.Request(
                f"{found[0]}/translate", question, headers={"Content-Type": "application/json"}
            )
            with browser.open(request, timeout=120) as reply:
                return str(json.load(reply)["translatedText"])
        finally:
            server.send_signal(signal.SIGTERM)
            lines += server.stderr
            status = server.wait(120)
            assert status == 128 + signal.SIGTERM, f"nmt serve: exit status {status}\n" + "".join(lines)


def main(model: str) -> None:
    """Try the package with this model folder, which translates from `en` to `de`."""
    assert "translate" in run("--help")
    engine = subprocess.run(
        [sys.executable, "-c", "from nmt_cli.engine.library import summary; print(summary())"],
        capture_output=True,
        encoding="utf-8",
        check=True,
    ).stdout.strip()
    print(f"engine: {engine}")
    if sys.platform == "linux" and platform.machine() == "x86_64":
        assert "no engine" not in engine
    translations = {
        precision: run("translate", "--model", model, "--device", "cpu", "--precision", precision, text=f"{SENTENCE}\n")
        for precision in ("fp32", "int8")
    }
    print(translations)
    assert all(len(text.strip()) > 0 and text.count("\n") == 1 for text in translations.values())
    served = answer(model)
    assert served == translations["fp32"].rstrip("\n"), f"nmt serve: {served!r}"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        if len(sys.argv) == 1:
            from untrained import write_untrained  # beside this file

            sys.argv.append(str(write_untrained(Path(folder, "model"))))
        main(sys.argv[1])
