"""Every kind of scorer, made once, with the texts that all of them are asked about."""

import os
from pathlib import Path

import polars as pl
import pytest
from perspective_server import KEY, VARIABLE, FakeClock, serving
from tiny_classifiers import ARCHITECTURES, TEXTS

from plumbline.checkpoints.device import Placement
from plumbline.scorers.classifier import ClassifierSettings
from plumbline.scorers.offline import OfflineSettings
from plumbline.scorers.perspective import PerspectiveScorer, PerspectiveSettings
from plumbline.scorers.stored import StoredSettings

KINDS = {
    "offline": "offline",
    **dict.fromkeys(ARCHITECTURES, "classifier"),
    "perspective": "perspective",
    "stored": "stored",
}
"""Name of each scorer that `make_scorer` makes -> its kind in `plumbline.scorers.kinds.KINDS`."""


@pytest.fixture(scope="module", autouse=True)
def _on_one_thread(one_thread):
    """Keep every module of this folder on one thread."""


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """A tiny checkpoint of each architecture."""
    root = tmp_path_factory.mktemp("classifiers")
    for name, write in ARCHITECTURES.items():
        write(root / name)
    return root


@pytest.fixture(scope="session")
def perspective_server():
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = KEY
    with serving() as server:
        yield server
    os.environ.pop(VARIABLE)
    if before is not None:
        os.environ[VARIABLE] = before


@pytest.fixture(scope="session")
def make_scorer(folders, perspective_server, tmp_path_factory):
    """A function that makes a scorer of `KINDS` by its name, each time anew."""
    stored = tmp_path_factory.mktemp("stored") / "scores.csv"
    some = TEXTS[1:5]
    values = [0.0, 0.25, 0.5, 1.0]
    pl.DataFrame({"text": some, "TOXICITY": values, "INSULT": values[::-1]}).write_csv(stored)

    classifiers = {
        name: ClassifierSettings(kind="classifier", address=f"local-dir:{folders / name}") for name in ARCHITECTURES
    }
    settings_of = {
        "offline": OfflineSettings(),
        "stored": StoredSettings(kind="stored", path=str(stored)),
        **classifiers,
    }

    def make(name):
        if name == "perspective":
            settings = PerspectiveSettings(kind="perspective", queries_per_second=4)
            return PerspectiveScorer(settings, url=perspective_server.url, clock=FakeClock().clock)
        return settings_of[name].load(project=Path.cwd(), fetched=Path("none"), placement=Placement())

    return make


@pytest.fixture(scope="session")
def made_kinds():
    """The registered kinds that there is a scorer of."""
    return set(KINDS.values())


@pytest.fixture(scope="session", params=KINDS)
def scorer(request, make_scorer):
    """Each of `KINDS`."""
    made = make_scorer(request.param)
    made.kind = request.param
    return made
