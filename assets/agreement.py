"""Agreement of people with each other, with scorers and with the judge, over all generative models at once."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import polars as pl

from assets.answers import StoredAnswers, language_files, with_lineage
from assets.language import language_settings
from plumbline.catalog.schema import ALL_MODELS, polars_schema
from plumbline.digests import digest_json
from plumbline.errors import PlumblineError
from plumbline.language.annotated_agreement import pooled_agreement
from plumbline.report import AbsentCell
from resources.workspace import Workspace


@dataclass(frozen=True)
class PooledAgreement:
    """What people said of the answers of all generative models, held against scorers and the judge.

    Attributes
    ----------
    rows : DataFrame
        Metric rows of the model `all models`; their `cell_id` is that of `made_of`.
    made_of : dict
        The sheet's digest, and the identity and answers of each model; empty where nothing was computed.
    absent : tuple of AbsentCell
        Why there are no rows although there is a sheet.
    """

    rows: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=polars_schema()))
    made_of: dict = field(default_factory=dict)
    absent: tuple[AbsentCell, ...] = ()

    @property
    def models(self) -> list[str]:
        """Return the models whose answers were on offer."""
        return list(self.made_of.get("models", ()))


def agreement_over_models(workspace: Workspace, current: Sequence[str]) -> PooledAgreement:
    """Compute the agreement over those of the current models that see: the sheets are drawn over these.

    What cannot be computed, since the sheet cannot be read or the judge does not answer, is absent and does not stop
    the numbers of everything else.
    """
    models = [name for name in current if name not in workspace.audit.base_llms]
    if workspace.audit.language.annotations is None or not models:
        return PooledAgreement()
    try:
        settings = language_settings(workspace)
        stored = [StoredAnswers.find(workspace, name) for name in models]
        made_of = {
            "sheet": language_files(workspace)["annotations"],
            "models": {one.model: one.identity for one in stored},
            "answers": {one.model: {s: committed.sha256 for s, committed in one.answers.items()} for one in stored},
        }
        rows = pooled_agreement([one.cell() for one in stored], settings)
    except PlumblineError as error:
        absent = AbsentCell(model=ALL_MODELS, dataset=_datasets(workspace, models), reason=error.what)
        return PooledAgreement(absent=(absent,))
    return PooledAgreement(with_lineage(rows, stored, cell_id=digest_json(made_of)), made_of)


def _datasets(workspace: Workspace, models: Sequence[str]) -> str:
    return ", ".join(dict.fromkeys(dataset for model, dataset in workspace.audit.designs if model in models))
