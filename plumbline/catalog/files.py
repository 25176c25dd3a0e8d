"""The data files of the studies, which lie beside these modules."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import yaml


def data_bytes(name: str) -> bytes:
    """Return the bytes of a data file, such as `person_words.yaml`."""
    return (files("plumbline.catalog") / name).read_bytes()


def data_text(name: str) -> str:
    """Return the text of a data file."""
    return data_bytes(name).decode("utf-8")


def data_yaml(name: str) -> Any:
    """Return the content of a data file of YAML."""
    return yaml.safe_load(data_text(name))
