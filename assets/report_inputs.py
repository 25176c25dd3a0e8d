"""What the report shows beside the metric table, gathered from the lake."""

import contextlib
from collections.abc import Mapping, Sequence
from functools import partial

import polars as pl

from assets.answers import StoredAnswers
from assets.answers_checks import ANSWER_CHECK_NAMES, ANSWER_CHECKS_TABLE
from assets.asked_cells import cell_suites, declaration_of, left_out
from assets.audit_changes import changes_since
from assets.audit_tables import committed_of_audit, table_of_audit
from assets.checks import BLOCKING_CHECKS
from assets.geometry import stored_geometry
from assets.model_addresses import lvlm_address
from plumbline.catalog.suites import Suite, load_suite
from plumbline.config.own import own_questions
from plumbline.datasets.extended import label_shares
from plumbline.datasets.filters import chosen_filters, subsets
from plumbline.datasets.grouping import UNGROUPED_SCHEMA, with_groups_left
from plumbline.encoders.families import FAMILIES
from plumbline.errors import ConfigError
from plumbline.generators.design import ComparedBy, compared_by
from plumbline.generators.stored_answers import STORED
from plumbline.language.registry import LANGUAGE_FAMILIES
from plumbline.recording import note
from plumbline.report import AbsentCell, AuditSummary, DatasetSummary, EncoderSummary, ReportInputs
from plumbline.report.inputs import CHECKS_SCHEMA, LABEL_ERRORS_SCHEMA, PLANTED_SCHEMA, LvlmSummary
from plumbline.storage import Committed
from plumbline.version import __version__
from plumbline.world.folders import PLANTED
from plumbline.world.sources import planted_rates
from resources.workspace import Workspace

# Planted datasets with the seven races in equal numbers, for which the planted rates hold as they are declared.
_DRAWN_EVENLY = (f"{PLANTED}fairface", f"{PLANTED}folder")


def report_inputs(workspace: Workspace, table: Committed, *, created: str) -> ReportInputs:
    """Gather everything that the report shows besides the rows of the committed metric table `table`."""
    audit = workspace.audit
    note("plumbline", value=__version__)
    datasets = [
        d for d in audit.datasets if d in audit.used_datasets and workspace.lake.committed("records", partition=d)
    ]
    used = (*audit.used_encoders, audit.labeller)
    encoders = [e for e in audit.encoders if e in used and workspace.lake.committed("text_embeddings", partition=e)]
    asked, stored = _asked(workspace, table), left_out(workspace)
    return ReportInputs(
        audit=AuditSummary(
            audit_id=table.details["audit_id"],
            title=audit.title,
            created=created,
            config_path=workspace.audit_path.name,
            code_version=__version__,
            seed=audit.statistics.seed,
            resamples=audit.statistics.resamples,
            confidence=audit.statistics.confidence,
            minimum_group=audit.statistics.min_group,
            own_questions=own_questions(audit),
            leaking=tuple(name for name, settings in audit.mitigations.items() if settings.leaking),
            trained_on=tuple(
                (name, what) for name, settings in audit.mitigations.items() if (what := settings.trained_on)
            ),
        ),
        datasets=tuple(_dataset(workspace, dataset, asked.get(dataset, ())) for dataset in datasets),
        encoders=tuple(_encoder(workspace, encoder) for encoder in encoders),
        absent=(*(AbsentCell(**cell) for cell in table.details["absent"]), *stored.suites),
        not_tried=(*(AbsentCell(**cell) for cell in _not_tried(workspace, table)), *stored.mitigations),
        provenance=workspace.lake.read_table("provenance"),
        planted_truth=_planted(workspace),
        geometry=_geometry(workspace, encoders),
        effects=table_of_audit(workspace, "factor_effects", table),
        transfer=table_of_audit(workspace, "bias_transfer", table),
        lvlms=tuple(lvlm_summary(workspace, model) for model, *_ in table.details["models"]),
        language=language_tables(workspace, {m: families for m, _, families in table.details["models"]}),
        published=table_of_audit(workspace, "paper_comparison", table),
        reproduction=table_of_audit(workspace, "reproduction", table),
        changes=changes_since(workspace, table),
        suites=_suites(workspace, asked, [encoder for encoder in encoders if encoder in audit.used_encoders]),
    )


