"""What a planted checkpoint learnt: its figures on faces that it has not seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from plumbline.tables.suites import Suite, load_suite
from plumbline.world import architectures, captions, faces, sources

_BATCH = 256
EVENT_SUITES = {"crime": "crime", "negative_communion": "communion", "negative_agency": "agency"}


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

    def by_group(self, column: str) -> dict[tuple[str, str], float]:
        """Return `planted`, `drawn` or `measured` by (event, race), in the order of `rates`."""
        return {
            (event, race): rate
            for event, race, rate in self.rates.select("event", "race", column).iter_rows()
        }


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
        rates=pl.concat([_event_rates(embedded, source, event) for event in EVENT_SUITES]),
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
    suite = load_suite(EVENT_SUITES[event])
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
