"""Exported mitigations: every example runs where there is no Plumbline, and gives the library's own numbers."""

import ast
import json
import os
import sys
from functools import cache

import numpy as np
import pytest
from forked import server
from PIL import Image
from safetensors import safe_open
from safetensors.numpy import load_file
from small_encoders import BAZAAR, fit, load

from plumbline.errors import ConfigError, MetricError
from plumbline.mitigations import LogitAdjustment, apply_logit_adjustment, fit_logit_adjustment
from plumbline.mitigations.bias_prompts import BiasPromptsSettings
from plumbline.mitigations.export import ExportFacts, export_mitigation
from plumbline.mitigations.registry import apply_text_mitigation
from plumbline.mitigations.saner import specific_pattern
from plumbline.mitigations.text_mitigations import FittedMitigation
from plumbline.statistics.seeds import generator
from plumbline.version import __version__

FAMILIES = ("open_clip", "clip")
TEXTS = ["a photo of a thief", "a photo of a hero", "a photo of a female doctor"]
CLASSES, PROBES = ("a photo of a White", "a photo of a Black"), ("a photo of a thief", "a photo of a hero")

# Every example in turn, in a process that cannot import Plumbline: nothing of it that was imported before is left. What
# each one has at its end is kept beside it.
RUNNER = """
import contextlib, json, runpy, sys
import torch
torch.set_num_threads(1)
for name in [name for name in sys.modules if name.partition(".")[0] == "plumbline"]:
    del sys.modules[name]
sys.modules["plumbline"] = None
for example, *arguments in json.loads(sys.argv[1]):
    sys.argv = [example, *arguments]
    with open(example + ".out", "w") as printed, contextlib.redirect_stdout(printed):
        end = runpy.run_path(example, run_name="__main__")
    torch.set_grad_enabled(True)
    torch.save({name: end[name] for name in ("image", "before", "after", "values") if name in end}, example + ".pt")
"""


@pytest.fixture(scope="module")
def folders(clip_folder):
    """A checkpoint of each family: a planted one of open_clip, a tiny random one of transformers."""
    return {"open_clip": BAZAAR, "clip": clip_folder}


@pytest.fixture(scope="module")
def encoders(folders):
    return {family: load(folder) for family, folder in folders.items()}


@pytest.fixture(scope="module")
def picture(tmp_path_factory):
    path = tmp_path_factory.mktemp("pictures") / "face.png"
    Image.fromarray(generator(1).integers(0, 256, (70, 64, 3), dtype=np.uint8)).save(path)
    return path


def facts(encoder, **changed):
    return ExportFacts(
        **{
            "encoder": "tiny",
            "family": encoder.family,
            "weights_sha256": encoder.weights_sha256,
            "width": encoder.width,
            "dataset": "fairface",
            "dataset_digest": "d" * 64,
            "audit": "An audit",
        }
        | changed
    )


@cache
def bias_prompts(encoder):
    return fit(encoder, None, BiasPromptsSettings(attributes=("gender",)), seed=0)


def prompt_array(encoder):
    # Far from every word, so that a token in a wrong place would be seen.
    word = encoder.token_vectors("woman").numpy()[0]
    tokens = word + generator(2).normal(size=(2, len(word)), scale=np.abs(word).mean())
    settings = {"method": "prompt_array", "variant": "adversarial"}
    return FittedMitigation(settings, {"tokens": tokens.astype(np.float32)}, "x")


def prompt_array_released(encoder):
    vectors = generator(3).normal(size=(16, encoder.width)).astype(np.float32)
    return FittedMitigation({"method": "prompt_array", "variant": "released"}, {"vectors": vectors}, "x")


def saner(encoder):
    d, h = encoder.width, 7
    shapes = {"weight_in": (h, d), "bias_in": (h,), "weight_out": (d, h), "bias_out": (d,)}
    parameters = {
        name: generator(4, name).normal(size=shape, scale=0.3).astype(np.float32) for name, shape in shapes.items()
    }
    settings = {"method": "saner", "attribute": "gender", "specific_pattern": specific_pattern("gender")}
    return FittedMitigation(settings, parameters, "x")


