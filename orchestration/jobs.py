"""One job a stage of an audit, and what is run beside the stages; a job's assets share their partitions."""

import dagster as dg

_groups, _assets = dg.AssetSelection.groups, dg.AssetSelection.assets

_CHOSEN = {
    "datasets": (
        _groups("datasets"),
        "Read one dataset, split its files into accepted and quarantined, label genders, check the balance.",
    ),
    "read_dataset": (
        _assets("records", "quarantine"),
        "Read one dataset and split its files into accepted and quarantined; no model is run.",
    ),
    "encoders": (_groups("encoders"), "Embed every prompt with one checkpoint; compute its text-space metrics."),
    "cells": (
        _groups("embeddings", "logits", "metrics", "mitigation", "tracking"),
        "After `datasets` and `encoders`: audit one checkpoint on one dataset, from embeddings to MLflow.",
    ),
    "slices": (_groups("slices"), "After `datasets`: list the people in the images of one slice."),
    "answers": (
        _groups("generation"),
        "After `slices`: generate the answers of one generative model on one slice, and score them.",
    ),
    "language": (
        _groups("language"),
        "After `answers`: compute the language metrics of one generative model over all slices; log them to MLflow.",
    ),
    "findings": (
        _groups("findings"),
        "After all others: join the cells, compare checkpoints and published values, and write the report.",
    ),
    "deliver_cell": (
        _assets("tracked_run"),
        "Resend the MLflow runs of one cell after a failure to write them; nothing is computed.",
    ),
    "deliver_model": (
        _assets("tracked_answers"),
        "Resend the MLflow runs of one generative model after a failure to write them.",
    ),
}

CHECKED = ("records", "extended_records", "generations", "toxicity_scores")
"""Assets whose content is checked by expectations, which take seconds to import."""

JOBS = {
    name: dg.define_asset_job(name, selection, description=description)
    for name, (selection, description) in _CHOSEN.items()
} | {
    f"check_{name}": dg.define_asset_job(
        f"check_{name}",
        dg.AssetSelection.checks_for_assets(name),
        description=f"Judge `{name}` of one partition as it is stored, by the limits of now; nothing is computed.",
    )
    for name in CHECKED
}
"""By name."""
