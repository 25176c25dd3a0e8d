"""What the report shows of generative models beside their metric rows."""

import polars as pl

from assets.answers import StoredAnswers
from assets.answers_checks import ANSWER_CHECK_NAMES, ANSWER_CHECKS_TABLE
from assets.model_addresses import lvlm_address
from plumbline.language.registry import LANGUAGE_FAMILIES
from plumbline.report.inputs import CHECKS_SCHEMA, LvlmSummary
from resources.workspace import Workspace


def lvlm_summary(workspace: Workspace, model: str) -> LvlmSummary:
    """Return what is said of one generative model."""
    audit, stored = workspace.audit, StoredAnswers.find(workspace, model)
    entry, made = audit.lvlms[model], next(iter(stored.answers.values()))
    judge = audit.language.judge
    return LvlmSummary(
        id=model,
        address=lvlm_address(entry),
        version=stored.version,
        rows=sum(one.rows for one in stored.answers.values()),
        device=made.details["device"],
        decoding=_decoding(made.details),
        twin=entry.twin,
        twin_of=audit.twins.get(model, ()),
        scorers=stored.scorers,
        judge=None if judge is None else judge.model,
        checks=_checks(workspace, model, list(stored.slices)),
        planted=entry.planted_source is not None,
    )


def _checks(workspace: Workspace, model: str, slices: list[str]) -> pl.DataFrame:
    frames = [pl.DataFrame(schema=CHECKS_SCHEMA)]
    for name in slices:
        for check in ANSWER_CHECK_NAMES:
            made = workspace.lake.committed(ANSWER_CHECKS_TABLE, partition=f"{model}|{name}|{check}")
            if made is not None:
                row = workspace.lake.read_table(ANSWER_CHECKS_TABLE, manifest=made)
                frames.append(row.with_columns(pl.format("{} of {}", "check", pl.lit(name)).alias("check")))
    return pl.concat(frames)


def _decoding(details: dict) -> str:
    """Return the values that the model was really told; what an endpoint is not told is its own."""
    told = [f"{name} {value}" for name, value in details["decoding"].items() if name in details["sent"]]
    own = [name for name in details["decoding"] if name not in details["sent"]]
    return ", ".join(told) + (f"; {', '.join(own)}: the endpoint's own" if own else "")


def language_tables(workspace: Workspace, models: dict[str, list[str]]) -> dict[str, pl.DataFrame]:
    """Return the tables beside the metric rows, of all models, each with a first column `model`.

    Parameters
    ----------
    models : dict of str to list of str
        Model -> the families of which it has numbers.
    """
    tables = {}
    for family, name, schema in ((f.name, *t) for f in LANGUAGE_FAMILIES.values() for t in f.tables.items()):
        frames = [
            workspace.lake.read_table(name, partition=model).select(pl.lit(model).alias("model"), pl.all())
            for model, families in models.items()
            if family in families
        ]
        tables[name] = pl.concat(frames) if frames else pl.DataFrame(schema={"model": pl.String, **schema})
    return tables
