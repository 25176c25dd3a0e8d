"""What CONTRIBUTING.md adds, used for real: `python proofs.py COPY`, in a process that finds the copy first.

Writes `found.json` there: the name of each proof, and null or a traceback.
"""

import json
import os
import sys
import traceback
from pathlib import Path

import numpy as np

TESTS = Path(__file__).parents[1]

AUDIT = """
labeller: mine
encoders: {mine: {address: "local-dir:mine"}}
datasets: {faces: {reader: fairface, root: faces}}
audit: [{}]
"""


def _audit(folder, **parts):
    """Return an audit file with other parts, read as every command reads it."""
    import yaml

    from plumbline.config.file import read_audit

    (folder / "audit.yaml").write_text(yaml.safe_dump(yaml.safe_load(AUDIT) | parts))
    return read_audit(folder / "audit.yaml")


def _picture(path, colour):
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (48, 40), colour).save(path)
    return path


def dataset_reader(folder):
    """A folder is read as its table says, and what does not fit is quarantined."""
    from plumbline.datasets.ingestion import ingest

    shown = ("men/a.jpg", "women/b.jpg", "children/c.jpg", "d.jpg")
    for i, name in enumerate(shown):
        _picture(folder / "faces" / name, (40 * i, 90, 20))
    audit = _audit(folder, datasets={"faces": {"reader": "studio", "root": "faces"}})
    read = ingest(audit.datasets["faces"].open_reader(), folder / "faces", dataset="faces", workers=1)
    assert dict(read.records.select("path", "gender").iter_rows()) == {"men/a.jpg": "man", "women/b.jpg": "woman"}
    refused = dict(read.quarantine.select("path", "code").iter_rows())
    assert refused == {"children/c.jpg": "unknown_label", "d.jpg": "malformed_name"}


def encoder_family(folder):
    """A checkpoint is found, loaded and gives what transformers itself gives."""
    sys.path.insert(0, str(TESTS / "encoders"))
    import torch
    import transformers
    from PIL import Image
    from tiny_architectures import write_dual_encoder

    from plumbline.checkpoints.device import Placement
    from plumbline.encoders.folders import checkpoint_files, load_encoder

    write_dual_encoder(folder / "mine")
    audit = _audit(folder, encoders={"mine": {"address": "local-dir:mine", "family": "groupvit"}})
    entry = audit.encoders["mine"]
    files = checkpoint_files("mine", entry.address, project=folder, fetched=folder, family=None)
    assert files.family == entry.family
    encoder = load_encoder(files, Placement())
    image, texts = Image.open(_picture(folder / "a.png", (200, 30, 90))), ["a photo of a thief", "a man"]
    model = transformers.GroupViTModel.from_pretrained(folder / "mine").eval()
    processor = transformers.CLIPProcessor(
        transformers.CLIPImageProcessorPil.from_pretrained(folder / "mine"),
        transformers.AutoTokenizer.from_pretrained(folder / "mine"),
    )
    inputs = processor(text=texts, images=image, return_tensors="pt", padding="max_length", max_length=77)
    with torch.inference_mode():
        wanted = model(**inputs)
    ours = encoder.embed_images(encoder.prepare(image)[None]), encoder.embed_texts(texts)
    units = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in ours]
    np.testing.assert_allclose(units[0], wanted.image_embeds, atol=1e-5)
    np.testing.assert_allclose(units[1], wanted.text_embeds, atol=1e-5)


def metric_family(folder):
    """The family's rows are what a loop counts; its metric keeps the contracts; it is an asset."""
    sys.path.insert(0, str(TESTS / "metrics"))
    import pytest
    from conftest import random_cell

    from plumbline.metrics.family import MetricSettings
    from plumbline.metrics.registry import FAMILIES

    cell = random_cell(n=150, suites=("crime",))
    rows = FAMILIES["near_miss_metrics"].compute(cell, settings=MetricSettings())
    logits = cell.logits["crime"]
    events = {c.text for c in logits.suite.candidates if c.category == "crime"}
    hits = [
        bool(events & {logits.suite.texts[i] for i in sorted(range(len(row)), key=lambda i: -row[i])[:2]})
        for row in logits.cosine.tolist()
    ]
    races = cell.records["race"].to_list()
    for name in ("White", "Black"):
        own = [hit for hit, race in zip(hits, races) if race == name]
        row = rows.filter(attribute="race", group=name, event="crime").row(0, named=True)
        assert (row["value"], row["n"]) == (sum(own) / len(own), len(own)) and row["ci_low"] < row["value"]
    from contract_measures import MEASURES
    from plumbline.metrics.near_misses import top_two_rate

    MEASURES["top_two_rate"] = lambda responses, groups, g: top_two_rate(responses, np.arange(g + 1) == g, groups, g)
    contracts = str(TESTS / "metrics" / "test_contracts.py")
    # Without the project's own options, which filter warnings of modules that are not loaded here.
    plain = ["-q", "-c", os.devnull, "-p", "no:cacheprovider", "-o", f"pythonpath={TESTS / 'images'}"]
    found = pytest.main([*plain, contracts, "-k", "top_two_rate or every_public"])
    assert found == 0
    from assets.metrics import METRIC_ASSETS

    assert "near_miss_metrics" in {asset.key.path[-1] for asset in METRIC_ASSETS}


