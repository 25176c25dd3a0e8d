"""How the datasets of one person in several versions lie on disk: CausalFace and SocialCounterfactuals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from io import BytesIO
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from plumbline.world import faces
from plumbline.world.layouts import (
    bad_contents,
    bad_files,
    entry,
    faulty,
    put,
    sample_labelled,
    write_bad_files,
    write_csv,
)


def draw_versions(attributes: pl.DataFrame, rng: np.random.Generator) -> np.ndarray:
    """Draw one person in several versions: what differs between the rows is their attributes.

    The rows share the jitter in place, size, skin and hair; a little noise of its own keeps two versions that
    look alike from being the same file.

    Parameters
    ----------
    attributes : polars.DataFrame
        n rows as `faces.sample_attributes` gives them.
    rng : numpy.random.Generator
        Source of the person and of the noise.

    Returns
    -------
    numpy.ndarray
        uint8, shape (n, 64, 64, 3), RGB.
    """
    person = np.random.default_rng(int(rng.integers(2**32)))
    images = faces.draw_one_person(attributes, person)
    noise = rng.integers(-2, 3, images.shape, np.int16)
    return np.clip(images + noise, 0, 255).astype(np.uint8)


# --- CausalFace: a folder a dimension, a folder a seed, and names that say who and how far


def causalface(root: Path, rng: np.random.Generator) -> pl.DataFrame:
    """Write CausalFace.

    What can be seen of the four dimensions: age as the world's age groups, two levels each; lighting as the brightness
    of the whole picture; pose as a step of the whole picture to the side; smiling as a line that bends below the nose.
    """
    content = entry("causalface")
    words, truth = content["words"], []
    versions = [
        (
            words["race"][race],
            words["gender"][gender],
            faces.AGE_GROUPS[step // 2] if dimension == "age" else "young_adult",
            dimension,
            float(level),
            f"final_picked_{dimension}/seed_{{}}/{race}_{gender}_{about['mark']}_{level}{about['end']}.png",
        )
        for race, gender, (dimension, about) in product(words["race"], words["gender"], content["dimensions"].items())
        for step, level in enumerate(about["levels"])
    ]
    races, genders, ages, dimensions, levels, names = zip(*versions)
    for seed in content["seeds"]:
        attributes = sample_labelled(len(versions), rng, race=races, gender=genders, age_group=ages)
        # Nothing but the labels differs between the versions of one person.
        attributes = attributes.with_columns(pl.col("occupation", *faces.LATENTS).first())
        paths = [name.format(seed) for name in names]
        for path, image, dimension, level in zip(paths, draw_versions(attributes, rng), dimensions, levels):
            put(root / path, _as_png(_varied(image, dimension, level)))
        truth.append(
            attributes.with_columns(
                path=pl.Series(paths),
                listed_race=pl.col("race").replace("East Asian", "Asian"),
                seed=pl.lit(seed),
                dimension=pl.Series(dimensions),
                level=pl.Series(levels),
            )
        )
    drawn = (*faces.draw(faces.sample_attributes(4, rng), rng), *faces.draw(faces.sample_attributes(1, rng), rng))
    write_bad_files(root, "causalface", faulty(*map(_as_png, drawn)))
    return pl.concat(truth)


def _varied(image: np.ndarray, dimension: str, level: float) -> np.ndarray:
    if dimension == "lighting":
        return np.clip(image * (0.8 + 0.07 * level), 0, 255).astype(np.uint8)
    if dimension == "pose":
        return np.roll(image, round(2 * level), axis=1)
    if dimension == "smiling":
        across = np.arange(-6, 7)
        down = 42 - np.rint(level * (across / 6) ** 2).astype(int)
        image[down, 32 + across] = (40, 20, 20)
    return image


def _as_png(image: np.ndarray) -> bytes:
    from PIL import Image

    buffer = BytesIO()
    Image.fromarray(image).save(buffer, "PNG")
    return buffer.getvalue()


# --- SocialCounterfactuals as extracted: images beside the metadata of the three subsets


@dataclass(frozen=True)
class CounterfactualSet:
    """One set: one person in every pair of attributes of a subset, and what the metadata says of each image.

    What can be seen: race, gender, occupation, and the words `young` and `old` (the world's young adults and elderly;
    all others are middle-aged). `skinny`, `obese` and `tattooed` have no look: within a set, images that differ only in
    these differ in a little noise.

    Attributes
    ----------
    subset, filename, rank, seed : str, str, int, int
        As in the metadata.
    captions : dict of int to str
        Number of the image to its caption.
    words : list of (str, str)
        The two attribute words of each image.
    attributes : polars.DataFrame
        One row an image.
    images : numpy.ndarray
        uint8, shape (images, 64, 64, 3).
    """

    subset: str
    filename: str
    rank: int
    seed: int
    captions: dict[int, str]
    words: list[tuple[str, str]]
    attributes: pl.DataFrame
    images: np.ndarray

    @property
    def paths(self) -> list[str]:
        """Return where each image lies."""
        return [f"images/{self.filename}_{self.rank}_{number}_{self.seed}.jpg" for number in self.captions]

    @property
    def metadata(self) -> list[object]:
        """Return the row of the metadata."""
        return [self.seed, 0.5, 10.0, self.filename, self.rank, *self.captions.values()]

    def truth(self, paths: list[str]) -> pl.DataFrame:
        """Return what is drawn, and in columns `listed_*` what the dataset says of it in its own words."""
        known = entry("socialcounterfactuals")["words"]
        bodies = {word: word for pair in self.words for word in pair if word not in {*known["race"], *known["gender"]}}
        races = {word: word for word in known["race"]}
        listed = {"listed_race": races, "listed_gender": known["gender"], "listed_physical": bodies}
        return self.attributes.with_columns(
            pl.Series("path", paths),
            pl.lit(self.subset).alias("subset"),
            *(
                pl.Series(name, [_known(words, pair) for pair in self.words], pl.String)
                for name, words in listed.items()
            ),
            listed_occupation=pl.lit(self.filename.partition(f"{self.subset}_")[2].replace("_", " ")),
        )


def _known(words: dict[str, str], pair: tuple[str, str]) -> str | None:
    """Return what the first of two words that is known stands for."""
    return next((words[word] for word in pair if word in words), None)


def draw_sets(subset: str, count: int, rng: np.random.Generator) -> Iterator[CounterfactualSet]:
    """Draw a number of sets; occupations and the openings of captions take turns."""
    content = entry("socialcounterfactuals")
    words, openings = content["words"], content["openings"]
    pairs = _pairs(subset)
    for position in range(count):
        occupation = faces.OCCUPATIONS[position % len(faces.OCCUPATIONS)]
        spoken, opening = words["occupation"].get(occupation, occupation), openings[position % len(openings)]
        person = faces.sample_attributes(1, rng)
        # What the pairs leave open is the same for all of them.
        race, gender = (str(rng.choice([*words[column].values()])) for column in ("race", "gender"))
        labelled = sample_labelled(
            len(pairs),
            rng,
            race=[_known(words["race"], pair) or race for pair in pairs.values()],
            gender=[_known(words["gender"], pair) or gender for pair in pairs.values()],
            age_group=[words["age_group"].get(first, "middle_aged") for first, _ in pairs.values()],
            occupation=[occupation] * len(pairs),
        )
        attributes = labelled.with_columns(pl.lit(person[latent].item()).alias(latent) for latent in faces.LATENTS)
        yield CounterfactualSet(
            subset=subset,
            filename=f"{opening}{subset} {spoken}".replace(" ", "_"),
            rank=position // len(faces.OCCUPATIONS),
            seed=1_000_000_000 + int(rng.integers(3_000_000_000)),
            captions={number: _caption(opening, *pair, spoken) for number, pair in pairs.items()},
            words=list(pairs.values()),
            attributes=attributes,
            images=draw_versions(attributes, rng),
        )


def _pairs(subset: str) -> dict[int, tuple[str, str]]:
    """Return the attribute words of each image of a subset, by its number."""
    content = entry("socialcounterfactuals")
    first, second = content["subsets"][subset]["first"], content["words"][content["subsets"][subset]["second"]]
    return {start + i: (word, other) for word, start in first.items() for i, other in enumerate(second)}


def _caption(opening: str, first: str, second: str, occupation: str) -> str:
    article = "an" if first[0] in "AIOaio" else "a"
    return f"{opening[:1].upper()}{opening[1:]}{article} {first} {second} {occupation}"


def socialcounterfactuals(root: Path, rng: np.random.Generator) -> pl.DataFrame:
    """Write SocialCounterfactuals as extracted; the last set of the first subset has the bad images."""
    truth, bad = [], bad_files("socialcounterfactuals")
    for subset, about in entry("socialcounterfactuals")["subsets"].items():
        sets = list(draw_sets(subset, about["sets"], rng))
        if subset == "race_gender":
            sets.append(_bad_set(bad, rng))
        for drawn in sets:
            for path, image in zip(drawn.paths, drawn.images):
                if path not in bad:
                    put(root / path, faces.as_jpeg(image))
        if subset == "race_gender":
            write_bad_files(root, "socialcounterfactuals", bad_contents(rng))
        truth += [drawn.truth(drawn.paths) for drawn in sets]
        header = ["seed", "p2p_threshold", "cfg_scale", "filename", "rank"]
        header += [f"caption_{number}" for number in _pairs(subset)]
        write_csv(root / f"metadata_{subset}.csv", [header, *(drawn.metadata for drawn in sets)])
    return pl.concat(truth).filter(~pl.col("path").is_in(list(bad)))


def _bad_set(bad: dict[str, str], rng: np.random.Generator) -> CounterfactualSet:
    (drawn,) = draw_sets("race_gender", 1, rng)
    drawn = replace(drawn, filename="race_gender_librarian", rank=7, seed=4_000_000_001)
    captions = {
        number: _caption("", "Martian" if bad.get(path) == "unknown race" else race, gender, "librarian")
        for path, (number, (race, gender)) in zip(drawn.paths, _pairs("race_gender").items())
    }
    return replace(drawn, captions=captions)


# --- SocialCounterfactuals as published on Hugging Face: Parquet files with an image column


def socialcounterfactuals_parquet(root: Path, rng: np.random.Generator) -> pl.DataFrame:
    """Write whole sets of the subset `race_gender` as rows; the bad ones are the last of the second file."""
    content = entry("socialcounterfactuals_parquet")
    sets = list(draw_sets("race_gender", content["sets"], rng))
    rows = [
        _row(faces.as_jpeg(image), caption, f"{drawn.filename}_{drawn.rank}_{drawn.seed}", *words)
        for drawn in sets
        for image, caption, words in zip(drawn.images, drawn.captions.values(), drawn.words)
    ]
    contents = bad_contents(rng)
    for path, fault in bad_files("socialcounterfactuals_parquet").items():
        race = "Martian" if fault == "unknown race" else "White"
        gender = "female" if path.endswith("/126") else "male"
        caption = f"a {race} {gender} librarian"
        rows.append(_row(contents.get(fault), caption, "race_gender_librarian_7_4000000001", race, gender))
    first, second = content["files"]
    size = content["rows"]
    _write_rows(root / first, rows[:size], content["row_group"])
    _write_rows(root / second, rows[size:], content["row_group"])
    paths = [f"{file}/{row}" for file in content["files"] for row in range(size)]
    per_set = len(sets[0].words)
    return pl.concat(drawn.truth(paths[i * per_set : (i + 1) * per_set]) for i, drawn in enumerate(sets))


def _row(data: bytes | None, caption: str, set_id: str, race: str, gender: str) -> dict[str, Any]:
    return {
        "image": None if data is None else {"bytes": data, "path": None},
        "caption": caption,
        "counterfactual_set": set_id,
        "a1": race,
        "a1_type": "race",
        "a2": gender,
        "a2_type": "gender",
        "a1a2": f"{race} {gender}",
    }


def _write_rows(path: Path, rows: list[dict[str, Any]], row_group: int) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    path.parent.mkdir(parents=True, exist_ok=True)
    image = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    schema = pa.schema(
        [("image", image), *((name, pa.string()) for name in rows[0] if name != "image")],
        metadata={"huggingface": '{"info": {"features": {"image": {"_type": "Image"}}}}'},
    )
    parquet.write_table(pa.Table.from_pylist(rows, schema=schema), path, row_group_size=row_group)
