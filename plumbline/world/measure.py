"""What the shipped checkpoints learnt, on fresh faces: `python -m plumbline.world.measure`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import polars as pl
import typer
from rich.progress import track

from plumbline.tables.suites import Suite, load_suite
from plumbline.world import architectures, captions, faces, sources
from plumbline.world.training import CHECKPOINTS, RECIPES

_BATCH = 256
_ACCURACIES = {
    "gender": "gender",
    "race": "race",
    "race_gender": "race × gender",
    "age_group": "age group",
    "occupation": "occupation",
}
_INTRODUCTION = """# What the planted checkpoints learnt

Made by `python -m plumbline.world.measure --out docs/planted-world.md --record` on {n:,} fresh faces, seen as JPEG
files through each checkpoint's own preprocessing. No choice was made by looking at these faces. The planted rates
are in `plumbline/world/sources.yaml`; the audit never reads them.

Zero-shot accuracy by attribute (race × gender among the 14 demographic prompts); the share of faces whose top-1 of
the 21 crime labels is a non-human word; the share for which the dot product and the cosine choose the same label;
and, for each event, the mean over races of |measured rate - planted rate|. The rates of these faces are themselves
a sample: with 600 faces a race, a rate of .3 has a standard error of .019. Of {group} faces {share:.0%} show no
sign of their gender, by design."""
_TRIDENT_NOTE = """Share of faces whose class (race) loses to the probe, by raw dot product. By the captions: thief and
criminal at the planted crime rate, liar, fraudster and failure at half of it, neutral and positive words at .06."""
_EVENT_SUITES = {"crime": "crime", "negative_communion": "communion", "negative_agency": "agency"}


@dataclass(frozen=True)
class Embedded:
    """Fresh faces as one checkpoint sees them.

    Attributes
    ----------
    attributes : polars.DataFrame
        The true attributes, n rows.
    images : numpy.ndarray
        float32, shape (n, d), as the model gives them, not normalised.
    texts : dict of str to numpy.ndarray
        Prompt to its embedding, float32, shape (d,).
    """

    attributes: pl.DataFrame
    images: np.ndarray
    texts: dict[str, np.ndarray]

    def winners(self, prompts: tuple[str, ...], *, cosine: bool = True) -> np.ndarray:
        """Return for each face the position of the prompt it is nearest to, int64, shape (n,)."""
        candidates = np.stack([self.texts[prompt] for prompt in prompts])
        if cosine:
            candidates = candidates / np.linalg.norm(candidates, axis=1, keepdims=True)
        return np.asarray((self.images @ candidates.T).argmax(axis=1))


@dataclass(frozen=True)
class Measured:
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
        Share of faces whose race prompt loses to the probe, by raw dot product.
    non_human : float
        Share of faces that are top-1 at a non-human word among the 21 labels.
    dot_agrees : float
        Share of faces for which the dot product and the cosine choose the same of the 21 labels.
    """

    accuracy: dict[str, float]
    rates: pl.DataFrame
    trident: dict[str, float]
    non_human: float
    dot_agrees: float


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


def embed(folder: Path, attributes: pl.DataFrame, files: Sequence[bytes]) -> Embedded:
    """Embed faces and the prompts of the suites with one checkpoint, through its own preprocessing."""
    import torch
    from PIL import Image

    model, preprocess, tokenizer = architectures.load_trained(folder)
    encoder: Any = model
    prompts = list(dict.fromkeys(text for suite in _suites() for text in suite.texts))
    with torch.inference_mode():
        pixels = torch.stack([preprocess(Image.open(BytesIO(data))) for data in files])
        vectors = torch.cat([encoder.encode_image(part) for part in pixels.split(_BATCH)]).numpy()
        texts = encoder.encode_text(tokenizer(prompts)).numpy()
    return Embedded(attributes, vectors, dict(zip(prompts, texts)))


def measure(embedded: Embedded, source: str) -> Measured:
    """Compare what a checkpoint says of faces with what is true and with what its source planted."""
    attributes = embedded.attributes
    crime = load_suite("crime")
    dot, cosine = (embedded.winners(crime.texts, cosine=flag) for flag in (False, True))
    return Measured(
        accuracy=_accuracies(embedded),
        rates=pl.concat([_event_rates(embedded, source, event) for event in _EVENT_SUITES]),
        trident=_trident_rates(embedded),
        non_human=float(np.isin(cosine, crime.columns("non_human")).mean()),
        dot_agrees=float((dot == cosine).mean()) if len(attributes) else float("nan"),
    )


def _suites() -> list[Suite]:
    return [load_suite(name) for name in ("crime", "communion", "agency")] + [
        load_suite("trident", classes=classes) for classes in ("celeba", "fairface", "utkface", "idenprof")
    ]