FITTED = (bias_prompts, prompt_array, prompt_array_released, saner)


def adjustment(mode, encoder, probes=2):
    rng = generator(5)
    logits = rng.normal(size=(probes, 60, 3)) + 5
    shape = {"n_classes": 2, "per_class": 5, "learning_rate": 0.2, "trials": 2, "mode": mode, "seed": 1}
    return fit_logit_adjustment(logits if probes > 1 else logits[0], rng.permutation(60) % 2, **shape)


MODES = ("multiplicative", "additive")


@pytest.fixture(scope="module")
def examples(encoders, folders, picture, tmp_path_factory):
    """Every example of every method and family, each run once: (family, method or mode) -> its folder."""
    root, made = tmp_path_factory.mktemp("exports"), {}
    for family, encoder in encoders.items():
        for build in FITTED:
            made[family, build] = folder = root / family / build.__name__
            export_mitigation(build(encoder), facts(encoder), folder)
        for mode in MODES:
            made[family, mode] = folder = root / family / mode
            export_mitigation(adjustment(mode, encoder), facts(encoder, classes=CLASSES, probes=PROBES), folder)
    runs = [[str(f / "example.py"), str(folders[family]), str(picture)] for (family, _), f in made.items()]
    process = server().start(("-c", RUNNER, json.dumps(runs)), {**os.environ, "HF_HUB_OFFLINE": "1"})
    output, _ = process.communicate()
    assert process.returncode == 0, output
    return made


def kept(folder):
    import torch

    tensors = torch.load(folder / "example.py.pt", weights_only=True)
    return {name: tensor.detach().numpy() for name, tensor in tensors.items()}


def printed(folder):
    """Return {"before": the printed probabilities, "after": ..}, and the texts they stand beside."""
    lines = [line.split("  ") for line in (folder / "example.py.out").read_text().splitlines()]
    texts = [[entry.rsplit(": ", 1)[0] for entry in entries] for _, *entries in lines]
    assert texts[0] == texts[1]
    return {name: [float(e.rsplit(": ", 1)[1]) for e in entries] for name, *entries in lines}, texts[0]


def softmax(logits):
    shares = np.exp(logits - np.max(logits))
    return shares / shares.sum()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("build", FITTED, ids=lambda build: build.__name__)
def test_an_example_for_texts_gives_the_numbers_of_the_library(examples, encoders, picture, family, build):
    encoder, folder = encoders[family], examples[family, build]
    features = encoder.embed_texts(TEXTS)
    mitigated = apply_text_mitigation(build(encoder), encoder, TEXTS, features)
    found = kept(folder)
    np.testing.assert_allclose(found["before"], features, atol=1e-5)
    np.testing.assert_allclose(found["after"], mitigated, atol=1e-5 * np.linalg.norm(features, axis=1).max())
    image = encoder.embed_images(encoder.prepare(Image.open(picture).convert("RGB"))[None])[0]
    told, texts = printed(folder)
    assert texts == TEXTS
    for name, rows in (("before", features), ("after", mitigated)):
        cosines = rows @ image / np.linalg.norm(rows, axis=1) / np.linalg.norm(image)
        np.testing.assert_allclose(told[name], softmax(encoder.logit_scale * cosines), atol=1e-5)
    # It did something, and to texts that name the attribute too unless it says that it does not.
    moved = np.abs(found["after"] - found["before"]).max(axis=1)
    assert ((moved > 1e-2) == [True, True, build is not saner]).all()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("mode", MODES)
def test_an_example_for_logits_gives_the_numbers_of_the_library(examples, encoders, picture, family, mode):
    encoder, folder = encoders[family], examples[family, mode]
    image = encoder.embed_images(encoder.prepare(Image.open(picture).convert("RGB"))[None])[0]
    texts = [*CLASSES, PROBES[0]]
    logits = encoder.embed_texts(texts) @ image
    # Logits of the other probe are of no matter to the first.
    adjusted = apply_logit_adjustment(adjustment(mode, encoder), np.stack([logits[None]] * 2))[0, 0, 0]
    told, named = printed(folder)
    assert named == texts
    np.testing.assert_allclose(kept(folder)["values"], adjusted, atol=1e-5)
    np.testing.assert_allclose(told["before"], softmax(logits), atol=1e-5)
    np.testing.assert_allclose(told["after"], softmax(adjusted), atol=1e-5)
    assert np.abs(np.subtract(told["before"], told["after"])).max() > 1e-4


