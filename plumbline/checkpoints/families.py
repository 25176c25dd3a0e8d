"""Families: checkpoints that one adapter loads. Encoders and generators have a table of them each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from plumbline.checkpoints.addresses import TRANSFORMERS_CONFIG
from plumbline.checkpoints.folders import read_configuration
from plumbline.errors import CheckpointError


@dataclass(frozen=True)
class Family:
    """Checkpoints that one adapter loads.

    Attributes
    ----------
    name : str
        As the audit file says it.
    title : str
        For people.
    model_types : tuple of str
        Values of `model_type` in `config.json` that mean this family.
    adapter : str
        `module:Class` below the package of its table, called with (files, placement).
    version : int
        Of the adapter, as part of every model's identity. Raise it with any change of Plumbline's own code by which
        the same files give other results (what is read of the model, tokens, pixels, how tokens are drawn): results of
        the earlier code are then left aside. Versions of libraries are seen by themselves.
    """

    name: str
    title: str
    model_types: tuple[str, ...]
    adapter: str
    version: int


FamilyT = TypeVar("FamilyT", bound=Family)


def family_of_model_type(families: Mapping[str, FamilyT], model_type: str) -> FamilyT | None:
    """Return the family that a `model_type` of `config.json` means, by the last row that names it; or None."""
    return next((family for family in [*families.values()][::-1] if model_type in family.model_types), None)


def family_of_folder(
    families: Mapping[str, FamilyT], folder: Path, of: str, *, expected: str = "", hint: str | None = None
) -> FamilyT:
    """Return the family of a folder of transformers.

    Parameters
    ----------
    of : str
        Whose checkpoint it is, for the message.
    expected, hint : str, optional
        What else it could be, and what to do instead.

    Raises
    ------
    CheckpointError
        With the families that are known.
    """
    model_type = str(read_configuration(folder / TRANSFORMERS_CONFIG).get("model_type"))
    if (family := family_of_model_type(families, model_type)) is not None:
        return family
    known = [model_type for family in families.values() for model_type in family.model_types]
    raise CheckpointError(
        f"the checkpoint of {of} is of no family that can be audited",
        where=folder / TRANSFORMERS_CONFIG,
        found=f"model_type: {model_type}",
        expected=f"one of {', '.join(known)}{expected}",
        hint=hint,
    )
