"""The families of local generative models: what each one is read from, and which adapter loads it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LvlmFamily:
    """Checkpoints that one adapter loads.

    Attributes
    ----------
    name : str
    title : str
        For people.
    sees : bool
        Whether it takes images.
    model_types : tuple of str
        Values of `model_type` in `config.json` that mean this family.
    text_models : tuple of str
        Values of `model_type` of the language model inside; its documented prompt format is known for these.
    model_class : str
        Class of transformers that holds the model.
    adapter : str
        `module:Class` below `plumbline.lvlm`, called with (files, placement).
    version : int
        Of the adapter, as part of every backend's identity. Raise it with any change of Plumbline's own code by which
        the same files give other texts (prompt format, tokens, pixels, how tokens are drawn): answers of the earlier
        code are then left aside. Versions of libraries are seen by themselves.
    """

    name: str
    title: str
    sees: bool
    model_types: tuple[str, ...]
    text_models: tuple[str, ...]
    model_class: str
    adapter: str
    version: int


LVLM_FAMILIES: dict[str, LvlmFamily] = {
    family.name: family
    for family in (
        LvlmFamily(
            "llava", "LLaVA", True, ("llava",), ("llama", "mistral", "gemma"),
            "LlavaForConditionalGeneration", "llava:LlavaBackend", 1,
        ),
        LvlmFamily(
            "instructblip", "InstructBLIP", True, ("instructblip",), ("llama",),
            "InstructBlipForConditionalGeneration", "instructblip:InstructBlipBackend", 1,
        ),
        LvlmFamily(
            "language_model", "Language model", False, ("llama", "mistral", "gemma"), ("llama", "mistral", "gemma"),
            "AutoModelForCausalLM", "language_model:LanguageModelBackend", 1,
        ),
    )
}  # fmt: skip
"""LLaVA-1.5, BakLLaVA (Mistral inside) and LLaVA-Gemma are one architecture of transformers, and so one family."""


def lvlm_family_of(model_type: str) -> LvlmFamily | None:
    """Return the family that a `model_type` of `config.json` means, or None."""
    return next((family for family in LVLM_FAMILIES.values() if model_type in family.model_types), None)
