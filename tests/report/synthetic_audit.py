"""The summaries of a synthetic audit: its datasets, encoders, absent cells and provenance."""

import itertools

import polars as pl
from synthetic_table import GRID, RACES, UTK_RACES, hash_text, planted_truth, wilson

from plumbline.report import AbsentCell, AuditSummary, DatasetSummary, EncoderSummary, ReportInputs


def dataset_summary(name, *, hostile=()):
    """Return a dataset with a few quarantined files; `hostile` adds file names."""
    fairface = name.endswith("fairface")
    races = RACES if fairface else UTK_RACES
    refused = [
        ("val/19.jpg", 21, "truncated", "the file ends before the image does", "1,204 bytes", "a complete JPEG"),
        ("val/88.jpg", 90, "unknown_label", "the race is not in the vocabulary", "Martian", "one of 7 races"),
        ("val/notes.txt", None, "not_an_image", "the file is not an image", "text", "JPEG or PNG"),
        *((path, 7, "not_an_image", f"bad name {path}", path, path) for path in hostile),
    ]
    quarantined = pl.DataFrame(
        [
            dict(zip(("path", "line", "code", "message", "found", "expected"), row), dataset=name, stage="decode")
            for row in refused
        ]
    )
    shares = [("race", r, 300, 1 / len(races), 0.1, 0.3) for r in races]
    shares += [("gender", "man", 1050, 0.55, 0.45, 0.52), ("gender", "woman", 950, 0.45, 0.45, 0.55)]
    errors = [("gender", "man", 1050, 10), ("gender", "woman", 1050, 24)]
    errors += [("race", r, 300, 15 if r == "East Asian" else 3) for r in races]
    return DatasetSummary(
        id=name,
        reader="fairface" if fairface else "utkface",
        listed=2100 + len(refused),
        accepted=2100,
        images=2100,
        digest="d" * 64,
        quarantined=quarantined,
        label_shares=pl.DataFrame(
            shares, schema=["attribute", "label", "n", "share", "expected_low", "expected_high"], orient="row"
        ),
        label_errors=pl.DataFrame(
            [(*row, row[3] / row[2], *wilson(row[3], row[2])) for row in errors],
            schema=["group_by", "group", "n", "errors", "rate", "ci_low", "ci_high"],
            orient="row",
        ),
        checks=pl.DataFrame(
            [
                ("listed = accepted + quarantined", True, "2103", "2103", "data_docs/index.html"),
                ("gender balance", fairface, "man 55%", "45–52%", "javascript:alert(1)"),
            ],
            schema=["check", "passed", "observed", "expected", "link"],
            orient="row",
        ),
        planted=True,
    )


def synthetic_inputs(models=GRID, datasets=("planted-fairface", "planted-utkface"), *, hostile=()):
    """Return the summaries that go with `synthetic_table`."""
    cells = list(itertools.product([m[0] for m in models], datasets))
    return ReportInputs(
        audit=AuditSummary(
            audit_id="0f" * 32,
            title="Planted world: first audit",
            created="2026-11-21 09:30 UTC",
            config_path="audit.yaml",
            code_version="0.1.0+g2d1b61e",
            seed=20261121,
            resamples=10_000,
        ),
        datasets=tuple(dataset_summary(name, hostile=hostile) for name in datasets),
        encoders=tuple(
            EncoderSummary(
                id=m, address=f"local-dir:checkpoints/{m}", family="open_clip", sha256="c" * 64,
                parameters=950_000 if size == "small" else 2_400_000, size=size, data_amount=amount, source=source,
                labeller=i == 0,
            )
            for i, (m, size, amount, source) in enumerate(models)
        ),
        absent=(AbsentCell("huge-hub-model", datasets[0], "the checkpoint is not on disk; run plumbline fetch"),),
        provenance=pl.DataFrame(
            [
                {
                    "cell_id": f"{abs(hash_text(m + d)):016x}", "model": m, "dataset": d, "dagster_run": "6f1c2a9e",
                    "mlflow_run": "b81e44d0", "finished_at": "2026-11-21 09:29", "forward_passes": 33,
                    "cached_shards": 0, "device": "cpu",
                }
                for m, d in cells
            ]
        ),
        planted_truth=planted_truth(models, datasets),
    )  # fmt: skip