def test_an_example_is_about_twenty_lines_of_torch_safetensors_and_one_library(examples):
    for (family, _), folder in examples.items():
        source = (folder / "example.py").read_text()
        tree = ast.parse(source)
        imports = [node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))]
        libraries = {getattr(n, "module", None) or n.names[0].name for n in imports} - sys.stdlib_module_names
        assert libraries == {"torch", "PIL", "safetensors", {"clip": "transformers"}.get(family, family)}
        code = [node for node in tree.body[1:] if node not in imports]
        assert sum(node.end_lineno - node.lineno + 1 for node in code) <= 21
        assert max(map(len, source.splitlines())) <= 120


def test_what_it_was_fitted_on_is_said_in_the_file_itself(examples, encoders):
    folder = examples["open_clip", bias_prompts]
    fitted = bias_prompts(encoders["open_clip"])
    with safe_open(folder / "mitigation.safetensors", "np") as file:
        metadata = file.metadata()
    assert metadata == {
        "method": "bias_prompts",
        "settings": metadata["settings"],
        "fitted_on": fitted.fitted_on,
        "encoder": "tiny",
        "family": "open_clip",
        "encoder_weights_sha256": encoders["open_clip"].weights_sha256,
        "dataset": "fairface",
        "dataset_digest": "d" * 64,
        "audit": "An audit",
        "plumbline": __version__,
    }
    assert json.loads(metadata["settings"]) == {**fitted.settings, "attributes": ["gender"]}
    stored = load_file(folder / "mitigation.safetensors")
    np.testing.assert_array_equal(stored["projection"], fitted.parameters["projection"])


def test_an_adjustment_can_be_read_back_whole(examples, encoders):
    folder = examples["clip", "additive"]
    with safe_open(folder / "mitigation.safetensors", "np") as file:
        settings = json.loads(file.metadata()["settings"])
        assert json.loads(file.metadata()["probes"]) == list(PROBES)
    again = LogitAdjustment.from_parameters(load_file(folder / "mitigation.safetensors"), settings)
    expected = adjustment("additive", encoders["clip"])
    assert again.metadata() == expected.metadata()
    np.testing.assert_array_equal(again.factors, expected.factors)


def test_the_readme_says_what_was_measured(encoders, tmp_path):
    encoder = encoders["clip"]
    told = facts(encoder, measured=("Max Skew of crime by gender: 0.40 before, 0.10 after.",))
    paths = export_mitigation(bias_prompts(encoder), told, tmp_path / "new" / "folder")
    assert [path.name for path in paths] == ["mitigation.safetensors", "example.py", "README.md"]
    readme = paths[-1].read_text()
    assert "- Max Skew of crime by gender: 0.40 before, 0.10 after.\n" in readme
    assert encoder.weights_sha256 in readme
    export_mitigation(bias_prompts(encoder), facts(encoder), tmp_path / "new" / "folder")
    assert "measured" not in paths[-1].read_text()


def test_no_name_is_markup_in_the_readme(encoders, tmp_path):
    encoder, line = encoders["clip"], "worsened: harm_rate of evil <img src=x onerror=alert(1)>, " + "of much " * 60
    told = facts(encoder, dataset="a`<b>`", audit="[an](https://evil.example)", measured=(line,))
    readme = export_mitigation(bias_prompts(encoder), told, tmp_path)[-1].read_text()
    assert "\\<img src=x onerror=alert(1)\\>" in readme and " <img" not in readme and readme.count("of much") == 60
    assert "`a'<b>'`" in readme and "\\[an\\](https\\[:\\]//evil.example)" in readme


