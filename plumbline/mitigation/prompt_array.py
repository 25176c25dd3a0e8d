"""Prompt Array: learned tokens before every text, trained so that similarities tell less of a person's group.

Source: Berg et al., "A Prompt Array Keeps the Bias Away: Debiasing Vision-Language Models with Adversarial
Learning" (2022). The backbone stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from plumbline.digests import digest_bytes, digest_json, digest_sequence
from plumbline.encoders.encoder import PromptedEncoder
from plumbline.encoders.families import require
from plumbline.errors import MetricError
from plumbline.mitigation import prompt_array_vectors as released
from plumbline.mitigation.fitted import FittedMitigation
from plumbline.mitigation.methods import METHODS
from plumbline.mitigation.prompt_array_tokens import LearnedTokens
from plumbline.mitigation.settings import PromptArraySettings
from plumbline.mitigation.training import EpochStore, Progress, train
from plumbline.mitigation.training_rows import TrainingRows
from plumbline.tables.sensitive_queries import load_sensitive_queries

_METHOD = METHODS["prompt_array"]
_TEXTS_AT_ONCE = 64


def fit_prompt_array(
    encoder: PromptedEncoder,
    rows: TrainingRows,
    settings: PromptArraySettings,
    *,
    seed: int,
    store: EpochStore | None = None,
    progress: Progress | None = None,
) -> FittedMitigation:
    """Train a prompt array on an encoder's device.

    Variant `adversarial`: see `plumbline.mitigation.prompt_array_tokens.LearnedTokens`; the parameter is
    `tokens`, (k, w). They start from the embedding of one word; where it has fewer tokens than are learned
    they are repeated, where it has more the first are taken. Variant `released`: see
    `plumbline.mitigation.prompt_array_vectors.AddedVectors`; the parameter is `vectors`, (16, d), and its
    numbers of steps, rows and vectors and its learning rate are fixed, whatever the settings say.

    The texts that it is trained on are `plumbline.tables.sensitive_queries` and the rows' captions; no
    sensitive query is a prompt of a suite.

    Parameters
    ----------
    rows : TrainingRows
        Of the training split, with the groups of `settings.attribute`.
    seed : int
        Equal seeds give equal bytes on one kind of device.
    store : EpochStore, optional
        Where the state after every epoch is kept; training goes on after the last one that is there.
    progress : callable, optional

    Raises
    ------
    ConfigError
        If the encoder's family has no text gradients.
    EncodingError
        If a text leaves no room for the tokens, or the tokenizer puts no start token before a text.
    MetricError
        If a loss is not finite; the epoch is then not kept. Also if training would end before the tokens'
        first turn.
    """
    require(encoder.family, _METHOD.needs, _METHOD.title)
    queries = load_sensitive_queries()
    key = _digest(encoder, rows, settings, queries.texts, seed)
    run = partial(train, seed=seed, key=key, store=store, progress=progress)
    if settings.variant == "released":
        added, steps = released.AddedVectors(encoder, rows.images, queries.pairs, seed=seed), released.STEPS
        trained = run(added, rows=steps * released.BATCH, batch=released.BATCH, epochs=1)
        parameters = {"vectors": added.vectors}
    else:
        _require_turns(len(rows.labels), settings)
        learned = LearnedTokens(encoder, rows, settings, queries.texts, seed=seed)
        trained = run(learned, rows=len(rows.labels), batch=settings.batch, epochs=settings.epochs)
        parameters = {"tokens": learned.tokens}
    return FittedMitigation(
        settings=settings.model_dump(mode="json") | {"seed": seed},
        parameters=parameters,
        losses=trained.losses,
        fitted_on=key,
        train_ids=rows.image_ids,
    )


def apply_prompt_array(
    fitted: FittedMitigation,
    encoder: PromptedEncoder,
    texts: Sequence[str],
    features: NDArray[np.float32],
) -> NDArray[np.float32]:
    """Return the mitigated features of texts, each as long as its row of `features`.

    Parameters
    ----------
    fitted : FittedMitigation
        Variant `adversarial` embeds every text anew with the learned tokens before its words; `released` adds
        the mean of the vectors to the features.
    encoder : PromptedEncoder
        The one that it was fitted on.
    texts : sequence of n str
    features : (n, d) float32
        Of the same texts, as the encoder gives them, not normalised.

    Returns
    -------
    (n, d) float32

    Raises
    ------
    MetricError
        If texts and features are not of one number.
    EncodingError
        If a text leaves no room for the tokens.
    """
    if features.ndim != 2 or len(texts) != len(features):
        raise MetricError(
            "a prompt array needs the features of its texts, a row each",
            found=f"{len(texts)} texts, features {features.shape}",
            expected=f"({len(texts)}, d)",
        )
    if fitted.settings["variant"] == "released":
        changed = features + fitted.parameters["vectors"].mean(axis=0)
    else:
        changed = _with_tokens(encoder, texts, fitted.parameters["tokens"], features.shape[1])
    before, after = (np.linalg.norm(rows, axis=1, keepdims=True) for rows in (features, changed))
    return np.asarray(changed * (before / after), dtype=np.float32)


def _require_turns(rows: int, settings: PromptArraySettings) -> None:
    """Refuse a training where only the adversary has a turn: its tokens would pass for learned ones."""
    steps = settings.epochs * max(rows // settings.batch, 1)
    if steps <= settings.alternate:
        raise MetricError(
            "the training of a prompt array would end before its tokens have had a turn",
            where="alternate",
            found=f"{steps} batches in all ({rows} rows), turns of {settings.alternate}",
            expected=f"at most {steps - 1}" if steps > 1 else "more than one batch",
            hint="lower alternate or batch, or raise epochs",
        )


def _with_tokens(
    encoder: PromptedEncoder, texts: Sequence[str], tokens: NDArray[np.float32], width: int
) -> NDArray[np.float32]:
    import torch

    learned = torch.tensor(tokens, device=encoder.device)
    with torch.no_grad():
        batches = [
            encoder.differentiable_texts(texts[i : i + _TEXTS_AT_ONCE], learned).cpu().numpy()
            for i in range(0, len(texts), _TEXTS_AT_ONCE)
        ]
    return np.concatenate([np.empty((0, width), dtype=np.float32), *batches])


def _digest(
    encoder: PromptedEncoder,
    rows: TrainingRows,
    settings: PromptArraySettings,
    queries: Sequence[str],
    seed: int,
) -> str:
    """Return the digest of all that the parameters depend on."""
    return digest_json(
        {
            "method": [_METHOD.name, _METHOD.version],
            "encoder": encoder.identity.digest,
            "settings": settings.model_dump(mode="json"),
            "seed": seed,
            "queries": list(queries),
            "image_ids": digest_sequence(rows.image_ids),
            "images": [list(rows.images.shape), digest_bytes(rows.images.astype("<f4").tobytes())],
            "groups": list(rows.groups),
            "labels": digest_bytes(rows.labels.astype("<i8").tobytes()),
            "captions": digest_sequence(rows.captions),
        }
    )
