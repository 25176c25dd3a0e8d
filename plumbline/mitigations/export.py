"""Export of a mitigation: its parameters, what they were fitted on, and an example that needs no Plumbline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from plumbline.digests import canonical_json
from plumbline.encoders.families import require
from plumbline.errors import MetricError
from plumbline.mitigations.bias_prompts import NOTHING_LEFT
from plumbline.mitigations.logit_adjustment.adjustment import LogitAdjustment
from plumbline.mitigations.settings import METHODS, Method
from plumbline.mitigations.text_mitigations import FittedMitigation
from plumbline.version import __version__
from plumbline.visible import as_code, escaped

EXAMPLE_FAMILIES = ("open_clip", "clip")
"""The families of encoders that there is an example for."""
_EXAMPLE_METHODS = ("logit_adjustment", "bias_prompts", "prompt_array", "saner")

# The title says the method, another line the digest, and a regular expression is read by the example.
_NOT_FOR_PEOPLE = ("method", "fitted_on", "specific_pattern")
_AS_WIDE_AS_FEATURES = ("projection", "vectors", "weight_in", "bias_out")


@dataclass(frozen=True)
class ExportFacts:
    """Where a mitigation comes from.

    Attributes
    ----------
    encoder : str
        Its id in the audit.
    family : str
        A name in `plumbline.encoders.families.FAMILIES`.
    weights_sha256 : str
        Of the encoder's weights file, as `sha256sum` prints it.
    width : int
        Length d of its text features; no matter where the mitigation acts on logits.
    dataset, dataset_digest : str
        Id in the audit, and the digest of its records.
    audit : str
        Title.
    suite : str
        Of a logit adjustment, the suite whose candidates it adjusts; else empty.
    classes, probes : tuple of str
        Of the one-probe tests, the texts that an adjustment was fitted for: the C classes in order, and a probe for
        each set of factors; else empty.
    candidates : tuple of str
        Of an outcome suite, the texts that an adjustment was fitted for, in order; else empty.
    averaged : bool
        Whether the features of each of these are a mean over templates: there is no example of that.
    measured : tuple of str
        Sentences for people on what the mitigation did to bias, and what it cost.
    """

    encoder: str
    family: str
    weights_sha256: str
    width: int
    dataset: str
    dataset_digest: str
    audit: str
    suite: str = ""
    classes: tuple[str, ...] = ()
    probes: tuple[str, ...] = ()
    candidates: tuple[str, ...] = ()
    averaged: bool = False
    measured: tuple[str, ...] = ()


def export_mitigation(fitted: FittedMitigation | LogitAdjustment, facts: ExportFacts, folder: Path) -> list[Path]:
    """Write a mitigation that can be used without Plumbline.

    Parameters
    ----------
    fitted : FittedMitigation or LogitAdjustment
    folder : Path
        Made where it is absent. Files of an earlier export are replaced, each whole or not at all.

    Returns
    -------
    list of Path
        `mitigation.safetensors`, with metadata as strings (method, settings as JSON, digests, version); `README.md`;
        and, where there is one for the method, for open_clip and transformers CLIP `example.py`, about twenty lines
        that apply it.

    Raises
    ------
    ConfigError
        If the encoder's family lacks what the method needs: BridgeTower and OWLv2 have no text features to mitigate.
    MetricError
        If the parameters are not of the encoder's width, or a logit adjustment's not of the texts that are said.
    StorageError
        If a file cannot be written; what was there before is intact.
    """
    from safetensors.numpy import save
    from upath import UPath

    from plumbline.storage.files import commit_bytes

    method, settings, parameters = _content(fitted)
    require(facts.family, method.needs, method.title)
    _require_fit(method, parameters, facts)
    metadata = _metadata(method, settings, fitted.fitted_on, facts)
    arrays = {name: np.ascontiguousarray(array) for name, array in parameters.items()}
    contents = {"mitigation.safetensors": save(arrays, metadata=metadata)}
    if facts.family in EXAMPLE_FAMILIES and method.name in _EXAMPLE_METHODS and not facts.averaged:
        contents["example.py"] = _example(method, settings, facts).encode()
    contents["README.md"] = _readme(
        method, settings, fitted.fitted_on, facts, example="example.py" in contents
    ).encode()
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in contents.items():
        commit_bytes(UPath(folder / name), data)
    return [folder / name for name in contents]


class _Content(NamedTuple):
    """Exported content common to all mitigations; the settings as JSON values."""

    method: Method
    settings: Mapping[str, Any]
    parameters: Mapping[str, NDArray[Any]]


def _content(fitted: FittedMitigation | LogitAdjustment) -> _Content:
    if isinstance(fitted, FittedMitigation):
        return _Content(METHODS[fitted.method], fitted.settings, fitted.parameters)
    method = METHODS["logit_adjustment"]
    return _Content(method, {"method": method.name} | fitted.metadata(), fitted.parameters())


def _require_fit(method: Method, parameters: Mapping[str, NDArray[Any]], facts: ExportFacts) -> None:
    """Refuse an adjustment of other candidates, and parameters for text features of another width."""
    if method.acts_on == "logits":
        factors = parameters["factors"]
        shape: tuple[int, ...] = (factors.shape[0] if factors.ndim == 3 else 1, factors.shape[-1])
        expected: tuple[int, ...] = (len(facts.probes), len(facts.classes) + 1)
        if facts.candidates:
            expected = (1, len(facts.candidates))
        what = "this adjustment has other probes and candidates than are said"
    else:
        # The learned tokens are as wide as the token embeddings, and say nothing of the features.
        widths = {name: parameters[name].shape[-1] for name in _AS_WIDE_AS_FEATURES if name in parameters}
        shape = tuple(widths.values())
        expected = (facts.width,) * len(widths)
        what = "this mitigation was fitted on text features of another width"
    if shape != expected:
        raise MetricError(what, where=facts.encoder, found=shape, expected=expected)


def _metadata(method: Method, settings: Mapping[str, Any], fitted_on: str, facts: ExportFacts) -> dict[str, str]:
    texts: dict[str, tuple[str, ...]] = {}
    if method.acts_on == "logits":
        of_probes = {"classes": facts.classes, "probes": facts.probes}
        texts = {"candidates": facts.candidates} if facts.candidates else of_probes
    return {
        "method": method.name,
        "settings": canonical_json(settings),
        "fitted_on": fitted_on,
        "encoder": facts.encoder,
        "family": facts.family,
        "encoder_weights_sha256": facts.weights_sha256,
        "dataset": facts.dataset,
        "dataset_digest": facts.dataset_digest,
        "audit": facts.audit,
        "plumbline": __version__,
        **({"suite": facts.suite} if facts.suite else {}),
        **{name: canonical_json(each) for name, each in texts.items()},
    }


def _example(method: Method, settings: Mapping[str, Any], facts: ExportFacts) -> str:
    return _rendered(
        "example.py.jinja",
        title=method.title,
        method=method.name,
        family=facts.family,
        candidates=bool(facts.candidates),
        released=settings.get("variant") == "released",
        additive=settings.get("mode") == "additive",
        nothing_left=NOTHING_LEFT,
    )


def _readme(method: Method, settings: Mapping[str, Any], fitted_on: str, facts: ExportFacts, *, example: bool) -> str:
    return _rendered(
        "README.md.jinja",
        title=method.title,
        acts_on="logits" if method.acts_on == "logits" else "the features of texts",
        facts=facts,
        fitted_on=fitted_on,
        settings={name: settings[name] for name in settings if name not in _NOT_FOR_PEOPLE},
        version=__version__,
        example=example,
    )


def _rendered(template: str, **values: Any) -> str:
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        autoescape=False,  # noqa: S701 - Python and Markdown, no HTML.
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"escaped": escaped, "code": as_code}
    source = files("plumbline.mitigations") / "examples" / template
    return environment.from_string(source.read_text("utf-8")).render(**values)
