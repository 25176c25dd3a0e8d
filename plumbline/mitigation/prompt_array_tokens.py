"""Learned tokens of Prompt Array in training: turn by turn against an adversary.

Source: Berg et al., "A Prompt Array Keeps the Bias Away", and its released training script.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from plumbline.mitigation.adversary import new_adversary
from plumbline.mitigation.optimiser_state import descend, optimiser_arrays, restore_optimiser
from plumbline.mitigation.settings import PromptArraySettings
from plumbline.mitigation.training import Arrays
from plumbline.mitigation.training_rows import TrainingRows

if TYPE_CHECKING:
    import torch

    from plumbline.encoders.encoder import PromptedEncoder

INITIAL_WORD = "a"
"""Whose embedding the tokens start from: a word that says little. The released code takes token 0."""

SIMILARITY_SCALE = 5.0
"""The adversary sees five times the cosine: the released code gives it CLIP's logits, 100 cos, over 20."""


class LearnedTokens:
    """Tokens and adversary in training; implements `plumbline.mitigation.training.Trainable`.

    For `alternate` steps the adversary learns to guess the group, at fixed tokens; for the next `alternate`
    steps the tokens are trained, at a fixed adversary, on - L_guess + λ_ITC L_ITC; and so on. L_guess is the
    adversary's cross-entropy on the images' groups; L_ITC the symmetric cross-entropy of CLIP over the
    batch's images and captions, at the encoder's own scale, with the tokens before the captions too.

    The adversary has the first turn. The released script lets the tokens begin, after whole epochs of the
    adversary alone; and it counts turns within an epoch, so that one of fewer batches than a turn would never
    train the adversary. Here turns are counted over all epochs.

    Parameters
    ----------
    encoder : PromptedEncoder
    rows : TrainingRows
    settings : PromptArraySettings
    queries : sequence of str
        The sensitive queries.
    seed : int
        Of the adversary's first weights.
    """

    def __init__(
        self,
        encoder: PromptedEncoder,
        rows: TrainingRows,
        settings: PromptArraySettings,
        queries: Sequence[str],
        *,
        seed: int,
    ) -> None:
        import torch

        self._encoder, self._settings = encoder, settings
        self._queries, self._captions = list(queries), rows.captions
        self._images = _unit(torch.tensor(rows.images, device=encoder.device))
        self._labels = torch.tensor(rows.labels, device=encoder.device)
        self._adversary = new_adversary(
            len(queries), len(rows.groups), seed=seed, device=encoder.device
        ).requires_grad_(False)
        self._tokens = initial_tokens(encoder, settings.tokens).requires_grad_()
        self._adversary_adam = torch.optim.Adam(
            self._adversary.parameters(), lr=settings.adversary_learning_rate
        )
        self._tokens_adam = torch.optim.Adam([self._tokens], lr=settings.learning_rate)
        self._steps = 0
        # The queries' features, while the tokens do not change.
        self._fixed_queries: torch.Tensor | None = None

    @property
    def tokens(self) -> NDArray[np.float32]:
        """Return the (k, w) tokens as they are now."""
        return np.array(self._tokens.detach().cpu().numpy(), dtype=np.float32)

    def step(self, rows: NDArray[np.int64]) -> Mapping[str, float]:
        """Train whose turn it is on a batch.

        Returns
        -------
        mapping
            `adversary`: L_guess, in a step of the adversary. `guessing`, `contrastive` and `tokens`: L_guess,
            L_ITC and their sum as it is minimised, in a step of the tokens.

        Raises
        ------
        MetricError
            If the loss is not finite, or the step leaves a parameter that is not.
        EncodingError
            If a text leaves no room for the tokens.
        """
        import torch

        turn = (self._steps // self._settings.alternate) % 2
        self._steps += 1
        batch = torch.from_numpy(rows).to(self._images.device)
        return self._adversary_step(batch) if turn == 0 else self._tokens_step(batch, rows)

    def state(self) -> dict[str, NDArray[Any]]:
        """Return tokens, adversary, both optimisers and the number of steps as arrays."""
        return {
            "steps": np.array(self._steps),
            **optimiser_arrays(self._tokens_adam, {"tokens": self._tokens}),
            **optimiser_arrays(self._adversary_adam, self._adversary_parameters()),
        }

    def restore(self, state: Arrays) -> None:
        """Continue from a state."""
        self._steps, self._fixed_queries = int(state["steps"]), None
        restore_optimiser(self._tokens_adam, {"tokens": self._tokens}, state)
        restore_optimiser(self._adversary_adam, self._adversary_parameters(), state)

    def _adversary_parameters(self) -> dict[str, torch.Tensor]:
        return {f"adversary.{name}": tensor for name, tensor in self._adversary.named_parameters()}

    def _adversary_step(self, batch: torch.Tensor) -> dict[str, float]:
        import torch

        if self._fixed_queries is None:
            with torch.no_grad():
                self._fixed_queries = _unit(self._encoder.differentiable_texts(self._queries, self._tokens))
        self._adversary.requires_grad_(True)
        loss = self._guessing_loss(batch, self._fixed_queries)
        descend(loss, self._adversary_adam, self._adversary_parameters(), step=self._steps)
        self._adversary.requires_grad_(False)
        return {"adversary": loss.item()}

    def _tokens_step(self, batch: torch.Tensor, rows: NDArray[np.int64]) -> dict[str, float]:
        captions = [self._captions[i] for i in rows]
        texts = _unit(self._encoder.differentiable_texts([*self._queries, *captions], self._tokens))
        guessing = self._guessing_loss(batch, texts[: len(self._queries)])
        contrastive = self._contrastive_loss(batch, texts[len(self._queries) :])
        loss = -guessing + self._settings.contrastive * contrastive
        descend(loss, self._tokens_adam, {"tokens": self._tokens}, step=self._steps)
        self._fixed_queries = None
        return {"tokens": loss.item(), "guessing": guessing.item(), "contrastive": contrastive.item()}

    def _guessing_loss(self, batch: torch.Tensor, queries: torch.Tensor) -> torch.Tensor:
        from torch.nn.functional import cross_entropy

        similarities = SIMILARITY_SCALE * self._images[batch] @ queries.T
        return cross_entropy(self._adversary(similarities), self._labels[batch])

    def _contrastive_loss(self, batch: torch.Tensor, captions: torch.Tensor) -> torch.Tensor:
        import torch
        from torch.nn.functional import cross_entropy

        logits = self._encoder.logit_scale * self._images[batch] @ captions.T
        own = torch.arange(len(batch), device=logits.device)
        return (cross_entropy(logits, own) + cross_entropy(logits.T, own)) / 2


def initial_tokens(encoder: PromptedEncoder, count: int) -> torch.Tensor:
    """Return (count, w) float32 embeddings of `INITIAL_WORD`, its tokens in turn until there are enough."""
    vectors = encoder.token_vectors(INITIAL_WORD).float()
    return vectors.repeat(-(-count // len(vectors)), 1)[:count].clone()


def _unit(rows: torch.Tensor) -> torch.Tensor:
    return rows / rows.norm(dim=1, keepdim=True)
