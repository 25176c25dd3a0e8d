"""What an audit was made with, as a software bill of materials: CycloneDX in JSON."""

from __future__ import annotations

import platform
import re
import uuid
from collections.abc import Iterable, Mapping
from importlib.metadata import distributions
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from plumbline.provenance.export import Material

SPECIFICATION = "1.6"
_SHA256 = re.compile(r"[0-9a-f]{64}")
_KINDS = {"checkpoint": "machine-learning-model", "answers": "machine-learning-model", "dataset": "data"}


def installed() -> dict[str, str]:
    """Return the distributions of this environment and Python itself, name -> version."""
    found = {re.sub(r"[-_.]+", "-", each.name).lower(): each.version for each in distributions() if each.name}
    return {platform.python_implementation(): platform.python_version(), **dict(sorted(found.items()))}


def bill_of_materials(
    software: Mapping[str, str], materials: Iterable[Material], *, audit_id: str, version: str, made_at: str
) -> dict[str, Any]:
    """Return the software, the models and the datasets of an audit; the same audit gives the same bill.

    Parameters
    ----------
    software : mapping of str to str
        From `installed`, when the audit ended; the interpreter comes first.
    materials : iterable of Material
        Those named `checkpoint/`, `answers/` and `dataset/` are listed, with their digests.
    audit_id, version, made_at : str
        Of the audit; `version` is Plumbline's own.
    """
    (interpreter, of_interpreter), *libraries = software.items()
    components: list[dict[str, Any]] = [
        {"type": "platform", "bom-ref": interpreter, "name": interpreter, "version": of_interpreter}
    ]
    for name, number in libraries:
        if name != "plumbline":
            address = f"pkg:pypi/{name}@{number.replace('+', '%2B')}"
            components.append({"type": "library", "bom-ref": address, "name": name, "version": number, "purl": address})
    components += [
        _component(material)
        for material in sorted(materials, key=lambda each: each.name)
        if material.name.partition("/")[0] in _KINDS
    ]
    program = f"pkg:pypi/plumbline@{version.replace('+', '%2B')}"
    return {
        "bomFormat": "CycloneDX",
        "specVersion": SPECIFICATION,
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, f'urn:plumbline:{audit_id}')}",
        "version": 1,
        "metadata": {
            "timestamp": made_at,
            "component": {
                "type": "application", "bom-ref": program, "name": "plumbline", "version": version, "purl": program,
            },
            "properties": [{"name": "plumbline:audit_id", "value": audit_id}],
        },
        "components": components,
        "dependencies": [{"ref": program, "dependsOn": [each["bom-ref"] for each in components]}],
    }  # fmt: skip


def _component(material: Material) -> dict[str, Any]:
    kind, _, name = material.name.partition("/")
    component: dict[str, Any] = {"type": _KINDS[kind], "bom-ref": material.name, "name": name}
    weights = material.digests.get("sha256", "")
    if _SHA256.fullmatch(weights):
        component["hashes"] = [{"alg": "SHA-256", "content": weights}]
    others = [(f"plumbline:{key}", digest) for key, digest in material.digests.items() if key != "sha256"]
    others += [(f"plumbline:{key}", value) for key, value in material.notes.items() if isinstance(value, str)]
    return component | ({"properties": [{"name": key, "value": value} for key, value in others]} if others else {})
