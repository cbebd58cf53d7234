"""Make parallel corpora in many scripts from the message catalogues of Debian's packages.

    python benchmarks/catalogues.py OUT [--languages zh_CN,ja,…] [--packages NAME …] [--seed 1] [--markdown]

Data flow: `apt-get download` fetches the packages into OUT/packages (run `apt-get update` before; a package that is
there already is kept). Each compiled catalogue (*.mo) gives its singular messages. `paragraphs` removes accelerator
keys and markup and splits a message at empty lines. `is_clean` keeps a pair whose source has 3 to 100 words, whose
target is in the language's script, and whose sides have the same marks of placeholders. Of pairs with the same source
or the same target (letter case, digits, spaces and ASCII punctuation do not count) the first stays. Pairs of an
unusual ratio of lengths are left out, the others shuffled. Validation and test text are whole sentences of 8 words or
more: 1,000 pairs each, at most 5 % of the corpus each.

    OUT/LANGUAGE/{train,valid,test}.{en,LANGUAGE}      one paragraph a line
    OUT/LANGUAGE/packages.tsv                          number of pairs and file name of each package

The same packages, languages and seed give the same files. A text has the licence of its package. A table goes to
stdout.
"""

from __future__ import annotations

import argparse
import html
import random
import re
import statistics
import subprocess
import sys
import tarfile
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from gettext import GNUTranslations
from pathlib import Path

from common import print_rows

PACKAGES = """
cataclysm-dda-data wesnoth-1.16-data blender-data freeciv-data inkscape vlc-l10n evolution-common libvirt-l10n
gimp-data gnucash-common krita-l10n digikam-data libgtk-3-common kicad cinnamon-l10n pidgin-data audacity-data
wordpress-l10n k3b-i18n gnome-control-center-data kio r-base-core caja-common plasma-desktop-data phpmyadmin gramps
network-manager lyx-common fontforge-common libkf5kdelibs4support-data nautilus-data postgresql-client-15 kmail
mercurial-common anjuta-common brasero-common libglib2.0-data konqueror kdevelop-l10n coreutils libgtk-4-common git
kig gedit-common pluma-common konversation-data grass-core evolution-data-server-common kdenlive-data darktable
ardour-data kwin-data zabbix-frontend-php kate5-data okular gnome-disk-utility kmymoney-common mate-panel-common
kleopatra kdepim-runtime denemo-data util-linux-locales gnome-software-common mate-control-center-common
epiphany-browser-data shotwell-common gcc-12-locales python3-django-horizon system-config-printer-common
rhythmbox-data ktorrent-data subversion dpkg kile-l10n vim-runtime filezilla-common python3-django picard
gnome-terminal-data marco-common binutils-common korganizer tortoisehg thunar-data seahorse aptitude-common plasma-nm
konsole dia-common kdepim-addons orca aegisub-l10n gnome-shell-common aisleriot gvfs-common mypaint-data synaptic bash
gnote gnupg-l10n evince-common plasma-discover-common bluefish-data geany-common fwupd kget totem-common
gnumeric-common minetest-data gnome-calculator poedit-common eog libc-l10n network-manager-gnome hexchat-common
kdeplasma-addons-data kexi-data audacious-plugins-data claws-mail-i18n sylpheed-i18n remmina-common iso-codes
libreoffice-l10n-zh-cn libreoffice-l10n-ja libreoffice-l10n-ko libreoffice-l10n-th libreoffice-l10n-fa
libreoffice-l10n-ar libreoffice-l10n-hi libreoffice-l10n-ru libreoffice-l10n-el libreoffice-l10n-he
libreoffice-l10n-ta libreoffice-l10n-bn libreoffice-l10n-ka libreoffice-l10n-km libreoffice-l10n-vi
libreoffice-l10n-am libreoffice-l10n-mr libreoffice-l10n-te libreoffice-l10n-uk libreoffice-l10n-bg
libreoffice-l10n-kn libreoffice-l10n-ml libreoffice-l10n-gu libreoffice-l10n-pa-in libreoffice-l10n-si
libreoffice-l10n-ne
"""
SCRIPTS = {"zh_CN": "CJK", "ja": "CJK HIRAGANA KATAKANA", "ko": "HANGUL", "vi": "LATIN"}
SCRIPTS |= dict.fromkeys(["ru", "uk", "bg"], "CYRILLIC") | dict.fromkeys(["ar", "fa"], "ARABIC")
SCRIPTS |= {"el": "GREEK", "he": "HEBREW", "ka": "GEORGIAN", "hy": "ARMENIAN", "am": "ETHIOPIC", "th": "THAI"}
SCRIPTS |= {"km": "KHMER", "my": "MYANMAR", "lo": "LAO", "hi": "DEVANAGARI", "mr": "DEVANAGARI", "ne": "DEVANAGARI"}
SCRIPTS |= {"bn": "BENGALI", "ta": "TAMIL", "te": "TELUGU", "kn": "KANNADA", "ml": "MALAYALAM", "si": "SINHALA"}
SCRIPTS |= {"gu": "GUJARATI", "pa": "GURMUKHI"}
"""Languages, and how the Unicode names of their letters begin."""
BREAK = re.compile(r"\n\s*\n|</?(?:p|br|nl|qt|html|body|para|title|ul|ol|li|item|list|h\d|note|warning)\b[^<>]*>", re.I)
MARKUP = re.compile(r"<(\w+)(?:\s[^<>]*)?>([^<>]*)</\1>")
ACCELERATOR = re.compile(r"\s*[(（]\s*[_&~]\w\s*[)）]|(?<![\w%/.~&_-])[_&~](?=[^\W\d_])|(?<=[^\W\d_])&(?=[^\W\d_])")
DIRT = re.compile(r"[\x00-\x1f\x7f-\x9f\ufffd\u2028\u2029\ue000-\uf8ff]|&\w+;|https?:")
IGNORED = re.compile(r"[\s!-@\[-`{-~]+")
MARKS = "%{<>|&_~\\$="


