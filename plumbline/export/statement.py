"""Provenance as an in-toto statement: what the files of a bundle are, and what they were made from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plumbline.digests import digest_file

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://slsa.dev/provenance/v1"
BUILD_TYPE = "urn:plumbline:audit:1"
BUILDER = "urn:plumbline"


@dataclass(frozen=True)
class Material:
    """Something that an audit was made from.

    Attributes
    ----------
    name : str
        Such as `dataset/fairface`.
    digests : mapping of str to str
        Algorithm -> digest. `sha256` is that of one file, as `sha256sum` prints it; digests over several files or texts
        are Plumbline's own and say so: `plumblineFolder`, `plumblinePrompts`, `plumblineCheckpoint`.
    notes : mapping
        Annotations.
    """

    name: str
    digests: Mapping[str, str]
    notes: Mapping[str, Any]

    @property
    def described(self) -> dict[str, Any]:
        """Return it as a resource descriptor."""
        found: dict[str, Any] = {"name": self.name, "digest": dict(self.digests)}
        return found | ({"annotations": dict(self.notes)} if self.notes else {})


def provenance_statement(
    folder: Path,
    files: Sequence[str],
    materials: Iterable[Material],
    *,
    audit_id: str,
    version: str,
    settings: Mapping[str, Any],
    runs: Sequence[Mapping[str, Any]],
    made_at: str,
) -> dict[str, Any]:
    """Return the statement about the files of a folder.

    Parameters
    ----------
    files : sequence of str
        Relative paths, the subjects.
    settings : mapping
        The audit file.
    runs : sequence of mapping
        Rows of `provenance`: which Dagster and MLflow runs made each cell.
    made_at : str
        When the audit ended.
    """
    subjects = [{"name": name, "digest": {"sha256": digest_file(folder / name)}} for name in sorted(files)]
    ordered = sorted(materials, key=lambda material: material.name)
    return {
        "_type": STATEMENT_TYPE,
        "subject": subjects,
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {"audit": dict(settings)},
                "internalParameters": {"audit_id": audit_id},
                "resolvedDependencies": [material.described for material in ordered],
            },
            "runDetails": {
                "builder": {"id": BUILDER, "version": {"plumbline": version}},
                "metadata": {"invocationId": audit_id, "finishedOn": made_at},
                "byproducts": [
                    {"name": f"cell/{run['dataset']}|{run['model']}", "annotations": dict(run)}
                    for run in runs
                ],
            },
        },
    }
