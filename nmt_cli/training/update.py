"""One update: a rank's micro-batches in, one step of Adam out (sections 5.1 and 5.3).

    Share ──▶ Updater: forward, loss and backward of each micro-batch ──▶ Weights.gradient ──▶ one step ──▶ Outcome

The loss sum of every micro-batch on every rank is divided once, by the update's target tokens over all ranks; these
are known from the plan, so nothing has to be communicated for it, and how an update is cut changes nothing but
rounding. When a micro-batch does not fit the memory, every rank cuts that one in two and the update is done again. A
gradient that is not finite leaves weights and moments as they were: the device decides, nobody waits for its answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import TrainingError
from ..hardware import Hardware, out_of_memory
from ..kernels import apply_kernels
from ..model.transformer import Transformer
from ..recipe import Recipe
from .loader import MicroBatch, Rows, Share
from .loss import smoothed_loss
from .parameters import Weights
from .process_group import Ranks
from .schedule import learning_rate


def loss_sums(model: Transformer, rows: Rows, smoothing: float, packed: Callable[..., Tensor] | None = None) -> tuple[Tensor, Tensor]:
    """Sums of the smoothed loss and of the NLL over the batch's target tokens, in the precision of the model's weights.

    `packed` stands in for the model's own, compiled.
    """
    hidden = (packed or model.forward_packed)(rows.src, rows.source, rows.tgt_in, rows.target)
    real = slice(rows.target.tokens)
    return smoothed_loss(hidden[real], model.output_weight, rows.tgt_out[real], smoothing)


@dataclass(frozen=True)
class Outcome:
    """What an update came to; the tensors are on its device, and reading them waits for it."""

    sums: Tensor
    """(2,): this rank's sums of the smoothed loss and of the NLL."""
    norm: Tensor
    """The Euclidean norm of the gradient, over all ranks."""
    skipped: Tensor
    """1.0 where it was not finite and no step was taken, else 0.0."""
    rate: float
    share: Share


class Updater:
    """Holds the weights and the optimiser; call it once an update."""

    def __init__(
        self, model: Transformer, recipe: Recipe, hardware: Hardware, ranks: Ranks, warn: Callable[[str], None] = lambda _: None, backend: str = ""
    ) -> None:
        """`backend` names what torch.compile is to use for the forward and backward pass; "" leaves them uncompiled."""
        self.recipe, self.hardware, self.ranks, self.warn = recipe, hardware, ranks, warn
        self.weights = Weights(model, hardware.dtype, ranks)
        self.kernels = apply_kernels(self.weights.computer, "training")
        self.weights.computer = self.kernels.model
        self.packed = torch.compile(self.weights.computer.forward_packed, dynamic=True, backend=backend) if backend else None
        train = recipe.train
        self.adam = torch.optim.Adam([self.weights.master], lr=0.0, betas=(train.adam_beta1, train.adam_beta2), eps=train.adam_epsilon, fused=True)
        self.restore({}, 0)

    def __call__(self, share: Share, update: int) -> Outcome:
        """Update number `update`, counted from 1. Raises TrainingError when a single pair does not fit the memory."""
        sums, share = self.accumulate(share)
        norm, skipped, rate = self.step(update)
        return Outcome(sums, norm, skipped, rate, share)

    def step(self, update: int) -> tuple[Tensor, Tensor, float]:
        """Adam's step on the gradient; its norm, 1.0 if it was not finite and no step was taken, and the learning rate."""
        gradient, train = self.weights.gradient, self.recipe.train
        norm = torch.linalg.vector_norm(gradient)
        skipped = (~torch.isfinite(norm)).float()
        if train.clip_norm:
            gradient.mul_((train.clip_norm / (norm + 1e-6)).clamp(max=1.0).nan_to_num(1.0))  # the gaps between matrices stay 0
        rate = learning_rate(update, self.recipe.model.d_model, train.warmup, train.lr_factor)
        self.adam.param_groups[0]["lr"] = rate
        self.adam.found_inf = skipped  # type: ignore[attr-defined]  # torch's own way to leave out a step
        self.adam.step()
        self.weights.refresh()
        return norm, skipped, rate

    def accumulate(self, share: Share) -> tuple[Tensor, Share]:
        """The gradient of the update's mean loss; this rank's sums of the smoothed loss and the NLL, and the share as it was cut.

        The random numbers are those of the state it is called in.
        """
        state = torch.get_rng_state()
        while True:
            sums = torch.zeros(2, device=self.hardware.device)
            failed = -1.0
            for index, micro_batch in enumerate(share.micro_batches):
                last = index == len(share.micro_batches) - 1
                if failed >= 0 and not last:
                    continue
                try:
                    with self.weights.collecting(first=index == 0, last=last):
                        if failed < 0:
                            sums += self.pass_through(micro_batch, share.target_tokens)
                except (RuntimeError, MemoryError) as error:
                    if not out_of_memory(error):
                        raise
                    failed = float(index)
                if failed >= 0:
                    self.free()
            failed = self.ranks.largest(failed)
            if failed < 0:
                return sums, share
            share = self._cut(share, int(failed))
            torch.set_rng_state(state)

    def pass_through(self, micro_batch: MicroBatch, target_tokens: int) -> Tensor:
        """A micro-batch forward and backward, its loss divided by `target_tokens`; its sums of loss and NLL."""
        smoothed, nll = loss_sums(self.weights.computer, micro_batch.rows.to(self.hardware.device), self.recipe.train.label_smoothing, self.packed)
        (smoothed * (micro_batch.weight / target_tokens)).backward()  # type: ignore[no-untyped-call]
        return micro_batch.weight * torch.stack((smoothed.detach(), nll))

    def _cut(self, share: Share, index: int) -> Share:
        micro_batch = share.micro_batches[index]
        source, target = micro_batch.batch.src, micro_batch.batch.tgt_out
        shapes = self.ranks.gathered([float(size) for size in (len(source), source.size(1), target.size(1))])
        if max(shape[0] for shape in shapes) <= 1:  # on every rank, and so all report the same
            lengths = max((shape[1:] for shape in shapes), key=sum)
            raise TrainingError(f"out of memory with a single pair of {lengths[0]:.0f} source and {lengths[1]:.0f} target tokens. Shorten data.max_length, choose a smaller model, or train on a machine with more memory.")
        self.warn(f"out of memory with {micro_batch}: it is cut in two, and the update done again. A smaller train.micro_batch_tokens would spare the time.")
        return share.halved(index)

    def free(self) -> None:
        """Give memory that is cached but not used back to the device."""
        if self.hardware.device != "cpu":
            torch.cuda.empty_cache()

    def moments(self) -> dict[str, Tensor]:
        """Adam's moments by parameter name, on the CPU."""
        state = self.adam.state[self.weights.master]
        return {f"{kind}.{name}": part.to("cpu") for kind in ("exp_avg", "exp_avg_sq") for name, part in self.weights.by_name(state[kind]).items()}

    def restore(self, moments: dict[str, Tensor], steps: int) -> None:
        """Take up Adam's moments as they were after so many steps; without moments, start from zero."""
        master = self.weights.master
        kinds = {kind: torch.zeros_like(master.data) for kind in ("exp_avg", "exp_avg_sq")}
        for key, moment in moments.items():
            kind, _, name = key.partition(".")
            self.weights.view(kinds[kind], name).copy_(moment)
        self.adam.state[master] = {"step": torch.tensor(float(steps), device=master.device), **kinds}