def catalogues(package: Path, path: re.Pattern[str]) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Yield path, language and singular messages of each catalogue that `path` matches; its group is the language."""
    command = ["dpkg-deb", "--fsys-tarfile", str(package)]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE) as process,
        tarfile.open(fileobj=process.stdout, mode="r|") as archive,
    ):
        for member in archive:
            found = path.search(member.name)
            file = archive.extractfile(member) if found and member.isfile() else None
            if found and file:
                try:
                    messages = vars(GNUTranslations(file))["_catalog"]
                except (OSError, ValueError, LookupError):
                    continue  # a catalogue of another kind, or in another encoding than it says
                singular = {key: text for key, text in messages.items() if isinstance(key, str)}
                yield member.name, found[1], singular


@lru_cache(maxsize=1 << 16)
def paragraphs(message: str) -> list[str]:
    """Return the paragraphs of a message, without its context, accelerator keys, paired markup and repeated spaces."""
    text, removed = BREAK.sub("\n\n", message.rpartition("\4")[2]), 1
    while removed:
        text, removed = MARKUP.subn(r"\2", text)
    text = re.sub(r"[^\S\n]+", " ", html.unescape(ACCELERATOR.sub("", text)))
    return [part.strip() for part in re.split(r"\n\s*\n", text) if part.strip()]


@cache
def script(letter: str) -> str:
    """Return the first word of a letter's Unicode name; of "CJK UNIFIED IDEOGRAPH-4E00", CJK."""
    return unicodedata.name(letter, "").split(" ")[0]


def is_clean(source: str, target: str, scripts: Sequence[str]) -> bool:
    """Whether the pair is a line in English and its translation into these scripts."""
    return (
        3 <= sum(any(map(str.isalpha, word)) for word in source.split()) <= 100
        and not target.isascii()
        and not DIRT.search(source + target)
        and all(source.count(mark) == target.count(mark) for mark in MARKS)
        and sum(map(str.isascii, source)) > 0.9 * len(source)
        and sum(script(letter) in scripts for letter in target) > sum(map(str.isalpha, target)) / 3
    )


