"""Images against prompts: one matrix product a cell, or one pass a pair where a model must see both."""

from typing import cast

import dagster as dg
import numpy as np
from numpy.typing import NDArray

from assets.asked_cells import cell_suites
from assets.checks import must_pass
from assets.embeddings import StoredPrompts
from assets.gates import require_passed
from assets.images import listed_images, stored_embeddings
from assets.partitions import GRID, cell_of
from assets.progress import progress_of
from assets.recorded import asset
from assets.results import OWNERS, materialised
from assets.stored_predictions import prediction_table
from plumbline.catalog.suites import Suite
from plumbline.digests import digest_bytes, digest_json
from plumbline.encoders.embedding import Embedded, ScoredSuites, embed_classes, score_suites
from plumbline.encoders.encoder import DualEncoder
from plumbline.encoders.families import FAMILIES, require_suites
from plumbline.errors import CheckpointError
from plumbline.metrics.cell import text_products, texts_of
from plumbline.recording import unrecorded
from plumbline.storage import Committed
from resources.encoders import EncoderPool
from resources.workspace import Workspace

Arrays = dict[str, NDArray[np.float32]]


@asset(
    deps=["image_embeddings", "text_embeddings", "extended_records"],
    partitions_def=GRID,
    group_name="logits",
    owners=OWNERS,
    kinds={"numpy", "safetensors"},
    pool="gpu",
    code_version="3",
)
def probe_logits(
    context: dg.AssetExecutionContext, workspace: dg.ResourceParam[Workspace], encoders: dg.ResourceParam[EncoderPool]
) -> dg.MaterializeResult:
    """Logits of every image with every prompt of the suites of this cell.

    One matrix product of stored embeddings, kept unscaled with the norms of both sides, from which logits and cosines
    follow; no model is loaded. A cross-encoder (BridgeTower) scores its image-text pairs here, once per suite. Of
    predictions that were made elsewhere the candidate that was chosen is 1, all others are 0.
    """
    dataset, model = cell_of(context)
    with unrecorded():
        require_passed(workspace, dataset, of=must_pass(workspace, dataset))
    lake = workspace.lake
    images = lake.require("image_embeddings", partition=context.partition_key)
    prompts = StoredPrompts.find(workspace, model)
    texts = prompts.stored
    _require_together(model, images, texts)
    family = FAMILIES[texts.details["family"]]
    suites = cell_suites(workspace, dataset, model, family=family)
    require_suites(family, suites)
    # The classes of a dataset are no prompts of a suite: what is embedded of them is the mean over templates.
    ensembles = [suite for suite in suites if suite.ensemble]
    suite_of = texts_of(suite for suite in suites if not suite.ensemble)
    wanted, of_suite = list(suite_of), None
    surplus = {}
    if family.logit == "stored":
        arrays, wanted, of_suite, rows = _predicted(workspace, encoders, dataset, model, suites, images)
        work, origin, surplus = {"forward_passes": 0}, images.details["images"], {"rows_of_no_image": rows}
    elif family.logit == "pair":
        scored = _score(workspace, encoders, dataset, model, suites, images)
        arrays, work = _of_pairs(scored, suites, wanted), scored.counters()
        origin = digest_json([scored.suites[suite.id].shards for suite in suites])
    else:
        vectors = stored_embeddings(workspace, images)
        arrays = text_products(vectors, prompts.read(wanted), list(suite_of.values()))
        work, origin = {"forward_passes": 0}, images.details["images"]
        for suite in ensembles:
            classes = _classes(workspace, encoders, dataset, model, suite, images)
            of_classes = text_products(vectors, classes.array, [suite.id] * len(classes.array))
            arrays["raw"] = np.concatenate([arrays["raw"], of_classes["raw"]], axis=1)
            arrays["text_norm"] = np.concatenate([arrays["text_norm"], of_classes["text_norm"]])
            wanted += suite.texts
            work = {"forward_passes": work["forward_passes"] + classes.work.forward_passes}
    column = {text: i for i, text in enumerate(wanted)}
    columns = of_suite or {suite.id: [column[text] for text in suite.texts] for suite in suites}
    details = {
        **work,
        **surplus,
        "texts": wanted,
        # Which of them are whose, so that an audit to come can say which prompts of a suite changed.
        "suites": columns,
        "family": family.name,
        "checkpoint": texts.details["checkpoint"],
        "weights_sha256": texts.details["weights_sha256"],
        "logit_scale": texts.details["logit_scale"],
        "engine": images.details["engine"],
        "images": origin,
        "records_sha256": images.details["records_sha256"],
        # A family of metrics is computed anew only where the responses to its own suites changed.
        "responses": {suite.id: _digest(arrays, columns[suite.id]) for suite in suites},
    }
    committed = lake.write_arrays("probe_logits", arrays, partition=context.partition_key, details=details)
    shown = {"images": int(arrays["raw"].shape[0]), **work, **surplus}
    return materialised(committed, lake=lake, prompts=len(wanted), family=family.title, **shown)