def _asked(workspace: Workspace, table: Committed) -> dict[str, list[Suite]]:
    """Return dataset -> the suites that the cells of the table were asked about it."""
    asked: dict[str, list[Suite]] = {}
    for dataset, model, _ in table.details["current"]:
        # A table may be of an audit file that has changed since.
        if (dataset, model) in workspace.audit.cells:
            family = FAMILIES[workspace.lake.require("text_embeddings", partition=model).details["family"]]
            asked.setdefault(dataset, []).extend(cell_suites(workspace, dataset, model, family=family))
    return asked


def _suites(workspace: Workspace, asked: Mapping[str, list[Suite]], encoders: list[str]) -> tuple[Suite, ...]:
    """Return the suites that were asked, those of text spaces and labels included, each once."""
    lake, suites = workspace.lake, {}
    for dataset, of_dataset in asked.items():
        suites |= {suite.hash: suite for suite in of_dataset}
        extended = lake.committed("extended_records", partition=dataset)
        if extended and extended.details.get("labeller_sha256"):
            labels = load_suite("gender_labels")
            suites[labels.hash] = labels
    if any(geometry.words.height for geometry in stored_geometry(workspace, encoders)):
        perception = load_suite("perception")
        suites[perception.hash] = perception
    return tuple(sorted(suites.values(), key=lambda suite: (suite.id, suite.attribute or "", suite.hash)))


def _not_tried(workspace: Workspace, table: Committed) -> list[dict[str, str]]:
    committed = committed_of_audit(workspace, "bias_transfer", table)
    return [] if committed is None else committed.details["absent"]


def _geometry(workspace: Workspace, encoders: list[str]) -> pl.DataFrame | None:
    words = [each.words for each in stored_geometry(workspace, encoders) if each.words.height]
    return pl.concat(words) if words else None


def _dataset(workspace: Workspace, dataset: str, asked: Sequence[Suite]) -> DatasetSummary:
    lake, entry = workspace.lake, workspace.dataset_entry(dataset)
    committed = lake.require("records", partition=dataset)
    declaration, records = declaration_of(workspace, dataset), lake.read_table("records", manifest=committed)
    shares_of = partial(label_shares, declaration=declaration, balance=entry.balance)
    shares = [shares_of(records, composite=False)]
    errors = pl.DataFrame(schema=LABEL_ERRORS_SCHEMA)
    extended = lake.committed("extended_records", partition=dataset)
    # A dataset that was refused has no automatic labels, or those of an earlier version.
    if extended and extended.details["records_sha256"] == committed.sha256:
        labelled = lake.read_table("extended_records", manifest=extended)
        shares.append(shares_of(labelled, composite=True))
        errors = lake.read_table("label_error", partition=dataset)
        errors = errors.rename({"attribute": "group_by"}).with_columns(pl.col("group").fill_null("all"))
    compared = ComparedBy((), ())
    if dataset in workspace.audit.asked_datasets:
        with contextlib.suppress(ConfigError):  # it was refused: what is asked about it has no numbers
            compared = compared_by(records, declaration)
    return DatasetSummary(
        id=dataset,
        reader=entry.reader,
        listed=committed.details["listed"],
        accepted=committed.rows,
        images=records["image_id"].n_unique(),
        digest=committed.details["dataset_digest"],
        quarantined=lake.read_table("quarantine", partition=dataset),
        without_group=with_groups_left(pl.DataFrame(committed.details["ungrouped"], schema=UNGROUPED_SCHEMA), records),
        label_shares=pl.concat(shares),
        label_errors=errors,
        checks=_checks(workspace, dataset),
        planted=entry.root.startswith(PLANTED),
        absent_identities=declaration.identity_file if records["set_id"].is_null().all() else None,
        subsets=subsets(chosen_filters(entry.filters, declaration, [suite.id for suite in asked])),
        answers_by=compared.compared,
        answers_not_by=compared.others,
    )


