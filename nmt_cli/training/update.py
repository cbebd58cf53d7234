"""One update: micro-batches in, one step of Adam out (sections 5.1 and 5.3).

    feed(plan, epoch, …) ──▶ for each update this rank's micro-batches ──▶ Updater: forward, loss, backward, one step

The loss sum of every micro-batch on every rank is divided once, by the update's target tokens over all ranks; these
are known from the plan, so nothing has to be communicated for it. DistributedDataParallel averages over ranks, hence
the factor `world`; it sends gradients with the last micro-batch only.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

from ..data.batches import Batch, EpochPlan, collate, micro_batches
from ..data.shards import Corpus
from ..hardware import Hardware
from ..model.transformer import Transformer, attention_mask
from ..recipe import Recipe
from .loss import smoothed_loss
from .ranks import Ranks
from .schedule import learning_rate

WORKERS = 2  # processes that collate ahead of a GPU; a CPU has no time to spare for them


@dataclass(frozen=True)
class Share:
    """A rank's part of an update: micro-batches, each with weight 1, or 0 where there were fewer pairs than ranks."""

    micro_batches: list[tuple[Batch, float]]
    target_tokens: int
    """Of the whole update, over all ranks."""


class _Shares(Dataset[Share]):
    def __init__(self, corpus: Corpus, plan: EpochPlan, epoch: int, tokens: int, ranks: Ranks) -> None:
        self.corpus, self.plan, self.epoch, self.tokens, self.ranks = corpus, plan, epoch, tokens, ranks

    def __getitem__(self, position: int) -> Share:
        pairs = self.plan.updates(self.epoch)[position]
        mine = micro_batches(self.plan, pairs, self.tokens, self.ranks.world)[self.ranks.rank]
        batches = [(part, 1.0) if len(part) else (pairs[:1], 0.0) for part in mine]
        collated = [(collate([self.corpus.pair(int(i)) for i in part]), weight) for part, weight in batches]
        return Share(collated, self.plan.target_tokens(pairs))


def feed(corpus: Corpus, plan: EpochPlan, epoch: int, start: int, tokens: int, ranks: Ranks, hardware: Hardware) -> Iterator[Share]:
    """This rank's shares of the updates of `epoch`, from the one at `start` on; micro-batches of at most `tokens`."""
    shares = _Shares(corpus, plan, epoch, tokens, ranks)
    positions = range(start, len(plan.updates(epoch)))
    workers = 0 if hardware.device == "cpu" else WORKERS
    return iter(DataLoader(shares, batch_size=None, sampler=positions, num_workers=workers))


class LossModel(nn.Module):
    """The Transformer and its loss as one module, so that DistributedDataParallel sees every use of its weights."""

    def __init__(self, model: Transformer, smoothing: float, dtype: torch.dtype) -> None:
        super().__init__()
        self.model, self.smoothing, self.dtype = model, smoothing, dtype

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Sums of the smoothed loss and of the NLL over the batch's target tokens."""
        src_mask = attention_mask(batch.src_lengths, batch.src.size(1))
        with torch.autocast(batch.src.device.type, torch.bfloat16, enabled=self.dtype == torch.bfloat16):
            hidden = self.model(batch.src, src_mask, batch.tgt_in)  # (B, T, D)
        real = torch.arange(hidden.size(1), device=hidden.device) < batch.tgt_lengths[:, None]  # (B, T)
        return smoothed_loss(hidden[real], self.model.output_weight, batch.tgt_out[real], self.smoothing, self.dtype)


class Updater:
    """Holds the optimiser; call it once an update."""

    def __init__(self, model: Transformer, recipe: Recipe, hardware: Hardware, ranks: Ranks) -> None:
        self.model, self.recipe, self.hardware, self.ranks = model, recipe, hardware, ranks
        self.loss_model = LossModel(model, recipe.train.label_smoothing, hardware.dtype)
        self.wrapped: nn.Module = self.loss_model
        if ranks.world > 1:
            devices = None if hardware.device == "cpu" else [ranks.local_rank]
            self.wrapped = DistributedDataParallel(self.loss_model, device_ids=devices, gradient_as_bucket_view=True)
        train = recipe.train
        betas = (train.adam_beta1, train.adam_beta2)
        self.adam = torch.optim.Adam(model.parameters(), lr=0.0, betas=betas, eps=train.adam_epsilon, fused=True)

    def accumulate(self, share: Share) -> tuple[Tensor, Tensor]:
        """Gradients of the update's mean loss; returns this rank's sums of the smoothed loss and of the NLL."""
        sums = torch.zeros(2, device=self.hardware.device)
        self.adam.zero_grad(set_to_none=True)
        last = len(share.micro_batches) - 1
        for index, (batch, weight) in enumerate(share.micro_batches):
            quiet = self.wrapped.no_sync() if isinstance(self.wrapped, DistributedDataParallel) and index < last else nullcontext()
            with quiet:
                smoothed, nll = self.wrapped(batch.to(self.hardware.device))
                (smoothed * (weight * self.ranks.world / share.target_tokens)).backward()
            sums += weight * torch.stack((smoothed.detach(), nll))
        return sums[0], sums[1]

    def gradient_norm(self) -> Tensor:
        """The Euclidean norm of all gradients together."""
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        return torch.nn.utils.get_total_norm(gradients)

    def step(self, update: int) -> float:
        """Adam's step number `update`, counted from 1; returns its learning rate."""
        train = self.recipe.train
        if train.clip_norm:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), train.clip_norm)
        rate = learning_rate(update, self.recipe.model.d_model, train.warmup, train.lr_factor)
        for group in self.adam.param_groups:
            group["lr"] = rate
        self.adam.step()
        return rate

    def moments(self) -> dict[str, Tensor]:
        """Adam's moments by parameter name, on the CPU."""
        return {
            f"{kind}.{name}": self.adam.state[parameter][kind].to("cpu")
            for name, parameter in self.model.named_parameters()
            for kind in ("exp_avg", "exp_avg_sq")
        }

    def restore(self, moments: dict[str, Tensor], update: int) -> None:
        """Take up Adam's moments as they were after `update` updates."""
        for name, parameter in self.model.named_parameters():
            state: dict[str, Any] = {kind: moments[f"{kind}.{name}"].to(parameter.device, copy=True) for kind in ("exp_avg", "exp_avg_sq")}
            self.adam.state[parameter] = {"step": torch.tensor(float(update), device=parameter.device), **state}
