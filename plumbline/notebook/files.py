"""An audit file in memory: its encoders on its datasets, without a store; what needs the pipeline is left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import cast

import polars as pl
from upath import UPath

from plumbline.catalog.suites import TRIDENT_SUITES, ZERO_SHOT, Suite, load_suite
from plumbline.checkpoints.device import Placement
from plumbline.checkpoints.folders import CheckpointFiles
from plumbline.config.audit import Audit as AuditFile
from plumbline.datasets.extended import label_shares
from plumbline.datasets.ingestion import dataset_digest, ingest
from plumbline.datasets.records import Ingested, Reader
from plumbline.encoders.embedding import embed_images, embed_texts
from plumbline.encoders.encoder import DualEncoder
from plumbline.encoders.families import FAMILIES, WITHOUT_VECTORS, answers
from plumbline.encoders.folders import checkpoint_files, load_encoder
from plumbline.errors import ConfigError, PlumblineError
from plumbline.metrics.family import MetricSettings
from plumbline.notebook.audits import CellFrames, cell_frames, cell_of_vectors, table_of
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
    progress: Progress = lambda what, done, total: None,
) -> AuditedFile:
    """Audit every encoder of an audit file on every dataset; only embeddings are kept, below the home.

    Mitigations, automatic gender labels, models that answer in words and predictions that were made elsewhere are the
    pipeline's: what depends on them is left out, and the report says so.

    Parameters
    ----------
    name : str
        Of the audit file, for the report.
    home, start : Path
        Where embeddings are kept, and where relative paths start.
    place : callable
        From the `root` of a dataset to its folder.

    Raises
    ------
    ConfigError
        If the file asks nothing that can be computed in memory.
    PlumblineError
        If a dataset cannot be read.
    """
    settings = MetricSettings(**audit.statistics.model_dump(), label_error=min(audit.thresholds.label_error, 0.49))
    data = {dataset: _read(audit, dataset, place, progress) for dataset in dict.fromkeys(d for d, _ in audit.cells)}
    absent: list[AbsentCell] = []
    encoders: dict[str, EncoderSummary] = {}
    frames: list[CellFrames] = []
    suites: dict[str, Suite] = {}
    for model in audit.used_encoders:
        try:
            encoder, files = _encoder(audit, model, home=home, start=start)
        except PlumblineError as error:
            if audit.strict:
                raise
            absent += [AbsentCell(model, dataset, error.in_short) for dataset, of in audit.cells if of == model]
            continue
        encoders[model] = _summary(audit, model, encoder, files)
        for dataset in (dataset for dataset, of in audit.cells if of == model):
            cell_suites = list(_asked(audit, dataset, model, encoder))
            if not cell_suites:
                absent.append(
                    AbsentCell(model, dataset, "nothing that is asked of it can be computed without the pipeline")
                )
                continue
            suites |= {suite.hash: suite for suite in cell_suites}
            frames.append(
                _audited(audit, dataset, model, data[dataset], encoder, cell_suites, settings, home, progress)
            )
    if not frames:
        raise ConfigError(
            "nothing of this audit file can be audited",
            where=name,
            found="; ".join(f"{one.model} on {one.dataset}: {one.reason}" for one in absent) or "no encoder is asked",
            expected="an encoder under `encoders`, a dataset under `datasets`, and `audit: [{}]`",
        )
    table = table_of(frames, settings, dict(audit.equivalence))
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
    )
    datasets = tuple(_described(audit, dataset, one) for dataset, one in data.items())
    inputs = ReportInputs(
        summary, datasets, tuple(encoders.values()), absent=tuple(absent), suites=tuple(suites.values())
    )
    return AuditedFile(table, inputs)


def _read(audit: AuditFile, dataset: str, place: Callable[[str], Path], progress: Progress) -> _Data:
    entry = audit.datasets[dataset]
    reader, root = entry.open_reader(), place(entry.root)
    ingested = ingest(reader, root, dataset=dataset, progress=partial(progress, f"{dataset}: reading"))
    return _Data(reader, root, ingested, dataset_digest(ingested.records, ingested.quarantine))


def _encoder(audit: AuditFile, model: str, *, home: Path, start: Path) -> tuple[DualEncoder, CheckpointFiles]:
    entry = audit.encoders[model]
    fetched = home / _CHECKPOINTS
    files = checkpoint_files(
        model,
        entry.address,
        project=start,
        fetched=fetched,
        family=entry.family,
        model=entry.model,
        embeddings=entry.embeddings,
    )
    family = FAMILIES[files.family]
    if family.logit in WITHOUT_VECTORS or family.stored:
        raise ConfigError(
            f"{family.title} gives no vectors that can be audited in memory",
            where=f"encoders.{model}",
            found=entry.address,
            expected="a dual encoder; others are audited by the pipeline, from a checkout",
        )
    placement = Placement.choose(device=audit.device, dtype=audit.engine.dtype, compiled=audit.engine.compile)
    return cast(DualEncoder, load_encoder(files, placement)), files


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


def _audited(
    audit: AuditFile,
    dataset: str,
    model: str,
    data: _Data,
    encoder: DualEncoder,
    asked: list[Suite],
    settings: MetricSettings,
    home: Path,
    progress: Progress,
) -> CellFrames:
    records, cache = data.ingested.records, ShardCache(UPath(home / _EMBEDDINGS))
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
    attributes = [name for name in records.columns if name in data.reader.declaration.attributes or "×" in name]
    cell, texts = cell_of_vectors(
        images.array,
        lambda wanted: embed_texts(encoder, wanted, cache).array,
        records_of(records, ids, dataset=dataset, attributes=attributes),
        asked,
        name=model,
        dataset=dataset,
        filters=audit.datasets[dataset].filters,
        logit="dot" if FAMILIES[encoder.family].logit == "dot" else "scaled_cosine",
        logit_scale=encoder.logit_scale,
        unlabelled=not data.reader.declaration.of_people,
    )
    return cell_frames(cell, texts, settings, least=data.reader.least_shown)


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


def _described(audit: AuditFile, dataset: str, data: _Data) -> DatasetSummary:
    entry, ingested = audit.datasets[dataset], data.ingested
    declaration = data.reader.declaration
    lacks_sets = ingested.records["set_id"].is_null().all()
    return DatasetSummary(
        id=dataset,
        reader=entry.reader,
        listed=ingested.listed,
        accepted=ingested.records.height,
        digest=data.digest,
        quarantined=ingested.quarantine,
        label_shares=label_shares(ingested.records, declaration, entry.balance, composite=False),
        planted=entry.root.startswith(PLANTED),
        absent_identities=declaration.identity_file if lacks_sets else None,
    )
