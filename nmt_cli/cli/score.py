"""`nmt score`: score translations against references by BLEU, chrF, TER and others, or with --model by a model's own
probability.

Scores go to stdout, remarks to stderr. `score_request` has the options and checks that they fit together,
`metric_scoring` scores by metrics, `output_checks` prints errors of outputs, `forced_scoring` scores by a model's
probability.
"""

from __future__ import annotations

from dataclasses import replace

from .score_request import ScoreRequest, check
from .typed_options import options_of


@options_of(ScoreRequest)
def score(options: ScoreRequest) -> None:
    """Score translations against references: BLEU, chrF, TER and others, each with its signature; or by a model's
    probability.

    Give detokenised, true-case text. A blank line of a REF counts as a missing reference if another REF has text there.
    For one HYP each metric is a line: NAME SCORE SIGNATURE, then the metric's details; with --confidence, `mean M  ci95
    C` before the signature. For several HYP each metric is a table: score, mean and 95 % confidence interval over 1,000
    resampled test sets, and the p-value against the first HYP (fixed seed; * marks p < 0.05). A table has lines on a
    terminal, and plain columns elsewhere.

    --json prints an object for one HYP, a list of them for several: hypothesis, references, lines, scores. scores maps
    each metric to an object: metric, name, score (unrounded), signature, details, higher_is_better; with several HYP
    also mean, ci95, p_value and differing_lines (null for the first), and details is empty; with --confidence mean and
    ci95. --protocol adds protocol (name, language, steps), --by-length a list by_length: words, shortest, longest,
    lines, ratio, scores.

    --protocol paper is the BLEU of "Attention Is All You Need", 27.3 and 28.4 for English to German. Its signature
    lists the steps. It is higher than sacrebleu's BLEU of the same text (29.3 against 28.6 for Ott et al., 2018):
    compare it only with scores of the same protocol.

    --metric evalb scores parses by labelled bracket F1. REF are trees in brackets with words and parts of speech. HYP
    in brackets are counted as EVALB does with COLLINS.prm: each sentence is valid, skipped or an error, and only valid
    ones count. HYP that are linearised trees, as `nmt translate` writes them, are repaired to cover REF's words;
    --evalb-repair does the same for HYP in brackets. If HYP has parts of speech, tagging accuracy is printed too.
    --json adds counts: matched, gold, test, complete, valid, skipped, errors, repaired, and with parts of speech words,
    correct_tags.

    --src SRC with HYP also checks the outputs. Per system it counts the lines that are empty though SRC is not,
    invented (text where SRC is blank), loops (words repeated too often), copies of SRC, of unusual length, or without
    numbers or placeholders (URLs, addresses, {name}, %s, …) that SRC and every REF have. Then it shows the worst lines
    (--worst): number, faults, chrF, and the texts; lines with a fault come first, then those of lowest chrF. --json
    adds outputs: lines, empty, invented, loops, copies, length, numbers, placeholders, worst (line, faults, chrf,
    source, hypothesis, reference).

    --model DIR --src SRC --ref REF prints a line for each line of REF, in order: LOG_PROB, a tab, PERPLEXITY, a tab,
    TOKENS; with --json one object per line: source, target, tokens, log_prob, perplexity. LOG_PROB is the natural log
    of P(REF's line | SRC's line), the sum over its TOKENS, end symbol counted; PERPLEXITY is exp(-LOG_PROB / TOKENS).
    Two blank lines have 0 tokens, LOG_PROB 0 and PERPLEXITY 1; a blank line against text is scored as its end symbol
    alone. A pair with a side longer than the model's maximum has nan (null), and stderr reports it. The totals over all
    pairs with a score go to stderr: NLL per token, perplexity, sentences, tokens.
    """
    if options.metrics:
        options = replace(options, metrics=list(dict.fromkeys(name.lower() for name in options.metrics)))
    check(options)
    if options.model:
        from .forced_scoring import score_by_model

        score_by_model(options)
    else:
        from .metric_scoring import score_by_metrics

        score_by_metrics(options)
