"""The generator of the demo corpus, `nmt_cli/data/demo_corpus.en.xz` and `.de.xz`: English-German sentence pairs.

    PYTHONPATH=tools python -m demo_corpus nmt_cli/data

writes the two files. The text is correct English and German, and has the difficulties of this language pair: verb-final
clauses, separable verbs, gender and case, compounds, numbers and clock times, copied names.

Who calls whom (each module uses only those before it)::

    lexicon, verbs, semantics   the data: words, principal parts, semantic classes, names
    morphology, numbers         inflection of both languages; numbers, times, dates, prices in words
    clauses                     parts of a clause -> English and German word order
    draws, phrases, times       random choices; draw names, noun phrases, time adverbials
    grammar, subclauses         draw clauses and subordinate clauses
    questions, facts, references, sentences   the constructions and their weights
    corpus                      held-out combinations, the splits

These conventions give each English sentence exactly one translation:

- simple present -> Präsens; progressive -> Präsens with gerade; simple past -> Perfekt, but Präteritum of sein, haben,
  the modal verbs and the passive; will -> werden; likes to -> gern; the passive of the process (werden).
- have to -> müssen, be allowed to -> dürfen, should -> sollen, want to -> wollen, would like to -> möchten.
- you -> du; professions keep their dictionary gender (the teacher, he: der Lehrer; the nurse, she).
- when -> als for the past, wenn otherwise; if -> wenn, whether -> ob; where -> wo, but wohin with verbs of motion.
- lay -> legen, place -> stellen; live or stay with -> bei, otherwise with -> mit; know -> kennen, know that -> wissen.
- German order: pronouns, time, dative, definite accusative, manner, place, indefinite accusative, complement; a negated
  clause has its definite objects before the time; nicht is before manner, place and complement, kein with indefinites;
  a relative clause of an object is at the end.
- A verb whose past looks like its present (read) is used in the past only in the third person singular.

Held-out combinations: every sentence has a list of its combinations (verb+object, adjective+noun, subject+verb,
compound, profession, number, clock, date, year, price, made-up name). `corpus.held_out` chooses a fixed share of each
kind, by the CRC-32 of the combination's text. No training sentence has a held-out combination; every validation and
test sentence has at least one. No sentence of either language is in two splits.
"""

from __future__ import annotations

SEED = 2017
TRAIN_PAIRS = 30_000
VALID_PAIRS = 500
TEST_PAIRS = 1_000


def generate(
    seed: int = SEED, train: int = TRAIN_PAIRS, valid: int = VALID_PAIRS, test: int = TEST_PAIRS
) -> dict[str, list[tuple[str, str]]]:
    """Return the splits train, valid and test as lists of (English, German). The same arguments give the same text."""
    from demo_corpus import corpus

    splits = corpus.examples(seed, train, valid, test)
    return {name: [(example.en, example.de) for example in chosen] for name, chosen in splits.items()}


def texts() -> dict[str, bytes]:
    """Return the text of each language: the lines of train, an empty line, those of valid, an empty line, those of
    test.
    """
    splits = generate().values()
    return {
        language: "\n".join("".join(f"{pair[side]}\n" for pair in pairs) for pairs in splits).encode("utf-8")
        for side, language in enumerate(("en", "de"))
    }
