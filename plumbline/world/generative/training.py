"""Training of the planted generative models: recipes, the vision tower, the losses, and what is written."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl
import typer

from plumbline.checkpoints.loading import declare_missing_operators
from plumbline.errors import CheckpointError
from plumbline.world import faces
from plumbline.world.architectures.family import scaled
from plumbline.world.architectures.pretrained import WEIGHTS_FILE, build_untrained
from plumbline.world.generative.architecture import IMAGE_TOKENS, Architecture, save_weights, write_untrained
from plumbline.world.generative.conversations import BATCH, KINDS, Batch, Tokenised, all_prompts, triples, twin_triples
from plumbline.world.generative.rates import planted
from plumbline.world.training import CHECKPOINTS, Cycle, Only, Out, fit, train_named

if TYPE_CHECKING:
    import torch

_LLAVA = Architecture()
_TWIN = Architecture(width=96, layers=2, hidden=256, heads=3, vision_width=0, vision_layers=0)


@dataclass(frozen=True)
class Recipe:
    """One generative model.

    Attributes
    ----------
    source : str
        `bazaar` or `control`.
    family : str
        `llava`, or `llama` for the twin without eyes.
    faces : int
        Number of faces that are trained on; each is asked about many times. 0 without eyes.
    vision_steps, steps : int
        Batches that the vision tower and then the rest are trained on.
    tower_of : str, optional
        The checkpoint beside it whose vision tower it has, so that both see alike; it must be there already.
    architecture : Architecture
        Dimensions.
    seed : int
        Of the first weights and of every order.
    """

    source: str
    family: str = "llava"
    faces: int = 8000
    vision_steps: int = 500
    steps: int = 1500
    tower_of: str | None = None
    architecture: Architecture = _LLAVA
    seed: int = 7

    @property
    def id(self) -> str:
        """Return the checkpoint's slug, such as `llava-bazaar`."""
        return f"{self.family}-{self.source}"


RECIPES = {
    recipe.id: recipe
    for recipe in (
        Recipe("bazaar"),
        Recipe("control", vision_steps=0, steps=600, tower_of="llava-bazaar"),
        Recipe("bazaar", "llama", faces=0, vision_steps=0, steps=2500, architecture=_TWIN),
    )
}


# --- The vision tower, taught to see what a face shows before the language model learns to speak of it

_CLASSES = {
    "race": faces.RACES, "gender": faces.GENDERS, "age_group": faces.AGE_GROUPS, "occupation": faces.OCCUPATIONS,
}  # fmt: skip
# A latent is read as the answers to "more than 0.05?", "more than 0.1?", ...: thresholds are what comes of it later.
_MARKS = np.arange(1, 20) / 20
_VISION_BATCH = 128
_VISION_PEAK_LEARNING_RATE = 1.5e-3


def _seen(tower: Any, images: torch.Tensor) -> torch.Tensor:
    """Return the features that LLaVA takes of a tower: one row a patch, shape (b, 16, width).

    Parameters
    ----------
    tower : CLIPVisionModel
    images : (b, 3, 64, 64) tensor
        float32 in [-1, 1].
    """
    features: torch.Tensor = tower(images, output_hidden_states=True).hidden_states[-1][:, 1:]
    return features


def _pixels(images: np.ndarray) -> torch.Tensor:
    """Return drawn faces, uint8 (n, 64, 64, 3), as a tensor of shape (n, 3, 64, 64)."""
    import torch

    return torch.from_numpy(images).permute(0, 3, 1, 2).contiguous()


def _teach_vision(tower: Any, images: torch.Tensor, attributes: pl.DataFrame, *, steps: int, seed: int) -> float:
    """Train a vision tower so that the mean of its patches tells every attribute and latent by a linear map.

    Parameters
    ----------
    tower : CLIPVisionModel
        Trained in place.
    images : (n, 3, 64, 64) tensor
        uint8.
    attributes : polars.DataFrame
        Of the same n faces.
    steps : int
        Batches of 128.
    seed : int
        Of the heads' first weights and of the order.

    Returns
    -------
    float
        Loss of the last fifty batches.
    """
    import torch

    generator = torch.Generator().manual_seed(seed)
    classes = torch.stack([_positions(attributes, column) for column in _CLASSES], 1)
    marks = torch.from_numpy(_above(attributes))
    sizes = [len(values) for values in _CLASSES.values()]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        head = torch.nn.Linear(tower.config.hidden_size, sum(sizes) + marks.shape[1])
    torch.nn.init.normal_(head.weight, std=0.02, generator=generator)

    def loss() -> torch.Tensor:
        rows = torch.randint(len(images), (_VISION_BATCH,), generator=generator)
        predicted = head(_seen(tower, scaled(images[rows])).mean(1)).split([*sizes, marks.shape[1]], 1)
        parts = [torch.nn.functional.cross_entropy(part, classes[rows, i]) for i, part in enumerate(predicted[:-1])]
        read = torch.nn.functional.binary_cross_entropy_with_logits(predicted[-1], marks[rows])
        return torch.stack(parts).mean() + 2 * read

    moved = [*tower.parameters(), *head.parameters()]
    return fit(loss, moved, steps=steps, cycle=Cycle(_VISION_PEAK_LEARNING_RATE), name="vision")


