"""An audit file in memory: its encoders on its datasets, without a store; what needs the pipeline is left out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import cast

import polars as pl
from upath import UPath

from plumbline.catalog.suites import TRIDENT_SUITES, ZERO_SHOT, Suite, load_suite
from plumbline.checkpoints.device import Placement
from plumbline.checkpoints.folders import CheckpointFiles, require_unchanged
from plumbline.config.audit import Audit as AuditFile
from plumbline.config.own import own_metrics, own_questions, require_own_code
from plumbline.datasets.extended import label_shares
from plumbline.datasets.filters import chosen_filters, subsets
from plumbline.datasets.grouping import with_groups_left
from plumbline.datasets.ingestion import dataset_digest, ingest
from plumbline.datasets.preview import require_fit
from plumbline.datasets.records import Ingested, Reader
from plumbline.encoders.embedding import embed_images, embed_texts
from plumbline.encoders.encoder import DualEncoder
from plumbline.encoders.families import FAMILIES, WITHOUT_VECTORS, Capability, answers
from plumbline.encoders.folders import checkpoint_files, load_encoder
from plumbline.errors import ConfigError, PlumblineError
from plumbline.metrics.cell import texts_of
from plumbline.metrics.family import MetricSettings
from plumbline.metrics.text_space import TEXT_SPACE_SUITES
from plumbline.notebook.audits import CellFrames, cell_frames, cell_of_vectors, table_of, text_space_frames
from plumbline.notebook.inputs import records_of
from plumbline.report import AbsentCell, AuditSummary, DatasetSummary, EncoderSummary, ReportInputs, render
from plumbline.report.reading import Reading
from plumbline.storage import ShardCache
from plumbline.version import __version__
from plumbline.world.folders import PLANTED

Progress = Callable[[str, int, int], None]
"""Called with what is done, how much of it, and how much there is."""

_EMBEDDINGS, _CHECKPOINTS = "embeddings", "checkpoints"


@dataclass(frozen=True)
class AuditedFile:
    """What an audit file gave: the metric table, and the inputs of its report."""

    table: pl.DataFrame
    inputs: ReportInputs

    @property
    def reading(self) -> Reading:
        """Return how the estimates are read."""
        return self.inputs.reading

    def report(self) -> str:
        """Return the report as one HTML document."""
        return render(self.table, self.inputs)


@dataclass(frozen=True)
class _Data:
    """One dataset as it was read."""

    reader: Reader
    root: Path
    ingested: Ingested
    digest: str


def audit_in_memory(
    audit: AuditFile,
    *,
    name: str,
    home: Path,
    start: Path,
    place: Callable[[str], Path],
    refused: Mapping[str, Sequence[str]] | None = None,
    progress: Progress = lambda what, done, total: None,
) -> AuditedFile:
    """Audit every encoder of an audit file on every dataset; only embeddings are kept, below the home.

    Mitigations, automatic gender labels, accuracy on things, models that answer in words and predictions that were made
    elsewhere are the pipeline's: what depends on them is left out, and result and report say so (`left_out`).

    Parameters
    ----------
    name : str
        Of the audit file, for the report.
    home, start : Path
        Where embeddings are kept, and where relative paths start.
    place : callable
        From the `root` of a dataset to its folder.
    refused : mapping of str to sequence of str, optional
        Datasets that are known to be refused -> why; they are not read.

    Raises
    ------
    ConfigError
        If the file asks nothing that can be computed in memory.
    PlumblineError
        If the file says `strict` and a dataset or an encoder is refused, or code of its own breaks its contract.
    """
    settings = MetricSettings(**audit.statistics.model_dump(), label_error=min(audit.thresholds.label_error, 0.49))
    require_own_code(audit, lambda dataset: place(audit.datasets[dataset].root))
    wrong = {dataset: "; ".join(reasons) for dataset, reasons in (refused or {}).items()}
    reasons = [f"{dataset}: {reason}" for dataset, reason in wrong.items()]
    data: dict[str, _Data] = {}
    for dataset in dict.fromkeys(d for d, _ in audit.cells if d not in wrong):
        try:
            data[dataset] = _read(audit, dataset, place, progress)
        except PlumblineError as error:
            if audit.strict:
                raise
            wrong[dataset] = error.in_short
            reasons.append(f"{dataset}: {error}")
    absent = [AbsentCell(model, dataset, wrong[dataset]) for dataset, model in audit.cells if dataset in wrong]
    done = _Done()
    for model in audit.used_encoders if data else ():
        datasets = [dataset for dataset, of in audit.cells if of == model and dataset in data]
        if not datasets:
            continue
        try:
            encoder, files = _encoder(audit, model, home=home, start=start)
        except PlumblineError as error:
            if audit.strict:
                raise
            absent += [AbsentCell(model, dataset, error.in_short) for dataset in datasets]
            reasons.append(f"{model}: {error}")
            continue
        done.encoders[model] = _summary(audit, model, encoder, files)
        absent += _audit_encoder(
            audit, model, encoder, {each: data[each] for each in datasets}, settings, home, done, progress
        )
    if not done.frames:
        nothing = "; ".join(f"{one.model} on {one.dataset}: {one.reason}" for one in absent) or "no encoder is asked"
        lines = [reason.replace("\n", "\n    ") for reason in reasons]
        raise ConfigError(
            "\n  - ".join(["nothing of this audit file can be audited", *lines]),
            where=name,
            found=None if lines else nothing,
            expected="an encoder under `encoders`, a dataset under `datasets`, and `audit: [{}]`",
        )
    table = table_of(done.frames, settings, dict(audit.equivalence))
    summary = AuditSummary(
        audit_id=table["audit_id"][0] if table.height else "",
        title=audit.title,
        created=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        config_path=name,
        code_version=__version__,
        seed=settings.seed,
        resamples=settings.resamples,
        confidence=settings.confidence,
        minimum_group=settings.min_group,
        own_questions=own_questions(audit),
    )
    asked: dict[str, list[str]] = {}
    for (dataset, _), of_cell in done.asked.items():
        asked.setdefault(dataset, []).extend(of_cell)
    inputs = ReportInputs(
        summary,
        tuple(_described(audit, dataset, one, asked.get(dataset, ())) for dataset, one in data.items()),
        tuple(done.encoders.values()),
        absent=tuple(absent),
        not_tried=left_out(audit, done.asked),
        suites=tuple(done.suites.values()),
        in_memory=True,
    )
    return AuditedFile(table, inputs)


@dataclass
class _Done:
    """What is computed so far: encoders, rows, and the suites that were asked, of each cell and by hash."""

    encoders: dict[str, EncoderSummary] = field(default_factory=dict)
    frames: list[CellFrames] = field(default_factory=list)
    asked: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    suites: dict[str, Suite] = field(default_factory=dict)


def left_out(audit: AuditFile, asked: Mapping[tuple[str, str], Sequence[str]]) -> tuple[AbsentCell, ...]:
    """Return what the audit file asks and an audit in memory leaves out, by model and dataset.

    Parameters
    ----------
    asked : mapping of (str, str) to sequence of str
        (dataset, encoder) -> the suites that were asked.
    """
    absent_cells = []
    for (dataset, model), suites in asked.items():
        reasons = [
            _WHY_NOT.get(name, f"`{name}`: this encoder cannot answer it")
            for name in audit.cells[dataset, model]
            if name not in suites
        ]
        if {*suites} & {*TRIDENT_SUITES}:
            reasons.append(
                "mixed Trident tests, and rates normalised over both: they need automatic gender labels, which the "
                "pipeline gives"
            )
        if mitigations := audit.mitigated.get((dataset, model)):
            reasons.append(f"mitigations ({', '.join(mitigations)}): the pipeline fits and judges them")
        absent_cells += [AbsentCell(model, dataset, reason) for reason in reasons]
    absent_cells += [
        AbsentCell(model, dataset, "models that answer in words: the pipeline asks them")
        for model, dataset in audit.designs
    ]
    return tuple(absent_cells)


_WHY_NOT = {
    ZERO_SHOT: f"`{ZERO_SHOT}`: the pipeline computes it",
    "trident_composite": "`trident_composite`: it needs automatic gender labels, which the pipeline gives",
}


def _read(audit: AuditFile, dataset: str, place: Callable[[str], Path], progress: Progress) -> _Data:
    """Read a dataset; one that the pipeline's checks would refuse is refused."""
    entry = audit.datasets[dataset]
    reader, root = entry.open_reader(), place(entry.root)
    ingested = ingest(reader, root, dataset=dataset, progress=partial(progress, f"{dataset}: reading"))
    limit = audit.thresholds.quarantine_rate if entry.quarantine_rate is None else entry.quarantine_rate
    require_fit(ingested, reader.declaration, dataset=dataset, balance=entry.balance, most_refused=limit)
    return _Data(reader, root, ingested, dataset_digest(ingested.records, ingested.quarantine))


