"""The page of tested models: what each family reads, answers and was compared with, from the registries.

`python -m documentation.models` writes it again.
"""

from inspect import getdoc

from plumbline.encoders.families import DUAL_ENCODER, FAMILIES, REFUSED, Capability, Family
from plumbline.generators.families import (
    GENERATOR_FAMILIES,
    IMAGE_TEXT,
    NOT_MEANT,
    READS_TOGETHER,
    SHARES,
    UNPROVED,
    GeneratorFamily,
)
from plumbline.imports import import_class
from resources.checkout import PROJECT

PAGE = PROJECT / "docs" / "models.md"

_OWN = "logits of the model's own forward pass in transformers, 1e-5"
COMPARED = {
    "open_clip": "`encode_image` and `encode_text` of all 144 configurations of open_clip 3.3, shrunk, 1e-5",
    "clip": "products of `get_image_features` and `get_text_features`, 1e-4",
    "align": "`logits_per_image`, 1e-4",
    "siglip": f"{_OWN}; fixed sizes, padding on either side",
    "siglip2": f"{_OWN}; patches and mask of its image processor",
    "flava": "the contrastive logits of its pre-training, from its two towers, 1e-5",
    DUAL_ENCODER: "with GroupViT alone, 1e-5: of any other type nothing is known",
    "blip": "`itm_score` of `BlipForImageTextRetrieval`, 1e-5",
    "blip_2": "`logits_per_image` of the matching head of `Blip2ForImageTextRetrieval`, 1e-5",
    "bridgetower": "`logits` of `BridgeTowerForImageAndTextRetrieval`, pair by pair, 1e-4",
    "stored": "no model runs",
    "stored_images": "no image is seen; texts as the checkpoint that embeds them",
    "stored_vectors": "no model runs",
    "owlv2": "means over patches of the logits of `Owlv2ForObjectDetection`, 1e-4",
    "owlvit": "means over patches of the logits of `OwlViTForObjectDetection`, 1e-4",
}
"""Family of encoders -> what its logits were compared with, and to which tolerance; by default the model's own."""

_LOGITS = {
    "dot": "product of the vectors as they are, as the released code of Trident takes it",
    "scaled_cosine": "scale x cosine (+ bias)",
    "pair": "the answer of the matching head",
    "stored": "none: what was chosen is read from tables",
}
_OPENING = """# Tested models

Written from the registries by `python -m documentation.models`; a test compares them. What is compared is a tiny
checkpoint of each type, with weights that are drawn, saved and loaded by the library itself: the architecture, its
preprocessing and its tokens, not the released weights.

## Encoders

`family` in the audit file is found from the files: `open_clip_config.json` means open_clip, else the `model_type`
of `config.json` decides.

| `family` | `model_type` | What it can answer | Its logit | Compared with |
|---|---|---|---|---|
"""
_AFTER = """
**Vectors**: images and texts have vectors in one space, so that every suite, automatic labels and mitigations of
logits can be computed. **Choices**: a number an image and text, enough for suites that ask for the best of several
descriptions. **Gradients**: learned prompts (Prompt Array) can be trained.

Scale, bias, padding and the longest text are the checkpoint's own. SigLIP and its relatives were trained with a
sigmoid: their logit is scale x cosine + bias, and 1 / (1 + exp(-logit)) the probability that a text matches. Where
a study chooses among candidates, or takes a softmax over them (automatic labels), the bias cancels. Where a threshold
is meant, `plumbline.match_probabilities` gives the sigmoid, of vectors and the checkpoint's own scale and bias; it
refuses models that were trained with a softmax, whose logits mean nothing alone. A text that is longer than the
checkpoint takes is refused, never cut.

Of open_clip's 144 configurations all pass and none is refused: each is shrunk (a timm tower becomes the smallest timm
model of its class, a text tower of the hub a local configuration of its type), written, read by `local-dir:` through
the real factory, and held against the library. The slow suite walks them all, in three minutes; `make test` fourteen,
one of each kind.

A type that is not in the table, and whose model in transformers has `get_image_features` and `get_text_features`,
is read by `family: dual_encoder`; nobody has tested it.

### Files that are read

`safetensors`, in one file or in parts. `pytorch_model.bin`, whole or in parts, and what open_clip's trainer writes
(`address: local-dir:logs/NAME/checkpoints/epoch_1.pt`) are converted once, in a process of its own that builds
tensors and nothing else; `converted.json` beside the result has both digests. The trainer's architecture comes from
`params.txt` beside the checkpoint or one folder above, as a name that open_clip knows, or from `model:` in the audit
file: such a name, or the path of the JSON file that describes an architecture of your own (`model: my-vit.json`; a
relative path starts where the command runs).

### Refused

"""
_GENERATORS = """
A checkpoint that needs code of its own is refused, whatever its type.

## Generative models

Found from the `model_type` of `config.json`. Messages, image tokens and tiles are made by the checkpoint's own
processor, and every answer draws with numbers of its own, whatever is answered beside it. What a model thinks before
its answer (`<think>` and its like) is kept in a column of its own, counted, and never scored.

| `model_type` | Model | How it is read | Compared with |
|---|---|---|---|
"""
_ONCE = "the image, and what its format puts before it, once for all prompts"
_TOGETHER = "image and prompt together, by transformers' `generate`"
_ROW_BY_ROW = "texts of its own processor and `generate`, row by row, to the letter"
_UNPROVED = """
A chat template that puts the prompt before the image has any of them read as PaliGemma is.

**Mapped by transformers, tested with none**: read by transformers' `generate`, image and prompt together, and said to
be untested wherever they are planned.
"""
_NOT_MEANT = """
**Refused**, with the reason:

"""


