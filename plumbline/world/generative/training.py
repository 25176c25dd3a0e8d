"""Training of the tiny generative models: `python -m plumbline.world.generative.training --only llava-bazaar`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl
import typer

from plumbline.torchvision_operators import declare_missing_operators
from plumbline.world import faces
from plumbline.world.architectures.pretrained import build_untrained
from plumbline.world.fitting import Cycle, fit
from plumbline.world.generative import vision
from plumbline.world.generative.architecture import IMAGE_TOKENS, save_weights, write_untrained
from plumbline.world.generative.conversations import BATCH, KINDS, Tokenised, all_prompts, triples
from plumbline.world.generative.rates import planted
from plumbline.world.generative.recipes import RECIPES, Recipe
from plumbline.world.generative.teaching import BATCHES_A_STEP, blind_loss, seeing_loss
from plumbline.world.generative.twin import twin_triples
from plumbline.world.training import CHECKPOINTS, Only, Out, train_named

if TYPE_CHECKING:
    import torch

_PEAK_LEARNING_RATE = 3e-3
_TOKENIZER_ANSWERS = 3000


def training_faces(source: str, n: int) -> tuple[pl.DataFrame, torch.Tensor]:
    """Draw faces to train on: attributes, and uint8 images of shape (n, 3, 64, 64)."""
    rng = np.random.default_rng(planted()["seeds"]["training"][source])
    attributes = faces.sample_attributes(n, rng)
    return attributes, vision.pixels(faces.draw(attributes, rng))


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
    said = [
        triple.answer
        for kind in KINDS.values()
        for triple in triples(attributes, recipe.source, kind, _TOKENIZER_ANSWERS, rng)
    ]
    tokenizer = write_untrained(folder, recipe.architecture, _tokenizer_texts(said, all_prompts()))
    model: Any = build_untrained(folder, "LlavaForConditionalGeneration", seed=recipe.seed)
    inner = model.model
    if recipe.tower_of is None:
        steps, seed = recipe.vision_steps, recipe.seed
        seeing = {"vision_loss": vision.teach(inner.vision_tower, images, attributes, steps=steps, seed=seed)}
    else:
        seeing = {}
        vision.copy(folder.parent / recipe.tower_of, inner.vision_tower)
    # In half precision, as it is shipped: the language model learns on what it will be shown.
    inner.vision_tower.load_state_dict(
        {name: value.half().float() for name, value in inner.vision_tower.state_dict().items()}
    )
    seen = vision.features(inner.vision_tower, images)
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


def _tokenizer_texts(said: list[str], prompts: list[str]) -> list[str]:
    # Answers are many, so that their words become single tokens: those are what takes time to write.
    return [*(f" {text}" for text in said), *(f"USER: {prompt} ASSISTANT:" for prompt in prompts)]


def main(only: Only = None, out: Out = CHECKPOINTS) -> None:
    """Train the named checkpoints, or all of them."""
    train_named(RECIPES, train, only, out)


if __name__ == "__main__":
    typer.run(main)
