"""Mitigations that change text features: fitted for one encoder on one dataset, with the features that they give."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import dagster as dg
import numpy as np
import polars as pl
from numpy.typing import NDArray

from assets.cells import StoredCell, passed_cell
from assets.checks import must_pass
from assets.embeddings import StoredPrompts
from assets.gates import require_passed
from assets.images import as_files, embed_listed, stored_embeddings
from assets.mitigation_fits import write_text_fits
from assets.partitions import GRID
from assets.progress import progress_of
from assets.recorded import asset
from assets.results import OWNERS, materialised
from plumbline.digests import digest_file
from plumbline.encoders.embedding import embed_texts
from plumbline.encoders.encoder import DualEncoder
from plumbline.errors import CheckpointError, MetricError
from plumbline.mitigations.fitting import FittedTexts, fit_text_mitigations, judge_retrieval
from plumbline.mitigations.retrieval import Retrieval, chosen_images
from plumbline.mitigations.settings import METHODS, Method, words_digest
from plumbline.mitigations.text_mitigations import FitContext, TextMitigationSettings
from plumbline.mitigations.training_rows import (
    ImageTextPairs,
    TrainingRows,
    captioned_images,
    image_text_pairs,
    judged_rows,
    label_captions,
    training_rows,
)
from plumbline.recording import unrecorded
from plumbline.storage import Committed
from resources.encoders import EncoderPool
from resources.workspace import Workspace

TEXT_METHODS = tuple(method for method in METHODS.values() if method.acts_on == "texts")
_JUDGED = ("outcomes", "trident", "captions")


def text_mitigation_asset(method: Method) -> dg.AssetsDefinition:
    """Build the asset of one method: a fit for each of its entries in the audit file."""

    @asset(
        name=method.name,
        description=method.about,
        deps=["probe_logits", "image_embeddings", "text_embeddings", "extended_records", "mitigation_texts"],
        partitions_def=GRID,
        group_name="mitigation",
        owners=OWNERS,
        kinds={"pytorch", "safetensors"} if method.trains else {"numpy", "safetensors"},
        pool="gpu",
        code_version=method.version,
    )
    def fit(
        context: dg.AssetExecutionContext,
        workspace: dg.ResourceParam[Workspace],
        encoders: dg.ResourceParam[EncoderPool],
    ) -> dg.MaterializeResult:
        stored = passed_cell(context, workspace)
        words_digest()  # noted, since fits read these texts
        mitigations = {n: s for n, s in stored.mitigations.items() if isinstance(s, TextMitigationSettings)}
        settings_of = {name: settings for name, settings in mitigations.items() if settings.method == method.name}
        fits = _Bench.of(stored, encoders).fit(settings_of) if settings_of else FittedTexts()
        committed = write_text_fits(stored, method.name, fits)
        shown = {name: {**fit.settings, "images": len(fit.train_ids)} for name, fit in fits.fits.items()}
        last = {
            f"{name} {curve}": float(losses[-1])
            for name, fit in fits.fits.items()
            for curve, losses in fit.losses.items()
        }
        return materialised(
            committed,
            lake=workspace.lake,
            fits=dg.MetadataValue.json(shown),
            absent=dg.MetadataValue.json(fits.absent),
            retrieval_absent=dg.MetadataValue.json({name: one.absent for name, one in fits.retrieval.items()}),
            last_losses=dg.MetadataValue.json(last),
        )

    return fit


@dataclass(frozen=True)
class _Bench:
    """The encoder, images and texts of a cell, to fit mitigations with."""

    stored: StoredCell
    encoder: DualEncoder
    records: pl.DataFrame
    images: NDArray[np.float32]
    texts: tuple[str, ...]
    features: NDArray[np.float32]

    @classmethod
    def of(cls, stored: StoredCell, encoders: EncoderPool) -> "_Bench":
        workspace, lake = stored.workspace, stored.workspace.lake
        encoder: Any = encoders.get(stored.model)
        prompts = StoredPrompts.find(workspace, stored.model)
        embedded = lake.require("image_embeddings", partition=stored.partition)
        for what in (prompts.stored, embedded):
            _require_identity(what, stored.model, encoder)
        records = lake.read_table("extended_records", manifest=stored.extended)
        captions = label_captions(records.filter(judged_rows(records)))
        # A caption may be a text that the encoder has embedded for another suite.
        texts = tuple(dict.fromkeys((*prompts_of(stored), *captions)))
        further = prompts.lacking(texts)
        row = {text: i for i, text in enumerate(text for text in texts if text not in further)}
        known = prompts.read(list(row))
        if further:
            row |= {text: i for i, text in enumerate(further, start=len(known))}
            known = np.concatenate([known, embed_texts(encoder, further, workspace.shards).array])
        return cls(
            stored=stored,
            encoder=encoder,
            records=records,
            images=stored_embeddings(workspace, embedded),
            texts=texts,
            features=known[[row[text] for text in texts]],
        )

    def fit(self, settings_of: dict[str, TextMitigationSettings]) -> FittedTexts:
        """Fit every mitigation that is asked for; where nothing can train one it is left out with the reason."""
        workspace, where = self.stored.workspace, self.stored.partition
        context = FitContext(
            encoder=self.encoder,
            embed=lambda texts: embed_texts(self.encoder, texts, workspace.shards).array,
            rows=self._rows,
            seed=workspace.audit.statistics.seed,
            store=workspace.training,
            file=self._file,
            pairs=self._pairs,
        )
        fits = fit_text_mitigations(
            settings_of,
            context,
            records=self.records,
            texts=self.texts,
            features=self.features,
            progress_of=lambda name: progress_of(f"{where}: training {name}"),
            where=where,
        )
        judging = workspace.audit.retrieval.datasets if fits.fits else ()
        return replace(fits, retrieval={pairs: self._retrieval(fits, context, pairs) for pairs in judging})

    def _retrieval(self, fits: FittedTexts, context: FitContext, dataset: str) -> Retrieval:
        """Judge fits by the pairs of a dataset that are not of its training split."""
        audit = self.stored.workspace.audit
        captioned, recorded = self._captioned(dataset, training=False)
        if captioned.is_empty():
            raise MetricError(
                "there are no image-text pairs to judge retrieval by",
                where=dataset,
                found="the training split alone",
                expected="another split, such as COCO's val",
                hint=f"leave `{dataset}` out of `retrieval.datasets`",
            )
        chosen = chosen_images(captioned, most=audit.retrieval.images, seed=audit.statistics.seed)
        return judge_retrieval(fits.fits, context, self._embedded(dataset, chosen, recorded))

    def _pairs(self, dataset: str) -> ImageTextPairs:
        """Return the image-text pairs of a dataset that may be trained on."""
        return self._embedded(dataset, *self._captioned(dataset, training=True))

    def _captioned(self, dataset: str, *, training: bool) -> tuple[pl.DataFrame, str]:
        """Return the captioned rows of a dataset that has passed its checks, and the digest of its records."""
        workspace = self.stored.workspace
        with unrecorded():
            require_passed(workspace, dataset, of=("records",))
        recorded = workspace.lake.require("records", partition=dataset)
        records = workspace.lake.read_table("records", manifest=recorded)
        return captioned_images(records, training=training), recorded.sha256

    def _embedded(self, dataset: str, captioned: pl.DataFrame, records_sha256: str) -> ImageTextPairs:
        """Embed each image of some pairs once, through the shared cache."""
        distinct = captioned.unique("image_id", keep="first", maintain_order=True)
        listed = as_files(self.stored.workspace, dataset, distinct, records_sha256)
        embedded = embed_listed(self.stored.workspace, self.encoder, dataset, listed)
        return image_text_pairs(captioned, embedded.array)

    def _file(self, path: str) -> Path:
        """Return where a file of given parameters is; its content counts."""
        given = self.stored.workspace.user_file(path)
        self.stored.workspace.note("user_file", path, value=digest_file(given))
        return given

    def _rows(self, attribute: str, dataset: str | None = None, *, labelled: bool = True) -> TrainingRows:
        """Return the training rows of the dataset that is judged, or of another that the same encoder has embedded."""
        if dataset in (None, self.stored.dataset):
            return training_rows(self.records, self.images, attribute=attribute, labelled=labelled)
        workspace, lake = self.stored.workspace, self.stored.workspace.lake
        if (dataset, self.stored.model) not in workspace.audit.cells:
            raise MetricError(
                "a mitigation would be fitted on images that this encoder is asked nothing about",
                where=self.stored.partition,
                found=dataset,
                expected="an entry of `audit` with this dataset and encoder, so that its images are embedded",
            )
        with unrecorded():
            require_passed(workspace, dataset, of=must_pass(workspace, dataset))
        extended = lake.require("extended_records", partition=dataset)
        embedded = lake.require("image_embeddings", partition=f"{dataset}|{self.stored.model}")
        _require_identity(embedded, self.stored.model, self.encoder)
        return training_rows(
            lake.read_table("extended_records", manifest=extended),
            stored_embeddings(workspace, embedded),
            attribute=attribute,
            labelled=labelled,
            judged_elsewhere=True,
        )


def _require_identity(stored: Committed, model: str, encoder: DualEncoder) -> None:
    if stored.details["identity"] != encoder.identity.digest:
        raise CheckpointError(
            f"the checkpoint of `{model}`, or how it runs, changed since its {stored.name}",
            found=f"identity {encoder.identity.digest[:12]}",
            expected=f"identity {stored.details['identity'][:12]}",
            hint=f"materialise `{stored.name}` again",
        )


def prompts_of(stored: StoredCell) -> tuple[str, ...]:
    """Return the prompts whose features a mitigation changes: those of the suites that it is judged by."""
    return tuple(dict.fromkeys(text for s in stored.suites if s.family in _JUDGED for text in s.texts))


TEXT_MITIGATIONS = [text_mitigation_asset(method) for method in TEXT_METHODS]
