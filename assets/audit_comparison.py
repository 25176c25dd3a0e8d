"""Two audits, or two checkpoints of one, cell by cell: which cells differ, and how."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import polars as pl

from assets.answers import StoredAnswers
from assets.cells import StoredCell
from assets.language import language_settings
from assets.metrics import metric_settings
from plumbline.diff.answer_means import paired_answer_means
from plumbline.diff.answers import paired_answers
from plumbline.diff.cells import flips, paired_differences, same_images
from plumbline.diff.schema import DIFF_SCHEMA, FLIP_SCHEMA
from plumbline.diff.tables import table_differences, with_q
from plumbline.errors import ConfigError, PlumblineError
from plumbline.tables.schema import Row
from resources.places import Places

_CAUSES = {
    "checkpoint_sha256": "the checkpoint",
    "dataset_digest": "the dataset",
    "suite_hash": "prompts",
    "labeller_sha256": "the labeller",
}
_OTHER = "settings or code"


@dataclass(frozen=True)
class AuditDiff:
    """What changed.

    Attributes
    ----------
    differences, flips : DataFrame
        In `DIFF_SCHEMA` and `FLIP_SCHEMA`.
    causes : dict of str to list of str
        `dataset|model` -> what is another one than before.
    absent : list of str
        What could not be compared image by image or set by set, with the reason.
    """

    differences: pl.DataFrame
    flips: pl.DataFrame
    causes: dict[str, list[str]] = field(default_factory=dict)
    absent: list[str] = field(default_factory=list)

    @classmethod
    def nothing(cls) -> "AuditDiff":
        """Return the diff of an audit with none before it."""
        return cls(pl.DataFrame(schema=DIFF_SCHEMA), pl.DataFrame(schema=FLIP_SCHEMA))


@dataclass(frozen=True)
class _Side:
    """One model in one audit.

    Attributes
    ----------
    rows : DataFrame
        Of the audit's metric table, of this model on one dataset.
    """

    places: Places
    model: str
    rows: pl.DataFrame


def compare_audits(
    places: Places, old: str, new: str, *, log: Callable[[str], None] = lambda _: None
) -> AuditDiff:
    """Compare the cells that two audits have with another content each.

    Parameters
    ----------
    old, new : str
        Audit ids.
    log : callable
        Is told of each cell before it is compared.
    """
    then, now = places.of_audit(old), places.of_audit(new)
    tables = [side.lake.read_table("metric_table") for side in (then, now)]
    grouped = [dict(table.group_by("dataset", "model")) for table in tables]
    pairs = []
    for key in sorted(grouped[0].keys() | grouped[1].keys()):
        rows = [own.get(key, tables[0].clear()) for own in grouped]
        if not rows[0]["cell_id"].unique().sort().equals(rows[1]["cell_id"].unique().sort()):
            pairs.append((str(key[0]), _Side(then, str(key[1]), rows[0]), _Side(now, str(key[1]), rows[1])))
    return _joined(pairs, log)


def compare_checkpoints(
    places: Places, audit_id: str, old: str, new: str, *, log: Callable[[str], None] = lambda _: None
) -> AuditDiff:
    """Compare two models of one audit on every dataset that both were audited on.

    Raises
    ------
    ConfigError
        If they have no dataset in common.
    """
    then = places.of_audit(audit_id)
    table = then.lake.read_table("metric_table")
    of = {
        name: {key[0]: rows for key, rows in table.filter(pl.col("model") == name).group_by("dataset")}
        for name in (old, new)
    }
    both = sorted(of[old].keys() & of[new].keys())
    if not both:
        raise ConfigError(
            "these models have no dataset in common in this audit",
            where=audit_id[:12],
            found={name: ", ".join(map(str, sorted(own))) or "no numbers" for name, own in of.items()},
        )
    pairs = [(str(d), _Side(then, old, of[old][d]), _Side(then, new, of[new][d])) for d in both]
    return _joined(pairs, log)


def _joined(pairs: list[tuple[str, _Side, _Side]], log: Callable[[str], None]) -> AuditDiff:
    frames, flipped, causes, absent = [], [pl.DataFrame(schema=FLIP_SCHEMA)], {}, []
    answered: dict[tuple[str, str], list[Row]] = {}
    for number, (dataset, old, new) in enumerate(pairs, start=1):
        where = f"{dataset}|{new.model}"
        log(f"comparing {where} ({number} of {len(pairs)})")
        paired: list[Row] = []
        try:
            if _generates(old) and _generates(new):
                names = (old.model, new.model)
                if names not in answered:
                    answered[names] = _answers(old, new)
                paired = [row for row in answered[names] if row["dataset"] == dataset]
            elif (dataset, old.model) in old.places.audit.cells and (
                dataset,
                new.model,
            ) in new.places.audit.cells:
                cells = [StoredCell.find(side.places, dataset, side.model).read() for side in (old, new)]
                if same_images(*cells):
                    paired = paired_differences(*cells, settings=metric_settings(new.places))
                    flipped.append(flips(*cells))
                else:
                    absent.append(
                        f"{where}: not of the same images, so that only the two intervals are compared"
                    )
        except PlumblineError as error:
            absent.append(f"{where}: {error}")
        frames.append(table_differences(old.rows, new.rows, paired, models=(old.model, new.model)))
        causes[where] = list(_causes(old.rows, new.rows))
    return AuditDiff(with_q(frames), pl.concat(flipped), causes, absent)


def _generates(side: _Side) -> bool:
    return side.model in side.places.audit.asked_models


def _answers(old: _Side, new: _Side) -> list[Row]:
    cells = [StoredAnswers.find(side.places, side.model).cell() for side in (old, new)]
    settings = language_settings(new.places)
    return paired_answers(*cells, settings=settings) + paired_answer_means(*cells, settings=settings)


def _causes(old: pl.DataFrame, new: pl.DataFrame) -> Iterator[str]:
    """Name what is another one on the new side; what is in one of them alone is named so."""
    if old.is_empty() or new.is_empty():
        yield "new in the audit" if old.is_empty() else "no longer in the audit"
        return
    found = [
        cause
        for column, cause in _CAUSES.items()
        if not old[column].drop_nulls().unique().sort().equals(new[column].drop_nulls().unique().sort())
    ]
    yield from found or [_OTHER]
