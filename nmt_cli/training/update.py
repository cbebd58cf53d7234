"""One update of the parameters: the gradients of a rank's micro-batches, then one step of Adam (sections 5.1 and 5.3).

    RankBatch ──▶ forward, loss, backward of each micro-batch ──Gradients──▶ Weights.main_grads ──▶ Adam ──▶ StepResult

The loss sum of every micro-batch on every rank is divided by the update's target tokens over all ranks. This number is
known from the plan, so the ranks need not exchange it. The split of an update into micro-batches changes only rounding.

When a micro-batch does not fit into memory, a single process splits it and repeats the update. With several processes,
training ends with an error. When a gradient is not finite, the device leaves parameters and optimizer state unchanged,
without waiting for the CPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .. import console
from ..data.batches import MAX_PADDING
from ..device.hardware import Hardware
from ..device.memory import out_of_memory, release_cached_memory
from ..device.processor import expect_reproducible_products
from ..device.torch_device import is_host, random_state, restore_random_state
from ..errors import TrainingError, of_machine
from ..kernels.choice import apply_kernels, loss_function
from ..kernels.cpu_training.adam import adam_step, norm
from ..kernels.cpu_training.transformer import FusedTransformer
from ..model.transformer import Transformer
from ..recipe import Recipe
from .data_parallel import ReplicatedGradients
from .gradients import FlatGradients
from .loader import MicroBatch, PackedBatch, RankBatch
from .loss import label_smoothed_loss, with_bias
from .parameters import Weights, freeze
from .process_group import ProcessGroup
from .schedule import learning_rate

FIRST_SCALE = 2.0**16
LARGEST_SCALE = 2.0**24
GROW_AFTER = 2000
"""The number of updates without overflow after which the scale is doubled."""
OVERFLOWS = 30
"""How many updates in a row may overflow. They reduce FIRST_SCALE to less than 1 / 10,000, LARGEST_SCALE to 1 / 64."""


class LossModel(nn.Module):
    """A model with its loss. Training calls this module."""

    def __init__(self, model: Transformer, smoothing: float, r_drop: float = 0.0, backend: str = "") -> None:
        """Take the model.

        `backend` is a backend of torch.compile for the passes through the model; "" does not compile them.
        """
        super().__init__()
        self.model, self.smoothing, self.r_drop = model, smoothing, r_drop
        self._packed = (
            torch.compile(model.forward_packed, dynamic=True, backend=backend) if backend else model.forward_packed
        )

    def forward(self, rows: PackedBatch) -> tuple[Tensor, Tensor]:
        """Return the sums over the batch's target tokens of the loss and of the NLL, in nats.

        With `r_drop`, `rows` hold two passes. Matrix products run in the dtype of the model's weights.
        """
        hidden = self._packed(rows.src, rows.source, rows.tgt_in, rows.target)
        real = slice(rows.target.tokens)
        scored = hidden[real], self.model.output_weight, rows.tgt_out[real]
        if self.model.output_bias is not None:
            scored = with_bias(*scored, self.model.output_bias)
        loss = loss_function(self.model) or label_smoothed_loss
        return loss(*scored, self.smoothing, self.r_drop)


class LossScale:
    """The loss scale of fp16 (Micikevicius et al. 2018, section 3.2), and the number of updates since its last change.

        loss * scale ──backward──▶ main_grads ──/ scale──▶ the gradient, in fp32

    Without it, small gradients would be zero in fp16. When a gradient overflows, the update takes no step and the scale
    is halved. After `GROW_AFTER` updates without overflow, the scale is doubled. All of this is computed on the device,
    so the CPU does not wait for it. The scale is saved with the optimizer state.
    """

    def __init__(self, device: str) -> None:
        self.state = torch.tensor([FIRST_SCALE, 0.0], device=device)

    @property
    def scale(self) -> Tensor:
        """The factor of the loss, a scalar on the device."""
        return self.state[0]

    def update(self, overflow: Tensor) -> None:
        """Adapt the scale after an update; `overflow` is 1.0 if its gradient was not finite, else 0.0."""
        scale, updates = self.state
        updates = (updates + 1.0) * (1.0 - overflow)
        grows = (updates == GROW_AFTER).float()
        self.state = torch.stack(
            ((scale * (1.0 - 0.5 * overflow) * (1.0 + grows)).clamp(max=LARGEST_SCALE), updates * (1.0 - grows))
        )


@dataclass(frozen=True)
class StepResult:
    """The result of one update. Its tensors are on the device; reading them waits for the end of the update."""

    sums: Tensor
    """(2,): this rank's sums of the label-smoothed loss and of the NLL."""
    grad_norm: Tensor
    """The Euclidean norm of the gradient over all ranks, before clipping."""
    skipped: Tensor
    """1.0 if the gradient was not finite and no step was taken, else 0.0."""
    lr: float
    batch: RankBatch
    """The batch, split further where memory ran out."""


