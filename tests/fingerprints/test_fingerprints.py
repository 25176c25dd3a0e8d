"""Dear results declare their version: here a fixed small input says when it must be raised.

`make fingerprints` writes the file anew, after a version was raised or an entry was added.
"""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from probed_cells import make_cell
from small_encoders import fit
from tiny_architectures import BUILDERS
from tiny_lvlms import write_llava

from orchestration.definitions import defs
from plumbline.checkpoints.device import Placement
from plumbline.digests import digest_file
from plumbline.encoders.families import FAMILIES
from plumbline.encoders.folders import checkpoint_files, load_encoder
from plumbline.generators.backend import Asked, Decoding, Question, Subject, row_key
from plumbline.generators.families import GENERATOR_FAMILIES
from plumbline.generators.folders import generator_files, load_backend
from plumbline.images.decoding import DECODING_VERSION
from plumbline.mitigations.bias_prompts import BiasPromptsSettings
from plumbline.mitigations.logit_adjustment.adjustment import LogitAdjustmentSettings
from plumbline.mitigations.logit_adjustment.cells import fit_suites
from plumbline.mitigations.prompt_array import PromptArraySettings
from plumbline.mitigations.saner import SanerSettings
from plumbline.mitigations.settings import METHODS
from plumbline.mitigations.training_rows import ImageTextPairs, TrainingRows
from resources.checkout import PROJECT

FILE = Path(__file__).with_name("fingerprints.json")
RENEW = "RENEW_FINGERPRINTS" in os.environ
PLANTED = PROJECT / "plumbline" / "world" / "checkpoints"
CHECKPOINTS = {
    "open_clip": PLANTED / "small-bazaar-3k",
    "align": PLANTED / "align-bazaar-3k",
    "bridgetower": PLANTED / "bridgetower-bazaar-3k",
    "owlv2": PLANTED / "owlv2-bazaar-3k",
}
TEXTS = ["a photo of a man", "a photo of a woman", "a friendly person"]
METHOD_SETTINGS = {
    "bias_prompts": BiasPromptsSettings(),
    "prompt_array": PromptArraySettings(attribute="race", learning_rate=1e-2, batch=16, epochs=2, alternate=1),
    "saner": SanerSettings(attribute="race", width=16, batch=16, epochs=1, learning_rate=1e-2, neutral_captions=False),
}
METHOD_SETTINGS |= {
    f"{name} on pairs": METHOD_SETTINGS[name].model_copy(update={"pairs": "pairs"})
    for name in ("prompt_array", "saner")
}


def declared(*assets):
    nodes = {node.key.to_user_string(): node for node in defs.resolve_asset_graph().asset_nodes}
    return {name: nodes[name].code_version for name in assets}


def pictures():
    rng = np.random.default_rng(5)
    small = [Image.fromarray(rng.integers(0, 256, (9, 11, 3), dtype=np.uint8)) for _ in range(3)]
    sizes = [(50, 70), (64, 40), (80, 90)]
    return [image.resize(size, Image.Resampling.BICUBIC) for image, size in zip(small, sizes, strict=True)]


def of_encoder(name, folder):
    if name in CHECKPOINTS:
        folder = CHECKPOINTS[name]
    else:
        # OWL-ViT's classes read OWLv2's weights.
        BUILDERS["owlv2" if name == "owlvit" else name](folder)
    files = checkpoint_files("x", f"local-dir:{folder}", project=folder, fetched=folder, family=name)
    encoder = load_encoder(files, Placement())
    batch = torch.stack([encoder.prepare(picture) for picture in pictures()])
    family = FAMILIES[name]
    versions = {"family": family.version, "decoding": DECODING_VERSION}
    if family.logit == "pair":
        return versions | declared("probe_logits"), encoder.score_pairs(batch, TEXTS)
    output = np.concatenate([encoder.embed_images(batch)[:, :8], encoder.embed_texts(TEXTS)[:, :8]])
    return versions | declared("text_embeddings", "image_embeddings", "probe_logits"), output


