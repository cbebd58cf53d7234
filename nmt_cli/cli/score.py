"""`nmt score`: translations against references, in BLEU, chrF, TER and others; with --model, by a model's own probability.

Scores go to stdout, remarks to stderr. Here stands what can be asked for and what excludes what; scoring by metrics is in
`scores`, the text it reads in `texts`, what it prints in `tables`, scoring by probabilities in `forced`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..registry import METRICS
from .inputs import STDIN, TWICE

if TYPE_CHECKING:
    from ..evaluation.metric import Protocol


def score(
    ref: Annotated[list[Path], typer.Option("--ref", metavar="REF", help="Reference, line by line parallel to HYP. Repeat it for several references.", show_default=False)],
    hypotheses: Annotated[list[Path] | None, typer.Argument(metavar="HYP", help="Translations, one a line; - is stdin. Plain, .gz, .xz or .bz2. None with --model.", show_default=False)] = None,
    metric: Annotated[list[str] | None, typer.Option("--metric", metavar="METRIC", help=f"One of {', '.join(METRICS)}; evalb is for parses. Repeat it for several.  [default: bleu, chrf and ter]", show_default=False)] = None,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Ignore case in BLEU and chrF (TER always does).")] = False,
    tokenize: Annotated[str | None, typer.Option("--tokenize", metavar="T", help="BLEU's tokenizer: 13a (default), intl, char, zh, ja-mecab, …; none for text that is tokenised already.", show_default=False)] = None,
    protocol: Annotated[str | None, typer.Option("--protocol", metavar="NAME", help="BLEU as papers report it. paper: Unicode punctuation replaced, Moses tokenisation, compounds split, multi-bleu; needs the extra package: pip install 'nmt-cli[moses]'.", show_default=False)] = None,
    language: Annotated[str | None, typer.Option("--language", metavar="L", help="With --protocol: what HYP and REF are in, as a code such as de, en or fr.  [default: de]", show_default=False)] = None,
    no_compounds: Annotated[bool, typer.Option("--no-compounds", help="With --protocol: leave compounds as they are, as is usual for English to French.")] = False,
    tokenized_ref: Annotated[bool, typer.Option("--tokenized-ref", help="With --protocol: REF is tokenised already; only its compounds are split.")] = False,
    significance: Annotated[str | None, typer.Option("--significance", metavar="TEST", help="With several HYP: bootstrap (paired bootstrap resampling) or randomisation (approximate randomisation).  [default: bootstrap]", show_default=False)] = None,
    confidence: Annotated[bool, typer.Option("--confidence", help="With one HYP: mean and 95 % confidence interval too, by bootstrap resampling. Several HYP have them anyway.")] = False,
    samples: Annotated[int | None, typer.Option("--samples", metavar="N", min=1, max=1_000_000, help="Resampled test sets, or trials of randomisation.  [default: 1000; 10000]", show_default=False)] = None,
    seed: Annotated[int | None, typer.Option("--seed", metavar="N", min=1, max=2**32 - 1, help="Of the resampling.  [default: 12345]", show_default=False)] = None,
    by_length: Annotated[bool, typer.Option("--by-length", help="Also a table by the length of REF: lines, length ratio and scores of 1-10 words, 11-20, …, 51 and more.")] = False,
    lengths: Annotated[str | None, typer.Option("--lengths", metavar="N,N,…", help="The table by length, with these as the longest of each range.  [default: 10,20,30,40,50]", show_default=False)] = None,
    comet_model: Annotated[Path | None, typer.Option("--comet-model", metavar="PATH", help="With --metric comet: COMET's model on this disk, its folder or its .ckpt file. Nothing is downloaded. It is a pickle, of which tensors and plain values alone are read: take one that you trust.", show_default=False)] = None,
    evalb_repair: Annotated[bool, typer.Option("--evalb-repair", help="With --metric evalb: take words and parts of speech from REF, leave roots out and repair the parse to cover these words, for HYP in brackets too. Linearised HYP are always compared so.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
    width: Annotated[int | None, typer.Option("--width", metavar="N", min=1, max=12, help="Decimals in the text output.  [default: 2; COMET 4; with --model 6]", show_default=False)] = None,
    model: Annotated[Path | None, typer.Option("--model", "-m", metavar="DIR", help="Model or run folder: score REF, given SRC, by its probability.", show_default=False)] = None,
    src: Annotated[Path | None, typer.Option("--src", metavar="SRC", help="With --model or --metric comet: the source text, line by line.", show_default=False)] = None,
    batch_tokens: Annotated[int | None, typer.Option("--batch-tokens", metavar="N", min=1, max=100_000_000, help="With --model: tokens a side scored together; changes the speed only.  [default: the recipe's, 4096]", show_default=False)] = None,
    device: Annotated[str | None, typer.Option(help="With --model: auto, cpu, cuda or cuda:N.  [default: auto]", show_default=False)] = None,
    precision: Annotated[str | None, typer.Option(metavar="P", help="With --model: fp32 or bf16; auto: fp32 on a CPU, elsewhere what the hardware does fast.  [default: fp32]", show_default=False)] = None,
) -> None:
    """Score translations against references: BLEU, chrF, TER and others, each with its signature; or by a model's probability.

    Give detokenised, true-case text. One HYP prints one line a metric: NAME SCORE SIGNATURE, then what else the metric says; with --confidence, `mean M  ci95 C` before the signature. Several HYP print one table a metric: score, mean and 95 % confidence interval over 1,000 resampled test sets, and the p-value against the first HYP (fixed seed; * marks p < 0.05). On a terminal tables are drawn with lines, elsewhere they are plain columns.

    --json prints an object for one HYP, a list of them for several: hypothesis, references, lines, scores. scores maps each metric to an object: metric, name, score (unrounded), signature, details, higher_is_better; with several HYP also mean, ci95 and p_value (null for the first), and details is empty; with --confidence mean and ci95. --protocol adds protocol (name, language, steps), --by-length a list by_length: words, shortest, longest, lines, ratio, scores.

    --protocol paper is the BLEU of "Attention Is All You Need", 27.3 and 28.4 for English to German. Its steps stand in the signature. It is higher than sacrebleu's of the same text (29.3 against 28.6 for Ott et al., 2018): compare it with figures of its own kind alone.

    --metric evalb scores parses by labelled bracket F1. REF are trees in brackets with words and parts of speech. HYP in brackets are counted as EVALB does with COLLINS.prm: each sentence is valid, skipped or an error, and only valid ones count. HYP as linearised trees, which `nmt translate` writes, are repaired to cover REF's words; --evalb-repair does the same for HYP in brackets. --json adds counts: matched, gold, test, complete, valid, skipped, errors, repaired.

    --model DIR --src SRC --ref REF prints a line for each line of REF, in order: LOG_PROB, a tab, PERPLEXITY, a tab, TOKENS; with --json an object a line: source, target, tokens, log_prob, perplexity. LOG_PROB is the natural log of P(REF's line | SRC's line), the sum over its TOKENS, end symbol counted; PERPLEXITY is exp(-LOG_PROB / TOKENS). Two blank lines have 0 tokens, LOG_PROB 0 and PERPLEXITY 1; a blank line against text is scored as its end symbol alone. A pair with a side longer than the model can take has nan (null) and is told of on stderr. The corpus goes to stderr: NLL a token, perplexity, sentences, tokens, of the pairs that have a score.
    """
    of_protocol = {"--language": language, "--no-compounds": no_compounds or None, "--tokenized-ref": tokenized_ref or None}
    of_metrics = {
        "--metric": metric, "--lowercase": lowercase or None, "--tokenize": tokenize, "--protocol": protocol, **of_protocol,
        "--significance": significance, "--confidence": confidence or None, "--samples": samples, "--seed": seed,
        "--by-length": by_length or None, "--lengths": lengths, "--comet-model": comet_model, "--evalb-repair": evalb_repair or None,
    }  # fmt: skip
    comet = metric is not None and "comet" in (name.lower() for name in metric)
    of_model = {"--src": None if comet else src, "--batch-tokens": batch_tokens, "--device": device, "--precision": precision}
    _check_usage(hypotheses or [], ref, model, src, of_metrics, of_model)
    if model and src:
        from .forced_scoring import forced

        forced(model, src, ref[0], as_json=json, width=width or 6, batch_tokens=batch_tokens, device=device or "auto", precision=precision or "fp32")
        return
    names = list(dict.fromkeys(name.lower() for name in metric)) if metric else None
    _check_metrics(names, len(hypotheses or []), of_metrics, list(of_protocol), src)

    from ..evaluation.lengths import BOUNDS, parse_bounds
    from ..evaluation.metric import DEFAULT_TOKENIZER, MetricOptions, check_known
    from ..evaluation.metrics import DEFAULT_METRICS
    from ..evaluation.significance import BOOTSTRAP, SEED, TESTS
    from .metric_scores import Wanted, score_by_metrics

    asked = _protocol(protocol, language, not no_compounds, tokenized_ref) if protocol is not None else None
    options = MetricOptions(lowercase=lowercase, tokenize=tokenize or DEFAULT_TOKENIZER, protocol=asked, comet_model=comet_model, evalb_repair=evalb_repair)
    check_known("test of significance", significance or BOOTSTRAP, TESTS)
    score_by_metrics(Wanted(
        hypotheses or [], ref, names or (["bleu"] if asked else list(DEFAULT_METRICS)), options, tokenize, src,
        test=significance or BOOTSTRAP, samples=samples, seed=seed or SEED, confidence=confidence,
        bounds=parse_bounds(lengths) if lengths is not None else BOUNDS if by_length else None, as_json=json, width=width,
    ))  # fmt: skip


def _check_usage(hypotheses: list[Path], ref: list[Path], model: Path | None, src: Path | None, of_metrics: dict[str, Any], of_model: dict[str, Any]) -> None:
    """Raise UsageError where the two ways to score are mixed or one is told in part; the dictionaries hold each way's own options."""
    from ..errors import UsageError

    given = [name for name, value in (of_metrics if model else of_model).items() if value is not None]
    if model and hypotheses:
        raise UsageError(f"HYP ({str(hypotheses[0])!r}) and --model were both given: a model scores REF. Give --model DIR --src SRC --ref REF, or HYP --ref REF.")
    if model and src is None:
        raise UsageError("--model needs --src SRC, the text that REF translates.")
    if model and len(ref) != 1:
        raise UsageError(f"--ref was given {len(ref)} times: a model scores one text at a time. Give it once.")
    if given:
        raise UsageError(f"{', '.join(given)}: {'not' if model else 'only'} with --model DIR, which scores REF by a model's probability{'; --src also with --metric comet' * ('--src' in given)}.")
    if not model and not hypotheses:
        raise UsageError("nothing to score: give HYP, the translations; or --model DIR --src SRC, to score REF by a model's probability.")
    if model and [src, *ref].count(STDIN) > 1:
        raise UsageError(TWICE)