def _checks(workspace: Workspace, dataset: str) -> pl.DataFrame:
    names = [f"{dataset}|{key.asset_key.to_user_string()}.{key.name}" for key in BLOCKING_CHECKS]
    frames = [
        workspace.lake.read_table("checks", partition=p)
        for p in names
        if workspace.lake.committed("checks", partition=p)
    ]
    return pl.concat(frames) if frames else pl.DataFrame(schema=CHECKS_SCHEMA)


def _encoder(workspace: Workspace, encoder: str) -> EncoderSummary:
    entry = workspace.audit.encoders[encoder]
    details = workspace.lake.require("text_embeddings", partition=encoder).details
    return EncoderSummary(
        id=encoder,
        address=entry.address,
        family=FAMILIES[details["family"]].title,
        sha256=details["weights_sha256"],
        parameters=details["parameters"],
        size=entry.factors.get("size"),
        data_amount=entry.factors.get("data_amount"),
        source=entry.factors.get("data_source"),
        labeller=encoder == workspace.audit.labeller,
        choices_alone=FAMILIES[details["family"]].logit == "stored",
    )


def _planted(workspace: Workspace) -> pl.DataFrame | None:
    """Return the planted rates of the cells of the planted world, so that the report can mark the truth."""
    audit = workspace.audit
    frames = [
        planted_rates(audit.encoders[model].planted_source).select(
            pl.lit(model).alias("model"), pl.lit(dataset).alias("dataset"), pl.exclude("model", "dataset")
        )
        for dataset, model in audit.cells
        if audit.encoders[model].planted_source and audit.datasets[dataset].root in _DRAWN_EVENLY
    ]
    return pl.concat(frames).select(list(PLANTED_SCHEMA)) if frames else None


def lvlm_summary(workspace: Workspace, model: str) -> LvlmSummary:
    """Return what is said of one generative model."""
    audit, stored = workspace.audit, StoredAnswers.find(workspace, model)
    entry, committed = audit.lvlms[model], next(iter(stored.answers.values()))
    judge = audit.language.judge
    return LvlmSummary(
        id=model,
        address=lvlm_address(entry),
        version=stored.version,
        rows=sum(one.rows for one in stored.answers.values()),
        device=committed.details["device"],
        decoding=_decoding(committed.details),
        base_llm=entry.base_llm,
        base_llm_of=audit.base_llms.get(model, ()),
        scorers=stored.scorers,
        judge=None if judge is None else judge.model,
        checks=_answer_checks(workspace, model, list(stored.slices)),
        planted=entry.planted_source is not None,
        unanswered=sum(one.details.get("questions_without_answer", 0) for one in stored.answers.values()),
    )


def _answer_checks(workspace: Workspace, model: str, slices: list[str]) -> pl.DataFrame:
    frames = [pl.DataFrame(schema=CHECKS_SCHEMA)]
    for name in slices:
        for check in ANSWER_CHECK_NAMES:
            committed = workspace.lake.committed(ANSWER_CHECKS_TABLE, partition=f"{model}|{name}|{check}")
            if committed is not None:
                row = workspace.lake.read_table(ANSWER_CHECKS_TABLE, manifest=committed)
                frames.append(row.with_columns(pl.format("{} of {}", "check", pl.lit(name)).alias("check")))
    return pl.concat(frames)


def _decoding(details: dict) -> str:
    """Return the values that the model was really told; what an endpoint is not told is its own."""
    if details["device"] == STORED:
        return "not known: the answers were given elsewhere"
    sent = [f"{name} {value}" for name, value in details["decoding"].items() if name in details["sent"]]
    not_sent = [name for name in details["decoding"] if name not in details["sent"]]
    seeded = ", the seed" if "seed" in details["sent"] else ""
    own_values = details.get("own_decoding", {})
    other = [
        f"{name} {value}"
        for name, value in own_values.items()
        if name != "do_sample" and details["decoding"].get(name) != value
    ]
    return (
        ", ".join(sent)
        + seeded
        + "".join(f", thinking switched {'on' if on else 'off'}" for on in details.get("switches", {}).values())
        + (f"; {', '.join(not_sent)}: the endpoint's own" if not_sent else "")
        + (f"; not {', '.join(other)}, as its own file says" if other else "")
    )


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
