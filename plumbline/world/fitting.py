"""The one training loop of the planted models: AdamW, and one cycle of the learning rate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch

WEIGHT_DECAY = 0.05


@dataclass(frozen=True)
class Cycle:
    """How the learning rate goes up and down again, and what the optimiser remembers.

    Attributes
    ----------
    peak : float
        Highest learning rate.
    warm_up_share : float
        Of the steps, until it is reached.
    betas : (float, float)
        Of AdamW.
    told : int
        Last batches whose mean loss is told.
    """

    peak: float
    warm_up_share: float = 0.1
    betas: tuple[float, float] = (0.9, 0.98)
    told: int = 50


def fit(
    loss: Callable[[], torch.Tensor],
    moved: Sequence[torch.nn.Parameter],
    *,
    steps: int,
    cycle: Cycle,
    name: str,
) -> float:
    """Minimise a loss.

    Parameters
    ----------
    loss : callable
        Draws the next batch and returns its loss.
    moved : sequence of torch.nn.Parameter
        What the optimiser moves.
    steps : int
        Batches.
    cycle : Cycle
    name : str
        For the progress bar.

    Returns
    -------
    float
        Mean loss of the last batches.
    """
    import torch
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    optimiser = torch.optim.AdamW(moved, weight_decay=WEIGHT_DECAY, betas=cycle.betas)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, cycle.peak, total_steps=steps, pct_start=cycle.warm_up_share
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
            recent = [*recent[1 - cycle.told :], float(value.detach())]
            progress.update(task, advance=1, description=f"{name}  loss {np.mean(recent):.3f}")
    return float(np.mean(recent))
