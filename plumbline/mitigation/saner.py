"""SANER: a residual layer that makes the features of attribute-neutral texts equally near to every group's.

Source: Hirota et al., "SANER: Annotation-free Societal Attribute Neutralizer for Debiasing CLIP" (ICLR 2025).
The weights of its losses, the width of its layer and its learning rate are those of a recorded sweep, see
`docs/mitigation-settings.md`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from plumbline.digests import digest_bytes, digest_json, digest_sequence
from plumbline.encoders.encoder import DualEncoder
from plumbline.encoders.families import require
from plumbline.errors import MetricError
from plumbline.mitigation.fitted import FittedMitigation
from plumbline.mitigation.methods import METHODS
from plumbline.mitigation.neutral_texts import specific_pattern
from plumbline.mitigation.saner_layer import SanerFeatures, SanerLayer, Weights
from plumbline.mitigation.saner_texts import SanerTexts, one_caption, saner_texts
from plumbline.mitigation.settings import SanerSettings
from plumbline.mitigation.training import EpochStore, Progress, train
from plumbline.mitigation.training_rows import TrainingRows

_RELEASED = {"learning_rate": 1e-4, "epochs": 2, "batch": 64, "contrastive": 0.0, "attribute": "race"}
"""What is known of a released audit: Adam 1e-4, 2 epochs, batch 64, the spread over seven variants, one caption.

Decided here: the seven are the race variants, whatever the attribute, since no other has seven; the caption is `a photo
of a person`; no contrastive term, since one caption has nothing to be told from; α, β and the width are the settings'.
Its caption is a prompt of the audit, so it is for comparison with published numbers only.
"""
_TEXT_BATCH_ROWS = 64


def fit_saner(
    encoder: DualEncoder,
    rows: TrainingRows,
    settings: SanerSettings,
    *,
    seed: int,
    store: EpochStore | None = None,
    progress: Progress | None = None,
) -> FittedMitigation:
    """Train the layer on the neutralised captions of a training split; labels are not used.

    Minimises α·L_deb + β·L_recon + γ·L_cont, see `plumbline.mitigation.saner_layer.losses`, by Adam, from a
    layer that changes nothing. Each distinct text is embedded once, by the encoder as it is. On a CPU the
    same arguments give the same bytes, also where training was interrupted after an epoch and goes on. The
    variant `released` is what is known of a released audit (`_RELEASED`), whatever the settings say of these.

    Parameters
    ----------
    encoder : DualEncoder
        Stays as it is; training is on its device.
    rows : TrainingRows
    settings : SanerSettings
    seed : int
        Of the first parameters, of the order of rows and of the draws.
    store : EpochStore, optional
        Where the state after each epoch is kept.

    Returns
    -------
    FittedMitigation
        Parameters `weight_in` (h, d), `bias_in` (h,), `weight_out` (d, h), `bias_out` (d,). The settings are what was
        trained with, and carry `specific_pattern`, so that nothing else is needed to apply the layer.

    Raises
    ------
    ConfigError
        If the encoder's family has no shared space of images and texts.
    MetricError
        If there are no texts to train on, or a loss is not finite; that epoch is not kept.
    """
    require(encoder.family, METHODS["saner"].needs, METHODS["saner"].title)
    if settings.variant == "released":
        settings = settings.model_copy(update=_RELEASED)
    texts = _training_texts(rows, settings)
    pattern = specific_pattern(settings.attribute)
    stated = settings.model_dump(mode="json") | {"seed": seed, "specific_pattern": pattern}
    key = _fitted_on(encoder, rows, texts, stated)
    layer, used = _layer(encoder, rows, texts, settings, seed=seed), texts.rows
    trained = train(
        layer, rows=len(used) or len(texts.neutral), batch=settings.batch, epochs=settings.epochs,
        seed=seed, key=key, store=store, progress=progress,
    )  # fmt: skip
    return FittedMitigation(
        settings=stated,
        parameters=layer.parameters,
        fitted_on=key,
        losses=trained.losses,
        train_ids=tuple(rows.image_ids[row] for row in used),
    )


def apply_saner(
    fitted: FittedMitigation, texts: Sequence[str], features: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Put the features of neutral texts through the layer; those of other texts pass to the last bit.

    Parameters
    ----------
    texts : sequence of n str
    features : (n, d) float32
        As the encoder gives them, or of unit length.

    Returns
    -------
    (n, d) float32
        Each row as long as it came in: ‖x‖ · y/‖y‖ with y = u + r(u), u = x/‖x‖.

    Raises
    ------
    MetricError
        If there is not one feature a text, of the width that was fitted.
    """
    weights = {name: array.astype(np.float64) for name, array in fitted.parameters.items()}
    features = np.asarray(features, dtype=np.float32)
    if features.shape != (len(texts), weights["bias_out"].size):
        raise MetricError(
            "these features do not fit the texts and the layer",
            found=features.shape,
            expected=(len(texts), weights["bias_out"].size),
        )
    pattern = re.compile(fitted.settings["specific_pattern"])
    neutral = [i for i, text in enumerate(texts) if not pattern.search(text)]
    x = features[neutral].astype(np.float64)
    lengths = np.linalg.norm(x, axis=1, keepdims=True)
    u = np.divide(x, lengths, out=np.zeros_like(x), where=lengths > 0)
    hidden = np.maximum(u @ weights["weight_in"].T + weights["bias_in"], 0)
    # x + ‖x‖ r(u) has the direction of u + r(u), and is x itself where r is zero.
    y = x + lengths * (hidden @ weights["weight_out"].T + weights["bias_out"])
    found = np.linalg.norm(y, axis=1, keepdims=True)
    y *= np.divide(lengths, found, out=np.ones_like(lengths), where=found > 0)
    debiased = features.copy()
    debiased[neutral] = y
    return debiased


