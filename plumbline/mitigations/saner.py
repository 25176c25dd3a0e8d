"""SANER: a residual layer after which attribute-neutral texts are equally similar to every group's texts.

Source: Hirota et al., "SANER: Annotation-free Societal Attribute Neutralizer for Debiasing CLIP" (ICLR 2025). The
weights of its losses, the width of its layer and its learning rate are those of a recorded sweep, see
`docs/mitigation-settings.md`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from plumbline.catalog.suites import all_texts
from plumbline.catalog.word_lists import attribute_words, neutral_captions, person_words
from plumbline.digests import digest_bytes, digest_json, digest_sequence
from plumbline.encoders.encoder import DualEncoder
from plumbline.encoders.families import require
from plumbline.errors import MetricError
from plumbline.mitigations.settings import METHODS, Attribute
from plumbline.mitigations.text_mitigations import (
    FitContext,
    FittedMitigation,
    TrainedMitigationSettings,
    read_artefact,
)
from plumbline.mitigations.training import Descent, train
from plumbline.mitigations.training_rows import TrainingRows
from plumbline.statistics.seeds import generator

if TYPE_CHECKING:
    import torch


class SanerSettings(TrainedMitigationSettings):
    """SANER (Hirota et al. 2025): a residual layer on the features of attribute-neutral texts."""

    reads_given: ClassVar[bool] = True
    method: Literal["saner"] = "saner"
    """which mitigation these settings are of"""
    attribute: Attribute = "gender"
    """what neutral texts are made equidistant to"""
    width: int = Field(default=256, ge=1)
    """hidden units of the layer"""
    learning_rate: float = Field(default=1e-3, gt=0)
    """of the layer"""
    batch: int = Field(default=64, ge=2)
    """images of a step"""
    epochs: int = Field(default=5, ge=1)
    """passes over the training rows"""
    debiasing: float = Field(default=3.0, ge=0)
    """α, weight of the spread over the variants"""
    reconstruction: float = Field(default=3.0, ge=0)
    """β, weight of the distance to the feature"""
    contrastive: float = Field(default=0.1, ge=0)
    """γ, weight of the image-text term"""
    neutral_captions: bool = True
    """train on the sentences of tables/neutral_captions.yaml too"""
    variant: Literal["trained", "released"] = "trained"
    """released: Adam 1e-4, 2 epochs, seven variants, one caption"""

    @property
    def trained_on(self) -> str:
        """Return what it is fitted on, in words."""
        source = f"captions of {self.fit_on or 'the judged dataset'}, its own or made of labels"
        return super().trained_on or (
            f"captions of {self.pairs} that name a person; no labels" if self.pairs else source
        )

    def fit(self, context: FitContext) -> FittedMitigation:
        """Train the layer on neutralised captions; labels are not used, and need not be there.

        The captions are those of a training split, or with `pairs` those of image-text pairs that name a person (Hirota
        et al. 2025, section 4.1: the part of COCO whose captions do).

        Minimises α·L_deb + β·L_recon + γ·L_cont, see `plumbline.mitigations.saner.losses`, by Adam, from a
        layer that changes nothing. Each distinct text is embedded once, by the encoder as it is. On a CPU the
        same arguments give the same bytes, also where training was interrupted after an epoch and goes on. The
        variant `released` is what is known of a released audit (`_RELEASED`), whatever the settings say of these.

        Returns
        -------
        FittedMitigation
            Parameters `weight_in` (h, d), `bias_in` (h,), `weight_out` (d, h), `bias_out` (d,). The settings are what
            was trained with, and carry `specific_pattern`, so that nothing else is needed to apply the layer.

        Raises
        ------
        ConfigError
            If the encoder's family has no shared space of images and texts.
        MetricError
            If there are no texts to train on, or a loss is not finite; that epoch is not kept. Or if a given file holds
            no layer of the encoder's width.
        """
        encoder, method = context.encoder, METHODS["saner"]
        require(encoder.family, method.needs, method.title)
        if self.from_ is not None:
            return self._given(encoder, context.file(self.from_))
        rows = self._rows(context)
        settings = self.model_copy(update=_RELEASED) if self.variant == "released" else self
        texts, pattern = _training_texts(rows, settings), specific_pattern(settings.attribute)
        described = settings.model_dump(mode="json") | {"seed": context.seed, "specific_pattern": pattern}
        key = digest_json(
            {
                "method": method.name,
                "version": method.version,
                "encoder": encoder.identity.digest,
                "images": digest_bytes(np.ascontiguousarray(rows.images, dtype="<f4").tobytes()),
                "image_ids": digest_sequence(rows.image_ids),
                "captions": digest_sequence(rows.captions),
                "texts": texts.digest,
                "settings": described,
            }
        )
        layer = SanerLayer(saner_features(context, rows, texts), settings, seed=context.seed)
        losses = train(
            layer, rows=len(texts.rows) or len(texts.neutral), batch=settings.batch, epochs=settings.epochs,
            seed=context.seed, key=key, store=context.store, progress=context.progress,
        )  # fmt: skip
        train_ids = tuple(dict.fromkeys(rows.image_ids[row] for row in texts.rows))
        return FittedMitigation(described, layer.descent.values(), key, losses, train_ids)

    @model_validator(mode="after")
    def _captions_are_of_one_dataset(self) -> SanerSettings:
        if self.pairs is not None and self.fit_on is not None:
            raise ValueError("`fit_on` or `pairs`: SANER reads captions alone, of one dataset")
        return self

    def _rows(self, context: FitContext) -> TrainingRows:
        """Return images with captions: of a training split, or those image-text pairs whose caption is of a person."""
        if self.pairs is None:
            return context.rows(self.attribute, self.fit_on, labelled=False)
        pairs = context.pairs(self.pairs)
        of_persons = np.flatnonzero([names_person(caption) for caption in pairs.captions])
        if not len(of_persons):
            raise MetricError("no caption names a person", found=f"{len(pairs.captions)} captions of `{self.pairs}`")
        return pairs.taken(of_persons).rows()

    def _given(self, encoder: DualEncoder, path: Path) -> FittedMitigation:
        """Return a layer that others have trained."""
        d = encoder.width
        shapes = {"weight_in": ("h", d), "bias_in": ("h",), "weight_out": (d, "h"), "bias_out": (d,)}
        given, method = read_artefact(path, shapes), METHODS["saner"]
        described = self.model_dump(mode="json") | {"specific_pattern": specific_pattern(self.attribute)}
        about = {"method": method.name, "version": method.version, "encoder": encoder.identity.digest}
        key = digest_json(about | {"given": given.sha256, "settings": described})
        return FittedMitigation(described, given.parameters, key)

    @staticmethod
    def apply(
        fitted: FittedMitigation, encoder: DualEncoder, texts: Sequence[str], features: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """Apply the layer to the features of neutral texts; those of other texts stay bit-identical.

        Parameters
        ----------
        texts : sequence of n str
        features : (n, d) float32
            As the encoder gives them, or of unit length.

        Returns
        -------
        (n, d) float32
            Each row as long as it came in: ‖x‖ · y/‖y‖ with y = u + r(u), u = x/‖x‖.
        """
        weights = {name: array.astype(np.float64) for name, array in fitted.parameters.items()}
        pattern = re.compile(fitted.settings["specific_pattern"])
        neutral = [i for i, text in enumerate(texts) if not pattern.search(text)]
        x = features[neutral].astype(np.float64)
        lengths = np.linalg.norm(x, axis=1, keepdims=True)
        u = np.divide(x, lengths, out=np.zeros_like(x), where=lengths > 0)
        hidden = np.maximum(u @ weights["weight_in"].T + weights["bias_in"], 0)
        # x + ‖x‖ r(u) has the direction of u + r(u), and is x itself where r is zero.
        y = x + lengths * (hidden @ weights["weight_out"].T + weights["bias_out"])
        debiased_lengths = np.linalg.norm(y, axis=1, keepdims=True)
        y *= np.divide(lengths, debiased_lengths, out=np.ones_like(lengths), where=debiased_lengths > 0)
        debiased = features.copy()
        debiased[neutral] = y
        return debiased


_RELEASED = {"learning_rate": 1e-4, "epochs": 2, "batch": 64, "contrastive": 0.0, "attribute": "race"}
"""What is known of a released audit: Adam 1e-4, 2 epochs, batch 64, the spread over seven variants, one caption.