@pytest.mark.parametrize("family", ["bridgetower", "owlv2"])
@pytest.mark.parametrize("build", FITTED, ids=lambda build: build.__name__)
def test_a_family_without_text_features_has_none_to_mitigate(encoders, tmp_path, family, build):
    encoder = encoders["clip"]
    with pytest.raises(ConfigError, match=r"needs .*embed_texts"):
        export_mitigation(build(encoder), facts(encoder, family=family), tmp_path)
    assert not list(tmp_path.iterdir())


def test_another_family_gets_the_parameters_and_is_told_that_there_is_no_example(encoders, tmp_path):
    encoder = encoders["clip"]
    about = facts(encoder, family="bridgetower", classes=CLASSES, probes=PROBES)
    paths = export_mitigation(adjustment("multiplicative", encoder), about, tmp_path)
    assert [path.name for path in paths] == ["mitigation.safetensors", "README.md"]
    assert "no example for encoders of the family bridgetower" in paths[1].read_text()


@pytest.mark.parametrize("build", [bias_prompts, prompt_array_released, saner], ids=lambda build: build.__name__)
def test_parameters_of_another_width_are_refused(encoders, tmp_path, build):
    encoder = encoders["clip"]
    with pytest.raises(MetricError, match="another width"):
        export_mitigation(build(encoder), facts(encoder, width=encoder.width + 1), tmp_path)


def outcome_adjustment():
    logits = generator(6).normal(size=(60, 3)) + 5
    return fit_logit_adjustment(
        logits, generator(6).permutation(60) % 2, n_classes=2, per_class=5, learning_rate=0.2, trials=2, seed=1
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_an_example_for_the_candidates_of_a_suite_gives_the_numbers_of_the_library(
    encoders, folders, picture, tmp_path, family
):
    encoder, texts, made = encoders[family], (*CLASSES, PROBES[0]), outcome_adjustment()
    about = facts(encoder, suite="crime", candidates=texts, measured=("improved: the crime.",))
    export_mitigation(made, about, tmp_path)
    process = server().start(
        ("-c", RUNNER, json.dumps([[str(tmp_path / "example.py"), str(folders[family]), str(picture)]])),
        {**os.environ, "HF_HUB_OFFLINE": "1"},
    )
    output, _ = process.communicate()
    assert process.returncode == 0, output
    image = encoder.embed_images(encoder.prepare(Image.open(picture).convert("RGB"))[None])[0]
    rows = encoder.embed_texts(texts)
    scaled = encoder.logit_scale * (rows @ image) / np.linalg.norm(rows, axis=1) / np.linalg.norm(image)
    told, named = printed(tmp_path)
    assert named == list(texts)
    np.testing.assert_allclose(told["before"], softmax(scaled), atol=1e-5)
    np.testing.assert_allclose(told["after"], softmax(made.adjust(scaled[None], trial=0)[0]), atol=1e-5)
    readme = (tmp_path / "README.md").read_text()
    assert "logits of the suite `crime`" in readme and "not fitted on, of this suite:" in readme
    (tmp_path / "none").mkdir()
    paths = export_mitigation(made, facts(encoder, suite="own", candidates=texts, averaged=True), tmp_path / "none")
    assert [path.name for path in paths] == ["mitigation.safetensors", "README.md"]
    with pytest.raises(MetricError, match="other probes and candidates"):
        export_mitigation(made, facts(encoder, suite="crime", candidates=texts[:2]), tmp_path)


@pytest.mark.parametrize("probes", [1, 2])
def test_an_adjustment_of_other_candidates_is_refused(encoders, tmp_path, probes):
    made = adjustment("multiplicative", encoders["clip"], probes)
    about = {"classes": CLASSES, "probes": PROBES[:probes]}
    assert export_mitigation(made, facts(encoders["clip"], **about), tmp_path)
    for wrong in ({"classes": CLASSES[:1]}, {"probes": ()}):
        with pytest.raises(MetricError, match="other probes and candidates"):
            export_mitigation(made, facts(encoders["clip"], **about | wrong), tmp_path)
