"""What others have computed, damaged in every way that each kind of import can be: told by file, place and number.

An import is refused as a whole, or what cannot be used is counted; nothing is repaired and nothing is lost in silence.
"""

import json
import re

import numpy as np
import polars as pl
import pytest
from safetensors.numpy import save_file

from plumbline.catalog.suites import load_suite
from plumbline.checkpoints.device import Placement
from plumbline.config.entries import EncoderEntry
from plumbline.datasets.folder import ColumnMap
from plumbline.datasets.ingestion import ingest
from plumbline.datasets.registry import reader_for
from plumbline.encoders.folders import checkpoint_files, load_encoder
from plumbline.encoders.stored_embeddings import EmbeddingsSettings
from plumbline.encoders.stored_predictions import PredictionTable
from plumbline.errors import PlumblineError
from plumbline.generators.backend import Asked, Question, Subject
from plumbline.generators.stored_answers import StoredAnswers, StoredAnswersSettings
from plumbline.mitigations.text_mitigations import read_artefact

CRIME = load_suite("crime")
PATHS = ["a.jpg", "b.jpg", "c.jpg"]
IMAGES = pl.DataFrame({"path": PATHS, "image_id": ["1" * 64, "2" * 64, "3" * 64]})
VECTORS = np.eye(3, 4, dtype=np.float32)


def groups(folder, text, reader="counts", **changes):
    (folder / "t.csv").write_text(text, "utf-8")
    settings = {"index": "t.csv", "columns": {"race": "race"}, "values": {"race": {"x": "X", "y": "Y"}}} | changes
    return ingest(reader_for(reader, ColumnMap.model_validate(settings)), folder, dataset="d")


def counts(folder, text):
    ingested = groups(folder, text, total="all")
    assert ingested.quarantine.height, "this table is not damaged"
    codes = ingested.quarantine.select("line", "code").rows()
    return f"{ingested.listed} listed, {ingested.records.height} accepted, {len(codes)} {codes[0]}"


def predictions(folder, text):
    (folder / "p.csv").write_text(text, "utf-8")
    _, surplus = PredictionTable(folder / "p.csv", "d", {}, "file").chosen([CRIME], IMAGES)
    return f"{surplus} rows of no image"


def listing(folder, text):
    """Read the images and groups that predictions are of: one without a known group stays, and is counted."""
    ingested = groups(folder, text, "listing", path="file", min_shown=1)
    return f"{ingested.records.height} of {ingested.listed} accepted, {ingested.ungrouped.rows()} in no group"


def answers(folder, text):
    (folder / "t.csv").write_text(text, "utf-8")
    columns = {"image": "file", "prompt": "task", "seed": "n", "text": "said"}
    settings = StoredAnswersSettings.model_validate({"files": ["t.csv"], "columns": columns})
    backend = StoredAnswers(settings, (folder / "t.csv",), (folder,))
    asked = [Asked(Subject("0" * 64, folder / path), Question("describe", "none", "…", 0), path) for path in PATHS[:2]]
    held, missing = backend.answered(asked)
    return f"{missing} missing, {backend.surplus(len(held))} to no question"


def embeddings(folder, written):
    names, vectors = written
    for sub in ("img_emb", "metadata"):
        (folder / sub).mkdir()
    np.save(folder / "img_emb" / "img_emb_0.npy", vectors)
    pl.DataFrame({"image_path": names}).write_parquet(folder / "metadata" / "metadata_0.parquet")
    np.savez(folder / "prompts.npz", caption=np.array(CRIME.texts), embedding=np.ones((len(CRIME.texts), 4), "f4"))
    entry = EncoderEntry(address=f"stored:{folder}", embeddings=EmbeddingsSettings())
    files = checkpoint_files("e", entry.address, project=folder, fetched=folder, embeddings=entry.embeddings)
    found = load_encoder(files, Placement.choose(device="cpu")).images("d", IMAGES)
    return f"{found.surplus} rows of no image"


