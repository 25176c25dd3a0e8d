"""Bias Prompts: the span of the prompts that name a protected attribute is projected out of the text features.

Source: Chuang et al. 2023, "Debiasing Vision-Language Models via Biased Prompts", equations 1 to 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from plumbline.catalog.word_lists import AttributeTexts, attribute_texts
from plumbline.digests import digest_json
from plumbline.errors import MetricError
from plumbline.mitigations.settings import METHODS, Attribute
from plumbline.mitigations.text_mitigations import FitContext, FittedMitigation, TextMitigationSettings, read_artefact

if TYPE_CHECKING:
    from plumbline.encoders.encoder import DualEncoder


class BiasPromptsSettings(TextMitigationSettings):
    """Bias Prompts (Chuang et al. 2023): a calibrated projection of text features, without training."""

    reads_given: ClassVar[bool] = True
    method: Literal["bias_prompts"] = "bias_prompts"
    """which mitigation these settings are of"""
    attributes: tuple[Attribute, ...] = Field(default=("gender", "race", "age"), min_length=1)
    """whose directions are projected out"""
    calibration: float = Field(default=1000.0, ge=0)
    """λ; 0 is the plain projection P0"""
    variant: Literal["calibrated", "released"] = "calibrated"
    """released: three difference vectors, no calibration"""
    spread: Literal["attributes", "pairs"] = "attributes"
    """attributes: M is a mean over attributes; pairs: (1/|S|) over all pairs alike, as the paper's formula reads"""
    pairs: tuple[tuple[str, str], ...] | None = Field(default=None, min_length=1)
    """pairs of prompts that should coincide, such as the authors' own, in place of ours; all count alike"""

    def fit(self, context: FitContext) -> FittedMitigation:
        """Compute the projection of an encoder's text features, in closed form; no image and no label is used.

        The columns of A are the unit embeddings of the prompts that name a group, P0 = I - A (AᵀA)⁺ Aᵀ. Calibrated:
        P* = P0 (λM + I)⁻¹, which minimises ‖P - P0‖² + λ mean ‖P z_i - P z_j‖² over pairs of unit embeddings that
        should coincide; M is the mean of (z_i - z_j)(z_i - z_j)ᵀ over the pairs of an attribute, and over the
        attributes, so that race with its 21 pairs an occupation does not outweigh gender with one. Released: the
        columns are instead one normalised difference an attribute (man/woman, White/Black, young/old), and P0 is used
        as it is.

        Returns
        -------
        FittedMitigation
            With the parameter `projection`, (d, d) float32, for `apply`. It is symmetric where it is not
            calibrated.

        Raises
        ------
        MetricError
            If the prompts span the whole space (an encoder of width 1 always), those of a contrast coincide, or a given
            file holds no projection of the encoder's width.
        """
        described, encoder = self.model_dump(mode="json"), context.encoder.identity.digest
        version = METHODS[self.method].version
        if self.from_ is not None:
            width = context.encoder.width
            given = read_artefact(context.file(self.from_), {"projection": (width, width)})
            key = digest_json({"encoder": encoder, "given": given.sha256, "settings": described, "version": version})
            return FittedMitigation(described, given.parameters, key)
        texts = bias_prompt_texts(self)
        rows = np.asarray(context.embed(texts), dtype=np.float64)
        units = dict(zip(texts, rows / np.linalg.norm(rows, axis=1, keepdims=True), strict=True))
        attributes = {name: attribute_texts(name) for name in self.attributes}
        if self.variant == "released":
            projection = projection_off(np.stack([_contrast(units, attributes[n], n) for n in attributes]))
        else:
            named = dict.fromkeys(prompt for about in attributes.values() for prompt in about.prompts)
            projection = calibrated(
                projection_off(np.stack([units[prompt] for prompt in named])),
                self._spread(units, [*attributes.values()]),
                self.calibration,
            )
        key = digest_json({"encoder": encoder, "texts": texts, "settings": described, "version": version})
        return FittedMitigation(described, {"projection": projection.astype(np.float32)}, key)

    def _spread(self, units: dict[str, Floats], attributes: Sequence[AttributeTexts]) -> Floats:
        """Return M: of the given pairs, else of ours, by attribute or all alike."""
        if self.pairs is not None:
            return pair_spread(_differences(units, self.pairs))
        of_attributes = [_differences(units, about.pairs) for about in attributes]
        if self.spread == "pairs":
            return pair_spread(np.concatenate(of_attributes))
        return np.asarray(np.mean([pair_spread(differences) for differences in of_attributes], axis=0))

    @staticmethod
    def apply(
        fitted: FittedMitigation, encoder: DualEncoder, texts: Sequence[str], features: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """Project text features, and rescale every row to its norm before.

        Parameters
        ----------
        features : (n, d) float
            As the encoder gives them.

        Returns
        -------
        (n, d) float32
            A row of which less than `NOTHING_LEFT` remains, such as an attribute prompt itself without calibration, is
            zero: no direction of it is left, and every product with it is 0.
        """
        rows, projection = np.asarray(features, dtype=np.float64), fitted.parameters["projection"]
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        projected = rows @ projection.T.astype(np.float64)
        left = np.linalg.norm(projected, axis=1, keepdims=True)
        kept = left > NOTHING_LEFT * norms
        scale = np.divide(norms, left, out=np.zeros_like(left), where=kept)
        return np.asarray(projected * scale, dtype=np.float32)


# --- How the projection is computed and applied.

Floats = NDArray[np.float64]

NOTHING_LEFT = 1e-5
"""Share of a feature's norm below which what a projection leaves of it is rounding and no direction.

The same text embedded in another batch moves by some 1e-6 of its norm in float32.
"""


def bias_prompt_texts(settings: BiasPromptsSettings) -> tuple[str, ...]:
    """Return every text that fitting embeds, distinct and in a fixed order."""
    attributes = [attribute_texts(name) for name in settings.attributes]
    if settings.variant == "released":
        return tuple(dict.fromkeys(text for texts in attributes for text in texts.contrast))
    if settings.pairs is not None:
        own_prompts = (prompt for texts in attributes for prompt in texts.prompts)
        return tuple(dict.fromkeys((*own_prompts, *(text for pair in settings.pairs for text in pair))))
    return tuple(dict.fromkeys(text for texts in attributes for text in texts.texts))


def projection_off(directions: Floats) -> Floats:
    """Return the projection I - A (AᵀA)⁺ Aᵀ onto the orthogonal complement of the directions.

    Parameters
    ----------
    directions : (m, d) float64
        Rows are the columns of A. Dependent and zero ones take nothing more away; none at all gives the identity.

    Returns
    -------
    (d, d) float64
        Symmetric and idempotent. Computed from the singular vectors of A whose singular value exceeds the greatest
        times max(m, d) times the rounding of float32, the precision of embeddings: equal prompts that differ in the
        last bits only are one direction.

    Raises
    ------
    MetricError
        If the directions span the whole space.
    """
    m, d = directions.shape
    _, values, basis = np.linalg.svd(directions, full_matrices=False)
    tolerance = values.max(initial=0.0) * max(m, d) * np.finfo(np.float32).eps
    basis = basis[values > tolerance]
    if len(basis) == d:
        raise MetricError(
            "the prompts of the attributes span the whole space: nothing would be left of any text",
            found=f"{m} prompts, of rank {len(basis)}, in {d} dimensions",
            expected=f"a rank of at most {d - 1}",
            hint="name fewer attributes, use the variant `released`, or an encoder with wider embeddings",
        )
    return np.asarray(np.eye(d) - basis.T @ basis)


def pair_spread(differences: Floats) -> Floats:
    """Return M, the (d, d) mean of (z_i - z_j)(z_i - z_j)ᵀ over the (p, d) differences of pairs."""
    return np.asarray(differences.T @ differences / len(differences))


def calibrated(projection: Floats, spread: Floats, calibration: float) -> Floats:
    """Return P* = P0 (λM + I)⁻¹, (d, d); λ = 0 gives P0."""
    # Solved from the right: λM + I is symmetric.
    return np.asarray(np.linalg.solve(calibration * spread + np.eye(len(spread)), projection.T).T)


def _differences(units: dict[str, Floats], pairs: Sequence[tuple[str, str]]) -> Floats:
    return np.stack([units[first] - units[second] for first, second in pairs])


def _contrast(units: dict[str, Floats], about: AttributeTexts, attribute: str) -> Floats:
    difference = units[about.contrast[0]] - units[about.contrast[1]]
    norm = np.linalg.norm(difference)
    if norm <= NOTHING_LEFT:
        raise MetricError(
            f"this encoder sees no difference between the two prompts that stand for {attribute}",
            where=" / ".join(about.contrast),
            found=f"a distance of {norm:.1g} between unit embeddings",
            expected=f"more than {NOTHING_LEFT:g}",
            hint="use the variant `calibrated`, or leave the attribute out",
        )
    return np.asarray(difference / norm)