def _require_together(model: str, images: Committed, texts: Committed) -> None:
    if images.details["identity"] != texts.details["identity"]:
        raise CheckpointError(
            f"the checkpoint of `{model}`, or how it runs, changed between its images and its prompts",
            found=f"images by {images.details['identity'][:12]}, prompts by {texts.details['identity'][:12]}",
            expected="one checkpoint, run in one way",
            hint="materialise `text_embeddings` and `image_embeddings` of this encoder again",
        )


def _predicted(
    workspace: Workspace, encoders: EncoderPool, dataset: str, model: str, suites: tuple[Suite, ...], images: Committed
) -> tuple[Arrays, list[str], dict[str, list[int]], int]:
    """Return what was chosen elsewhere, 1 or 0 by candidate, the texts of the columns, whose they are, and the surplus.

    A text that two suites share has a column in each: it may be the best of one and not of the other.
    """
    listed = workspace.lake.require("records", partition=dataset)
    _require_unchanged(
        f"{dataset}|{model}",
        stored={name: images.details[name] for name in ("identity", "records_sha256")},
        now={"identity": encoders.get(model).identity.digest, "records_sha256": listed.sha256},
    )
    records = workspace.lake.read_table("records", manifest=listed)
    chosen, surplus = prediction_table(workspace, dataset, model).chosen(suites, records)
    texts = [text for suite in suites for text in suite.texts]
    raw = np.zeros((records.height, len(texts)), dtype=np.float32)
    columns, start = {}, 0
    for suite in suites:
        raw[:, start : start + len(suite.texts)] = chosen[suite.id]
        columns[suite.id] = list(range(start, start + len(suite.texts)))
        start += len(suite.texts)
    return {"raw": raw}, texts, columns, surplus


def _require_unchanged(where: str, *, stored: dict[str, str], now: dict[str, str]) -> None:
    if changed := [name for name in stored if stored[name] != now[name]]:
        raise CheckpointError(
            f"{where}: the checkpoint or the records changed since the images were listed for it",
            found=", ".join(f"{name} {now[name][:12]}" for name in changed),
            expected=", ".join(f"{name} {stored[name][:12]}" for name in changed),
            hint="materialise `text_embeddings` and `image_embeddings` of this encoder again",
        )


def _classes(
    workspace: Workspace, encoders: EncoderPool, dataset: str, model: str, suite: Suite, images: Committed
) -> Embedded:
    encoder = encoders.get(model)
    _require_unchanged(
        f"{dataset}|{model}", stored={"identity": images.details["identity"]}, now={"identity": encoder.identity.digest}
    )
    return embed_classes(cast(DualEncoder, encoder), suite, workspace.shards)


def _score(
    workspace: Workspace, encoders: EncoderPool, dataset: str, model: str, suites: tuple[Suite, ...], images: Committed
) -> ScoredSuites:
    listed, encoder = listed_images(workspace, dataset), encoders.get(model)
    stored = {name: images.details[name] for name in ("identity", "records_sha256")}
    now = {"identity": encoder.identity.digest, "records_sha256": listed.records_sha256}
    _require_unchanged(f"{dataset}|{model}", stored=stored, now=now)
    with progress_of(f"{dataset}|{model}: scoring pairs") as progress:
        return score_suites(
            encoder,
            listed.paths,
            listed.image_ids,
            {suite.id: suite.texts for suite in suites},
            workspace.shards,
            progress=progress,
            # The proof that the fast decoder needs compares embeddings, and here are none.
            **workspace.engine_settings() | {"decoder": "pillow"},
        )


def _of_pairs(scored: ScoredSuites, suites: tuple[Suite, ...], wanted: list[str]) -> Arrays:
    column = {text: scored.suites[s.id].array[:, i] for s in suites for i, text in enumerate(s.texts)}
    return {"raw": np.stack([column[text] for text in wanted], axis=1)}


def _digest(arrays: Arrays, columns: list[int]) -> str:
    """Return the digest of the responses to the texts of some columns."""
    chosen = {"raw": arrays["raw"][:, columns]}
    if "text_norm" in arrays:
        chosen |= {"image_norm": arrays["image_norm"], "text_norm": arrays["text_norm"][columns]}
    return digest_json([digest_bytes(np.ascontiguousarray(array).tobytes()) for array in chosen.values()])
