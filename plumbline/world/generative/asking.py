"""Asks a planted generative model about fresh faces, through the code that an audit loads and asks it with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from plumbline.digests import digest_bytes
from plumbline.encoders.encoder import Placement
from plumbline.lvlm.backend import Asked, Backend, Decoding, Question, Subject, row_key
from plumbline.lvlm.loading import load_backend, lvlm_files
from plumbline.tables.generation_prompts import render
from plumbline.tables.generation_schema import NO_INSTRUCTION
from plumbline.world import faces
from plumbline.world.generative.rates import planted
from plumbline.world.generative.twin import Description

_LONGEST = 128


@dataclass(frozen=True)
class FreshFaces:
    """Faces that no model was trained on, as files.

    Attributes
    ----------
    attributes : polars.DataFrame
        n rows as `plumbline.world.faces.sample_attributes` gives them.
    paths : tuple of Path
    ids : tuple of str
        sha256 of each file.
    """

    attributes: pl.DataFrame
    paths: tuple[Path, ...]
    ids: tuple[str, ...]


def fresh_faces(n_a_group: int, folder: Path, *, seed: int) -> FreshFaces:
    """Draw faces, as many of every race and gender, and write them as JPEG files.

    Parameters
    ----------
    n_a_group : int
        Faces of each of the 14 groups.
    folder : pathlib.Path
        Gets the files.
    seed : int
        Of everything drawn.
    """
    rng = np.random.default_rng(seed)
    groups = [(race, gender) for race in faces.RACES for gender in faces.GENDERS for _ in range(n_a_group)]
    races, genders = zip(*groups, strict=True)
    attributes = faces.sample_attributes(len(groups), rng).with_columns(
        pl.Series("race", races), pl.Series("gender", genders), ambiguous=pl.lit(False)
    )
    contents = [faces.as_jpeg(image) for image in faces.draw(attributes, rng)]
    paths = tuple(folder / f"{i}.jpg" for i in range(len(contents)))
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    return FreshFaces(attributes, paths, tuple(digest_bytes(content) for content in contents))


def ask(
    backend: Backend,
    fresh: FreshFaces,
    prompt: str,
    instruction: str = NO_INSTRUCTION,
    *,
    decoding: Decoding | None = None,
    seed: int = 0,
) -> list[str]:
    """Return what a model answers about each face, sampled as the study samples unless told otherwise."""
    decoding = decoding or Decoding(max_new_tokens=_LONGEST)
    spoken = planted()["occupations"]
    asked = []
    for row, (path, image) in enumerate(zip(fresh.paths, fresh.ids, strict=True)):
        occupation = fresh.attributes["occupation"][row]
        text = render(prompt, instruction=instruction, occupation=spoken.get(occupation, occupation))
        question = Question(prompt, instruction, text, seed)
        subject = Subject(image, path)
        asked.append(Asked(subject, question, row_key(backend.identity, subject, question, decoding)))
    said: dict[int, str] = {row: answer.text for row, answer in backend.answers(asked, decoding)}
    return [said[row] for row in range(len(asked))]


def load(folder: Path) -> Backend:
    """Load a checkpoint as an audit loads it."""
    place = folder.resolve()
    files = lvlm_files(place.name, f"local-dir:{place}", project=place, fetched=place)
    return load_backend(files, Placement())


def ask_twin(
    backend: Backend, told: Description, n: int, *, prompt: str = "characteristics", seed: int = 0
) -> list[str]:
    """Return `n` answers of the twin about one description, each drawn for itself."""
    decoding = Decoding(max_new_tokens=_LONGEST)
    text = render(prompt, described=told.text)
    subject = Subject(told.text, None)
    questions = [Question(prompt, NO_INSTRUCTION, text, seed + i) for i in range(n)]
    asked = [Asked(subject, q, row_key(backend.identity, subject, q, decoding)) for q in questions]
    said = dict(backend.answers(asked, decoding))
    return [said[row].text for row in range(n)]