def _training_texts(rows: TrainingRows, settings: SanerSettings) -> SanerTexts:
    if settings.variant == "released":
        return one_caption(len(rows.captions))
    texts = saner_texts(rows.captions, settings.attribute, more=settings.neutral_captions)
    if not texts.neutral:
        raise MetricError(
            "no caption of the training split can be trained on", found=f"{len(rows.captions)} captions"
        )
    return texts


def _layer(
    encoder: DualEncoder, rows: TrainingRows, texts: SanerTexts, settings: SanerSettings, *, seed: int
) -> SanerLayer:
    return SanerLayer(
        _features(encoder, rows, texts),
        hidden=settings.width,
        weights=Weights(settings.debiasing, settings.reconstruction, settings.contrastive),
        learning_rate=settings.learning_rate,
        seed=seed,
        device=encoder.device,
    )


def _features(encoder: DualEncoder, rows: TrainingRows, texts: SanerTexts) -> SanerFeatures:
    distinct = texts.distinct
    position = {text: i for i, text in enumerate(distinct)}
    embedded = _unit(
        np.concatenate(
            [
                encoder.embed_texts(distinct[i : i + _TEXT_BATCH_ROWS])
                for i in range(0, len(distinct), _TEXT_BATCH_ROWS)
            ]
        )
    )
    return SanerFeatures(
        neutral=embedded[[position[text] for text in texts.neutral]],
        variants=embedded[[[position[text] for text in variants] for variants in texts.variants]],
        images=_unit(rows.images[texts.rows]),
        of_row=texts.of_row[texts.rows],
        without_image=texts.without_image,
        logit_scale=encoder.logit_scale,
    )


def _unit(features: NDArray[np.float32]) -> NDArray[np.float32]:
    lengths = np.linalg.norm(features.astype(np.float64), axis=1, keepdims=True)
    return (features / lengths).astype(np.float32)


def _fitted_on(encoder: DualEncoder, rows: TrainingRows, texts: SanerTexts, stated: dict[str, object]) -> str:
    return digest_json(
        {
            "method": "saner",
            "version": METHODS["saner"].version,
            "encoder": encoder.identity.digest,
            "images": digest_bytes(np.ascontiguousarray(rows.images, dtype="<f4").tobytes()),
            "image_ids": digest_sequence(rows.image_ids),
            "captions": digest_sequence(rows.captions),
            "texts": texts.digest,
            "settings": stated,
        }
    )
