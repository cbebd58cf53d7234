"""Commands at their smallest size, in processes forked from one that has loaded everything (`forked`).

    forked.run(folder, "train", "mine.toml", prelude=SMALL)

What a command says is checked as it is written: options, and recipes with their `--set` keys. Only then the recipe's sizes
are made small.
"""

SMALL = """
import multiprocessing

import nmt_cli.data.demo_corpus
from nmt_cli.recipe import Recipe


checked = Recipe.from_dict


def from_dict(values, where):
    \"\"\"A recipe that is read from a file must be valid as it is; what is trained is small.\"\"\"
    asked = checked(values, where)
    if not where.startswith("recipe "):
        return asked
    data, model, train = asked.data, asked.model, asked.train
    updates = min(train.updates, 12)
    least = lambda **sizes: {key: min(getattr(train, key), size) for key, size in sizes.items()}
    small = {
        "data": {"vocab_size": min(data.vocab_size, 420)},
        "model": {
            "encoder_layers": min(model.encoder_layers, 3), "decoder_layers": min(model.decoder_layers, 3),
            "d_model": 32, "d_ff": 64, "num_heads": min(model.num_heads, 4),
            **{key: min(getattr(model, key), 8) for key in ("d_k", "d_v")},
        },
        "decode": {"max_extra": min(asked.decode.max_extra, 20)},
        "train": {
            "updates": updates, "batch_tokens": min(train.batch_tokens, max(256, data.max_length + 1)),
            **least(warmup=8, decay_updates=updates, log_every=4, valid_every=updates,
                    valid_bleu_sentences=2, valid_samples=1, checkpoint_every=4, average=3, keep=3),
        },
    }
    return checked(values | {name: values.get(name, {}) | keys for name, keys in small.items()}, where)


Recipe.from_dict = staticmethod(from_dict)
nmt_cli.data.demo_corpus.pairs.__defaults__ = (600, 40, 40)
fork = multiprocessing.get_context("fork")
multiprocessing.get_context = lambda method=None: fork
"""