def artefacts(folder, written):
    path = folder / "a.safetensors"
    path.write_bytes(written) if isinstance(written, bytes) else save_file(written, path)
    read_artefact(path, {"projection": (4, 4), "tokens": ("tokens", 3)})
    raise AssertionError("this file is not damaged")


COUNTED = "race,person,thief,all\nx,3,1,4\ny,2,0,2\n"
CHOSEN = "file,crime\na.jpg,thief\nb.jpg,criminal\nc.jpg,white man\n"
SAID = 'file,task,n,said\na.jpg,describe,0,"a chef, she\nsays"\nb.jpg,describe,0,\n'
SQUARE, TOKENS = np.eye(4, dtype=np.float32), np.ones((2, 3), np.float32)


def put(value):
    vectors = VECTORS.copy()
    vectors[1, 2] = value
    return vectors


def header(**tensors):
    """Return a safetensors file whose header is made by hand, with 16 bytes of data."""
    text = json.dumps(tensors).encode()
    return len(text).to_bytes(8, "little") + text + bytes(16)


DAMAGES = {
    "wrong shapes": {
        "counts": (COUNTED.replace("y,2,0,2", "y,2,2"), "1 of 2 rows", "t.csv, line 3", "3 fields"),
        "predictions": (CHOSEN.replace("b.jpg,", "b.jpg,,"), "1 rows", "p.csv, line 3", "3 fields"),
        "answers": (SAID.replace("0,\n", "0\n"), "1 of 2 rows", "t.csv, line 4", "another number"),
        "embeddings": ((PATHS, VECTORS[:, None]), "img_emb_0.npy", "float32 of shape (3, 1, 4)"),
        "artefacts": ({"projection": SQUARE[:, :3], "tokens": TOKENS}, "`projection`", "(4, 3)", "(4, 4)"),
    },
    "missing rows": {
        "counts": "which groups there are is known from the table alone; a blank cell is no count",
        "predictions": (CHOSEN.replace("b.jpg,criminal\n", ""), "1 of 3 images", "p.csv", "column `file`", "b.jpg"),
        "answers": (SAID.replace("b.jpg,describe,0,\n", ""), "1 of 2 questions", "t.csv", "b.jpg, prompt describe"),
        "embeddings": ((PATHS[:2], VECTORS[:2]), "1 of 3 images", "c.jpg"),
        "artefacts": ({"projection": SQUARE}, "other parameters", "a.safetensors", "projection, tokens"),
    },
    "duplicates": {
        "counts": (COUNTED + "x,3,1,4\n", "1 of 3 rows", "t.csv, line 4, column `race`", "as in line 2"),
        "predictions": (CHOSEN + "b.jpg,thief\n", "1 rows", "p.csv, line 5, column `file`", "as in line 3"),
        "answers": (SAID + "b.jpg,describe,0,a cook\n", "1 stored answers", "t.csv, line 5, as t.csv, line 4"),
        "embeddings": (
            ([*PATHS, "b.jpg"], np.vstack([VECTORS, VECTORS[:1]])),
            "1 rows",
            "img_emb_0.npy, row 4",
            "column `image_path`",
        ),
        "artefacts": (
            header(
                tokens={"dtype": "F32", "shape": [4], "data_offsets": [0, 16]},
                other={"dtype": "F32", "shape": [4], "data_offsets": [0, 16]},
            ),
            "cannot be read",
            "a.safetensors",
        ),
    },
    "NaN": {
        "counts": (COUNTED.replace("3,1", "3,nan"), "1 of 6 counts", "t.csv", "line 2, column `thief`: 'nan'"),
        "predictions": (CHOSEN.replace("thief", "nan"), "1 of 3 predictions", "p.csv, line 2, column `crime`", "'nan'"),
        "answers": (SAID.replace("0,\n", "nan,\n"), "1 of 2 values", "t.csv, column `n`", "line 4: 'nan'"),
        "embeddings": ((PATHS, put(np.nan)), "1 of 3 stored embeddings hold NaN", "img_emb_0.npy, row 2"),
        "artefacts": (
            {"projection": put(np.nan)[[0, 1, 2, 2]], "tokens": TOKENS},
            "1 of 16 numbers",
            "`projection`",
            "a.safetensors, row 2, column 3",
        ),
    },
    "negative counts": {
        "counts": (COUNTED.replace("3,1", "3,-1"), "1 of 6 counts", "line 2, column `thief`: '-1'"),
        "predictions": (CHOSEN.replace("thief", "-1"), "1 of 3 predictions", "p.csv, line 2, column `crime`", "'-1'"),
        "answers": (SAID.replace("0,\n", "-1,\n"), "1 of 2 values", "column `n`", "line 4: '-1'"),
        "embeddings": "coordinates may be negative",
        "artefacts": "parameters may be negative",
    },
    "fractional counts": {
        "counts": (COUNTED.replace("3,1", "3,0.5"), "1 of 6 counts", "line 2, column `thief`: '0.5'"),
        "predictions": (CHOSEN.replace("thief", "0.5"), "1 of 3 predictions", "line 2, column `crime`", "'0.5'"),
        "answers": (SAID.replace("0,\n", "0.5,\n"), "1 of 2 values", "column `n`", "line 4: '0.5'"),
        "embeddings": ((PATHS, np.ones((3, 4), int)), "img_emb_0.npy", "int64 of shape (3, 4)"),
        "artefacts": (
            {"projection": SQUARE.astype(int), "tokens": TOKENS},
            "`projection` holds no floating-point numbers",
            "int64",
        ),
    },
    "contradicting totals": {
        "counts": (
            COUNTED.replace("1,4", "1,5"),
            "1 of 2 rows do not add up",
            "t.csv, line 2, column `all`",
            "3 + 1 = 4",
        ),
        "predictions": "a row is one image",
        "answers": "a row is one answer",
        "embeddings": ((PATHS, VECTORS[:2]), "2 rows of embeddings, 3 in column", "metadata_0.parquet"),
        "artefacts": (
            header(tokens={"dtype": "F32", "shape": [5], "data_offsets": [0, 16]}),
            "cannot be read",
            "a.safetensors",
        ),
    },
    "unknown groups": {
        "counts": (COUNTED + "z,2,3,5\n", "11 listed, 6 accepted, 5 (4, 'unknown_label')"),
        "predictions": ("file,race\na.jpg,x\nb.jpg,z\n", "2 of 2 accepted, [('race', 'unmapped', 1)] in no group"),
        "answers": (
            SAID.replace("b.jpg,describe", "b.jpg,depict"),
            "1 of 2 questions",
            "the files have prompts depict, describe",
        ),
        "embeddings": (([*PATHS, "z.jpg"], np.vstack([VECTORS, VECTORS[:1]])), "1 rows of no image"),
        "artefacts": (
            {"projection": SQUARE, "tokens": TOKENS, "more": TOKENS},
            "other parameters",
            "more, projection, tokens",
        ),
    },
}
"""By kind of damage and of import: what is written and the words that tell of it, or why it cannot be so damaged."""

READ = {
    "counts": counts,
    "predictions": predictions,
    "answers": answers,
    "embeddings": embeddings,
    "artefacts": artefacts,
    ("predictions", "unknown groups"): listing,
}

CASES = [
    pytest.param(READ.get((kind, name), READ[kind]), *of_kind[:1], of_kind[1:], id=f"{kind}, {name}")
    for name, of_imports in DAMAGES.items()
    for kind, of_kind in of_imports.items()
    if isinstance(of_kind, tuple)
]


@pytest.mark.parametrize(("read", "written", "says"), CASES)
def test_damage_is_told_by_file_row_and_column_and_counted(tmp_path, read, written, says):
    try:
        told = read(tmp_path, written)
    except PlumblineError as refused:
        told = re.sub(r"\s+", " ", str(refused))
    assert [words for words in says if words not in told] == [], told


def test_each_kind_of_import_is_damaged_in_each_way():
    kinds = {"counts", "predictions", "answers", "embeddings", "artefacts"}
    assert all(set(of_imports) == kinds for of_imports in DAMAGES.values())
