"""One side of imported.py in a process of its own: see decode_side.py. A line is pieces with spaces between them, in and out.

Marian's Python has neither nmt nor torch, so a library is imported where it is used.
"""

from __future__ import annotations

import importlib
from typing import Any

from decode_side import Job, Translate, serve

LAYERS, WIDTH, HIDDEN, HEADS, VOCABULARY = 6, 512, 2048, 8, 58_000
NEVER = -100.0
"""Bias of the end symbol."""


def piece(number: int) -> str:
    """Return a made-up piece: three syllables. In the vocabulary it has the id `number` + 2."""
    syllables = [consonant + vowel for consonant in "bcdfghjklmnpqrstvwxz" for vowel in "aeiou"]
    return "▁" + "".join(syllables[number // step % 100] for step in (10_000, 100, 1))


def nmt(job: Job) -> Translate:
    """Translate as `nmt translate` does."""
    from nmt_cli.interface.translator import load

    translator = load(job.folder, device="cpu", devices=job.workers, precision=job.precision)

    def translate(lines: list[str]) -> list[str]:
        texts = [line.replace("▁", "") for line in lines]
        decode = ["decode.max_len_ratio=1.0", "decode.placeholders=false"]
        results = translator.translate(texts, max_extra=job.max_extra, overrides=decode)
        return [" ".join(result.tokens) for result in results]

    return translate


def marian(job: Job) -> Translate:
    """Translate as `marian-decoder` does, with a worker for each thread."""
    library = importlib.import_module("pymarian")
    model, vocabulary = f"{job.folder}/model{'.bin' if job.precision == 'int8' else '.npz'}", f"{job.folder}/vocab.yml"
    how = f"--cpu-threads {job.workers} --mini-batch {job.batch} --maxi-batch 1000 --maxi-batch-sort src -w 512"
    limits = f"--max-length-factor 1 -b {job.beam} --quiet --quiet-translation"
    translate: Translate = library.Translator(f"-m {model} -v {vocabulary} {vocabulary} {how} {limits}").translate
    return translate


def ctranslate2(job: Job) -> Translate:
    """Translate all lines at once: CTranslate2 makes the batches."""
    import ctranslate2 as library

    threads = {"inter_threads": job.workers, "intra_threads": job.threads}
    translator = library.Translator(job.folder, device="cpu", compute_type=job.precision, **threads)
    options = {"beam_size": job.beam, "length_penalty": 0, "max_batch_size": job.batch}

    def translate(lines: list[str]) -> list[str]:
        sources = [line.split() for line in lines]
        longest = max(map(len, sources)) + job.max_extra
        results = translator.translate_batch(sources, max_decoding_length=longest, **options)
        return [" ".join(result.hypotheses[0]) for result in results]

    return translate


def transformers(job: Job) -> Translate:
    """Translate in batches; ids stand for pieces."""
    import torch
    from transformers import MarianConfig, MarianMTModel

    torch.set_num_threads(job.threads)
    shape: dict[str, Any] = {"d_model": WIDTH, "activation_function": "swish", "scale_embedding": True}
    for side in ("encoder", "decoder"):
        shape |= {f"{side}_layers": LAYERS, f"{side}_attention_heads": HEADS, f"{side}_ffn_dim": HIDDEN}
    shape |= {"pad_token_id": VOCABULARY, "decoder_start_token_id": VOCABULARY, "forced_eos_token_id": None}
    model: Any = MarianMTModel(MarianConfig(vocab_size=VOCABULARY + 1, **shape))
    model.eval()
    model.final_logits_bias[0, [0, VOCABULARY]] = NEVER
    ids = {piece(number): number + 2 for number in range(VOCABULARY - 2)}

    def translate(lines: list[str]) -> list[str]:
        rows = torch.tensor([[*(ids[one] for one in line.split()), 0] for line in lines])
        written: list[list[int]] = []
        for batch in torch.split(rows, job.batch):
            outputs = model.generate(batch, num_beams=job.beam, max_new_tokens=rows.shape[1], length_penalty=0.0)
            written += outputs[:, 1:].tolist()
        return [" ".join(map(str, row)) for row in written]

    return translate


KINDS = {"nmt": nmt, "marian": marian, "ctranslate2": ctranslate2, "transformers": transformers}


def main() -> None:
    """Serve the job in the first argument."""
    serve(KINDS)


if __name__ == "__main__":
    main()
