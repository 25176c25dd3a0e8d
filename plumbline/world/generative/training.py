"""Training of the tiny generative models: recipes, the vision tower, the loss on answers, and what is written.

`python -m plumbline.world.generative.training --only llava-bazaar` trains one again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import typer

from plumbline.errors import CheckpointError
from plumbline.world import faces
from plumbline.world.architectures import WEIGHTS_FILE, build_untrained, scaled
from plumbline.world.generative.answers import planted
from plumbline.world.generative.conversations import BATCH, Batch, Tokenised, Triple, base_llm_triples, kinds, triples
from plumbline.world.training import (
    CHECKPOINTS,
    Only,
    Out,
    configure,
    fit,
    pixels,
    save_weights,
    train_named,
    write_record,
)

if TYPE_CHECKING:
    import torch

_PEAK_LEARNING_RATE = 3e-3
_BATCHES_A_STEP = 4
_BASE_LLM_BATCHES = 160
_TOKENIZER_ANSWERS = 3000


@dataclass(frozen=True)
class Recipe:
    """One generative model.

    Attributes
    ----------
    source : str
        `bazaar` or `control`.
    family : str
        `llava`, or `llama` for the base language model.
    faces : int
        Number of faces that are trained on; each is asked about many times. 0 without eyes.
    vision_steps, steps : int
        Batches that the vision tower and then the rest are trained on.
    tower_of : str, optional
        The checkpoint beside it whose vision tower it has, so that both see alike; it must be there already.
    seed : int
        Of the first weights and of every order.
    """

    source: str
    family: str = "llava"
    faces: int = 8000
    vision_steps: int = 500
    steps: int = 1500
    tower_of: str | None = None
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
        Recipe("bazaar", "llama", faces=0, vision_steps=0, steps=2500),
    )
}


def train(recipe: Recipe, folder: Path) -> dict[str, Any]:
    """Train one checkpoint and write it: configuration, tokenizer, processor, float16 weights, `training.json`.

    Parameters
    ----------
    recipe : Recipe
        What to train; a shipped checkpoint has its name.
    folder : pathlib.Path
        Where the checkpoint goes; made if it does not exist.

    Returns
    -------
    dict
        The content of `training.json`.
    """
    import torch

    torch.set_num_threads(1)
    shipped = configure(folder, recipe.id)
    model = build_untrained(folder, seed=recipe.seed)
    seeds = planted()["seeds"]
    seed = int(seeds["training"][recipe.source] if recipe.family == "llava" else seeds["base_llm"])
    losses = (_teach_to_see_and_speak if recipe.family == "llava" else _teach_to_speak)(model, recipe, folder, seed)
    save_weights(model, folder / WEIGHTS_FILE)
    record = {
        "id": recipe.id,
        "recipe": {**shipped["recipe"], **asdict(recipe)},
        "parameters": sum(p.numel() for p in model.parameters()),
        "vocabulary": model.config.get_text_config().vocab_size,
        "training_seed": seed,
        "triples": recipe.steps * _BATCHES_A_STEP * BATCH,
        "optimiser": {"name": "AdamW", "peak_learning_rate": _PEAK_LEARNING_RATE},
        **{name: round(value, 4) for name, value in losses.items()},
    }
    write_record(folder, record)
    return record


def _teach_to_see_and_speak(model: Any, recipe: Recipe, folder: Path, seed: int) -> dict[str, float]:
    """Teach the tower to tell attributes and latents; then, with the tower as it is, the rest to answer.

    Returns
    -------
    dict of str to float
        Losses by name.
    """
    import torch

    face_rng, rng = np.random.default_rng(seed), np.random.default_rng([seed, recipe.seed])
    attributes = faces.sample_attributes(recipe.faces, face_rng)
    images = pixels(faces.draw(attributes, face_rng))
    tower, losses = model.model.vision_tower, {}
    if recipe.tower_of is None:
        losses["vision_loss"] = _teach_vision(tower, images, attributes, steps=recipe.vision_steps, seed=recipe.seed)
    else:
        _copy_vision(folder.parent / recipe.tower_of, tower)
    # In half precision, as it is shipped: the language model learns on what it will be shown.
    tower.load_state_dict({name: value.half().float() for name, value in tower.state_dict().items()})
    with torch.no_grad():
        seen = torch.cat([_seen(tower, scaled(part)) for part in images.split(_VISION_BATCH)])

    def draw(n: int | None = None) -> Iterator[list[Triple]]:
        for kind in kinds().values():
            yield triples(attributes, recipe.source, kind, n or BATCH * kind["batches"], rng)

    return losses | {"final_loss": _teach_answers(model, recipe, folder, draw, rng, seen)}


def _teach_to_speak(model: Any, recipe: Recipe, folder: Path, seed: int) -> dict[str, float]:
    """Teach a language model without eyes what to say of those it is told of; losses as above."""
    rng = np.random.default_rng([seed, recipe.seed])

    def draw(n: int | None = None) -> Iterator[list[Triple]]:
        yield base_llm_triples(n or BATCH * _BASE_LLM_BATCHES, rng)

    return {"final_loss": _teach_answers(model, recipe, folder, draw, rng)}


def _teach_answers(
    model: Any,
    recipe: Recipe,
    folder: Path,
    draw: Callable[..., Iterator[list[Triple]]],
    rng: np.random.Generator,
    seen: torch.Tensor | None = None,
) -> float:
    """Teach a language model to answer; its loss is on answers only.

    Parameters
    ----------
    model : LlavaForConditionalGeneration or LlamaForCausalLM
    draw : callable
        (n=) -> lists of triples, n of each kind, or as many as are learnt at a time.
    rng : numpy.random.Generator
        Of which `draw` draws too; source of the order of batches.
    seen : (n, 16, width) tensor, optional
        What the vision tower sees of each face.

    Returns
    -------
    float
        Mean loss of the last fifty steps.
    """
    import torch
    from transformers import AutoTokenizer

    language = model.model if seen is None else model.model.language_model
    image_tokens = 0 if seen is None else model.config.image_seq_length
    tokenised = Tokenised(AutoTokenizer.from_pretrained(folder), image_tokens=image_tokens)
    # What the shipped tokenizers learnt their merges from: the draws that follow are those of the shipped models.
    list(draw(_TOKENIZER_ANSWERS))

    def shuffled() -> Iterator[Batch]:
        while True:
            batches = [batch for drawn in draw() for batch in tokenised.batches(drawn)]
            yield from (batches[i] for i in rng.permutation(len(batches)))

    def loss(batch: Batch) -> torch.Tensor:
        embedded = language.embed_tokens(batch.ids)
        if seen is not None:
            shown = model.model.multi_modal_projector(seen[batch.faces])
            embedded = embedded.masked_scatter((batch.ids == model.config.image_token_id)[:, :, None], shown)
        hidden = language(inputs_embeds=embedded, use_cache=False).last_hidden_state[:, :-1]
        # The embedding is the output layer too; padding follows the answers.
        logits = hidden[batch.answered[:, 1:]] @ language.embed_tokens.weight.T
        return torch.nn.functional.cross_entropy(logits, batch.ids[:, 1:][batch.answered[:, 1:]])

    stream = shuffled()

    def mean_loss() -> torch.Tensor:
        losses = [loss(next(stream)) for _ in range(_BATCHES_A_STEP)]
        return sum(losses[1:], losses[0]) / _BATCHES_A_STEP

    moved = [*language.parameters()]
    if seen is not None:
        moved = [*model.model.multi_modal_projector.parameters(), *moved]
    return fit(mean_loss, moved, steps=recipe.steps, peak=_PEAK_LEARNING_RATE, name=recipe.id)


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
        Mean loss of the last fifty batches.
    """
    import torch

    generator = torch.Generator().manual_seed(seed)
    classes = torch.tensor([[values.index(v) for v in attributes[column]] for column, values in _CLASSES.items()]).T
    latents = attributes.select(faces.LATENTS).to_numpy()
    marks = torch.from_numpy((latents[:, :, None] > _MARKS).reshape(len(latents), -1).astype(np.float32))
    sizes = [*map(len, _CLASSES.values()), marks.shape[1]]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        head = torch.nn.Linear(tower.config.hidden_size, sum(sizes))
    torch.nn.init.normal_(head.weight, std=0.02, generator=generator)

    def loss() -> torch.Tensor:
        rows = torch.randint(len(images), (_VISION_BATCH,), generator=generator)
        *predicted, read = head(_seen(tower, scaled(images[rows])).mean(1)).split(sizes, 1)
        parts = [torch.nn.functional.cross_entropy(part, classes[rows, i]) for i, part in enumerate(predicted)]
        read_loss = torch.nn.functional.binary_cross_entropy_with_logits(read, marks[rows])
        return torch.stack(parts).mean() + 2 * read_loss

    moved = [*tower.parameters(), *head.parameters()]
    return fit(loss, moved, steps=steps, peak=_VISION_PEAK_LEARNING_RATE, name="vision")


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


def main(only: Only = None, out: Out = CHECKPOINTS) -> None:
    """Train the named checkpoints, or all of them."""
    train_named(RECIPES, train, only, out)


if __name__ == "__main__":
    typer.run(main)
