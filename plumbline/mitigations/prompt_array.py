"""Prompt Array: learned tokens before every text, trained so that similarities predict a person's group less well.

Source: Berg et al., "A Prompt Array Keeps the Bias Away: Debiasing Vision-Language Models with Adversarial Learning"
(2022), and its released training script. The backbone stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from plumbline.catalog.suites import TASKS, all_texts, load_suite
from plumbline.catalog.word_lists import load_sensitive_queries
from plumbline.digests import digest_bytes, digest_json, digest_sequence
from plumbline.encoders.encoder import PromptedEncoder
from plumbline.encoders.families import require
from plumbline.errors import EncodingError, MetricError
from plumbline.mitigations.settings import METHODS, Attribute
from plumbline.mitigations.text_mitigations import (
    FitContext,
    FittedMitigation,
    TrainedMitigationSettings,
    read_artefact,
)
from plumbline.mitigations.training import Descent, train
from plumbline.mitigations.training_rows import ImageTextPairs, TrainingRows
from plumbline.statistics.seeds import generator

if TYPE_CHECKING:
    import torch

    from plumbline.encoders.encoder import DualEncoder


class PromptArraySettings(TrainedMitigationSettings):
    """Prompt Array (Berg et al. 2022): learned tokens, trained against an adversary on the similarities."""

    reads_given: ClassVar[bool] = True
    method: Literal["prompt_array"] = "prompt_array"
    """which mitigation these settings are of"""
    attribute: Attribute = "gender"
    """what the adversary guesses"""
    tokens: int = Field(default=2, ge=1)
    """learned before every text"""
    learning_rate: float = Field(default=2e-5, gt=0)
    """of the tokens"""
    adversary_learning_rate: float = Field(default=2e-5, gt=0)
    """of the adversary"""
    batch: int = Field(default=64, ge=2)
    """images of a step"""
    epochs: int = Field(default=3, ge=1)
    """passes over the training rows"""
    alternate: int = Field(default=10, ge=1)
    """batches after which tokens and adversary take turns"""
    contrastive: float = Field(default=0.05, ge=0)
    """λ_ITC"""
    variant: Literal["adversarial", "released"] = "adversarial"
    """released: 16 vectors, their mean added to the text feature, a hinge"""
    queries: Literal["own", "audited"] = "own"
    """what the adversary sees images compared with: sensitive queries that no suite asks, or the audited prompts"""
    before: Literal["all", "queries"] = "all"
    """all: the tokens stand before captions too; queries: before prompts of suites and sensitive queries alone"""

    @model_validator(mode="after")
    def _pairs_have_a_term(self) -> PromptArraySettings:
        if self.pairs is not None and self.variant == "released":
            raise ValueError("`pairs` with the variant adversarial alone: released has no image-text term")
        return self

    @property
    def trained_on(self) -> str:
        """Return what it is fitted on, in words."""
        faces = f"faces of {self.fit_on or 'the judged dataset'} labelled by {self.attribute}"
        texts = f"as many image-text pairs of {self.pairs}" if self.pairs else "captions made of their labels"
        return super().trained_on or f"{faces}, and {texts}"

    def fit(self, context: FitContext) -> FittedMitigation:
        """Train a prompt array on an encoder's device.

        Variant `adversarial`: see `plumbline.mitigations.prompt_array.LearnedTokens`; the parameter is
        `tokens`, (k, w). They start from the embedding of one word; where it has fewer tokens than are learned
        they are repeated, where it has more the first are taken. Variant `released`: see
        `plumbline.mitigations.prompt_array.AddedVectors`; the parameter is `vectors`, (16, d), and its
        numbers of steps, rows and vectors and its learning rate are fixed, whatever the settings say.

        The texts that it is trained on are `plumbline.catalog.word_lists` and the rows' captions; no
        sensitive query is a prompt of a suite, unless `queries` says so, as section 3.5 of Data Matters Most reads.
        With `pairs`, the contrastive term is over as many image-text pairs as there are rows, drawn by the seed
        (section 3.6: all of FairFace's training rows, and as many pairs); the rows' captions are not used.

        Equal seeds give equal bytes on one kind of device.

        Raises
        ------
        ConfigError
            If the encoder's family has no text gradients.
        EncodingError
            If a text leaves no room for the tokens, or the tokenizer puts no start token before a text.
        MetricError
            If a loss is not finite; the epoch is then not kept. Also if training would end before the tokens'
            first turn, or a given file holds no tokens of the encoder's width.
        """
        encoder, described = cast("PromptedEncoder", context.encoder), self.model_dump(mode="json")
        require(encoder.family, _METHOD.needs, _METHOD.title)
        if self.from_ is not None:
            return self._given(encoder, context.file(self.from_), described)
        rows, words = context.rows(self.attribute, self.fit_on), load_sensitive_queries().pairs
        queries = load_sensitive_queries().texts if self.queries == "own" else audited_queries()
        paired = None
        if self.pairs is not None:
            paired = context.pairs(self.pairs).as_many_as(len(rows.labels), seed=context.seed)
        key = digest_json(
            {
                "method": [_METHOD.name, _METHOD.version],
                "encoder": encoder.identity.digest,
                "settings": described,
                "seed": context.seed,
                "queries": list(queries),
                "image_ids": digest_sequence(rows.image_ids),
                "images": [list(rows.images.shape), digest_bytes(rows.images.astype("<f4").tobytes())],
                "groups": list(rows.groups),
                "labels": digest_bytes(rows.labels.astype("<i8").tobytes()),
                "captions": digest_sequence(rows.captions),
                **({} if paired is None else {"pairs": paired.digest}),
            }
        )
        run = partial(train, seed=context.seed, key=key, store=context.store, progress=context.progress)
        if self.variant == "released":
            added = AddedVectors(encoder, rows.images, words, seed=context.seed)
            losses = run(added, rows=RELEASED_STEPS * RELEASED_BATCH, batch=RELEASED_BATCH, epochs=1)
            parameters = added.descent.values()
        else:
            _require_turns(len(rows.labels), self)
            learned = LearnedTokens(encoder, rows, self, queries, seed=context.seed, pairs=paired)
            losses = run(learned, rows=len(rows.labels), batch=self.batch, epochs=self.epochs)
            parameters = learned.tokens.values()
        train_ids = rows.image_ids + (() if paired is None else paired.image_ids)
        return FittedMitigation(described | {"seed": context.seed}, parameters, key, losses, train_ids)

    def _given(self, encoder: PromptedEncoder, path: Path, described: dict[str, Any]) -> FittedMitigation:
        """Return tokens, or vectors of the variant `released`, that others have learned."""
        shapes: dict[str, tuple[str | int, ...]] = {"vectors": ("vectors", encoder.width)}
        if self.variant == "adversarial":
            shapes = {"tokens": ("tokens", encoder.token_vectors(INITIAL_WORD).shape[-1])}
        given = read_artefact(path, shapes)
        key = digest_json(
            {
                "method": [_METHOD.name, _METHOD.version],
                "encoder": encoder.identity.digest,
                "given": given.sha256,
                "settings": described,
            }
        )
        return FittedMitigation(described, given.parameters, key)

    @staticmethod
    def apply(
        fitted: FittedMitigation, encoder: DualEncoder, texts: Sequence[str], features: NDArray[np.float32]
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
        EncodingError
            If a text leaves no room for the tokens.
        """
        if fitted.settings["variant"] == "released":
            changed = features + fitted.parameters["vectors"].mean(axis=0)
        else:
            changed = np.array(features, dtype=np.float32)
            prompted = set(audited_texts()) if fitted.settings.get("before") == "queries" else set(texts)
            chosen = [i for i, text in enumerate(texts) if text in prompted]
            changed[chosen] = _with_tokens(
                cast("PromptedEncoder", encoder),
                [texts[i] for i in chosen],
                fitted.parameters["tokens"],
                features.shape[1],
            )
        before, after = (np.linalg.norm(rows, axis=1, keepdims=True) for rows in (features, changed))
        return np.asarray(changed * (before / after), dtype=np.float32)


def audited_queries() -> tuple[str, ...]:
    """Return the prompts of the three tasks of Data Matters Most but for those that say who is pictured."""
    suites = [load_suite(name) for name in TASKS]
    return tuple(dict.fromkeys(c.text for suite in suites for c in suite.candidates if c.category != "demographic"))


def audited_texts() -> tuple[str, ...]:
    """Return every prompt of every suite, and the sensitive queries."""
    return (*all_texts(), *load_sensitive_queries().texts)


_METHOD = METHODS["prompt_array"]
_TEXTS_AT_ONCE = 64


def _require_turns(rows: int, settings: PromptArraySettings) -> None:
    """Reject a training in which only the adversary has a turn: its tokens would be untrained."""
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


# --- The adversary: it guesses a person's group from how well their image matches some texts.

HIDDEN = 32


def new_adversary(queries: int, groups: int, *, seed: int, device: str) -> torch.nn.Sequential:
    """Return an untrained adversary: queries → 32 → 32 → 32 → groups, ReLU between the layers.

    Weights and biases are uniform on ±1/√inputs, torch's own choice, but drawn from `seed`: no global
    generator is touched, and the CPU and the GPU begin alike.

    Parameters
    ----------
    queries : int
        Similarities that it sees of an image.
    groups : int
        Values of the protected attribute.

    Returns
    -------
    torch.nn.Sequential
        (b, queries) float32 to (b, groups) float32 logits, for a softmax. (The released code has a sigmoid
        before it, which the paper does not mention and which keeps any guess below e : 1; there is none
        here.)
    """
    import torch

    rng = generator(seed, "prompt_array", "adversary")
    widths = (queries, HIDDEN, HIDDEN, HIDDEN, groups)
    layers: list[torch.nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layer = torch.nn.utils.skip_init(torch.nn.Linear, inputs, outputs)
        with torch.no_grad():
            for parameter in (layer.weight, layer.bias):
                drawn = rng.uniform(-(inputs**-0.5), inputs**-0.5, size=tuple(parameter.shape))
                parameter.copy_(torch.from_numpy(drawn))
        layers += [layer, torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1]).to(device)


# --- The learned tokens in training, turn by turn against the adversary.

INITIAL_WORD = "a"
"""Whose embedding the tokens start from: a word that says little. The released code takes token 0."""

SIMILARITY_SCALE = 5.0
"""The adversary sees five times the cosine: the released code gives it CLIP's logits, 100 cos, over 20."""


class LearnedTokens:
    """Tokens and adversary in training; implements `plumbline.mitigations.training.Trainable`.

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
    pairs : ImageTextPairs, optional
        As many as rows: L_ITC is then over the pair at the place of each row of the batch. A caption that leaves no
        room for the tokens is cut at its end.
    """

    def __init__(
        self,
        encoder: PromptedEncoder,
        rows: TrainingRows,
        settings: PromptArraySettings,
        queries: Sequence[str],
        *,
        seed: int,
        pairs: ImageTextPairs | None = None,
    ) -> None:
        import torch

        self._encoder, self._settings = encoder, settings
        self._queries, self._captions = list(queries), rows.captions
        self._images = self._pictured = _unit(torch.tensor(rows.images, device=encoder.device))
        self._image_of = torch.arange(len(rows.labels), device=encoder.device)
        self._labels = torch.tensor(rows.labels, device=encoder.device)
        self._adversary = new_adversary(len(queries), len(rows.groups), seed=seed, device=encoder.device)
        self._tokens = initial_tokens(encoder, settings.tokens).requires_grad_()
        if pairs is not None:
            self._captions = with_room(encoder, pairs.captions, self._tokens.detach())
            self._pictured = _unit(torch.tensor(pairs.images, device=encoder.device))
            self._image_of = torch.tensor(pairs.image_of, device=encoder.device)
        self.tokens = Descent({"tokens": self._tokens}, settings.learning_rate)
        named = {f"adversary.{name}": tensor for name, tensor in self._adversary.named_parameters()}
        self.adversary = Descent(named, settings.adversary_learning_rate)
        self.descents = (self.tokens, self.adversary)
        # The queries' features, while the tokens do not change.
        self._fixed_queries: torch.Tensor | None = None

    def step(self, rows: NDArray[np.int64], number: int) -> Mapping[str, float]:
        """Train the tokens or the adversary, whichever has its turn, on a batch.

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

        batch = torch.from_numpy(rows).to(self._images.device)
        if (number // self._settings.alternate) % 2 == 0:
            if self._fixed_queries is None:
                with torch.no_grad():
                    self._fixed_queries = _unit(self._encoder.differentiable_texts(self._queries, self._tokens))
            loss = self._guessing_loss(batch, self._fixed_queries)
            self.adversary.step(loss, number=number)
            return {"adversary": loss.item()}
        captions = [self._captions[i] for i in rows]
        if self._settings.before == "all":
            texts = _unit(self._encoder.differentiable_texts([*self._queries, *captions], self._tokens))
            of_queries, of_captions = texts[: len(self._queries)], texts[len(self._queries) :]
        else:
            of_queries = _unit(self._encoder.differentiable_texts(self._queries, self._tokens))
            plain = torch.from_numpy(self._encoder.embed_texts(captions)).to(of_queries)
            of_captions = _unit(plain)
        guessing = self._guessing_loss(batch, of_queries)
        contrastive = self._contrastive_loss(batch, of_captions)
        loss = -guessing + self._settings.contrastive * contrastive
        self.tokens.step(loss, number=number)
        self._fixed_queries = None
        return {"tokens": loss.item(), "guessing": guessing.item(), "contrastive": contrastive.item()}

    def _guessing_loss(self, batch: torch.Tensor, queries: torch.Tensor) -> torch.Tensor:
        from torch.nn.functional import cross_entropy

        similarities = SIMILARITY_SCALE * self._images[batch] @ queries.T
        return cross_entropy(self._adversary(similarities), self._labels[batch])

    def _contrastive_loss(self, batch: torch.Tensor, captions: torch.Tensor) -> torch.Tensor:
        import torch
        from torch.nn.functional import cross_entropy

        logits = self._encoder.logit_scale * self._pictured[self._image_of[batch]] @ captions.T
        targets = torch.arange(len(batch), device=logits.device)
        return (cross_entropy(logits, targets) + cross_entropy(logits.T, targets)) / 2


def initial_tokens(encoder: PromptedEncoder, count: int) -> torch.Tensor:
    """Return (count, w) float32 embeddings of `INITIAL_WORD`, its tokens in turn until there are enough."""
    vectors = encoder.token_vectors(INITIAL_WORD).float()
    return vectors.repeat(-(-count // len(vectors)), 1)[:count].clone()


def with_room(encoder: PromptedEncoder, captions: Sequence[str], tokens: torch.Tensor) -> tuple[str, ...]:
    """Return captions that leave room for tokens: of one that is too long, words at the end go, a quarter at a time."""
    import torch

    def fits(texts: Sequence[str]) -> bool:
        try:
            with torch.no_grad():
                encoder.differentiable_texts(texts, tokens)
        except EncodingError:
            if len(texts) == 1 and len(texts[0].split()) < 2:
                raise
            return False
        return True

    def cut(text: str) -> str:
        while not fits([text]):
            words = text.split()
            text = " ".join(words[: min(len(words) - 1, 3 * len(words) // 4)])
        return text

    distinct = list(dict.fromkeys(captions))
    batches = [distinct[i : i + _TEXTS_AT_ONCE] for i in range(0, len(distinct), _TEXTS_AT_ONCE)]
    known = {text: text if fit else cut(text) for batch in batches for fit in [fits(batch)] for text in batch}
    return tuple(known[caption] for caption in captions)


def _unit(rows: torch.Tensor) -> torch.Tensor:
    return rows / rows.norm(dim=1, keepdim=True)


# --- The variant of a released audit: vectors added to the text feature, trained with a hinge.

VECTORS, RELEASED_STEPS, RELEASED_BATCH = 16, 7, 64
LEARNING_RATE, MARGIN, SPREAD = 1e-3, 0.05, 0.02


class AddedVectors:
    """Vectors in training; implements `plumbline.mitigations.training.Trainable`.

    Seven steps of Adam (learning rate 1e-3, batch 64) on the mean over images and pairs of
    ReLU(cos(image, neg + m) - cos(image, pos + m) + 0.05), m the mean of 16 vectors. Labels are not used.

    What is known of this variant are these numbers and the form of the hinge. Decided here: `pos` and `neg`
    are the features of the two sensitive queries of a pair, the favourable one and its opposite, so that
    every image, whatever its group, is drawn to the favourable one; `m` is added to features as the encoder
    gives them, before they are normalised; the vectors begin as normal draws of standard deviation 0.02.

    Parameters
    ----------
    encoder : DualEncoder
    images : (n, d) float32
        Of the training rows.
    pairs : sequence of (str, str)
        Queries, the favourable one first.
    seed : int
        Of the first vectors and of the images that are drawn.
    """

    def __init__(
        self, encoder: DualEncoder, images: NDArray[np.float32], pairs: Sequence[tuple[str, str]], *, seed: int
    ) -> None:
        import torch

        device = encoder.device
        self._images = torch.nn.functional.normalize(torch.tensor(images, device=device))
        self._drawn = _draws(len(images), seed)
        self._positive, self._negative = (
            torch.from_numpy(encoder.embed_texts([pair[side] for pair in pairs])).to(device) for side in (0, 1)
        )
        first = generator(seed, "prompt_array", "vectors").normal(0, SPREAD, (VECTORS, images.shape[1]))
        self._vectors = torch.from_numpy(first.astype(np.float32)).to(device).requires_grad_()
        self.descent = Descent({"vectors": self._vectors}, LEARNING_RATE)
        self.descents = (self.descent,)

    def step(self, rows: NDArray[np.int64], number: int) -> Mapping[str, float]:
        """Take one step; `rows` are positions among the `STEPS` × `BATCH` drawn images.

        Raises
        ------
        MetricError
            If the loss is not finite, or the step leaves a vector that is not.
        """
        import torch
        from torch.nn.functional import normalize

        images = self._images[torch.from_numpy(self._drawn[rows]).to(self._images.device)]
        added = self._vectors.mean(dim=0)
        positive, negative = (images @ normalize(side + added).T for side in (self._positive, self._negative))
        loss = torch.relu(negative - positive + MARGIN).mean()
        self.descent.step(loss, number=number)
        return {"hinge": loss.item()}


def _draws(n: int, seed: int) -> NDArray[np.int64]:
    """Return `STEPS` × `BATCH` rows of n: none twice before all have come once."""
    rng = generator(seed, "prompt_array", "images")
    shuffles = [rng.permutation(n) for _ in range(-(-RELEASED_STEPS * RELEASED_BATCH // n))]
    return np.concatenate(shuffles)[: RELEASED_STEPS * RELEASED_BATCH]
