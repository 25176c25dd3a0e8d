"""The text space of one checkpoint: how close it holds positive and negative words of a trait, no image needed."""

from collections.abc import Iterable
from dataclasses import dataclass

import dagster as dg
import polars as pl

from assets.embeddings import StoredPrompts
from assets.metrics import metric_settings
from assets.partitions import ENCODERS
from assets.recorded import asset
from assets.results import OWNERS, materialised
from plumbline.catalog.schema import LINEAGE_COLUMNS, metric_frame
from plumbline.catalog.suites import load_suite
from plumbline.digests import digest_json
from plumbline.encoders.stored_embeddings import not_stored
from plumbline.metrics.cell import texts_of
from plumbline.metrics.family import with_lineage
from plumbline.metrics.text_space import (
    GEOMETRY_SCHEMA,
    TEXT_SPACE_SUITES,
    geometry_words,
    prompt_embeddings,
    text_space_rows,
)
from plumbline.provenance.code_versions import code_version
from plumbline.storage import Committed
from resources.workspace import Workspace

_VERSION = code_version(
    text_space_rows, geometry_words, prompt_embeddings, shells=[__name__, "assets.embeddings", "assets.metrics"]
)
WORDS = "valence_geometry_words"
NO_TEXT_SPACE = "this model reads a text only together with an image: it has no text space to measure"


@asset(
    deps=["text_embeddings"],
    partitions_def=ENCODERS,
    group_name="encoders",
    owners=OWNERS,
    kinds={"numpy", "polars"},
    code_version=_VERSION,
)
def valence_geometry(context: dg.AssetExecutionContext, workspace: dg.ResourceParam[Workspace]) -> dg.MaterializeResult:
    """Separation of positive and negative words of a trait in text space: wealthy from poor, sincere from dishonest.

    For the agency, belief and communion words: mean cosine within and between valences, their difference with the
    paper's one-sided t-test and an exact permutation test, and the words on the first three principal components.
    Empty, with the reason, for a model without a text space (BridgeTower); of stored embeddings what their prompts
    allow.
    """
    lake, encoder = workspace.lake, context.partition_key
    prompts = StoredPrompts.find(workspace, encoder)
    stored = prompts.stored
    settings, suites = metric_settings(workspace), [load_suite(name) for name in TEXT_SPACE_SUITES]
    identity, reason = _identity(workspace, prompts), None if prompts.digests else NO_TEXT_SPACE
    rows, words = metric_frame([]), pl.DataFrame(schema=GEOMETRY_SCHEMA)
    known = [suite for suite in suites if prompts.digests and not prompts.lacking(suite.texts)]
    if known:
        texts = texts_of(known)
        embedded = dict(zip(texts, prompts.read(list(texts))))
        rows = _with_lineage(text_space_rows(encoder, known, embedded, settings=settings), stored, identity)
        if suites[0] in known:
            words = geometry_words(encoder, suites[0], prompt_embeddings(suites[0], embedded), settings=settings)
    if prompts.digests and (absent := [suite for suite in suites if suite not in known]):
        wanted = list(texts_of(absent))
        reason = str(not_stored([suite.id for suite in absent], prompts.lacking(wanted), of=len(wanted)))
    details = {"geometry_id": identity, "reason": reason}
    lake.write_table(WORDS, words, partition=encoder, details=details)
    committed = lake.write_table("valence_geometry", rows, partition=encoder, details=details)
    shown = {"words": words.height} | ({"reason": reason} if reason else {})
    return materialised(committed, lake=lake, frame=rows.drop(*LINEAGE_COLUMNS), **shown)


@dataclass(frozen=True)
class StoredGeometry:
    """The text space of a checkpoint as it is in the lake: its identity, metric rows, and words on their axes."""

    identity: str
    rows: pl.DataFrame
    words: pl.DataFrame


def stored_geometry(workspace: Workspace, encoders: Iterable[str]) -> list[StoredGeometry]:
    """Read what was measured of the text spaces; one that is of other prompts, weights or settings is left out."""
    geometry, lake = [], workspace.lake
    for encoder in encoders:
        texts = workspace.lake.committed("text_embeddings", partition=encoder)
        committed = lake.committed("valence_geometry", partition=encoder)
        if (
            texts is None
            or committed is None
            or committed.details["geometry_id"] != _identity(workspace, StoredPrompts(workspace, texts))
        ):
            continue
        words = lake.read_table(WORDS, partition=encoder)
        geometry.append(
            StoredGeometry(
                committed.details["geometry_id"], lake.read_table("valence_geometry", manifest=committed), words
            )
        )
    return geometry


def _identity(workspace: Workspace, prompts: StoredPrompts) -> str:
    confidence, suites = metric_settings(workspace).confidence, [load_suite(name) for name in TEXT_SPACE_SUITES]
    embedded = [prompts.about_model, *(prompts.digests_of(suite.texts) for suite in suites)]
    return digest_json([prompts.stored.partition, embedded, *(suite.hash for suite in suites), confidence, _VERSION])


def _with_lineage(rows: pl.DataFrame, stored: Committed, identity: str) -> pl.DataFrame:
    """Fill what is known of a text space: the checkpoint, and as `cell_id` what the numbers were computed from."""
    return with_lineage(rows, cell_id=identity, checkpoint_sha256=stored.details["weights_sha256"])
