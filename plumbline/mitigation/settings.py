"""What can be set of each mitigation, as the audit file says it; defaults are the published settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from plumbline.audit_part import Part
from plumbline.mitigation.fitted import FittedMitigation
from plumbline.mitigation.workplace import Workplace

if TYPE_CHECKING:
    from plumbline.encoders.encoder import DualEncoder, PromptedEncoder

Attribute = Literal["gender", "race", "age"]


class MitigationSettings(Part):
    """Settings of one mitigation; a method adds its keys, and what it says of them is what `audit.yaml` may hold."""

    method: str


class TextMitigationSettings(MitigationSettings):
    """Settings of a mitigation that acts on texts, which know how it is fitted and applied."""

    def fit(self, work: Workplace) -> FittedMitigation:
        """Fit the mitigation with these settings.

        Raises
        ------
        ConfigError
            If the encoder's family lacks what the method needs.
        MetricError
            If there are no rows to train on, or training gives no finite loss.
        """
        raise NotImplementedError

    @staticmethod
    def apply(
        fitted: FittedMitigation, encoder: DualEncoder, texts: Sequence[str], features: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """Return the mitigated (n, d) features of n texts, each as long as its row of `features`."""
        raise NotImplementedError


class LogitAdjustmentSettings(MitigationSettings):
    """Adaptive Logit Adjustment (paper: N = 20, learning rate 0.01, 20 epochs, 3 trials)."""

    method: Literal["logit_adjustment"] = Field(
        default="logit_adjustment", description="which mitigation these settings are of"
    )
    per_class: int = Field(default=20, ge=1, description="images of each class that are fitted on")
    learning_rate: float = Field(default=0.01, gt=0, description="of the factors")
    epochs: int = Field(default=20, ge=1, description="passes over the images that are fitted on")
    trials: int = Field(default=3, ge=1, description="draws of these images; the first is the one judged")
    mode: Literal["multiplicative", "additive"] = Field(
        default="multiplicative",
        description="whether a logit is multiplied by its factor, or the factor is added",
    )
    candidates: Literal["single", "composite"] = Field(
        default="single",
        description="composite: one factor a class × automatic gender label, fitted on the composite suite",
    )
    selection: Literal["train_loss", "train_accuracy", "released"] = Field(
        default="train_loss", description="released: as the published code, which lets test accuracy choose"
    )
    ablation: bool = Field(
        default=False, description="also try N of 10 to 200 and learning rates of 0.001 to 0.1, for a table"
    )

    @property
    def of_fit(self) -> dict[str, Any]:
        """Return what `plumbline.mitigation.fit_logit_adjustment` takes."""
        return self.model_dump(exclude={"method", "candidates", "ablation"})


class BiasPromptsSettings(TextMitigationSettings):
    """Bias Prompts (Chuang et al. 2023): a calibrated projection of text features, without training."""

    method: Literal["bias_prompts"] = Field(
        default="bias_prompts", description="which mitigation these settings are of"
    )
    attributes: tuple[Attribute, ...] = Field(
        default=("gender", "race", "age"), min_length=1, description="whose directions are projected out"
    )
    calibration: float = Field(default=1000.0, ge=0, description="λ; 0 is the plain projection P0")
    variant: Literal["calibrated", "released"] = Field(
        default="calibrated", description="released: three difference vectors, no calibration"
    )

    def fit(self, work: Workplace) -> FittedMitigation:
        """See `TextMitigationSettings`."""
        from plumbline.mitigation.bias_prompts import fit_bias_prompts

        return fit_bias_prompts(work.embed, self, encoder_digest=work.encoder.identity.digest)

    @staticmethod
    def apply(
        fitted: FittedMitigation, encoder: DualEncoder, texts: Sequence[str], features: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """See `TextMitigationSettings`."""
        from plumbline.mitigation.bias_prompts import apply_bias_prompts

        return apply_bias_prompts(fitted, features)


class PromptArraySettings(TextMitigationSettings):
    """Prompt Array (Berg et al. 2022): learned tokens, trained against an adversary on the similarities."""

    method: Literal["prompt_array"] = Field(
        default="prompt_array", description="which mitigation these settings are of"
    )
    attribute: Attribute = Field(default="gender", description="what the adversary guesses")
    tokens: int = Field(default=2, ge=1, description="learned before every text")
    learning_rate: float = Field(default=2e-5, gt=0, description="of the tokens")
    adversary_learning_rate: float = Field(default=2e-5, gt=0, description="of the adversary")
    batch: int = Field(default=64, ge=2, description="images of a step")
    epochs: int = Field(default=3, ge=1, description="passes over the training rows")
    alternate: int = Field(
        default=10, ge=1, description="batches after which tokens and adversary take turns"
    )
    contrastive: float = Field(default=0.05, ge=0, description="λ_ITC")
    variant: Literal["adversarial", "released"] = Field(
        default="adversarial",
        description="released: 16 vectors, their mean added to the text feature, a hinge",
    )

    def fit(self, work: Workplace) -> FittedMitigation:
        """See `TextMitigationSettings`."""
        from plumbline.mitigation.prompt_array import fit_prompt_array

        return fit_prompt_array(
            cast("PromptedEncoder", work.encoder), work.rows(self.attribute), self,
            seed=work.seed, store=work.store, progress=work.progress,
        )  # fmt: skip

    @staticmethod
    def apply(
        fitted: FittedMitigation, encoder: DualEncoder, texts: Sequence[str], features: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """See `TextMitigationSettings`."""
        from plumbline.mitigation.prompt_array import apply_prompt_array

        return apply_prompt_array(fitted, cast("PromptedEncoder", encoder), texts, features)


class SanerSettings(TextMitigationSettings):
    """SANER (Hirota et al. 2025): a residual layer on the features of attribute-neutral texts."""

    method: Literal["saner"] = Field(default="saner", description="which mitigation these settings are of")
    attribute: Attribute = Field(default="gender", description="what neutral texts are made equidistant to")
    width: int = Field(default=256, ge=1, description="hidden units of the layer")
    learning_rate: float = Field(default=1e-3, gt=0, description="of the layer")
    batch: int = Field(default=64, ge=2, description="images of a step")
    epochs: int = Field(default=5, ge=1, description="passes over the training rows")
    debiasing: float = Field(default=3.0, ge=0, description="α, weight of the spread over the variants")
    reconstruction: float = Field(default=3.0, ge=0, description="β, weight of the distance to the feature")
    contrastive: float = Field(default=0.1, ge=0, description="γ, weight of the image-text term")
    neutral_captions: bool = Field(
        default=True, description="train on the sentences of tables/neutral_captions.yaml too"
    )
    variant: Literal["trained", "released"] = Field(
        default="trained", description="released: Adam 1e-4, 2 epochs, seven variants, one caption"
    )

    def fit(self, work: Workplace) -> FittedMitigation:
        """See `TextMitigationSettings`."""
        from plumbline.mitigation.saner import fit_saner

        return fit_saner(
            work.encoder, work.rows(self.attribute), self,
            seed=work.seed, store=work.store, progress=work.progress,
        )  # fmt: skip

    @staticmethod
    def apply(
        fitted: FittedMitigation, encoder: DualEncoder, texts: Sequence[str], features: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """See `TextMitigationSettings`."""
        from plumbline.mitigation.saner import apply_saner

        return apply_saner(fitted, texts, features)


def is_leaking(settings: MitigationSettings) -> bool:
    """Return whether what is fitted so has seen the labels that it is judged by."""
    return isinstance(settings, LogitAdjustmentSettings) and settings.selection == "released"
