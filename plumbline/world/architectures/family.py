"""What a family of architectures gives to the one training loop."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plumbline.world.captions import WORDINGS

if TYPE_CHECKING:
    import torch


class Trainee(ABC):
    """A model under training, with the captions that it learns.

    Attributes
    ----------
    model : torch.nn.Module
        What is saved in the end.
    """

    model: torch.nn.Module

    @abstractmethod
    def logits(self, images: torch.Tensor) -> torch.Tensor:
        """Return what ranks the captions for each image, shape (b, C), with gradients; `images` as in `loss`."""

    def loss(self, images: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the loss of one batch: of the captions against the images' logits, unless a family learns otherwise.

        Parameters
        ----------
        images : (b, 3, 64, 64) tensor
            float32 in [-1, 1], as every family's own preprocessing leaves a 64-pixel face.
        targets : (b, C) tensor
            float32, the frequency of each caption, rows sum to 1.
        """
        return caption_loss(self.logits(images), targets)

    def moved(self) -> list[torch.nn.Parameter]:
        """Return what the optimiser moves: the model's parameters, and those that only training needs."""
        return list(self.model.parameters())

    def settle(self, batches: Iterator[torch.Tensor]) -> None:  # noqa: B027 - most families have no such thing
        """Set what is not learnt by gradient, after the last step.

        Parameters
        ----------
        batches : iterator of tensor
            The training images once, shuffled, as `loss` takes them.
        """


@dataclass(frozen=True)
class Family:
    """One family of architectures.

    Attributes
    ----------
    architectures : mapping of str to dataclass
        Size to its dimensions.
    write_untrained : callable
        (folder, architecture, texts) -> None: writes configuration, tokenizer and preprocessing.
    start : callable
        (folder, texts, seed=) -> Trainee: the randomly initialised model of such a folder.
    weights_file : str
        The name under which the family's loader looks for weights.
    wordings : tuple of str
        Of the Trident prompts, for the captions: those that an audit may ask the family in.
    peak_learning_rate : float
        Of the one cycle.
    """

    architectures: Mapping[str, Any]
    write_untrained: Callable[[Path, Any, Sequence[str]], None]
    start: Callable[..., Trainee]
    weights_file: str
    wordings: tuple[str, ...] = WORDINGS
    peak_learning_rate: float = 2e-3


def scaled(images: torch.Tensor) -> torch.Tensor:
    """Return uint8 images as every processor of the planted world leaves them: float32 in [-1, 1]."""
    return images.float() / 127.5 - 1


def caption_loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the mean over images of -log softmax over the captions, weighted by their frequency.

    An image has several true captions, and none of them is a false negative.
    """
    import torch

    return -(targets * torch.log_softmax(logits, dim=1)).sum(1).mean()
