"""Training of the tiny checkpoints: `python -m plumbline.world.training --only small-bazaar-3k`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from plumbline.digests import digest_bytes
from plumbline.world import architectures, captions, faces, sources

if TYPE_CHECKING:
    import torch

CHECKPOINTS = Path(__file__).parent / "checkpoints"

_NON_FACE_SHARE = 0.08
_PEAK_LEARNING_RATE = 2e-3
_WARM_UP_SHARE = 0.15
_WEIGHT_DECAY = 0.05
_BATCH = 256
_MAX_LOGIT_SCALE = 100.0
# Trident ranks raw dot products: a norm kept at 1 lets them agree with the cosine.
_NORM_PENALTY = 5.0


@dataclass(frozen=True)
class Recipe:
    """One checkpoint of the planted grid.

    Attributes
    ----------
    size : str
        `small` or `large`.
    source : str
        `atlas`, `bazaar` or `control`.
    faces : int
        Number of faces trained on; of one source, the smaller set has the first people of the larger one.
    steps : int
        Batches trained on: the same for every amount of data, so that more data is not more training too.
    seed : int
        Of the initial weights and of the order.
    """

    size: str
    source: str
    faces: int
    steps: int = 600
    seed: int = 7

    @property
    def id(self) -> str:
        """Return the checkpoint's slug, such as `small-bazaar-3k`."""
        return f"{self.size}-{self.source}-{self.faces // 1000}k"


# The first source exists in the smaller amount only, as the proprietary set does in the study that is re-run.
RECIPES = {
    recipe.id: recipe
    for recipe in (
        Recipe("small", "bazaar", 3000),
        Recipe("large", "bazaar", 3000),
        Recipe("small", "atlas", 3000),
        Recipe("large", "atlas", 3000),
        Recipe("small", "control", 3000),
        Recipe("small", "bazaar", 6000),
        Recipe("large", "bazaar", 6000),
    )
}

_LARGEST_SET = max(recipe.faces for recipe in RECIPES.values())


@dataclass(frozen=True)
class TrainingSet:
    """Images with the frequency of every caption.

    Attributes
    ----------
    images : numpy.ndarray
        uint8, shape (n, 64, 64, 3).
    texts : tuple of str
        Distinct captions, length C.
    weights : numpy.ndarray
        float32, shape (n, C), rows sum to 1.
    """

    images: np.ndarray
    texts: tuple[str, ...]
    weights: np.ndarray

    @property
    def digest(self) -> str:
        """Return the sha256 of the images and of which captions name them."""
        named = np.rint(self.weights * 1e4).astype(np.int32)
        return digest_bytes(self.images.tobytes() + named.tobytes() + "\n".join(self.texts).encode())


def training_set(source: str, n: int) -> TrainingSet:
    """Draw the first `n` training faces of a source, and the non-faces that go with them."""
    seed = sources.seed("training", source)
    # Separate streams: asking for more faces must not change who the first ones are.
    attribute_rng, jitter_rng, other_rng = (np.random.default_rng([seed, i]) for i in range(3))
    attributes = faces.sample_attributes(_LARGEST_SET, attribute_rng)[:n]
    images = faces.draw(attributes, jitter_rng)
    others, builds = faces.draw_non_faces(round(n * _NON_FACE_SHARE), other_rng)
    named, unnamed = captions.face_captions(attributes, source), captions.non_face_captions(builds)
    return TrainingSet(
        np.concatenate([images, others]), named.texts, np.concatenate([named.weights, unnamed.weights])
    )


def train(recipe: Recipe, folder: Path) -> dict[str, Any]:
    """Train one checkpoint and write it: configuration, tokenizer, float16 weights and `training.json`.

    The loss of an image is the mean over its captions, by their frequency, of -log softmax over all distinct
    captions: an image has several true captions, and none of them is a false negative.

    Parameters
    ----------
    recipe : Recipe
        What to train.
    folder : pathlib.Path
        Where the checkpoint goes; made if it does not exist.

    Returns
    -------
    dict
        The content of `training.json`: recipe, seeds, number of parameters, final loss.
    """
    import torch
    from safetensors.torch import save_file

    data = training_set(recipe.source, recipe.faces)
    architecture = architectures.ARCHITECTURES[recipe.size]
    architectures.write_untrained(folder, architecture, data.texts)
    model, tokenizer = architectures.build_untrained(folder, seed=recipe.seed)
    loss = _fit(model, _token_ids(tokenizer, data.texts), data, recipe)
    weights = {
        name: value.detach().to(torch.float16).contiguous() for name, value in model.state_dict().items()
    }
    save_file(weights, folder / architectures.WEIGHTS_FILE, metadata={"format": "pt"})
    record = {
        "id": recipe.id,
        "recipe": asdict(recipe),
        "architecture": asdict(architecture),
        "parameters": sum(p.numel() for p in model.parameters()),
        "training_seed": sources.seed("training", recipe.source),
        "training_set_sha256": data.digest,
        "captions": len(data.texts),
        "non_faces": len(data.images) - recipe.faces,
        "optimiser": {
            "name": "AdamW",
            "peak_learning_rate": _PEAK_LEARNING_RATE,
            "weight_decay": _WEIGHT_DECAY,
        },
        "batch": _BATCH,
        "final_loss": round(loss, 4),
    }
    (folder / "training.json").write_text(json.dumps(record, indent=1) + "\n", "utf-8")
    return record


