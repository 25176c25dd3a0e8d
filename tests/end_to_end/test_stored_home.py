"""What was chosen or said elsewhere goes through the whole pipeline: no image is opened and no model is run."""

import json

import numpy as np
import polars as pl
import pytest
from homes import make_home

from plumbline.catalog.suites import load_suite

PEOPLE = [(f"{race}/{gender}/{i}.jpg", race, gender) for race in "xy" for gender in ("man", "woman") for i in range(40)]


def write_embeddings(folder):
    """Write what clip-retrieval writes, of images and of texts: images of `x` lie at a crime, the others at none."""
    prompts = (*load_suite("crime").texts, *load_suite("perception").texts)
    rng = np.random.default_rng(0)
    texts = np.linalg.qr(rng.normal(size=(len(prompts), len(prompts))))[0]
    chosen = [load_suite("crime").columns("crime" if race == "x" else "demographic")[0] for _, race, _ in PEOPLE]
    for kind, column, names, vectors in (
        ("img_emb", "image_path", [f"/elsewhere/{path}" for path, *_ in PEOPLE], texts[chosen]),
        ("text_emb", "caption", prompts, texts),
    ):
        below = folder if kind == "img_emb" else folder / "prompts"
        (below / kind).mkdir(parents=True)
        (below / "metadata").mkdir()
        np.save(below / kind / f"{kind}_0.npy", vectors.astype(np.float16))
        pl.DataFrame({column: names}).write_parquet(below / "metadata" / "metadata_0.parquet")


@pytest.mark.slow
def test_counts_rows_and_answers_are_audited_without_images_or_models(tmp_path):
    tables = tmp_path / "tables"
    tables.mkdir()
    (tables / "counted.csv").write_text("race,person,thief,gorilla,all\nx,180,15,5,200\ny,195,4,1,200\n")
    rows = [
        f"{path},{race},{gender},{'thief' if race == 'x' and i % 4 else 'white man'}\n"
        for i, (path, race, gender) in enumerate(PEOPLE)
    ]
    (tables / "people.csv").write_text("file,race,gender,crime\n" + "".join(rows))
    answers = [
        {"image": path, "prompt": "characteristics", "text": f"{'skilled' if race == 'x' else 'kind'}, tall"}
        for path, race, _ in PEOPLE
    ]
    (tables / "said.jsonl").write_text("\n".join(map(json.dumps, [*answers, answers[0] | {"image": "nobody.jpg"}])))
    write_embeddings(tmp_path / "embedded")
    stored, mapped = f"stored:{tables}", {"race": "race"}
    home = make_home(
        tmp_path / "home",
        labeller=None,
        mitigations={"projection": {"method": "bias_prompts"}},
        statistics={"resamples": 200, "permutations": 200},
        datasets={
            "counted": {
                "reader": "counts",
                "root": str(tables),
                "map": {"index": "counted.csv", "columns": mapped, "total": "all"},
            },
            "people": {
                "reader": "listing",
                "root": str(tables),
                "map": {"index": "people.csv", "path": "file", "columns": mapped | {"gender": "gender"}},
            },
        },
        encoders={
            "vendor": {"address": stored, "predictions": {"names": {"person": "demographic"}}},
            "vectors": {
                "address": f"stored:{tmp_path / 'embedded'}",
                "embeddings": {"texts": f"stored:{tmp_path / 'embedded' / 'prompts'}"},
            },
        },
        audit=[
            {"encoders": ["vendor"], "mitigations": []},
            {"encoders": ["vectors"], "datasets": ["people"], "mitigations": ["projection"]},
        ],
        lvlms={"speaker": {"answers": {"files": [str(tables / "said.jsonl")]}}},
        generate=[{"lvlms": ["speaker"], "datasets": ["people"], "prompts": ["characteristics"], "seeds": [0]}],
    )
    code, output = home.run("plan")
    told = " ".join(output.split())
    assert code == 0 and "counted | vendor: not computed from stored predictions: agency, communion" in told, output
    assert "people | vectors: not computed from stored embeddings: agency, communion" in told, output
    assert "people | vectors: not computed" in told and "perception_words;" in told, output
    untried = "not tried on stored embeddings: projection"
    assert untried in told
    code, output = home.run("check")
    assert code == 0 and "`projection` will not be tried: it needs a model" in " ".join(output.split()), output
    code, output = home.run("audit")
    assert code == 0, output
    lake = home.workspace.lake
    table = lake.read_table("metric_table")
    shares = table.filter(dataset="counted", metric="outcome_proportion", event="crime")
    assert dict(shares.select("group", "value").rows()) == {"x": 15 / 200, "y": 4 / 200}
    of_people = table.filter(dataset="people", metric="harm_rate", event="crime")
    assert dict(of_people.select("model", "value").rows()) == {"vendor": 60 / 160, "vectors": 80 / 160}
    assert table.filter(model="vectors", suite="perception", dataset="text").height
    assert lake.committed("image_embeddings", partition="people|vectors").details["forward_passes"] == 0
    assert table.filter(model="speaker").height and not table.filter(metric="true_positive_rate").height
    said = lake.committed("generations", partition="speaker|people.all")
    assert (said.rows, said.details["questions_without_answer"], said.details["answers_not_used_here"]) == (160, 0, 1)
    labels = lake.read_table("extended_records", partition="people")
    assert labels["auto_gender"].null_count() == 160
    page = home.workspace.report.read_text("utf-8")
    assert "counts, no images" in page and "not computed from stored predictions" in page and untried in page

    # Another count: what depends on it is computed again.
    (tables / "counted.csv").write_text("race,person,thief,gorilla,all\nx,180,15,5,200\ny,194,5,1,200\n")
    code, output = home.run("audit")
    assert code == 0, output
    shares = lake.read_table("metric_table").filter(dataset="counted", metric="outcome_proportion", event="crime")
    assert dict(shares.select("group", "value").rows())["y"] == 5 / 200
    # A row that contradicts its total stops the audit, and says where.
    (tables / "counted.csv").write_text("race,person,thief,gorilla,all\nx,180,15,5,200\ny,195,5,1,200\n")
    code, output = home.run("audit")
    told = " ".join(output.split())
    assert code == 1 and "counted.csv, line 3, column `all`" in told and "195 + 5 + 1 = 201" in told, output
