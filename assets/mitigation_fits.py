"""Fitted mitigations of a cell in the lake: parameters as safetensors, with what they were fitted on."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assets.cells import StoredCell
from plumbline.catalog.schema import BEFORE
from plumbline.mitigations.fitting import FittedTexts
from plumbline.mitigations.retrieval import Places, Retrieval
from plumbline.mitigations.text_mitigations import FittedMitigation
from plumbline.storage import Committed

_RETRIEVAL = ":retrieval/"
"""Begins what no id of a mitigation begins with."""


def write_text_fits(stored: StoredCell, asset: str, fits: FittedTexts) -> Committed:
    """Commit the fits of a method on a cell."""
    arrays: dict[str, NDArray[Any]] = {"before": fits.before} if fits.fits else {}
    for name, fit in fits.fits.items():
        arrays |= {f"{name}/parameter/{part}": array for part, array in fit.parameters.items()}
        arrays |= {f"{name}/loss/{curve}": losses for curve, losses in fit.losses.items()}
        arrays[f"{name}/features"] = fits.features[name]
        arrays[f"{name}/train_ids"] = np.frombuffer(bytes.fromhex("".join(fit.train_ids)), np.uint8)
    for pairs, retrieval in fits.retrieval.items():
        for condition, state in {BEFORE: retrieval.before, **retrieval.after}.items():
            arrays |= {f"{_RETRIEVAL}{pairs}/{condition}/{part}": array for part, array in vars(state).items()}
    about = {name: {"settings": dict(f.settings), "fitted_on": f.fitted_on} for name, f in fits.fits.items()}
    on_pairs = {name: {"absent": dict(each.absent), "digest": each.digest} for name, each in fits.retrieval.items()}
    details = {"texts": list(fits.texts), "fits": about, "absent": dict(fits.absent), "retrieval": on_pairs}
    return stored.workspace.lake.write_arrays(asset, arrays, partition=stored.partition, details=details)


def read_text_fits(stored: StoredCell, asset: str) -> FittedTexts:
    """Return the stored fits of a method on a cell."""
    committed = stored.workspace.lake.require(asset, partition=stored.partition)
    if not committed.details["fits"]:
        return FittedTexts(absent=committed.details["absent"])
    arrays = stored.workspace.lake.read_arrays(asset, manifest=committed)
    fits = {}
    for name, about in committed.details["fits"].items():
        of_name = {key.removeprefix(f"{name}/"): a for key, a in arrays.items() if key.startswith(f"{name}/")}
        ids = of_name["train_ids"].tobytes().hex()
        fits[name] = FittedMitigation(
            settings=about["settings"],
            parameters=below("parameter/", of_name),
            fitted_on=about["fitted_on"],
            losses=below("loss/", of_name),
            train_ids=tuple(ids[i : i + 64] for i in range(0, len(ids), 64)),
        )
    return FittedTexts(
        texts=tuple(committed.details["texts"]),
        before=arrays["before"],
        fits=fits,
        features={name: arrays[f"{name}/features"] for name in fits},
        absent=committed.details["absent"],
        retrieval={
            pairs: _retrieval(below(f"{_RETRIEVAL}{pairs}/", arrays), **scores)
            for pairs, scores in committed.details.get("retrieval", {}).items()
        },
    )


def _retrieval(arrays: Mapping[str, NDArray[Any]], absent: Mapping[str, str], digest: str) -> Retrieval:
    """Return stored places, by condition; those before are there."""
    conditions = dict.fromkeys(key.partition("/")[0] for key in arrays)
    states = {condition: Places(**below(f"{condition}/", arrays)) for condition in conditions}
    return Retrieval(states.pop(BEFORE), states, absent, digest)


def below(prefix: str, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return the arrays whose names begin with a prefix, by what follows it."""
    return {key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)}
