"""One job a stage of an audit, and what is run beside the stages; a job's assets share their partitions."""

import dagster as dg

_groups, _assets = dg.AssetSelection.groups, dg.AssetSelection.assets

_CHOSEN = {
    "datasets": (
        _groups("datasets"),
        "Read one dataset, sort its files into accepted and quarantined, label genders, check the balance.",
    ),
    "read_dataset": (
        _assets("records", "quarantine"),
        "Read one dataset, sort its files into accepted and quarantined; no model labels anything.",
    ),
    "encoders": (_groups("encoders"), "Embed every prompt with one checkpoint, and measure its text space."),
    "cells": (
        _groups("embeddings", "logits", "metrics", "mitigation", "tracking"),
        "After `datasets` and `encoders`: audit one checkpoint on one dataset, from embeddings to MLflow.",
    ),
    "slices": (
        _groups("slices"),
        "After `datasets`: list who is pictured in a slice that generative models are asked about.",
    ),
    "answers": (
        _groups("generation"),
        "After `slices`: ask one generative model about one slice, and score what it says.",
    ),
    "language": (
        _groups("language"),
        "After `answers`: measure what one generative model says of whom, over all slices, and tell MLflow.",
    ),
    "findings": (
        _groups("findings"),
        "After all others: join the cells, compare checkpoints and published values, and write the report.",
    ),
    "deliver_cell": (
        _assets("tracked_run"),
        "Send the MLflow runs of one cell again, where MLflow could not be written; nothing is computed.",
    ),
    "deliver_model": (
        _assets("tracked_answers"),
        "Send the MLflow runs of one generative model again, where MLflow could not be written.",
    ),
}

JOBS = {
    name: dg.define_asset_job(name, selection, description=description)
    for name, (selection, description) in _CHOSEN.items()
}
"""By name."""