class Updater:
    """Holds the weights and the optimizer. Call it once per update."""

    def __init__(
        self, model: Transformer, recipe: Recipe, hardware: Hardware, group: ProcessGroup, backend: str = ""
    ) -> None:
        """Build weights and optimizer.

        `backend` is a backend of torch.compile for forward and backward passes; "" does not compile them. Raises
        TrainingError if `train.freeze` does not fit the model.
        """
        if is_host(hardware.device) and hardware.precision == "fp32":
            expect_reproducible_products()
        self.recipe, self.hardware, self.group = recipe, hardware, group
        train = recipe.train
        freeze(model, train.freeze)
        self.weights = Weights(model, hardware.dtype)
        compiled_by_torch = bool(backend) and is_host(hardware.device)
        self.kernels = apply_kernels(self.weights.compute_model, train.seed, allowed=not compiled_by_torch)
        self.weights.compute_model = self.kernels.model
        rows = group.all_gather([self.kernels.pads_nothing])  # of the ranks, whose GPUs may differ
        self._pads_nothing = all(all(row) for row in rows)
        loss_model = LossModel(self.weights.compute_model, train.label_smoothing, train.r_drop, backend)
        self.gradients = (
            FlatGradients(self.weights, loss_model)
            if group.world_size == 1
            else ReplicatedGradients(self.weights, loss_model, group)
        )
        self.loss_scale = LossScale(hardware.device) if hardware.dtype == torch.float16 else None
        self.adam = torch.optim.Adam(
            [self.weights.main_params],
            lr=0.0,
            betas=(train.adam_beta1, train.adam_beta2),
            eps=train.adam_epsilon,
            fused=True,
        )
        self.after_micro_batch: Callable[[float], None] = lambda _: None
        """Called after each micro-batch with the share of the update's micro-batches that are done."""
        self.load_optimizer_state({}, 0)

    @property
    def max_padding(self) -> float | None:
        """The `max_padding` of `data.batches.micro_batches`, the same on all ranks. On a GPU there is no limit."""
        if is_host(self.hardware.device):
            return MAX_PADDING
        return None if self._pads_nothing else 1.0

    def __call__(self, batch: RankBatch, update: int) -> StepResult:
        """Do update number `update`, counted from 1.

        Raises TrainingError when a single pair does not fit into memory.
        """
        if isinstance(self.kernels.model, FusedTransformer):
            self.kernels.model.counter.update = update
        sums, batch = self.accumulate(batch)
        grad_norm, skipped, lr = self.step(update)
        return StepResult(sums, grad_norm, skipped, lr, batch)

    def step(self, update: int) -> tuple[Tensor, Tensor, float]:
        """Take a step of Adam with `main_grads`. Return grad_norm, skipped and lr, see `StepResult`."""
        gradient, train = self.weights.main_grads, self.recipe.train
        lr = learning_rate(update, self.recipe.model.d_model, train)
        self.adam.param_groups[0]["lr"] = lr
        if isinstance(self.kernels.model, FusedTransformer):
            return (*self._fused_step(lr), lr)
        if self.loss_scale:
            gradient.mul_(1.0 / self.loss_scale.scale)
        norm = torch.linalg.vector_norm(gradient)
        skipped = (~torch.isfinite(norm)).float()
        if train.clip_norm:
            factor = (train.clip_norm / (norm + 1e-6)).clamp(max=1.0)
            gradient.mul_(factor.nan_to_num(1.0))  # the gaps between parameters stay 0
        self.adam.found_inf = skipped  # type: ignore[attr-defined]  # how torch's own GradScaler lets Adam skip a step
        self.adam.step()
        if self.loss_scale:
            self.loss_scale.update(skipped)
        self.weights.refresh_compute_params()
        return norm, skipped, lr

    def _fused_step(self, lr: float) -> tuple[Tensor, Tensor]:
        """Take the same step by the engine's operations: two passes over the flat tensors."""
        weights, train, size = self.weights, self.recipe.train, norm(self.weights.main_grads)
        state = self.adam.state[weights.main_params]
        if math.isfinite(size):
            state["step"] += 1
            adam_step(
                weights.main_params.data,
                weights.main_grads,
                state["exp_avg"],
                state["exp_avg_sq"],
                weights.compute_params if weights.compute_params.dtype == torch.bfloat16 else None,
                step=int(state["step"]),
                rate=lr,
                beta1=train.adam_beta1,
                beta2=train.adam_beta2,
                epsilon=train.adam_epsilon,
                scale=min(1.0, train.clip_norm / (size + 1e-6)) if train.clip_norm else 1.0,
            )
        return torch.tensor(size), torch.tensor(float(not math.isfinite(size)))

    def accumulate(self, batch: RankBatch) -> tuple[Tensor, RankBatch]:
        """Set `main_grads` to the gradient of the update's mean loss.

        Return this rank's loss sums, and the batch, split further if memory ran out.

        Each repetition of the update starts with the same state of torch's random generators. Raises TrainingError when
        memory runs out and the micro-batch cannot be split.
        """
        device = self.hardware.device
        before = random_state(device)
        while True:
            sums, count = torch.zeros(2, device=device), len(batch.micro_batches)
            for index, micro_batch in enumerate(batch.micro_batches):
                try:
                    with self.gradients.accumulating(first=index == 0, last=index == count - 1):
                        sums += self.forward_backward(micro_batch, batch.target_tokens)
                    self.after_micro_batch((index + 1) / count)
                except (RuntimeError, MemoryError) as error:
                    if self.group.world_size > 1 or not out_of_memory(error):
                        raise
                    break
            else:
                return sums, batch
            release_cached_memory(device)
            restore_random_state(device, before)
            batch = self._split(batch, index)

    def forward_backward(self, micro_batch: MicroBatch, target_tokens: int) -> Tensor:
        """Run a micro-batch forward and backward, its loss divided by `target_tokens`.

        Return its sums of loss and NLL, (2,).
        """
        loss, nll = self.gradients.losses(micro_batch.packed.to(self.hardware.device))
        scaled = loss * self.loss_scale.scale if self.loss_scale else loss
        (scaled * (micro_batch.weight / target_tokens)).backward()
        return micro_batch.weight * torch.stack((loss.detach(), nll))

    def try_out(self, micro_batch: MicroBatch) -> None:
        """Run a micro-batch forward and backward, without the other ranks. `main_grads` changes."""
        with self.gradients.accumulating(first=True, last=False):
            self.forward_backward(micro_batch, micro_batch.packed.target.tokens)

    def _split(self, batch: RankBatch, index: int) -> RankBatch:
        """Return the batch with the micro-batch at `index` split. Raises TrainingError when it has a single pair."""
        micro_batch = batch.micro_batches[index]
        if micro_batch.pairs == 1:
            source, target = micro_batch.packed.source, micro_batch.packed.target
            raise of_machine(
                TrainingError(
                    f"out of memory with a single pair of {source.longest} source and {target.longest} target tokens. "
                    f"Shorten data.max_length, choose a smaller model, or train on a machine with more memory."
                )
            )
        console.warn(
            f"rank {self.group.rank}: out of memory with {micro_batch}: it is split in two, and the update is "
            f"repeated. A smaller train.micro_batch_tokens avoids this."
        )
        return batch.split(index)

    def optimizer_state(self) -> dict[str, Tensor]:
        """Return Adam's moments on the CPU: "exp_avg.NAME" and "exp_avg_sq.NAME" for each trained parameter NAME.

        In fp16, also return "loss_scale".
        """
        state = self.adam.state[self.weights.main_params]
        moments = {
            f"{kind}.{name}": part.to("cpu")
            for kind in ("exp_avg", "exp_avg_sq")
            for name, part in self.weights.by_name(state[kind]).items()
        }
        return moments | ({"loss_scale": self.loss_scale.state.to("cpu")} if self.loss_scale else {})

    def load_optimizer_state(self, state: dict[str, Tensor], steps: int) -> None:
        """Continue from an `optimizer_state` that was reached after `steps` steps.

        Moments that are not in it are zero.
        """
        main_params, state = self.weights.main_params, dict(state)
        scale = state.pop("loss_scale", None)
        if self.loss_scale and scale is not None:
            self.loss_scale.state = scale.to(self.hardware.device)
        moments = {kind: torch.zeros_like(main_params.data) for kind in ("exp_avg", "exp_avg_sq")}
        for key, moment in state.items():
            kind, _, name = key.partition(".")
            self.weights.view(moments[kind], name).copy_(moment)
        self.adam.state[main_params] = {"step": torch.tensor(float(steps), device=main_params.device), **moments}