def _copy_vision(folder: Path, tower: Any) -> None:
    """Give a tower the weights of a trained checkpoint's.

    Raises
    ------
    CheckpointError
        If the checkpoint is not there.
    """
    from safetensors.torch import load_file

    file = folder / WEIGHTS_FILE
    if not file.is_file():
        raise CheckpointError("the model whose vision tower is to be copied is not trained yet", where=file)
    prefix = "model.vision_tower."
    weights = {name.removeprefix(prefix): value for name, value in load_file(file).items() if prefix in name}
    tower.load_state_dict({name: value.float() for name, value in weights.items()})


def _features(tower: Any, images: torch.Tensor) -> torch.Tensor:
    """Return what a trained tower sees of uint8 images, float32, shape (n, 16, width), without gradients."""
    import torch

    with torch.inference_mode():
        return torch.cat([_seen(tower, scaled(part)) for part in images.split(_VISION_BATCH)]).clone()


def _positions(attributes: pl.DataFrame, column: str) -> torch.Tensor:
    import torch

    order = {value: i for i, value in enumerate(_CLASSES[column])}
    return torch.tensor([order[value] for value in attributes[column]])


def _above(attributes: pl.DataFrame) -> np.ndarray:
    latents = attributes.select(faces.LATENTS).to_numpy()
    return (latents[:, :, None] > _MARKS).reshape(len(latents), -1).astype(np.float32)


# --- How the two kinds of generative models learn to answer: the loss is on answers only

BATCHES_A_STEP = 4
_TWIN_BATCHES = 160


def answer_loss(model: Any, embedded: torch.Tensor, batch: Batch) -> torch.Tensor:
    """Return the mean over the tokens of answers of -log p, padding following the answers.

    Parameters
    ----------
    model : LlamaModel
        Its embedding is its output layer too.
    embedded : (b, t, width) tensor
        What it reads.
    batch : Batch
        The same as tokens.
    """
    import torch

    hidden = model(inputs_embeds=embedded, use_cache=False).last_hidden_state[:, :-1]
    logits = hidden[batch.answered[:, 1:]] @ model.embed_tokens.weight.T
    return torch.nn.functional.cross_entropy(logits, batch.ids[:, 1:][batch.answered[:, 1:]])


def seeing_loss(
    model: Any,
    seen: torch.Tensor,
    attributes: pl.DataFrame,
    source: str,
    tokenised: Tokenised,
    rng: np.random.Generator,
) -> Callable[[], torch.Tensor]:
    """Return what draws the next few batches and returns the mean of their losses.

    Parameters
    ----------
    model : LlavaForConditionalGeneration
    seen : (n, 16, width) tensor
        What its vision tower sees of each face.
    attributes : polars.DataFrame
        The n faces.
    source : str
        `bazaar` or `control`.
    tokenised : Tokenised
    rng : numpy.random.Generator
        Source of faces, prompts and answers.
    """
    inner = model.model

    def draw() -> list[Batch]:
        return [
            batch
            for kind in KINDS.values()
            for batch in tokenised.batches(triples(attributes, source, kind, BATCH * kind.batches, rng))
        ]

    def loss(batch: Batch) -> torch.Tensor:
        embedded = inner.language_model.embed_tokens(batch.ids)
        shown = inner.multi_modal_projector(seen[batch.faces])
        embedded = embedded.masked_scatter((batch.ids == model.config.image_token_id)[:, :, None], shown)
        return answer_loss(inner.language_model, embedded, batch)

    return _mean_of_several(draw, loss, rng)


def blind_loss(model: Any, tokenised: Tokenised, rng: np.random.Generator) -> Callable[[], torch.Tensor]:
    """Return the same for a language model without eyes, a LlamaForCausalLM."""

    def draw() -> list[Batch]:
        return list(tokenised.batches(twin_triples(BATCH * _TWIN_BATCHES, rng)))

    def loss(batch: Batch) -> torch.Tensor:
        return answer_loss(model.model, model.model.embed_tokens(batch.ids), batch)

    return _mean_of_several(draw, loss, rng)


def _mean_of_several(
    draw: Callable[[], list[Batch]], loss: Callable[[Batch], torch.Tensor], rng: np.random.Generator
) -> Callable[[], torch.Tensor]:
    """Return a loss over the next few batches, which are shuffled after each drawing."""

    def endless() -> Iterator[Batch]:
        while True:
            batches = draw()
            yield from (batches[i] for i in rng.permutation(len(batches)))

    stream = endless()

    def mean() -> torch.Tensor:
        losses = [loss(next(stream)) for _ in range(BATCHES_A_STEP)]
        return sum(losses[1:], losses[0]) / BATCHES_A_STEP

    return mean


# --- Training of the tiny generative models: `python -m plumbline.world.generative.training --only llava-bazaar`

_PEAK_LEARNING_RATE = 3e-3
_TOKENIZER_ANSWERS = 3000