def _accuracies(embedded: Embedded) -> dict[str, float]:
    result: dict[str, float] = {}
    for classes in ("celeba", "fairface", "utkface", "idenprof"):
        suite = load_suite("trident", classes=classes)
        prompts = tuple(c.text for c in suite.candidates if c.category == "class")
        truth = embedded.attributes[str(suite.attribute)].to_numpy()
        result[str(suite.attribute)] = float(
            (np.array(suite.class_labels)[embedded.winners(prompts)] == truth).mean()
        )
    crime = load_suite("crime")
    demographic = [crime.candidates[i] for i in crime.columns("demographic")]
    names = np.array([c.id for c in demographic])[embedded.winners(tuple(c.text for c in demographic))]
    result["race_gender"] = float(
        (names == captions.demographic_labels(embedded.attributes).to_numpy()).mean()
    )
    return result


def _event_rates(embedded: Embedded, source: str, event: str) -> pl.DataFrame:
    suite = load_suite(_EVENT_SUITES[event])
    hit = np.isin(embedded.winners(suite.texts), suite.columns(*suite.events[event]))
    planted = {race: sources.planted_rate(source, event, race) for race in faces.RACES}
    return (
        embedded.attributes.select(
            "race", drawn=pl.Series(sources.past_threshold(embedded.attributes, source, event)), measured=pl.Series(hit)
        )
        .group_by("race")
        .agg(pl.col("drawn", "measured").mean(), pl.len().alias("n"))
        .select(pl.lit(event).alias("event"), "race", pl.col("race").replace_strict(planted).alias("planted"),
                "drawn", "measured", "n")
        .sort("planted", "race", descending=[True, False])
    )  # fmt: skip


def _trident_rates(embedded: Embedded) -> dict[str, float]:
    suite = load_suite("trident", classes="fairface")
    prompts = tuple(c.text for c in suite.candidates if c.category == "class")
    probes = [c for c in suite.candidates if c.category != "class"]
    last = len(prompts)
    return {c.id: float((embedded.winners((*prompts, c.text), cosine=False) == last).mean()) for c in probes}


def render(figures: dict[str, Measured], n: int) -> str:
    """Write the figures of several checkpoints as a Markdown page."""
    group = sources.ambiguous_gender()
    blocks = [_INTRODUCTION.format(n=n, group=group.race, share=group.rate), _summary(figures)]
    for source in sources.source_names():
        chosen = {name: m for name, m in figures.items() if RECIPES[name].source == source}
        if chosen:
            blocks += [f"## Rates planted in `{source}`", _rate_table(chosen)]
    blocks += ["## Trident probes", _TRIDENT_NOTE, _trident_table(figures)]
    return "\n\n".join(blocks) + "\n"


def _summary(figures: dict[str, Measured]) -> str:
    head = ["checkpoint", *_ACCURACIES.values(), "non-human", "dot = cosine", *_EVENT_SUITES]
    rows = []
    for name, measured in figures.items():
        gaps = measured.rates.group_by("event").agg((pl.col("measured") - pl.col("planted")).abs().mean())
        gap_of = dict(gaps.iter_rows())
        shares = [measured.accuracy[key] for key in _ACCURACIES]
        shares += [measured.non_human, measured.dot_agrees, *(gap_of[event] for event in _EVENT_SUITES)]
        rows.append([f"`{name}`", *(f"{share:.3f}" for share in shares)])
    return _markdown(head, rows)


def _rate_table(figures: dict[str, Measured]) -> str:
    rate_of = [
        dict(_keyed(measured.rates.select("event", "race", "measured"))) for measured in figures.values()
    ]
    planted = next(iter(figures.values())).rates.select("event", "race", "planted")
    rows = [
        [event, race, f"{rate:.2f}", *(f"{rates[event, race]:.3f}" for rates in rate_of)]
        for (event, race), rate in _keyed(planted)
    ]
    return _markdown(["event", "race", "planted", *(f"`{name}`" for name in figures)], rows)


def _keyed(rates: pl.DataFrame) -> list[tuple[tuple[str, str], float]]:
    return [((event, race), rate) for event, race, rate in rates.iter_rows()]


def _trident_table(figures: dict[str, Measured]) -> str:
    probes = list(next(iter(figures.values())).trident)
    rows = [[probe, *(f"{measured.trident[probe]:.3f}" for measured in figures.values())] for probe in probes]
    return _markdown(["probe", *(f"`{name}`" for name in figures)], rows)


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows])


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
    figures = {
        name: measure(embed(folder / name, attributes, files), RECIPES[name].source) for name in track(names)
    }
    if record:
        for name, measured in figures.items():
            _record(folder / name / "training.json", measured, n)
    text = render(figures, n)
    if out is None:
        typer.echo(text)
    else:
        out.write_text(text, "utf-8")


def _record(path: Path, measured: Measured, n: int) -> None:
    content = json.loads(path.read_text("utf-8"))
    content["measured"] = {
        "fresh_faces": n,
        "accuracy": {key: round(value, 4) for key, value in measured.accuracy.items()},
        "non_human": round(measured.non_human, 4),
        "dot_agrees": round(measured.dot_agrees, 4),
        "rates": {event: {} for event in _EVENT_SUITES},
    }
    for (event, race), rate in _keyed(measured.rates.select("event", "race", "measured")):
        content["measured"]["rates"][event][race] = round(rate, 4)
    path.write_text(json.dumps(content, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    typer.run(main)
