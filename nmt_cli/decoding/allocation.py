"""Dynamic beam allocation: which candidates stay open where constraints demand something of the output.

Post and Vilar (2018), vectorised as by Hu et al. (2019). Candidates with the same progress form a bank. If the W best
candidates were kept by probability alone, those that pay for a demanded token would be dropped for ever. So each bank
keeps its best candidate before any bank keeps its second best, and banks with more progress choose first.

    B sentences   C candidates   W beam
"""

from __future__ import annotations

import torch
from torch import Tensor


def without_repeats(log_probs: Tensor, numbers: Tensor) -> Tensor:
    """Return log_probs (B, C) with -inf where a candidate's number (B, C) stands before with a log-probability above -inf."""
    numbers = torch.where(log_probs.isneginf(), -1 - torch.arange(numbers.size(1), device=numbers.device), numbers)
    ordered, order = numbers.sort(dim=1, stable=True)
    repeated = torch.zeros_like(ordered, dtype=torch.bool)
    repeated[:, 1:] = ordered[:, 1:] == ordered[:, :-1]
    return log_probs.masked_fill(torch.zeros_like(repeated).scatter_(1, order, repeated), float("-inf"))


def allocate(log_probs: Tensor, progress: Tensor, width: int) -> Tensor:
    """Return which candidates the beam keeps: bool, (B, C), true for at most W = `width` per sentence.

    log_probs (B, C), -inf: no candidate; progress (B, C) at least 0. Equal candidates are ordered by index.
    """
    absent = log_probs.isneginf()
    order = log_probs.sort(dim=1, descending=True, stable=True).indices
    banks, by_bank = progress.masked_fill(absent, -1).gather(1, order).sort(dim=1, descending=True, stable=True)
    order = order.gather(1, by_bank)  # by bank, then by probability
    position = torch.arange(banks.size(1), device=banks.device).expand_as(banks)
    begins = torch.ones_like(banks, dtype=torch.bool)
    begins[:, 1:] = banks[:, 1:] != banks[:, :-1]
    rank = position - torch.where(begins, position, 0).cummax(dim=1).values  # within its bank
    rank = rank.masked_fill(banks < 0, banks.size(1))
    chosen = order.gather(1, rank.sort(dim=1, stable=True).indices[:, :width])
    return torch.zeros_like(absent).scatter_(1, chosen, True) & ~absent
