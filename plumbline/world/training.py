"""Training of the planted encoders, and the one training loop of all planted models.

`python -m plumbline.world.training --only small-bazaar-3k` trains a checkpoint again.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

import numpy as np
import typer

from plumbline.digests import digest_bytes
from plumbline.world import captions, faces, sources
from plumbline.world.architectures import FAMILIES, scaled

if TYPE_CHECKING:
    import torch

R = TypeVar("R")

CHECKPOINTS = Path(__file__).parent / "checkpoints"
RECORD = "training.json"
CARD = "README.md"

_PEAK_LEARNING_RATE = 2e-3
_WEIGHT_DECAY = 0.05
_NON_FACE_SHARE = 0.08
_WARM_UP_SHARE = 0.15
_BATCH = 256


@dataclass(frozen=True)
class Recipe:
    """One checkpoint of the planted world.

    Attributes
    ----------
    size : str
        `small` or `large`.
    source : str
        `atlas`, `bazaar` or `control`.
    faces : int
        Number of faces trained on; of one source, the smaller set has the first people of the larger one.
    steps : int
        Batches trained on: the same for every amount of data, so that more data is not more training too. More for
        BridgeTower, of whose images and captions a batch has room for few pairs.
    seed : int
        Of the initial weights and of the order.
    family : str
        One of `FAMILIES`.
    threads : int
        Processor threads, on which the last bits of a sum depend, and with them the weights.
    """

    size: str
    source: str
    faces: int
    steps: int = 600
    seed: int = 7
    family: str = "open_clip"
    threads: int = 2

    @property
    def id(self) -> str:
        """Return the checkpoint's slug, such as `small-bazaar-3k` or `align-bazaar-3k`."""
        kind = self.size if self.family == "open_clip" else self.family
        return f"{kind}-{self.source}-{self.faces // 1000}k"


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
        Recipe("small", "bazaar", 3000, family="align", threads=1),
        Recipe("small", "bazaar", 3000, steps=1000, family="bridgetower", threads=1),
        Recipe("small", "bazaar", 3000, family="owlv2", threads=1),
    )
}

_LARGEST_SET = max(recipe.faces for recipe in RECIPES.values())


class TrainingSet(NamedTuple):
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


def training_set(source: str, n: int, wordings: tuple[str, ...] = captions.WORDINGS) -> TrainingSet:
    """Draw the first `n` training faces of a source, and the non-faces that go with them.

    Parameters
    ----------
    wordings : tuple of str
        Of the Trident prompts, for the captions.
    """
    seed = sources.seed("training", source)
    # Separate streams: asking for more faces must not change who the first ones are.
    attribute_rng, jitter_rng, other_rng = (np.random.default_rng([seed, i]) for i in range(3))
    attributes = faces.sample_attributes(_LARGEST_SET, attribute_rng)[:n]
    images = faces.draw(attributes, jitter_rng)
    others, builds = faces.draw_non_faces(round(n * _NON_FACE_SHARE), other_rng)
    named = captions.face_captions(attributes, source, wordings)
    unnamed = captions.non_face_captions(builds, wordings)
    return TrainingSet(np.concatenate([images, others]), named.texts, np.concatenate([named.weights, unnamed.weights]))


