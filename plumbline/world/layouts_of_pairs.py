"""How datasets of image-text pairs lie on disk in the planted world: COCO captions, and shards of img2dataset.

The layout of the shards is that of `img2dataset/writer.py` and `logger.py` (github.com/rom1504/img2dataset): a tar of
`KEY.jpg`, `KEY.txt` and `KEY.json` in turn, a Parquet table of all that was asked for, and statistics.
"""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from plumbline.catalog.suites import with_article
from plumbline.world import faces
from plumbline.world.layouts import bad_contents, entry, put, write_bad_files, write_faces


def draw_captions(attributes: pl.DataFrame, rng: np.random.Generator, *, each: int) -> list[list[str]]:
    """Return `each` captions of every face: who is shown, and what they are said to be doing.

    The first names race and gender, the others the race alone: what SANER changes. What they do is drawn, since faces
    show nothing of it.
    """
    activities = entry("coco")["activities"]
    captions = []
    for race, gender in attributes.select("race", "gender").iter_rows():
        doing = rng.choice(len(activities), each, replace=False)
        persons = [with_article(f"{race.replace('_', ' ')} {noun}") for noun in (gender, *["person"] * (each - 1))]
        captions.append([f"{person} {activities[i]}" for person, i in zip(persons, doing)])
    return captions


def coco(root: Path, rng: np.random.Generator) -> pl.DataFrame:
    """Write COCO captions: folders `train2017` and `val2017`, and a JSON file of captions for each."""
    content, truth = entry("coco"), []
    for part, n in content["splits"].items():
        attributes = faces.sample_attributes(n, rng)
        paths = [f"{part}/{number:012}.jpg" for number in range(1, n + 1)]
        truth.append(write_faces(root, paths, attributes, rng))
        captions = dict(zip(paths, draw_captions(attributes, rng, each=content["captions"])))
        if part == "val2017":
            for path, fault in write_bad_files(root, "coco", bad_contents(rng)).items():
                captions[path] = [""] if fault == "no caption" else ["a person in a picture"]
        images = [{"id": number, "file_name": Path(path).name} for number, path in enumerate(captions, 1)]
        annotations = [
            {"image_id": number, "id": 10 * number + i, "caption": text}
            for number, texts in enumerate(captions.values(), 1)
            for i, text in enumerate(texts)
        ]
        about = {"info": {"year": 2017}, "licenses": [], "images": images, "annotations": annotations}
        put(root / f"annotations/captions_{part}.json", json.dumps(about).encode())
    return pl.concat(truth)


def img2dataset(root: Path, rng: np.random.Generator) -> pl.DataFrame:
    """Write shards of img2dataset in its format `webdataset`; the bad samples are the last ones of the last shard."""
    content, truth = entry("img2dataset"), []
    shards, size = content["shards"], content["samples"]
    bad = {Path(path).stem: fault for path, fault in content["bad"].items()}
    contents = bad_contents(rng)
    for shard in range(shards):
        attributes = faces.sample_attributes(size, rng)
        keys = [f"{shard:05}{number:04}" for number in range(size)]
        captions = [texts[0] for texts in draw_captions(attributes, rng, each=1)]
        samples = [
            _meta(key, caption) | {"jpg": faces.as_jpeg(image)}
            for key, caption, image in zip(keys, captions, faces.draw(attributes, rng))
        ]
        truth.append(attributes.with_columns(path=pl.Series([f"{shard:05}.tar/{key}.jpg" for key in keys])))
        if shard == shards - 1:
            samples += [_bad_sample(key, fault, contents) for key, fault in bad.items()]
        _write_shard(root, f"{shard:05}", samples)
    return pl.concat(truth)


def _bad_sample(key: str, fault: str, contents: dict[str, bytes]) -> dict[str, Any]:
    sample = _meta(key, "" if fault == "no caption" else "a person in a picture")
    if fault == "not downloaded":
        return sample | {"status": "failed_to_download", "error_message": "HTTP Error 404: Not Found", "jpg": None}
    return sample | {"jpg": contents.get(fault, contents["malformed name"])}


def _meta(key: str, caption: str) -> dict[str, Any]:
    return {
        "caption": caption, "url": f"https://images.example/{key}", "key": key, "status": "success",
        "error_message": None, "width": 64, "height": 64, "original_width": 64, "original_height": 64,
    }  # fmt: skip


def _write_shard(root: Path, name: str, samples: list[dict[str, Any]]) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    metas = [{column: value for column, value in sample.items() if column != "jpg"} for sample in samples]
    root.mkdir(parents=True, exist_ok=True)
    with tarfile.open(root / f"{name}.tar", "w") as archive:
        for sample, meta in zip(samples, metas):
            if sample["jpg"] is None:
                continue
            members = {
                "jpg": sample["jpg"],
                "txt": meta["caption"].encode(),
                "json": json.dumps(meta, indent=4).encode(),
            }
            for suffix, data in members.items():
                info = tarfile.TarInfo(f"{meta['key']}.{suffix}")
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
    texts = ("caption", "url", "key", "status", "error_message")
    schema = pa.schema([(column, pa.string() if column in texts else pa.int32()) for column in metas[0]])
    parquet.write_table(pa.Table.from_pylist(metas, schema=schema), root / f"{name}.parquet")
    successes = sum(meta["status"] == "success" for meta in metas)
    stats = {
        "count": len(metas), "successes": successes, "failed_to_download": len(metas) - successes,
        "failed_to_resize": 0, "duration": 1.0, "status_dict": {"success": successes},
    }  # fmt: skip
    put(root / f"{name}_stats.json", json.dumps(stats, indent=4).encode())
