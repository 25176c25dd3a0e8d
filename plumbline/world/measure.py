"""What a planted checkpoint learnt: its figures on faces that it has not seen."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import polars as pl
import typer
from rich.progress import track

from plumbline.catalog.suites import Suite, load_suite
from plumbline.checkpoints.device import Placement
from plumbline.encoders.families import FAMILIES, Capability
from plumbline.encoders.folders import checkpoint_files, load_encoder
from plumbline.world import captions, cards, faces, sources
from plumbline.world.cards import publish, table
from plumbline.world.sources import EVENT_SUITES
from plumbline.world.training import CHECKPOINTS, RECIPES, read_record, write_record

_BATCH = 256
_CLASS_SETS = ("celeba", "fairface", "utkface", "idenprof")


@dataclass(frozen=True)
class Answers:
    """What one checkpoint says of fresh faces.

    Attributes
    ----------
    attributes : polars.DataFrame
        The true attributes, n rows.
    suites : dict of str to Suite
        What was asked: an outcome suite by its name, a Trident suite by its label set.
    prompts : tuple of str
        The distinct texts, length m.
    logits : numpy.ndarray
        float32, shape (n, m), as the Trident study takes them from this family of encoders.
    cosines : numpy.ndarray or None
        float32, shape (n, m), up to a factor an image; None for a family whose logits rank as its cosines do, or
        that has none.
    """

    attributes: pl.DataFrame
    suites: dict[str, Suite]
    prompts: tuple[str, ...]
    logits: np.ndarray
    cosines: np.ndarray | None = None

    def winners(self, prompts: Sequence[str], *, cosine: bool = True) -> np.ndarray:
        """Return for each face the position of the prompt that matches it best, int64, shape (n,)."""
        table = self.cosines if cosine and self.cosines is not None else self.logits
        return np.asarray(table[:, [self.prompts.index(prompt) for prompt in prompts]].argmax(axis=1))


class Measured(NamedTuple):
    """The figures of one checkpoint.

    Attributes
    ----------
    accuracy : dict of str to float
        Zero-shot accuracy of `gender`, `race`, `race_gender` (14 classes), `age_group` and `occupation`, in [0, 1].
        Past the crime threshold the captions rarely say who a person is; that is part of what is measured.
    rates : polars.DataFrame
        One row an event and race: `event`, `race`, `planted` (the rate of the source), `drawn` (the share of
        these very faces past the threshold), `measured` (the event's top-1 rate), `n`.
    trident : dict of str to float
        Share of faces whose race prompt loses to the probe, by the logits of the Trident study.
    non_human : float
        Share of faces that are top-1 at a non-human word among the 21 labels.
    dot_agrees : float or None
        Share of faces for which the dot product and the cosine choose the same of the 21 labels; None for a family
        that has but one of them.
    """

    accuracy: dict[str, float]
    rates: pl.DataFrame
    trident: dict[str, float]
    non_human: float
    dot_agrees: float | None


def fresh_faces(n: int) -> tuple[pl.DataFrame, list[bytes]]:
    """Draw faces that no checkpoint was trained on.

    Returns
    -------
    attributes : polars.DataFrame
        n rows.
    files : list of bytes
        The faces as JPEG files, which is how an audit meets them.
    """
    rng = np.random.default_rng(sources.seed("measuring"))
    attributes = faces.sample_attributes(n, rng)
    return attributes, [faces.as_jpeg(image) for image in faces.draw(attributes, rng)]


def ask(
    folder: Path, attributes: pl.DataFrame, files: Sequence[bytes], *, suites: Sequence[str] | None = None
) -> Answers:
    """Show faces to one checkpoint and match them with prompts, through the adapter that an audit uses.

    Parameters
    ----------
    folder : pathlib.Path
        The checkpoint.
    attributes, files
        As `fresh_faces` gives them.
    suites : sequence of str, optional
        Outcome suites and Trident label sets to ask; by default all that `measure` reads. A Trident suite is asked
        in the family's own wording.
    """
    import torch
    from PIL import Image

    checkpoint = checkpoint_files(folder.name, f"local-dir:{folder.resolve()}", project=folder, fetched=folder)
    encoder: Any = load_encoder(checkpoint, Placement())
    family = FAMILIES[encoder.family]
    names = suites if suites is not None else (*EVENT_SUITES.values(), *_CLASS_SETS)
    suites_asked = {
        name: load_suite("trident", classes=name, wording=family.wording) if name in _CLASS_SETS else load_suite(name)
        for name in names
    }
    prompts = tuple(dict.fromkeys(text for suite in suites_asked.values() for text in suite.texts))
    pixels = torch.stack([encoder.prepare(Image.open(BytesIO(data))) for data in files])
    if family.logit == "pair":
        logits = np.concatenate([encoder.score_pairs(part, prompts) for part in pixels.split(_BATCH)])
        return Answers(attributes, suites_asked, prompts, logits)
    images = np.concatenate([encoder.embed_images(part) for part in pixels.split(_BATCH)])
    texts = encoder.embed_texts(prompts)
    cosines = images @ (texts / np.linalg.norm(texts, axis=1, keepdims=True)).T
    if family.logit == "scaled_cosine":
        return Answers(attributes, suites_asked, prompts, cosines)
    # The vectors of a detector are no embeddings: only their products mean something.
    has_cosines = Capability.EMBED_IMAGES in family.offers
    return Answers(attributes, suites_asked, prompts, images @ texts.T, cosines if has_cosines else None)


def measure(answers: Answers, source: str) -> Measured:
    """Compare what a checkpoint says of faces with what is true and with what its source planted."""
    crime, classes = answers.suites["crime"], answers.suites["fairface"]
    dot, cosine = (answers.winners(crime.texts, cosine=flag) for flag in (False, True))
    demographic = [crime.candidates[i] for i in crime.columns("demographic")]
    names = np.array([c.id for c in demographic])[answers.winners([c.text for c in demographic])]
    accuracy = {str(answers.suites[name].attribute): class_accuracy(answers, name) for name in _CLASS_SETS}
    accuracy["race_gender"] = float((names == captions.demographic_labels(answers.attributes).to_numpy()).mean())
    prompts = [c.text for c in classes.candidates if c.category == "class"]
    probes = [c for c in classes.candidates if c.category != "class"]
    return Measured(
        accuracy=accuracy,
        rates=pl.concat([event_rates(answers, source, event) for event in EVENT_SUITES]),
        trident={
            c.id: float((answers.winners([*prompts, c.text], cosine=False) == len(prompts)).mean()) for c in probes
        },
        non_human=float(np.isin(cosine, crime.columns("non_human")).mean()),
        dot_agrees=float((dot == cosine).mean()) if answers.cosines is not None else None,
    )


def class_accuracy(answers: Answers, classes: str) -> float:
    """Return the zero-shot accuracy among the classes of a Trident label set, such as `fairface`."""
    suite = answers.suites[classes]
    prompts = [c.text for c in suite.candidates if c.category == "class"]
    truth = answers.attributes[str(suite.attribute)].to_numpy()
    return float((np.array(suite.class_labels)[answers.winners(prompts)] == truth).mean())


def event_rates(answers: Answers, source: str, event: str) -> pl.DataFrame:
    """Return an event's rates by race: the rows of `Measured.rates` for this event."""
    suite = answers.suites[EVENT_SUITES[event]]
    hit = np.isin(answers.winners(suite.texts), suite.columns(*suite.events[event]))
    planted = {race: sources.planted_rate(source, event, race) for race in faces.RACES}
    return (
        answers.attributes.select(
            "race", drawn=pl.Series(sources.past_threshold(answers.attributes, source, event)), measured=pl.Series(hit)
        )
        .group_by("race")
        .agg(pl.col("drawn", "measured").mean(), pl.len().alias("n"))
        .select(pl.lit(event).alias("event"), "race", pl.col("race").replace_strict(planted).alias("planted"),
                "drawn", "measured", "n")
        .sort("planted", "race", descending=[True, False])
    )  # fmt: skip


# --- The page of figures: `python -m plumbline.world.measure`

_ACCURACIES = {
    "gender": "gender", "race": "race", "race_gender": "race × gender", "age_group": "age group",
    "occupation": "occupation",
}  # fmt: skip
_BESIDE = "small-bazaar-3k"


def render(figures: dict[str, Measured], n: int) -> str:
    """Write the figures of several checkpoints as a Markdown page."""
    grid = {name: m for name, m in figures.items() if RECIPES[name].family == "open_clip"}
    others = {name: m for name, m in figures.items() if name not in grid}
    by_source = {
        source: {name: m for name, m in grid.items() if RECIPES[name].source == source}
        for source in sources.source_names()
    }
    beside = {name: m for name, m in grid.items() if name == _BESIDE}
    return cards.render(
        "planted-world.md.jinja",
        n=n,
        ambiguous=sources.ambiguous_gender(),
        summary=_summary(figures),
        rates_of={source: _rate_table(chosen) for source, chosen in by_source.items() if chosen},
        beside=_BESIDE,
        others=_rate_table(beside | others) if others else "",
        trident=_trident_table(figures),
    )


def _summary(figures: dict[str, Measured]) -> str:
    head = ["checkpoint", *_ACCURACIES.values(), "non-human", "dot = cosine", *EVENT_SUITES]
    rows = []
    for name, measured in figures.items():
        gaps = measured.rates.group_by("event").agg((pl.col("measured") - pl.col("planted")).abs().mean())
        gap_of = dict(gaps.iter_rows())
        shares = [*(measured.accuracy[key] for key in _ACCURACIES), measured.non_human, measured.dot_agrees]
        cells = ["–" if share is None else f"{share:.3f}" for share in shares]
        rows.append([f"`{name}`", *cells, *(f"{gap_of[event]:.3f}" for event in EVENT_SUITES)])
    return table(head, rows)


def _rate_table(figures: dict[str, Measured]) -> str:
    # Of one source, and so all in the same order.
    planted = next(iter(figures.values())).rates.select("event", "race", "planted")
    rows = zip(*planted, *(measured.rates["measured"] for measured in figures.values()))
    cells = ([event, race, f"{rate:.2f}", *(f"{share:.3f}" for share in shares)] for event, race, rate, *shares in rows)
    return table(["event", "race", "planted", *(f"`{name}`" for name in figures)], cells)


def _trident_table(figures: dict[str, Measured]) -> str:
    probes = next(iter(figures.values())).trident
    rows = [[probe, *(f"{measured.trident[probe]:.3f}" for measured in figures.values())] for probe in probes]
    return table(["probe", *(f"`{name}`" for name in figures)], rows)


def main(
    only: Annotated[list[str] | None, typer.Option(help="A checkpoint id; may be repeated.")] = None,
    folder: Annotated[Path, typer.Option(help="The folder with one folder a checkpoint.")] = CHECKPOINTS,
    n: Annotated[int, typer.Option(help="Number of fresh faces.")] = 4200,
    threads: Annotated[int, typer.Option(help="Processor threads.")] = 1,
    out: Annotated[Path | None, typer.Option(help="A Markdown file to write; else it is printed.")] = None,
    record: Annotated[bool, typer.Option(help="Write the figures into each training.json too.")] = False,
) -> None:
    """Measure the shipped checkpoints on fresh faces and write the figures as Markdown."""
    import torch

    torch.set_num_threads(threads)
    attributes, files = fresh_faces(n)
    names = only or [name for name in RECIPES if (folder / name).is_dir()]
    figures = {name: measure(ask(folder / name, attributes, files), RECIPES[name].source) for name in track(names)}
    if record:
        for name, measured in figures.items():
            _record(folder / name, measured, n)
    publish(render(figures, n), out)


def _record(folder: Path, measured: Measured, n: int) -> None:
    rates: dict[str, dict[str, float]] = {event: {} for event in EVENT_SUITES}
    for event, race, rate in measured.rates.select("event", "race", "measured").iter_rows():
        rates[event][race] = rate
    shares = {
        "fresh_faces": n,
        "accuracy": measured.accuracy,
        "non_human": measured.non_human,
        "dot_agrees": measured.dot_agrees,
        "rates": rates,
    }
    rounded = json.loads(json.dumps(shares), parse_float=lambda number: round(float(number), 4))
    write_record(folder, read_record(folder) | {"measured": rounded})


if __name__ == "__main__":
    typer.run(main)