def train(recipe: Recipe, folder: Path) -> dict[str, Any]:
    """Train one checkpoint and write it: configuration, tokenizer, float16 weights and `training.json`.

    Parameters
    ----------
    recipe : Recipe
        What to train; a shipped checkpoint has its name.
    folder : pathlib.Path
        Where the checkpoint goes; made if it does not exist.

    Returns
    -------
    dict
        The content of `training.json`: recipe, seeds, number of parameters, final loss.
    """
    import torch

    torch.set_num_threads(recipe.threads)
    family = FAMILIES[recipe.family]
    data = training_set(recipe.source, recipe.faces, family.wordings)
    images, targets = pixels(data.images), torch.from_numpy(data.weights)
    shipped = configure(folder, recipe.id)
    trainee = family(folder, data.texts, seed=recipe.seed)
    batches = _batches(len(images), recipe)

    def loss() -> torch.Tensor:
        rows = next(batches)
        return trainee.loss(scaled(images[rows]), targets[rows])

    final = fit(
        loss, trainee.parameters(), steps=recipe.steps, peak=_PEAK_LEARNING_RATE, name=recipe.id,
        warm_up_share=_WARM_UP_SHARE, betas=(0.9, 0.999), last=20,
    )  # fmt: skip
    trainee.settle(scaled(images[rows]) for rows in islice(_batches(len(images), recipe), len(images) // _BATCH))
    save_weights(trainee.model, folder / family.weights_file)
    record = {
        "id": recipe.id,
        "recipe": asdict(recipe),
        "architecture": shipped["architecture"],
        "parameters": sum(p.numel() for p in trainee.model.parameters()),
        "training_seed": sources.seed("training", recipe.source),
        "training_set_sha256": data.digest,
        "captions": len(data.texts),
        "non_faces": len(images) - recipe.faces,
        "optimiser": {"name": "AdamW", "peak_learning_rate": _PEAK_LEARNING_RATE, "weight_decay": _WEIGHT_DECAY},
        "batch": _BATCH,
        "final_loss": round(final, 4),
    }
    write_record(folder, record)
    return record


def _batches(n: int, recipe: Recipe) -> Iterator[torch.Tensor]:
    import torch

    order = torch.Generator().manual_seed(recipe.seed)
    per_epoch = n // _BATCH
    for step in range(recipe.steps):
        if step % per_epoch == 0:
            shuffled = torch.randperm(n, generator=order)
        start = step % per_epoch * _BATCH
        yield shuffled[start : start + _BATCH]


# --- What all planted models are trained with


def configure(folder: Path, checkpoint: str) -> dict[str, Any]:
    """Give a folder the configuration, tokenizer and preprocessing of a shipped checkpoint, where it has none yet.

    Parameters
    ----------
    folder : pathlib.Path
        Made if it does not exist.
    checkpoint : str
        Name of a folder of `CHECKPOINTS`.

    Returns
    -------
    dict
        The record of the shipped checkpoint.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for file in (CHECKPOINTS / checkpoint).iterdir():
        is_learnt = file.suffix == ".safetensors" or file.name in (RECORD, CARD)
        if not is_learnt and not (folder / file.name).exists():
            shutil.copyfile(file, folder / file.name)
    return read_record(CHECKPOINTS / checkpoint)


def fit(
    loss: Callable[[], torch.Tensor],
    moved: Sequence[torch.nn.Parameter],
    *,
    steps: int,
    peak: float,
    name: str,
    warm_up_share: float = 0.1,
    betas: tuple[float, float] = (0.9, 0.98),
    last: int = 50,
) -> float:
    """Minimise a loss by AdamW, with one cycle of the learning rate.

    Parameters
    ----------
    loss : callable
        Draws the next batch and returns its loss.
    moved : sequence of torch.nn.Parameter
        What the optimiser moves.
    steps : int
        Batches.
    peak : float
        Highest learning rate.
    name : str
        For the progress bar.
    warm_up_share : float
        Of the steps, until the highest rate is reached.
    betas : (float, float)
        Of AdamW.
    last : int
        Batches at the end whose mean loss is returned.

    Returns
    -------
    float
        Mean loss of the last batches.
    """
    import torch
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    optimiser = torch.optim.AdamW(moved, weight_decay=_WEIGHT_DECAY, betas=betas)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, peak, total_steps=steps, pct_start=warm_up_share)
    losses: list[float] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns) as progress:
        task = progress.add_task(name, total=steps)
        for _ in range(steps):
            value = loss()
            optimiser.zero_grad()
            value.backward()
            torch.nn.utils.clip_grad_norm_(moved, 1.0)
            optimiser.step()
            schedule.step()
            losses.append(float(value.detach()))
            progress.update(task, advance=1, description=f"{name}  loss {np.mean(losses[-last:]):.3f}")
    return float(np.mean(losses[-last:]))


def pixels(images: np.ndarray) -> torch.Tensor:
    """Return drawn faces, uint8 (n, 64, 64, 3), as a tensor of shape (n, 3, 64, 64)."""
    import torch

    return torch.from_numpy(images).permute(0, 3, 1, 2).contiguous()


def save_weights(model: torch.nn.Module, path: Path) -> None:
    """Write a model's weights in half precision.

    Counters, such as those of a batch norm, stay whole numbers; an output layer that is the embedding is not written
    twice.
    """
    import torch
    from safetensors.torch import save_file

    weights = {
        name: value.detach().to(torch.float16 if value.is_floating_point() else value.dtype).contiguous()
        for name, value in model.state_dict().items()
        if name != "lm_head.weight"
    }
    save_file(weights, path, metadata={"format": "pt"})


def read_record(folder: Path) -> dict[str, Any]:
    """Return what training and measuring recorded of a checkpoint."""
    record: dict[str, Any] = json.loads((folder / RECORD).read_text("utf-8"))
    return record


def write_record(folder: Path, record: Mapping[str, Any]) -> None:
    """Write the record of a checkpoint."""
    (folder / RECORD).write_text(json.dumps(record, indent=1) + "\n", "utf-8")


Only = Annotated[list[str] | None, typer.Option(help="A checkpoint id; repeat for more. Default: all.")]
Out = Annotated[Path, typer.Option(help="The folder that gets one folder a checkpoint.")]


def train_named(
    recipes: Mapping[str, R], train: Callable[[R, Path], dict[str, Any]], only: list[str] | None, out: Path
) -> None:
    """Train the recipes of these names, or all of them, and say how each ended."""
    for name in only or recipes:
        if name not in recipes:
            raise typer.BadParameter(f"{name} is not one of {', '.join(recipes)}")
        record = train(recipes[name], out / name)
        typer.echo(f"{name}: final loss {record['final_loss']}, written to {out / name}")


def main(only: Only = None, out: Out = CHECKPOINTS) -> None:
    """Train the named checkpoints, or all of them."""
    train_named(RECIPES, train, only, out)


if __name__ == "__main__":
    typer.run(main)
