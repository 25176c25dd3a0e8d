"""The one training loop of the generative models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch

_WEIGHT_DECAY = 0.05
_WARM_UP_SHARE = 0.1
_LAST = 50


def fit(
    loss: Callable[[], torch.Tensor],
    moved: Sequence[torch.nn.Parameter],
    *,
    steps: int,
    peak: float,
    name: str,
) -> float:
    """Minimise a loss with AdamW and one cycle of the learning rate.

    Parameters
    ----------
    loss : callable
        Draws the next batch and returns its loss.
    moved : sequence of torch.nn.Parameter
        What the optimiser moves.
    steps : int
        Batches.
    peak : float
        Highest learning rate.
    name : str
        For the progress bar.

    Returns
    -------
    float
        Mean loss of the last fifty batches.
    """
    import torch
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    optimiser = torch.optim.AdamW(moved, weight_decay=_WEIGHT_DECAY, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, peak, total_steps=steps, pct_start=_WARM_UP_SHARE
    )
    recent: list[float] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns) as progress:
        task = progress.add_task(name, total=steps)
        for _ in range(steps):
            value = loss()
            optimiser.zero_grad()
            value.backward()
            torch.nn.utils.clip_grad_norm_(moved, 1.0)
            optimiser.step()
            schedule.step()
            recent = [*recent[1 - _LAST :], float(value.detach())]
            progress.update(task, advance=1, description=f"{name}  loss {np.mean(recent):.3f}")
    return float(np.mean(recent))