def _encoder(audit: AuditFile, model: str, *, home: Path, start: Path) -> tuple[DualEncoder, CheckpointFiles]:
    entry = audit.encoders[model]
    fetched = home / _CHECKPOINTS

    def on_disk() -> CheckpointFiles:
        return checkpoint_files(
            model,
            entry.address,
            project=start,
            fetched=fetched,
            family=entry.family,
            model=entry.model,
            embeddings=entry.embeddings,
        )

    files = on_disk()
    family = FAMILIES[files.family]
    if family.logit in WITHOUT_VECTORS or family.stored:
        raise ConfigError(
            f"{family.title} gives no vectors that can be audited in memory",
            where=f"encoders.{model}",
            found=entry.address,
            expected="a dual encoder; others are audited by the pipeline, from a checkout",
        )
    placement = Placement.choose(device=audit.device, dtype=audit.engine.dtype, compiled=audit.engine.compile)
    encoder = cast(DualEncoder, load_encoder(files, placement))
    require_unchanged(model, files.digest, on_disk().digest, where=files.folder)
    return encoder, files


def _asked(audit: AuditFile, dataset: str, model: str, encoder: DualEncoder) -> Iterator[Suite]:
    """Yield the suites of a cell, those left out that need automatic labels or classes of things."""
    declared, family = audit.declarations[dataset], FAMILIES[encoder.family]
    wording = audit.encoders[model].wording or family.wording
    for name in audit.cells[dataset, model]:
        if name in (ZERO_SHOT, "trident_composite"):
            continue
        of_labels = {"classes": declared.class_set, "wording": wording} if name in TRIDENT_SUITES else {}
        of_file = audit.suites_of_files.get(name)
        suite = load_suite(name, **of_labels) if of_file is None else of_file  # type: ignore[arg-type]
        if answers(family, suite):
            yield suite