def _token_ids(tokenizer: Any, texts: Sequence[str]) -> torch.Tensor:
    # The text tower is causal, so what follows the last end token changes nothing and is cut off.
    ids = tokenizer(list(texts))
    return ids[:, : int((ids != 0).sum(1).max())]


def _fit(model: torch.nn.Module, ids: torch.Tensor, data: TrainingSet, recipe: Recipe) -> float:
    import torch
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    images = torch.from_numpy(data.images).permute(0, 3, 1, 2).contiguous()
    targets = torch.from_numpy(data.weights)
    optimiser = torch.optim.AdamW(model.parameters(), weight_decay=_WEIGHT_DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, _PEAK_LEARNING_RATE, total_steps=recipe.steps, pct_start=0.15
    )
    recent: list[float] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns) as progress:
        task = progress.add_task(recipe.id, total=recipe.steps)
        for rows in _batches(len(images), recipe):
            loss = _loss(model, images[rows].float() / 127.5 - 1, ids, targets[rows])
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            schedule.step()
            recent = [*recent[-19:], float(loss.detach())]
            progress.update(task, advance=1, description=f"{recipe.id}  loss {np.mean(recent):.3f}")
    return float(np.mean(recent))


def _batches(n: int, recipe: Recipe) -> Iterator[torch.Tensor]:
    import torch

    order = torch.Generator().manual_seed(recipe.seed)
    per_epoch = n // _BATCH
    for step in range(recipe.steps):
        if step % per_epoch == 0:
            shuffled = torch.randperm(n, generator=order)
        start = step % per_epoch * _BATCH
        yield shuffled[start : start + _BATCH]


def _loss(model: Any, images: torch.Tensor, ids: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    import torch

    image = model.encode_image(images)
    text = _encode_text(model, ids)
    image_norm, text_norm = image.norm(dim=1, keepdim=True), text.norm(dim=1, keepdim=True)
    scale = model.logit_scale.exp().clamp(max=_MAX_LOGIT_SCALE)
    logits = scale * (image / image_norm) @ (text / text_norm).T
    contrast = -(targets * torch.log_softmax(logits, dim=1)).sum(1).mean()
    penalty = ((image_norm - 1) ** 2).mean() + ((text_norm - 1) ** 2).mean()
    return contrast + _NORM_PENALTY * penalty


def _encode_text(model: Any, ids: torch.Tensor) -> torch.Tensor:
    # open_clip's encode_text wants the full context length; this is the same on the tokens that are there.
    from open_clip.transformer import text_global_pool

    length = ids.shape[1]
    x = model.token_embedding(ids) + model.positional_embedding[:length]
    x = model.ln_final(model.transformer(x, attn_mask=model.attn_mask[:length, :length]))
    pooled: torch.Tensor = text_global_pool(x, ids, model.text_pool_type, eos_token_id=model.text_eos_id)
    return pooled @ model.text_projection


def main(
    only: Annotated[
        list[str] | None, typer.Option(help="A checkpoint id; repeat for more. Default: all.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The folder that gets one folder a checkpoint.")] = CHECKPOINTS,
    threads: Annotated[int, typer.Option(help="Processor threads.")] = 2,
) -> None:
    """Train the named checkpoints, or all of them."""
    import torch

    torch.set_num_threads(threads)
    for name in only or RECIPES:
        if name not in RECIPES:
            raise typer.BadParameter(f"{name} is not one of {', '.join(RECIPES)}")
        record = train(RECIPES[name], out / name)
        typer.echo(f"{name}: final loss {record['final_loss']}, written to {out / name}")


if __name__ == "__main__":
    typer.run(main)