def _check_metrics(metrics: list[str] | None, systems: int, given: dict[str, Any], of_protocol: list[str], src: Path | None) -> None:
    """Raise UsageError where options of scoring by metrics exclude or miss one another; `given` holds None for what was not."""
    from ..errors import UsageError

    alone = [name for name in of_protocol if given[name] is not None]
    if alone and given["--protocol"] is None:
        raise UsageError(f"{', '.join(alone)}: only with --protocol, whose steps it changes. Give --protocol paper.")
    if given["--protocol"] is not None and given["--tokenize"] is not None:
        raise UsageError(f"--tokenize {given['--tokenize']} and --protocol {given['--protocol']} were both given: a protocol has its own tokenizer. Give one of them.")
    if given["--protocol"] is not None and metrics and "bleu" not in metrics:
        raise UsageError(f"--protocol {given['--protocol']} says how BLEU is computed, and BLEU is not asked for. Give --metric bleu too, or no --metric.")
    if given["--significance"] is not None and systems < 2:
        raise UsageError(f"--significance {given['--significance']} needs several HYP: it tests them against the first. Give two or more; for one, --confidence.")
    resampled = [name for name in ("--samples", "--seed") if given[name] is not None]
    if resampled and systems < 2 and given["--confidence"] is None:
        raise UsageError(f"{', '.join(resampled)}: nothing is resampled for one HYP. Give --confidence, or several HYP.")
    comet = bool(metrics) and "comet" in (metrics or [])
    if given["--comet-model"] is not None and not comet:
        raise UsageError("--comet-model: only with --metric comet.")
    if given["--evalb-repair"] is not None and "evalb" not in (metrics or []):
        raise UsageError("--evalb-repair: only with --metric evalb.")
    if comet and src is None:
        raise UsageError("--metric comet needs --src SRC, the text that HYP translates.")


def _protocol(name: str, language: str | None, compounds: bool, tokenized_references: bool) -> Protocol:
    from ..evaluation.metric import Protocol

    standard = Protocol(name)
    return Protocol(name, language.lower() if language else standard.language, compounds, tokenized_references)