def of_method(name):
    encoder = load_encoder(
        checkpoint_files("x", f"local-dir:{CHECKPOINTS['open_clip']}", project=PLANTED, fetched=PLANTED), Placement()
    )
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 32)
    people = ["a photo of a black man", "a photo of a white woman"]
    towards = encoder.embed_texts(people)
    rows = TrainingRows(
        images=(towards[labels] + 0.1 * towards.std() * rng.normal(size=(32, encoder.width))).astype(np.float32),
        groups=("Black", "White"),
        labels=labels,
        captions=tuple(people[label] for label in labels),
        image_ids=tuple(f"{i}" for i in range(32)),
    )
    settings, method = METHOD_SETTINGS[name], name.removesuffix(" on pairs")
    pairs = ImageTextPairs(rows.images[::2], rows.image_ids[::2], rows.captions, np.arange(32) // 2)
    fitted = fit(encoder, rows, settings, seed=1, pairs=pairs)
    return {"method": METHODS[method].version} | declared(method), settings.apply(
        fitted, encoder, TEXTS, encoder.embed_texts(TEXTS)
    )[:, :8]


def of_logit_adjustment():
    fits, _ = fit_suites(make_cell(), LogitAdjustmentSettings(per_class=5, epochs=20), seed=1)
    parameters = fits["trident"].parameters()
    flat = np.concatenate([np.ravel(parameters[name]).astype(float)[:20] for name in sorted(parameters)])
    return {"method": METHODS["logit_adjustment"].version} | declared("logit_adjustment"), flat


def of_generator(folder):
    write_llava(folder)
    backend = load_backend(generator_files("tiny", f"local-dir:{folder}", project=folder, fetched=folder), Placement())
    path = folder / "picture.png"
    pictures()[0].save(path)
    subject, decoding = Subject(digest_file(path), path), Decoding(max_new_tokens=8)
    asked = [
        Asked(subject, question, row_key("fixed", subject, question, decoding))
        for question in (Question("a", "none", "Describe the person.", seed) for seed in (0, 1))
    ]
    said = dict(backend.answers(asked, decoding))
    characters = [[ord(letter) for letter in said[position].text[:12].ljust(12)] for position in range(2)]
    return {"family": GENERATOR_FAMILIES["llava"].version} | declared("generations"), np.array(characters, float)


COMPUTING = [name for name, family in FAMILIES.items() if not family.stored]
CASES = {
    **{f"encoder {name}": lambda folder, name=name: of_encoder(name, folder) for name in COMPUTING},
    **{f"mitigation {name}": lambda _, name=name: of_method(name) for name in METHOD_SETTINGS},
    "mitigation logit_adjustment": lambda _: of_logit_adjustment(),
    "generator llava": of_generator,
}


@pytest.mark.parametrize("case", CASES)
def test_another_output_has_another_version(case, tmp_path):
    torch.manual_seed(0)
    versions, output = CASES[case](tmp_path)
    output = np.asarray(output, dtype=np.float64)
    kept = json.loads(FILE.read_text()) if FILE.exists() else {}
    if RENEW:
        kept[case] = {"versions": versions, "output": np.round(output, 6).tolist()}
        FILE.write_text(json.dumps(dict(sorted(kept.items())), indent=1) + "\n")
        return
    assert case in kept and kept[case]["versions"] == versions, "run `make fingerprints`, and commit what it writes"
    scale = np.abs(kept[case]["output"]).max()
    # Processors and releases of torch differ in the last digits.
    same = np.shape(kept[case]["output"]) == output.shape and np.allclose(
        output, kept[case]["output"], rtol=0, atol=1e-3 * scale
    )
    assert same, f"the output of {case} has changed: raise one of its versions {versions}, then run `make fingerprints`"


def test_every_kept_fingerprint_has_its_case():
    assert set(json.loads(FILE.read_text())) == set(CASES), "run `make fingerprints`; delete entries without a case"


def test_every_dear_family_and_method_has_a_case():
    missing = {*(f"encoder {name}" for name in COMPUTING), *(f"mitigation {name}" for name in METHODS)} - set(CASES)
    assert not missing, (
        "add settings for a small fit to `METHOD_SETTINGS` of this file (a mitigation of logits to `CASES`), then run "
        "`make fingerprints`"
    )
