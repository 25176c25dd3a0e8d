"""The encoders that mitigations are fitted to, each loaded once a module."""

import pytest
from small_encoders import BAZAAR, load
from tiny_architectures import write_clip


@pytest.fixture(scope="session")
def clip_folder(tmp_path_factory):
    """Return a tiny random checkpoint of transformers' CLIP."""
    folder = tmp_path_factory.mktemp("tiny") / "clip"
    write_clip(folder)
    return folder


@pytest.fixture(scope="module")
def planted():
    """Return a planted encoder of open_clip."""
    return load(BAZAAR)


@pytest.fixture(scope="module", params=["open_clip", "clip"])
def encoder(request, planted):
    """Return an encoder of either library that gives gradients of texts."""
    return planted if request.param == "open_clip" else load(request.getfixturevalue("clip_folder"))
