"""Ranks of a small training, each a process: `python replicas.py FOLDER RANKS`. Rank r writes its findings to FOLDER/r.json.

Every rank computes the gradients of one update with its own part of it, and those of the whole update alone.
"""

import json
import os
import sys
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import torch
import torch.distributed as dist
from small_models import SMALL
from torch import Tensor

from nmt_cli.data.batches import EpochPlan
from nmt_cli.data.shards import Corpus
from nmt_cli.device.hardware import Hardware
from nmt_cli.model.transformer import Transformer
from nmt_cli.recipe import Recipe
from nmt_cli.training import gradients
from nmt_cli.training.loader import RankBatch, TrainingText, rank_batches
from nmt_cli.training.process_group import ProcessGroup
from nmt_cli.training.update import Updater

V, PAIRS = 60, 400
ALONE = ProcessGroup()


@cache
def corpus() -> Corpus:
    random = np.random.default_rng(0)
    pairs = [tuple(random.integers(4, V, random.integers(1, 30)) for _ in range(2)) for _ in range(PAIRS)]
    lengths = np.array([[len(side) for side in pair] for pair in pairs], dtype=np.int32)
    return cast(
        Corpus, SimpleNamespace(pair=lambda i: pairs[i], source_lengths=lengths[:, 0], target_lengths=lengths[:, 1])
    )


def recipe(model: dict[str, Any] | None = None, **train: Any) -> Recipe:
    form = {**SMALL, "num_heads": 4, "dropout": 0.0, "max_positions": 64, **(model or {})}
    data = {"train_source": ["a"], "train_target": ["b"], "vocab_size": V, "max_length": 40}
    values = {"batch_tokens": 2048, "warmup": 10, **train}
    return Recipe.from_dict({"data": data, "model": form, "train": values}, "test")


def new_updater(
    group: ProcessGroup = ALONE, precision: str = "fp32", model: dict[str, Any] | None = None, **train: Any
) -> Updater:
    torch.manual_seed(1)
    chosen = recipe(model, **train)
    return Updater(Transformer(chosen.model, V, V).train(), chosen, Hardware("cpu", precision, 2**32), group)


def batch_of(tokens: int, group: ProcessGroup = ALONE, passes: int = 1, number: int = 0) -> RankBatch:
    """The rank's part of an update, in micro-batches of so many tokens."""
    plan = EpochPlan(corpus().source_lengths, corpus().target_lengths, 2048, seed=1)
    text = TrainingText(corpus(), plan, passes=passes)
    return next(rank_batches(text, 0, number, tokens, group, Hardware("cpu", "fp32", 2**32)))


def difference(ours: Tensor, theirs: Tensor) -> float:
    return float((ours - theirs).norm() / theirs.norm())


CASES = [("fp32", 1), ("fp32", 2), ("bf16", 1), ("fp16", 1)]
"""Precisions, and the number of passes of each pair."""


def findings(group: ProcessGroup) -> dict[str, Any]:
    """What this rank sees, by precision and number of passes."""
    reduced: list[tuple[str, int]] = []
    through = dist.all_reduce

    def counted(tensor: Tensor, *arguments: Any, **options: Any) -> Any:
        if tensor.is_floating_point():
            reduced.append((str(tensor.dtype), tensor.numel()))
        return through(tensor, *arguments, **options)

    dist.all_reduce = counted
    return {f"{precision} {passes}": of_case(group, precision, passes, reduced) for precision, passes in CASES}


def of_case(group: ProcessGroup, precision: str, passes: int, reduced: list[tuple[str, int]]) -> dict[str, Any]:
    r_drop = 3.0 if passes > 1 else 0.0
    whole, alone, first, resumed = (new_updater(one, precision, r_drop=r_drop) for one in (group, ALONE, group, group))
    found = compared(whole, alone, passes, group, reduced)
    train(whole, passes, group, range(4))
    found["weights"] = whole.weights.compute_params.float().sum().item()
    train(first, passes, group, range(2))
    resumed.weights.main_params.data.copy_(first.weights.main_params.data)
    resumed.weights.refresh_compute_params()
    resumed.load_optimizer_state(first.optimizer_state(), 2)
    train(resumed, passes, group, range(2, 4))
    found["resumed"] = torch.equal(resumed.weights.main_params, whole.weights.main_params)
    together, alone = (new_updater(one, precision, freeze=["embeddings", "encoder"]) for one in (group, ALONE))
    model = together.weights.model
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    frozen = compared(together, alone, 1, group, reduced)
    train(together, 1, group, range(2))
    frozen["kept"] = [name for name, parameter in model.named_parameters() if torch.equal(parameter, before[name])]
    frozen["weights"] = together.weights.compute_params.float().sum().item()
    return {**found, "frozen": frozen}


def compared(
    together: Updater, alone: Updater, passes: int, group: ProcessGroup, reduced: list[tuple[str, int]]
) -> dict[str, Any]:
    """The gradient of an update by all ranks beside that of one process, and what was reduced for it."""
    reduced.clear()
    batch = batch_of(128, group, passes)
    sums, _ = together.accumulate(batch)
    seen = list(reduced)
    dist.all_reduce(sums)
    alone_sums, _ = alone.accumulate(batch_of(128, ALONE, passes))
    return {
        "micro-batches": len(batch.micro_batches),
        "reduced": seen,
        "numbers": together.weights.main_grads.numel(),
        "gradient": difference(together.weights.main_grads, alone.weights.main_grads),
        "sums": difference(sums, alone_sums),
    }


def train(updater: Updater, passes: int, group: ProcessGroup, numbers: range) -> None:
    for number in numbers:
        updater(batch_of(128, group, passes, number), number + 1)


def main() -> None:
    folder, ranks = Path(sys.argv[1]), int(sys.argv[2])
    gradients.BUCKET_BYTES = 20_000  # several buckets
    torch.set_num_threads(1)
    for rank in range(ranks):
        if not os.fork():
            dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
            (folder / f"{rank}.json").write_text(json.dumps(findings(ProcessGroup(rank, rank, ranks, ranks))))
            dist.barrier()
            os._exit(0)
    failed = [os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(ranks)]
    sys.exit(max(map(abs, failed)))


if __name__ == "__main__":
    main()
