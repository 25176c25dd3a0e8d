"""The mitigations that act on text features, behind one interface: fitted from settings, applied to texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray

from plumbline.encoders.encoder import DualEncoder, PromptedEncoder
from plumbline.mitigation.bias_prompts import apply_bias_prompts, fit_bias_prompts
from plumbline.mitigation.fitted import FittedMitigation
from plumbline.mitigation.prompt_array import apply_prompt_array, fit_prompt_array
from plumbline.mitigation.saner import apply_saner, fit_saner
from plumbline.mitigation.settings import (
    BiasPromptsSettings,
    MitigationSettings,
    PromptArraySettings,
    SanerSettings,
)
from plumbline.mitigation.training import EpochStore, Progress
from plumbline.mitigation.training_rows import TrainingRows

EmbedTexts = Callable[[Sequence[str]], NDArray[np.float32]]


@dataclass(frozen=True)
class Workplace:
    """What fitting a mitigation of texts may use.

    Attributes
    ----------
    encoder : DualEncoder
    embed : callable
        Texts to their (b, d) embeddings, as the encoder gives them.
    rows : callable
        Attribute to the training rows that have a label of it; raises MetricError where there are none.
    seed : int
    store : EpochStore or None
        Where training is kept, so that it can be interrupted.
    progress : callable or None
    """

    encoder: DualEncoder
    embed: EmbedTexts
    rows: Callable[[str], TrainingRows]
    seed: int
    store: EpochStore | None = None
    progress: Progress | None = None


def fit_text_mitigation(settings: MitigationSettings, work: Workplace) -> FittedMitigation:
    """Fit a mitigation of texts.

    Raises
    ------
    ConfigError
        If the encoder's family lacks what the method needs.
    MetricError
        If there are no rows to train on, or training gives no finite loss.
    TypeError
        If the settings are those of a mitigation that does not act on texts.
    """
    match settings:
        case BiasPromptsSettings():
            return fit_bias_prompts(work.embed, settings, encoder_digest=work.encoder.identity.digest)
        case PromptArraySettings():
            return fit_prompt_array(
                cast("PromptedEncoder", work.encoder), work.rows(settings.attribute), settings,
                seed=work.seed, store=work.store, progress=work.progress,
            )  # fmt: skip
        case SanerSettings():
            return fit_saner(
                work.encoder, work.rows(settings.attribute), settings,
                seed=work.seed, store=work.store, progress=work.progress,
            )  # fmt: skip
    raise TypeError(f"{settings.method} does not act on texts")


def apply_text_mitigation(
    fitted: FittedMitigation,
    encoder: DualEncoder,
    texts: Sequence[str],
    features: NDArray[np.float32],
) -> NDArray[np.float32]:
    """Return the mitigated (n, d) features of texts, each as long as its row of `features`.

    Parameters
    ----------
    texts : sequence of n str
    features : (n, d) float32
        Of the same texts, as the encoder gives them.
    """
    match fitted.method:
        case "bias_prompts":
            return apply_bias_prompts(fitted, features)
        case "prompt_array":
            return apply_prompt_array(fitted, cast("PromptedEncoder", encoder), texts, features)
        case "saner":
            return apply_saner(fitted, texts, features)
    raise TypeError(f"{fitted.method} does not act on texts")