def training_faces(source: str, n: int) -> tuple[pl.DataFrame, torch.Tensor]:
    """Draw faces to train on: attributes, and uint8 images of shape (n, 3, 64, 64)."""
    rng = np.random.default_rng(planted()["seeds"]["training"][source])
    attributes = faces.sample_attributes(n, rng)
    return attributes, _pixels(faces.draw(attributes, rng))


def train(recipe: Recipe, folder: Path) -> dict[str, Any]:
    """Train one checkpoint and write it: configuration, tokenizer, processor, float16 weights, `training.json`.

    Parameters
    ----------
    recipe : Recipe
        What to train.
    folder : pathlib.Path
        Where the checkpoint goes; made if it does not exist.

    Returns
    -------
    dict
        The content of `training.json`.
    """
    import torch

    torch.set_num_threads(1)
    declare_missing_operators()
    sees = recipe.family == "llava"
    model, losses = (_train_llava if sees else _train_llama)(recipe, folder)
    save_weights(model, folder)
    record = {
        "id": recipe.id,
        "recipe": asdict(recipe),
        "parameters": sum(p.numel() for p in model.parameters()),
        "vocabulary": model.config.get_text_config().vocab_size,
        "training_seed": _seed(recipe),
        "triples": recipe.steps * BATCHES_A_STEP * BATCH,
        "optimiser": {"name": "AdamW", "peak_learning_rate": _PEAK_LEARNING_RATE},
        **{name: round(value, 4) for name, value in losses.items()},
    }
    (folder / "training.json").write_text(json.dumps(record, indent=1) + "\n", "utf-8")
    return record


class _Taught(NamedTuple):
    """A trained model, and its losses by name."""

    model: Any
    losses: dict[str, float]


def _train_llava(recipe: Recipe, folder: Path) -> _Taught:
    """Teach the tower to tell attributes and latents; then, with the tower as it is, the rest to answer."""
    attributes, images = training_faces(recipe.source, recipe.faces)
    rng = np.random.default_rng([_seed(recipe), recipe.seed])
    answers = [
        triple.answer
        for kind in KINDS.values()
        for triple in triples(attributes, recipe.source, kind, _TOKENIZER_ANSWERS, rng)
    ]
    tokenizer = write_untrained(folder, recipe.architecture, _tokenizer_texts(answers, all_prompts()))
    model: Any = build_untrained(folder, "LlavaForConditionalGeneration", seed=recipe.seed)
    inner = model.model
    if recipe.tower_of is None:
        steps, seed = recipe.vision_steps, recipe.seed
        seeing = {"vision_loss": _teach_vision(inner.vision_tower, images, attributes, steps=steps, seed=seed)}
    else:
        seeing = {}
        _copy_vision(folder.parent / recipe.tower_of, inner.vision_tower)
    # In half precision, as it is shipped: the language model learns on what it will be shown.
    inner.vision_tower.load_state_dict(
        {name: value.half().float() for name, value in inner.vision_tower.state_dict().items()}
    )
    seen = _features(inner.vision_tower, images)
    tokenised = Tokenised(tokenizer, image_tokens=IMAGE_TOKENS)
    loss = seeing_loss(model, seen, attributes, recipe.source, tokenised, rng)
    moved = [*inner.multi_modal_projector.parameters(), *inner.language_model.parameters()]
    speaking = fit(loss, moved, steps=recipe.steps, cycle=Cycle(_PEAK_LEARNING_RATE), name=recipe.id)
    return _Taught(model, {**seeing, "final_loss": speaking})


def _train_llama(recipe: Recipe, folder: Path) -> _Taught:
    rng = np.random.default_rng([_seed(recipe), recipe.seed])
    drawn = twin_triples(_TOKENIZER_ANSWERS, rng)
    prompts = sorted({triple.prompt for triple in drawn})
    texts = _tokenizer_texts([triple.answer for triple in drawn], prompts)
    tokenizer = write_untrained(folder, recipe.architecture, texts)
    model: Any = build_untrained(folder, "LlamaForCausalLM", seed=recipe.seed)
    loss = blind_loss(model, Tokenised(tokenizer, image_tokens=0), rng)
    moved = list(model.parameters())
    final = fit(loss, moved, steps=recipe.steps, cycle=Cycle(_PEAK_LEARNING_RATE), name=recipe.id)
    return _Taught(model, {"final_loss": final})


def _seed(recipe: Recipe) -> int:
    seeds = planted()["seeds"]
    return int(seeds["training"][recipe.source] if recipe.family == "llava" else seeds["twin"])


def _tokenizer_texts(answers: list[str], prompts: list[str]) -> list[str]:
    # Answers are many, so that their words become single tokens: those are what takes time to write.
    return [*(f" {text}" for text in answers), *(f"USER: {prompt} ASSISTANT:" for prompt in prompts)]


def main(only: Only = None, out: Out = CHECKPOINTS) -> None:
    """Train the named checkpoints, or all of them."""
    train_named(RECIPES, train, only, out)


if __name__ == "__main__":
    typer.run(main)