def _audit_encoder(
    audit: AuditFile,
    model: str,
    encoder: DualEncoder,
    data: Mapping[str, _Data],
    settings: MetricSettings,
    home: Path,
    done: _Done,
    progress: Progress,
) -> list[AbsentCell]:
    """Add the rows of an encoder on some datasets and of its text space, and return where it was asked nothing."""
    cache, nothing = ShardCache(UPath(home / _EMBEDDINGS)), []
    for dataset, one in data.items():
        cell_suites = list(_asked(audit, dataset, model, encoder))
        if not cell_suites:
            reason = "nothing that is asked of it can be computed without the pipeline"
            nothing.append(AbsentCell(model, dataset, reason))
            continue
        done.asked[dataset, model] = tuple(suite.id for suite in cell_suites)
        done.suites |= {suite.hash: suite for suite in cell_suites}
        done.frames.append(_audited(audit, dataset, model, one, encoder, cell_suites, settings, cache, progress))
    shared = Capability.EMBED_IMAGES in FAMILIES[encoder.family].offers
    if shared and any((dataset, model) in done.asked for dataset in data):
        texts = list(texts_of(load_suite(name) for name in TEXT_SPACE_SUITES))
        embedded = dict(zip(texts, embed_texts(encoder, texts, cache).array))
        done.frames.append(text_space_frames(model, embedded, settings, checkpoint=encoder.weights_sha256))
    return nothing


def _audited(
    audit: AuditFile,
    dataset: str,
    model: str,
    data: _Data,
    encoder: DualEncoder,
    asked: list[Suite],
    settings: MetricSettings,
    cache: ShardCache,
    progress: Progress,
) -> CellFrames:
    records, declared = data.ingested.records, data.reader.declaration
    family, chosen = FAMILIES[encoder.family], audit.datasets[dataset].filters
    engine = audit.engine.model_dump(include={"batch_rows", "workers", "decoder"})
    if encoder.crop is None:
        engine["decoder"] = "pillow"
    ids = records["image_id"].to_list()
    images = embed_images(
        encoder,
        [data.root / path for path in records["path"]],
        ids,
        cache,
        shard_rows=audit.storage.shard_rows,
        progress=partial(progress, f"{dataset} | {model}: embedding"),
        **engine,
    )
    attributes = [name for name in records.columns if name in declared.attributes or "×" in name]
    cell, texts = cell_of_vectors(
        images.array,
        lambda wanted: embed_texts(encoder, wanted, cache).array,
        records_of(records, ids, dataset=dataset, attributes=attributes).records,
        asked,
        name=model,
        dataset=dataset,
        filters=chosen_filters(chosen, declared, [suite.id for suite in asked]),
        logit="dot" if family.logit == "dot" else "scaled_cosine",
        logit_scale=encoder.logit_scale,
        shared_space=Capability.EMBED_IMAGES in family.offers,
        unlabelled=not declared.base_attribute,
    )
    return cell_frames(
        cell,
        texts,
        settings,
        least=data.reader.least_shown,
        own=own_metrics(audit),
        dataset_digest=data.digest,
        checkpoint=encoder.weights_sha256,
    )


def _summary(audit: AuditFile, model: str, encoder: DualEncoder, files: CheckpointFiles) -> EncoderSummary:
    factors = audit.encoders[model].factors
    return EncoderSummary(
        id=model,
        address=audit.encoders[model].address,
        family=FAMILIES[files.family].title,
        sha256=encoder.weights_sha256,
        parameters=encoder.parameters,
        size=factors.get("size"),
        data_amount=factors.get("data_amount"),
        source=factors.get("data_source"),
    )


def _described(audit: AuditFile, dataset: str, data: _Data, asked: Iterable[str]) -> DatasetSummary:
    entry, ingested = audit.datasets[dataset], data.ingested
    declaration = data.reader.declaration
    lacks_sets = ingested.records["set_id"].is_null().all()
    return DatasetSummary(
        id=dataset,
        reader=entry.reader,
        listed=ingested.listed,
        accepted=ingested.records.height,
        images=ingested.records["image_id"].n_unique(),
        digest=data.digest,
        quarantined=ingested.quarantine,
        without_group=with_groups_left(ingested.ungrouped, ingested.records),
        label_shares=label_shares(ingested.records, declaration, entry.balance, composite=False),
        planted=entry.root.startswith(PLANTED),
        absent_identities=declaration.identity_file if lacks_sets else None,
        subsets=subsets(chosen_filters(entry.filters, declaration, asked)),
    )