def corpora(packages: Sequence[Path], languages: Sequence[str]) -> dict[str, dict[tuple[str, str], str]]:
    """Return each language's clean pairs, none twice, each with the file name of its package."""
    pairs: dict[str, dict[tuple[str, str], str]] = {language: {} for language in languages}
    seen: dict[str, set[tuple[int, str]]] = {language: set() for language in languages}
    path = re.compile(rf"[/-]({'|'.join(languages)})(?:_[A-Z]{{2}})?(?:/.*)?\.mo$")
    for package in packages:
        for _, language, messages in sorted(catalogues(package, path)):
            scripts = SCRIPTS[language].split()
            for sides in ((paragraphs(source), paragraphs(target)) for source, target in messages.items()):
                for pair in zip(*sides, strict=True) if len(sides[0]) == len(sides[1]) else ():
                    keys = {(side, IGNORED.sub("", line.casefold())) for side, line in enumerate(pair)}
                    if is_clean(*pair, scripts) and not keys & seen[language]:
                        seen[language] |= keys
                        pairs[language][pair] = package.name
    return pairs


def write(folder: Path, language: str, pairs: dict[tuple[str, str], str], seed: int) -> list[str]:
    """Write a language's corpus. Return its row of the table."""
    ratio = statistics.median(len(target) / len(source) for source, target in pairs)
    corpus = [pair for pair in pairs if ratio / 2.5 < (len(pair[1]) + 5) / (len(pair[0]) + 5) < 2.5 * ratio]
    random.Random(seed).shuffle(corpus)
    whole = [pair for pair in corpus if len(pair[0].split()) >= 8 and re.match(r"[A-Z].*[a-z)'\"][.!?]$", pair[0])]
    size = min(1000, len(corpus) // 20, len(whole) // 2)
    held_out = set(whole[: 2 * size])
    parts = {"train": [pair for pair in corpus if pair not in held_out]}
    parts |= {"valid": whole[:size], "test": whole[size : 2 * size]}
    folder.mkdir(parents=True, exist_ok=True)
    for name, part in parts.items():
        for side, code in enumerate(("en", language)):
            (folder / f"{name}.{code}").write_text("".join(f"{pair[side]}\n" for pair in part), encoding="utf-8")
    counts = Counter(pairs[pair] for pair in corpus)
    (folder / "packages.tsv").write_text("".join(f"{count}\t{name}\n" for name, count in counts.most_common()))
    words = statistics.mean(len(source.split()) for source, _ in corpus)
    characters = [statistics.mean(len(pair[side]) for pair in corpus) for side in (0, 1)]
    return [language, f"{len(counts)}", *(f"{len(part):,}" for part in parts.values()), f"{words:.1f}"] + [
        f"{count:.1f}" for count in characters
    ]


def main() -> None:
    """Download the packages, write the corpora and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, metavar="OUT")
    parser.add_argument("--languages", default=",".join(SCRIPTS), help="codes as gettext writes them")
    parser.add_argument("--packages", nargs="+", metavar="NAME", default=PACKAGES.split())
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    options = parser.parse_args()
    languages = options.languages.split(",")
    if unknown := sorted(set(languages) - set(SCRIPTS)):
        parser.error(f"--languages {','.join(unknown)}: expected some of {','.join(SCRIPTS)}")
    folder = options.out / "packages"
    folder.mkdir(parents=True, exist_ok=True)
    missing = [name for name in options.packages if not any(folder.glob(f"{name}_*.deb"))]
    if missing and subprocess.run(["apt-get", "download", *missing], cwd=folder).returncode:
        raise SystemExit(f"--packages {' '.join(missing)}: apt-get could not fetch them all; run apt-get update")
    packages = [max(folder.glob(f"{name}_*.deb")) for name in options.packages]
    found = corpora(packages, languages)
    for language in (language for language in languages if not found[language]):
        print(f"{language}: no pairs in these packages; no files are written", file=sys.stderr)
    rows = [
        write(options.out / language, language, found[language], options.seed) for language in found if found[language]
    ]
    head = ["language", "packages", "train", "valid", "test", "words (en)", "characters (en)", "characters"]
    print_rows([head, *rows], options.markdown)


if __name__ == "__main__":
    main()
