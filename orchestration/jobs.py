"""One job a stage of an audit; a job's assets share their partitions."""

import dagster as dg

datasets = dg.define_asset_job(
    "datasets",
    dg.AssetSelection.groups("datasets"),
    description="Read one dataset, sort its files into accepted and quarantined, label genders, check the balance.",
)
read_dataset = dg.define_asset_job(
    "read_dataset",
    dg.AssetSelection.assets("records", "quarantine"),
    description="Read one dataset, sort its files into accepted and quarantined; no model labels anything.",
)
encoders = dg.define_asset_job(
    "encoders",
    dg.AssetSelection.groups("encoders"),
    description="Embed every prompt with one checkpoint, and measure its text space.",
)
cells = dg.define_asset_job(
    "cells",
    dg.AssetSelection.groups("embeddings", "logits", "metrics", "mitigation", "tracking"),
    description="After `datasets` and `encoders`: audit one checkpoint on one dataset, from embeddings to MLflow.",
)
slices = dg.define_asset_job(
    "slices",
    dg.AssetSelection.groups("slices"),
    description="After `datasets`: list who is pictured in a slice that generative models are asked about.",
)
answers = dg.define_asset_job(
    "answers",
    dg.AssetSelection.groups("generation"),
    description="After `slices`: ask one generative model about one slice, and score what it says.",
)
language = dg.define_asset_job(
    "language",
    dg.AssetSelection.groups("language"),
    description="After `answers`: measure what one generative model says of whom, over all slices, and tell MLflow.",
)
findings = dg.define_asset_job(
    "findings",
    dg.AssetSelection.groups("findings"),
    description="After all others: join the cells, compare checkpoints and published values, and write the report.",
)
deliver_cell = dg.define_asset_job(
    "deliver_cell",
    dg.AssetSelection.assets("tracked_run"),
    description="Send the MLflow runs of one cell again, where MLflow could not be written; nothing is computed.",
)
deliver_model = dg.define_asset_job(
    "deliver_model",
    dg.AssetSelection.assets("tracked_answers"),
    description="Send the MLflow runs of one generative model again, where MLflow could not be written.",
)

JOBS = [
    datasets,
    read_dataset,
    encoders,
    cells,
    slices,
    answers,
    language,
    findings,
    deliver_cell,
    deliver_model,
]