def models_page() -> str:
    """Return the page."""
    rows = "".join(_row(family) for family in FAMILIES.values())
    refused = "".join(f"- `{model_type}`: {reason}.\n" for model_type, reason in REFUSED.items())
    generators = "".join(_generator_row(family) for family in GENERATOR_FAMILIES.values() if family.name != IMAGE_TEXT)
    generators += "".join(_proved(model_type, title, _ONCE) for model_type, title in SHARES.items())
    generators += "".join(_proved(model_type, title, _TOGETHER) for model_type, title in READS_TOGETHER.items())
    unproved = _UNPROVED + _code(UNPROVED) + ".\n"
    reasons = {reason: [kind for kind, why in NOT_MEANT.items() if why == reason] for reason in NOT_MEANT.values()}
    not_meant = "".join(f"- {_code(tuple(kinds))}: {reason}.\n" for reason, kinds in reasons.items())
    return _OPENING + rows + _AFTER + refused + _GENERATORS + generators + unproved + _NOT_MEANT + not_meant


def _generator_row(family: GeneratorFamily) -> str:
    read = _first_line(family.adapter)
    read = f"{read[:1].lower()}{read[1:]}"
    return f"| {_code(family.model_types)} | {family.title} | {read} | {_ROW_BY_ROW} |\n"


def _proved(model_type: str, title: str, read: str) -> str:
    return f"| `{model_type}` | {title} | {read} | {_ROW_BY_ROW} |\n"


def _row(family: Family) -> str:
    types = _code(family.reads) or ("any other" if family.name == DUAL_ENCODER else "")
    compared = COMPARED.get(family.name, _OWN)
    return f"| `{family.name}` | {types} | {_answers(family)} | {_LOGITS[family.logit]} | {compared} |\n"


def _answers(family: Family) -> str:
    words = ["vectors" if Capability.EMBED_IMAGES in family.offers else "choices"]
    return ", ".join(words + ["gradients"] * (Capability.TEXT_GRADIENTS in family.offers))


def _code(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _first_line(adapter: str) -> str:
    return (
        (getdoc(import_class(adapter, below="plumbline.generators")) or "")
        .splitlines()[0]
        .split("; see")[0]
        .rstrip(".")
    )


if __name__ == "__main__":
    PAGE.write_text(models_page(), "utf-8")