Decided here: the seven are the race variants, whatever the attribute, since no other has seven; the caption is `a photo
of a person`; no contrastive term, since one caption has nothing to be told from; α, β and the width are the settings'.
Its caption is a prompt of the audit, so it is for comparison with published numbers only.
"""


def _training_texts(rows: TrainingRows, settings: SanerSettings) -> SanerTexts:
    if settings.variant == "released":
        return one_caption(len(rows.captions))
    texts = saner_texts(rows.captions, settings.attribute, more=settings.neutral_captions)
    if not texts.neutral:
        raise MetricError("no caption of the training split can be trained on", found=f"{len(rows.captions)} captions")
    return texts


# --- Texts that name no label of an attribute, texts made so, and texts made to name one.
#
# Source: Hirota et al., "SANER: Annotation-free Societal Attribute Neutralizer for Debiasing CLIP" (ICLR
# 2025), section 3: attribute neutralisation, and the attribute-specific descriptions of a neutral one.
# The words are those of `plumbline/catalog/person_words.yaml`. Only whole words count, whatever their
# case: letters, digits and hyphens between letters hold a word together (`salesman` is a word of its own,
# `man-made` none), an apostrophe or underscore ends one.

_START = r"(?<![^\W_])(?<![^\W_][-\u2010\u2011])"
_END = r"(?![^\W_])(?![-\u2010\u2011][^\W_])"
_BETWEEN = r"[\s_/\-\u2010\u2011]+"
_GAP = r"[\s_]+"
_WORD = r"[^\W_]+(?:[-\u2010\u2011'’][^\W_]+)*"
_ARTICLE = re.compile(rf"{_START}(an?)(\s+)$", re.IGNORECASE)
# By sound: a European, a unicyclist, a one-armed person; an heir, an honest person, an hour.
_CONSONANT_SOUND = re.compile(r"(?:eu|uni(?!n)|us[ae]|one\b|once\b)", re.IGNORECASE)
_VOWEL_SOUND = re.compile(r"(?:[aeiou]|hour|heir|hon(?:est|ou?r))", re.IGNORECASE)


def is_neutral(text: str, attribute: str) -> bool:
    """Return whether a text names no label of an attribute (`gender`, `race`, `age`).

    `a photo of a thief` is neutral for all three; so is `a man in a black suit`, for race and age. An empty
    text is neutral.
    """
    return re.search(specific_pattern(attribute), text) is None


@cache
def specific_pattern(attribute: str) -> str:
    """Return the regular expression that is found in exactly the texts that name a label of an attribute.

    It is complete in itself (flags included), so that a fitted mitigation can carry it; groups say what was
    found.
    """
    words = attribute_words(attribute)
    kinds = {
        "phrase": words.phrases,
        "noun": [_any(words.nouns)],
        "pronoun": [_any(words.pronouns)] if words.pronouns else [],
        "modifier": [_any(words.modifiers)],
        "before_person": [_before_persons(words.before_persons)] if words.before_persons else [],
    }
    alternatives = [f"(?P<{kind}>{'|'.join(parts)})" for kind, parts in kinds.items() if parts]
    return f"(?i){_START}(?:{'|'.join(alternatives)}){_END}"


def neutralised(text: str, attribute: str) -> str:
    """Return a text without the labels of an attribute that it names; a neutral text comes back as it is.

    A noun is replaced (woman -> person, men -> people, girl -> child), an adjective goes, or becomes `person`
    where it stood for one; articles next to a change follow the word after them, and capitals are kept. `a
    photo of an Asian woman` gives `a photo of an Asian person` for gender and `a photo of a woman` for race.
    """
    pattern = specific_pattern(attribute)
    # What goes can bring another word next to a person: until there is none. From the right, so that what
    # follows a change is final.
    while matches := list(re.finditer(pattern, text)):
        for match in reversed(matches):
            text = _replaced(text, match, attribute)
    return text


def variants(text: str, attribute: str) -> tuple[str, ...]:
    """Return the texts that name each label of an attribute in turn, made of a neutral one.

    The label's word goes before every person: `a photo of a person` gives `a photo of a male person` and `a
    photo of a female person`. Where a text names no person that is known, the word goes after the first
    article that follows `photo of` and the like (`a photo of a zookeeper` gives `a photo of a male
    zookeeper`), and without one before the first word; an empty text becomes the word alone.

    Returns
    -------
    tuple of str
        In the order of the labels in the data file: gender 2, race 7, age 2.

    Raises
    ------
    MetricError
        If the text is not neutral.
    """
    if not is_neutral(text, attribute):
        raise MetricError(
            f"a text that names a label of `{attribute}` has no variants", found=text, hint="neutralise it first"
        )
    places = [match.start() for match in re.finditer(_persons(), text)] or [_place(text)]
    texts = []
    for word in attribute_words(attribute).variants.values():
        variant = text
        for place in reversed(places):
            variant = _with_article(variant[:place], f"{word} {variant[place:]}")
        texts.append(variant.strip())
    return tuple(texts)


def names_person(text: str) -> bool:
    """Return whether a text has a word for a person, or a label of any attribute: `a surfer on a wave` has one."""
    return bool(re.search(_persons(), text)) or any(
        not is_neutral(text, attribute) for attribute in get_args(Attribute)
    )


def _any(words: Iterable[str]) -> str:
    """Return a regular expression for any of some words, in a canonical order, since it is part of a fit's identity."""
    ordered = sorted(words, key=lambda word: (-len(word), word))
    return "(?:" + "|".join(_BETWEEN.join(map(re.escape, word.split())) for word in ordered) + ")"


@cache
def _known_persons() -> str:
    words = person_words()
    nouns = [noun for attribute in words.attributes.values() for noun in attribute.nouns]
    return f"{_START}{_any({*words.persons, *nouns})}{_END}"


@cache
def _persons() -> str:
    """Return an expression for a run of words for one person: `police officer`."""
    return f"(?i){_known_persons()}(?:{_GAP}{_known_persons()})*"


def _before_persons(words: Iterable[str]) -> str:
    """Return an expression for words that count up to three words before a person, or as the last noun."""
    others = rf"(?:{_GAP}(?!{_any(person_words().no_nouns)}{_END}){_WORD}){{0,2}}"
    last = rf"(?:(?<=\ba\s)|(?<=\ban\s)){_any(words)}(?=\W*$)"
    return rf"{_any(words)}(?={others}{_GAP}{_known_persons()})|{last}"


def _replaced(text: str, match: re.Match[str], attribute: str) -> str:
    before, word, after = text[: match.start()], match.group(), text[match.end() :]
    if re.search(r",\s*$", before) and re.match(r"\s*(?:[.]|$|,(?!\s*(?:and|or)\b))", after):
        # A label in apposition goes with its comma: `a photo of a woman, middle-aged`.
        return re.sub(r"\s*,\s*$", "", before) + after
    starts_sentence = re.search(r"(?:^|[.!?]\s+)$", before) and word[:1].isupper()
    neutral = _neutral_form(match, attribute, before, after)
    if neutral:
        neutral = neutral.upper() if len(word) > 1 and word.isupper() else neutral
        rest = neutral + after
    else:
        rest = after if re.search(r"[^\W_]$", before) else re.sub(rf"^{_GAP}", "", after)
        before = before if re.match(r"[^\W_]", rest) else before.rstrip()
    return _with_article(before, rest[:1].upper() + rest[1:] if starts_sentence else rest)


def _neutral_form(match: re.Match[str], attribute: str, before: str, after: str) -> str:
    """Return the neutral replacement of a word; empty where it is dropped."""
    words, word = attribute_words(attribute), re.sub(_BETWEEN, " ", match.group().lower())
    if match.lastgroup == "pronoun":
        return words.pronouns[word]
    if re.match(rf"(?i){_GAP}{_known_persons()}", after):
        return ""
    if match.lastgroup == "noun":
        return words.nouns[word]
    noun_follows = re.match(rf"(?i){_GAP}(?!{_any(person_words().no_nouns)}{_END})[^\W_]", after)
    if noun_follows or (match.lastgroup == "phrase" and not _ARTICLE.search(before)):
        return ""
    return "person"


def _with_article(before: str, after: str) -> str:
    """Join two parts of a text; an article at the end of the first follows the sound of the second."""
    match = _ARTICLE.search(before)
    if not match or not after:
        return before + after
    vowel = _VOWEL_SOUND.match(after) and not _CONSONANT_SOUND.match(after)
    article = match[1][0] + (("N" if match[1].isupper() and after[:2].isupper() else "n") if vowel else "")
    return before[: match.start()] + article + match[2] + after


def _place(text: str) -> int:
    """Return where a label's word goes in a text without a known person."""
    picture = re.search(rf"(?i){_START}{_any(person_words().pictures)}\s+of\s+", text)
    start = picture.end() if picture else 0
    article = re.search(rf"(?i){_START}(?:an?|the)\s+(?=\S)", text[start:])
    if article:
        return start + article.end()
    return start + len(text[start:]) - len(text[start:].lstrip())


# --- The texts that it is trained on: neutral captions with their variants, never a prompt of the audit.

ONE_CAPTION = "a photo of a person"


@dataclass(frozen=True)
class SanerTexts:
    """Neutral texts to train on.

    Attributes
    ----------
    neutral : tuple of str
        Length t, distinct: first those of the rows, then those without an image.
    variants : tuple of tuple of str
        Of each neutral text, g variants.
    of_row : (n,) int64
        Position in `neutral` of each training row's caption; -1 where it has none.
    without_image : (k,) int64
        Positions of the texts that belong to no row.
    """

    neutral: tuple[str, ...]
    variants: tuple[tuple[str, ...], ...]
    of_row: NDArray[np.int64]
    without_image: NDArray[np.int64]

    @property
    def rows(self) -> NDArray[np.int64]:
        """Return the positions of the rows that have a caption to train on."""
        return np.flatnonzero(self.of_row >= 0)

    @property
    def distinct(self) -> tuple[str, ...]:
        """Return every text that must be embedded, once."""
        return tuple(dict.fromkeys((*self.neutral, *(text for row in self.variants for text in row))))

    @property
    def digest(self) -> str:
        """Return the sha256 of all of it."""
        return digest_sequence(
            [*self.neutral, *(text for row in self.variants for text in row), *map(str, self.of_row.tolist())]
        )


def saner_texts(captions: Sequence[str], attribute: str, *, more: bool) -> SanerTexts:
    """Neutralise captions and make the variants of each.

    A caption that is then a prompt of an audited suite, or has such a variant, is taken in another wording
    (`a picture of ..`), and if that is one too, left out; an empty one likewise.

    Parameters
    ----------
    captions : sequence of n str
        Of the training rows.
    more : bool
        Whether the neutral captions of the data file are trained on too.
    """
    neutral_of = {caption: unaudited(neutralised(caption, attribute), attribute) for caption in dict.fromkeys(captions)}
    of_rows = tuple(dict.fromkeys(text for text in neutral_of.values() if text))
    others = neutral_captions().texts if more else ()
    neutral = tuple(dict.fromkeys((*of_rows, *others)))
    position = {text: i for i, text in enumerate(neutral)}
    return SanerTexts(
        neutral=neutral,
        variants=tuple(variants(text, attribute) for text in neutral),
        of_row=np.array([position.get(neutral_of[caption] or "", -1) for caption in captions], dtype=np.int64),
        without_image=np.arange(len(of_rows), len(neutral)),
    )


def one_caption(rows: int) -> SanerTexts:
    """Return the texts of the variant `released`: one caption for every row, with its seven race variants.

    The caption is a prompt of the Trident suites: the variant is for comparison with published numbers only.
    """
    return SanerTexts(
        neutral=(ONE_CAPTION,),
        variants=(variants(ONE_CAPTION, "race"),),
        of_row=np.zeros(rows, dtype=np.int64),
        without_image=np.arange(0),
    )


def unaudited(text: str, attribute: str) -> str | None:
    """Return a neutral text or another wording of it, whichever is no audited prompt, variants included."""
    wordings = [text]
    for beginning, other in neutral_captions().rewordings.items():
        if text.lower().startswith(beginning):
            wordings.append(other + text[len(beginning) :])
            break
    return next((wording for wording in wordings if wording.strip() and _is_unaudited(wording, attribute)), None)


def _is_unaudited(text: str, attribute: str) -> bool:
    return is_neutral(text, attribute) and not _audited().intersection(
        as_read(wording) for wording in (text, *variants(text, attribute))
    )


def as_read(text: str) -> str:
    """Return a text as an uncased encoder reads it, without its full stop."""
    return " ".join(text.lower().split()).rstrip(".")


@cache
def _audited() -> frozenset[str]:
    return frozenset(map(as_read, all_texts()))


# --- The layer in training: its three losses, and one step of Adam at a time.

# Keeps the gradient of the spread finite where all cosines are equal.
_LEAST_VARIANCE = 1e-12


@dataclass(frozen=True)
class SanerFeatures:
    """Unit features of what SANER is trained on, from the frozen encoder, on its device.

    Attributes
    ----------
    neutral : (t, d) float32
    variants : (t, g, d) float32
        Of each neutral text.
    images : (n, d) float32
    of_row : (n,) int64
        Neutral text of each image.
    without_image : (k,) int64
        Neutral texts that belong to no image.
    logit_scale : float
        Factor from cosine to logit.
    """

    neutral: torch.Tensor
    variants: torch.Tensor
    images: torch.Tensor
    of_row: NDArray[np.int64]
    without_image: NDArray[np.int64]
    logit_scale: float


def saner_features(context: FitContext, rows: TrainingRows, texts: SanerTexts) -> SanerFeatures:
    """Embed every distinct text once, by the encoder as it is."""
    import torch

    def unit(features: NDArray[np.float32]) -> NDArray[np.float32]:
        lengths = np.linalg.norm(features.astype(np.float64), axis=1, keepdims=True)
        return (features / lengths).astype(np.float32)

    def on_device(array: NDArray[np.float32]) -> torch.Tensor:
        return torch.from_numpy(array).to(context.encoder.device)

    distinct = texts.distinct
    position, embedded = {text: i for i, text in enumerate(distinct)}, unit(context.embed(distinct))
    return SanerFeatures(
        neutral=on_device(embedded[[position[text] for text in texts.neutral]]),
        variants=on_device(embedded[[[position[text] for text in variants] for variants in texts.variants]]),
        images=on_device(unit(rows.images[texts.rows])),
        of_row=texts.of_row[texts.rows],
        without_image=texts.without_image,
        logit_scale=context.encoder.logit_scale,
    )


def layer(parameters: Mapping[str, torch.Tensor], u: torch.Tensor) -> torch.Tensor:
    """Return u + W_out ReLU(W_in u + b_in) + b_out for (b, d) unit features."""
    hidden = (u @ parameters["weight_in"].T + parameters["bias_in"]).relu()
    return u + hidden @ parameters["weight_out"].T + parameters["bias_out"]


def first_parameters(width: int, hidden: int, *, seed: int) -> dict[str, NDArray[np.float32]]:
    """Return initial parameters: the last layer is zero, so that features are unchanged at first.

    The first layer is uniform in ±√(6/d) (He et al. 2015), its biases are zero.
    """
    bound = (6 / width) ** 0.5
    weight = generator(seed, "saner", "layer").uniform(-bound, bound, (hidden, width))
    return {
        "weight_in": weight.astype(np.float32),
        "bias_in": np.zeros(hidden, dtype=np.float32),
        "weight_out": np.zeros((width, hidden), dtype=np.float32),
        "bias_out": np.zeros(width, dtype=np.float32),
    }


def contrastive_loss(images: torch.Tensor, unit: torch.Tensor, texts: torch.Tensor, scale: float) -> torch.Tensor:
    """Return CLIP's symmetric cross-entropy of images and their texts.

    Neutral captions repeat: an image's targets are all texts of the batch that are the same as its own,
    in equal shares, so that no true pair counts as a false one. Without repetition it is the usual loss.

    Parameters
    ----------
    images, unit : (m, d) tensors
        Of the images and of their texts, of unit length.
    texts : (m,) int tensor
        Which text each image has; equal numbers are one text.
    scale : float
        Factor from cosine to logit.
    """
    logits = scale * images @ unit.T
    same = (texts[:, None] == texts[None]).to(logits)
    targets = same / same.sum(dim=1, keepdim=True)
    by_image, by_text = (-(targets * side.log_softmax(dim=1)).sum(dim=1).mean() for side in (logits, logits.T))
    return (by_image + by_text) / 2


def text_losses(
    debiased: torch.Tensor, unit: torch.Tensor, original: torch.Tensor, variants: torch.Tensor
) -> dict[str, torch.Tensor]:
    """Return the losses of texts (Hirota et al. 2025, section 3), each a mean over them.

    debiasing: standard deviation over the g variants of cos(debiased, variant), 0 where they are equally near;
    reconstruction: squared distance ‖debiased - original‖².

    Parameters
    ----------
    debiased, unit, original : (b, d) tensors
        `unit` is `debiased` at unit length, which the original features are of too.
    variants : (b, g, d) tensor
        Unit length.
    """
    cosines = (variants @ unit[:, :, None])[:, :, 0]
    return {
        "debiasing": (cosines.var(dim=1, correction=0) + _LEAST_VARIANCE).sqrt().mean(),
        "reconstruction": (debiased - original).square().sum(dim=1).mean(),
    }


class SanerLayer:
    """The layer in training; implements `plumbline.mitigations.training.Trainable`.

    A batch is images with their texts and, where there are texts without an image, as many of these, drawn by
    seed and step; the contrastive loss is over the images alone. Without any image it is texts.

    Parameters
    ----------
    features : SanerFeatures
    settings : SanerSettings
        Its width, learning rate, and the weights of the losses: α, β and γ of the paper.
    seed : int
        Of the first parameters, and of the draws.
    """

    def __init__(self, features: SanerFeatures, settings: SanerSettings, *, seed: int) -> None:
        import torch

        self._features, self._settings, self._seed = features, settings, seed
        first = first_parameters(features.neutral.shape[1], settings.width, seed=seed)
        device = features.neutral.device
        parameters = {name: torch.from_numpy(array).to(device).requires_grad_() for name, array in first.items()}
        self.descent = Descent(parameters, settings.learning_rate)
        self.descents = (self.descent,)

    def step(self, rows: NDArray[np.int64], number: int) -> Mapping[str, float]:
        """Take one step on a batch of images, or of texts where there are no images.

        Returns `debiasing` and `reconstruction`, see `text_losses`, `contrastive`, see `contrastive_loss`, and their
        weighted sum `total`.

        Raises
        ------
        MetricError
            If the loss is not finite.
        """
        import torch

        features, with_images = self._features, len(self._features.of_row) > 0
        chosen = features.of_row[rows] if with_images else features.without_image[rows]
        if with_images:
            chosen = np.concatenate([chosen, self.drawn(len(rows), number)])
        texts = torch.from_numpy(chosen)
        original = features.neutral[texts]
        debiased = layer(self.descent.parameters, original)
        unit = debiased / debiased.norm(dim=1, keepdim=True)
        terms = text_losses(debiased, unit, original, features.variants[texts])
        terms["contrastive"] = unit.new_zeros(())
        if with_images and self._settings.contrastive:
            images, n = features.images[torch.from_numpy(rows)], len(rows)
            terms["contrastive"] = contrastive_loss(images, unit[:n], texts[:n], features.logit_scale)
        total = sum(getattr(self._settings, name) * loss for name, loss in terms.items())
        values = {name: loss.item() for name, loss in terms.items()} | {"total": total.item()}
        self.descent.step(total, number=number)
        return values

    def drawn(self, rows: int, number: int) -> NDArray[np.int64]:
        """Draw as many texts without an image as there are rows, or all where there are fewer."""
        known = self._features.without_image
        if len(known) <= rows:
            return known
        return generator(self._seed, "saner", "captions", number).choice(known, rows, replace=False)