def mitigation(folder):
    """The audit file names it; fitted, it leaves texts no part of the direction; it is an asset, and reads no file."""
    sys.path.insert(0, str(TESTS / "encoders"))
    from tiny_architectures import write_clip

    from plumbline.checkpoints.device import Placement
    from plumbline.encoders.folders import checkpoint_files, load_encoder
    from plumbline.errors import ConfigError
    from plumbline.mitigations.registry import apply_text_mitigation
    from plumbline.mitigations.text_mitigations import FitContext

    write_clip(folder / "mine")
    files = checkpoint_files("mine", "local-dir:mine", project=folder, fetched=folder)
    encoder = load_encoder(files, Placement())
    audit = _audit(folder, mitigations={"less": {"method": "contrast", "attribute": "race"}})
    work = FitContext(encoder=encoder, embed=encoder.embed_texts, rows=lambda *_, **__: None, seed=1)
    fitted = audit.mitigations["less"].fit(work)
    texts = ["a photo of a thief", "a photo of a hero"]
    before = encoder.embed_texts(texts)
    after = apply_text_mitigation(fitted, encoder, texts, before)
    direction = fitted.parameters["direction"]
    assert (abs(before @ direction) > 1e-3).all() and (abs(after @ direction) < 1e-5).all()
    np.testing.assert_allclose(*(np.linalg.norm(rows, axis=1) for rows in (before, after)), rtol=1e-5)
    from assets.text_mitigations import TEXT_MITIGATIONS

    assert "contrast" in {asset.key.path[-1] for asset in TEXT_MITIGATIONS}
    try:
        _audit(folder, mitigations={"less": {"method": "contrast", "from": "x.safetensors"}})
    except ConfigError as refused:
        told = " ".join(str(refused).split())
        assert "key mitigations.less.from found: 'x.safetensors' expected: no `from`: the method" in told, told
    else:
        raise AssertionError("`from` is not refused")


def scorer(folder):
    """The audit file names it; texts are scored; other words are another content."""
    audit = _audit(folder, scorers={"own": {"kind": "listed", "path": "words.txt"}})
    settings = audit.scorers["own"]
    (folder / "words.txt").write_text("lazy\nRude")
    made = settings.load(project=folder, fetched=folder, placement=None)
    scores = {i: found.scores["toxicity"] for i, found in made.score(["a rude man", "a rudder", ""])}
    assert scores == {0: 1.0, 1: 0.0, 2: 0.0}
    before = settings.content(project=folder, fetched=folder)
    (folder / "words.txt").write_text("lazy")
    assert settings.content(project=folder, fetched=folder) != before


def lvlm_backend(folder):
    """A checkpoint is found, loaded and answers as transformers' own `generate` does."""
    sys.path.insert(0, str(TESTS / "generators"))
    import torch
    import transformers
    from PIL import Image
    from tiny_lvlms import write_vipllava

    from plumbline.checkpoints.device import Placement
    from plumbline.digests import digest_file
    from plumbline.generators.backend import Asked, Decoding, Question, Subject, row_key
    from plumbline.generators.folders import generator_files, load_backend

    write_vipllava(folder / "mine")
    files = generator_files("mine", "local-dir:mine", project=folder, fetched=folder)
    assert files.family == "vipllava" and files.sees
    backend, greedy = load_backend(files, Placement()), Decoding(max_new_tokens=12, temperature=0)
    path = _picture(folder / "a.png", (200, 30, 90))
    subject, prompts = Subject(digest_file(path), path), ["Describe the image.", "Who is shown?"]
    questions = [Question("p", "none", text, 0) for text in prompts]
    asked = [Asked(subject, each, row_key(backend.identity, subject, each, greedy)) for each in questions]
    found = [answer.text for _, answer in sorted(backend.answers(asked, greedy))]
    model = transformers.VipLlavaForConditionalGeneration.from_pretrained(folder / "mine").eval()
    processor = transformers.LlavaProcessor.from_pretrained(folder / "mine", backend="pil")
    ends = model.generation_config.eos_token_id
    for prompt, answer in zip(prompts, found):
        text = f"USER: <image>\n{prompt} ASSISTANT:"
        inputs = processor(text=text, images=Image.open(path), return_tensors="pt")
        with torch.inference_mode():
            out = model.generate(**inputs, do_sample=False, max_new_tokens=12, pad_token_id=0)
        new = [t for t in out[0, inputs["input_ids"].shape[1] :].tolist() if t not in ends]
        assert answer == processor.tokenizer.decode(new, skip_special_tokens=True).strip() != ""


PROOFS = (dataset_reader, encoder_family, metric_family, mitigation, scorer, lvlm_backend)


def _found(proof, folder):
    folder.mkdir(parents=True)
    try:
        proof(folder)
    except BaseException:
        return traceback.format_exc()
    return None


if __name__ == "__main__":
    copy = Path(sys.argv[1])
    import plumbline

    assert Path(plumbline.__file__).is_relative_to(copy), "this is the checkout, not the copy"
    found = {proof.__name__: _found(proof, copy / "work" / proof.__name__) for proof in PROOFS}
    (copy / "found.json").write_text(json.dumps(found))
