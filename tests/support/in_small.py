"""Commands and benchmarks at their smallest size, in processes forked from one that has loaded everything (`forked`).

    forked.run(folder, "train", "mine.toml", prelude=SMALL)                       as it is written
    forked.run(folder, "train.py", prelude=benchmark("train.py", ["--small"]))    the main() of a benchmark

What a command says is checked as it is written: options, and recipes with their `--set` keys. Only then are sizes made
small: those of the recipe, and the constants of a benchmark in `CONSTANTS`. What a benchmark starts is forked, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import forked

forked.MODULES |= {"decode.py": ["ctranslate2"], "serve.py": ["ctranslate2"]}

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
CONSTANTS = {
    "decode": {
        "SWEEP_ROUNDS": 1,
        "BATCHES": (2,),
        "COMPUTE_TYPES": ("int8", "float32"),
        "LATENCY_LINES": 2,
        "LATENCY_WARMUP": 1,
    },
    "decode_side": {"SETTLE": 0.0},
    "prepare": {"TYPES": 300, "BLOCK": 1000},
    "serve": {"WARMUP": 0.2},
    "train": {"UPDATES": 12},
}
"""By module: its sizes."""

SMALL = """
import atexit, importlib, multiprocessing, os, signal, subprocess, sys, tempfile, threading, traceback

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


class Forked(subprocess.Popen):
    \"\"\"A Python process, and one of nmt, is forked from this one; others are started.\"\"\"

    def _execute_child(self, args, *rest):
        words = [args] if isinstance(args, (str, bytes)) else [os.fspath(word) for word in args]
        words = words[3:] if words[0] == "taskset" else words
        if words[0] != sys.executable:
            return super()._execute_child(args, *rest)
        cwd, env, pipes = rest[4], rest[5], rest[9:15]
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        self.pid = os.fork()
        if self.pid:
            self._child_created = True
            self._close_pipe_fds(*pipes)
            return
        code = 1
        try:
            atexit._clear()  # what this process was to do at its end
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
            for number, end in enumerate((pipes[0], pipes[3], pipes[5])):
                if end != -1:
                    os.dup2(end, number)
            os.closerange(3, 1024)
            if cwd:
                os.chdir(cwd)
            if env is not None:
                os.environ.clear()
                os.environ.update(env)
            sys.stdin = open(0, encoding="utf-8", closefd=False)
            if words[1] == "-c":
                sys.argv = ["-c", *words[3:]]
                exec(compile(words[2], "-c", "exec"), {"__name__": "__main__"})
            elif words[1] == "-m":
                sys.argv = words[2:]
                from nmt_cli.__main__ import main
                assert words[2] == "nmt_cli", words
                main()
            else:
                sys.argv = words[1:]
                importlib.import_module(os.path.basename(words[1]).removesuffix(".py")).main()
            code = 0
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else int(error.code is not None)
        except BaseException:
            traceback.print_exc()
        finally:
            try:
                threading._shutdown()
                atexit._run_exitfuncs()
                sys.stdout.flush()
                sys.stderr.flush()
            finally:
                os._exit(code)


Recipe.from_dict = staticmethod(from_dict)
nmt_cli.data.demo_corpus.pairs.__defaults__ = (600, 40, 40)
subprocess.Popen = Forked
fork = multiprocessing.get_context("fork")
multiprocessing.get_context = lambda method=None: fork
"""
BENCHMARK = """
sys.path.insert(0, {folder!r})
tempfile.tempdir = os.getcwd()  # benchmarks leave folders there
benchmark = importlib.import_module({name!r})
for module, constants in {constants!r}.items():
    for name, value in constants.items() if module in sys.modules else ():
        assert hasattr(sys.modules[module], name), (module, name)
        setattr(sys.modules[module], name, value)
sys.argv = {arguments!r}
try:
    benchmark.main()
except SystemExit as end:
    if isinstance(end.code, str):
        print(end.code, file=sys.stderr)
    raise
sys.exit(0)
"""


def benchmark(script: str, arguments: Sequence[str], before: str = "") -> str:
    """Return the prelude that runs a benchmark with these words behind `python`; before it runs the code `before`."""
    return (
        SMALL
        + before
        + BENCHMARK.format(
            folder=str(BENCHMARKS), constants=CONSTANTS, arguments=list(arguments), name=Path(script).stem
        )
    )
