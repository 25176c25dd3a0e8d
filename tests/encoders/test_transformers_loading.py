"""Loading through transformers: the whole model from the digested file, its own pixels, and nothing random."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from tiny_architectures import BUILDERS

from plumbline.checkpoints import loading
from plumbline.checkpoints.device import Placement
from plumbline.encoders.encoder import Crop
from plumbline.encoders.folders import checkpoint_files, load_encoder
from plumbline.encoders.torch_encoder import Normalisation
from plumbline.encoders.transformers_encoder import ImageProcessor
from plumbline.errors import CheckpointError, EncodingError


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    root = tmp_path_factory.mktemp("tiny")
    for name in ("clip", "align", "bridgetower", "owlv2"):
        BUILDERS[name](root / name)
    return root


@pytest.fixture
def copy_of(originals, tmp_path):
    return lambda name: shutil.copytree(originals / name, tmp_path / name)


def load(folder, *, family=None):
    files = checkpoint_files("tiny", f"local-dir:{folder}", project=folder, fetched=folder / "fetched", family=family)
    return load_encoder(files, Placement())


def rewrite_weights(folder, change):
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.parametrize(
    ("name", "weight"),
    [
        ("clip", "visual_projection.weight"),
        ("align", "temperature"),
        ("bridgetower", "itm_score.fc.weight"),
        ("owlv2", "class_head.logit_shift.bias"),
    ],
)
def test_a_weight_that_is_not_in_the_file_is_refused(copy_of, name, weight):
    folder = copy_of(name)
    rewrite_weights(folder, lambda weights: weights.pop(weight))
    with pytest.raises(CheckpointError, match=rf"1 weight\(s\) are absent from the file[\s\S]*{weight}"):
        load(folder)


def test_a_weight_that_the_model_has_no_place_for_is_refused(copy_of):
    folder = copy_of("clip")
    rewrite_weights(folder, lambda weights: weights.update({"stranger.weight": torch.zeros(2)}))
    with pytest.raises(CheckpointError, match=r"not in the model[\s\S]*stranger\.weight"):
        load(folder)


def test_a_weight_of_another_shape_is_refused(copy_of):
    folder = copy_of("clip")
    rewrite_weights(folder, lambda weights: weights.update({"visual_projection.weight": torch.zeros(3, 3)}))
    with pytest.raises(CheckpointError, match=r"visual_projection|could not load"):
        load(folder)


def test_heads_for_other_tasks_are_left_aside(copy_of, originals):
    folder = copy_of("bridgetower")
    heads = {"mlm_score.bias": torch.zeros(5), "itc_text_head.fc.bias": torch.zeros(5)}
    rewrite_weights(folder, lambda weights: weights.update(heads))
    batch = torch.full((1, 3, 32, 32), 90, dtype=torch.uint8)
    scores = [load(f).score_pairs(batch, ["a man"]) for f in (folder, originals / "bridgetower")]
    assert scores[0] == scores[1]


def test_a_model_type_that_is_not_the_weights_own_is_refused(copy_of):
    folder = copy_of("owlv2")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "clip"}))
    with pytest.raises(CheckpointError, match=r"could not load|absent from the file"):
        load(folder)


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "processor_config.json"])
def test_a_torn_file_is_a_clear_error(copy_of, name):
    folder = copy_of("clip")
    data = (folder / name).read_bytes()
    (folder / name).write_bytes(data[: len(data) // 2])
    with pytest.raises(CheckpointError, match=r"not complete|could not load|not JSON"):
        load(folder)


@pytest.mark.parametrize("error", [ImportError("needs timm"), AssertionError("no")])
def test_a_part_that_is_not_installed_is_a_clear_error(originals, monkeypatch, error):
    import transformers

    def fail(*_args, **_options):
        raise error

    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", fail)
    with pytest.raises(CheckpointError, match=rf"could not load[\s\S]*{error}"):
        load(originals / "clip")


@pytest.mark.parametrize(
    ("name", "attention"), [("clip", "sdpa"), ("align", "eager"), ("bridgetower", "eager"), ("owlv2", "sdpa")]
)
@pytest.mark.parametrize("other", ["eager", "flash_attention_2", "flash_attention_3", "flex_attention", False])
def test_attention_is_chosen_here_and_part_of_the_identity(copy_of, name, attention, other):
    folder = copy_of(name)
    config = json.loads((folder / "config.json").read_text())
    other = None if other == attention else other
    config["text_config"]["_attn_implementation"] = config["_attn_implementation"] = other
    (folder / "config.json").write_text(json.dumps(config))
    encoder = load(folder)
    assert encoder.identity.backend.endswith(f"/cpu/attention-{attention}")
    configs = [module.config for module in encoder._model.modules() if hasattr(module, "config")]
    assert len(configs) > 2 and {c._attn_implementation for c in configs} == {attention}


def test_the_layout_of_older_checkpoints_loads_to_the_same_pixels(copy_of, originals):
    folder = copy_of("clip")
    content = json.loads((folder / "processor_config.json").read_text())["image_processor"]
    (folder / "processor_config.json").unlink()
    # As the first CLIP checkpoints on the hub have it.
    old = {"feature_extractor_type": "CLIPFeatureExtractor", "size": 32, "crop_size": 32, "resample": 3}
    kept = {k: content[k] for k in ("image_mean", "image_std", "do_resize", "do_center_crop", "do_normalize")}
    (folder / "preprocessor_config.json").write_text(json.dumps(old | kept))
    image = Image.fromarray(np.random.default_rng(1).integers(0, 256, (50, 41, 3), dtype=np.uint8))
    older, newer = load(folder), load(originals / "clip")
    assert torch.equal(older.prepare(image), newer.prepare(image)) and older.crop == newer.crop


@pytest.mark.parametrize(
    ("changes", "crop"),
    [
        ({}, Crop(32, "bicubic")),
        ({"resample": 2}, Crop(32, "bilinear")),
        ({"resample": 1}, None),
        ({"do_center_crop": False, "size": {"height": 32, "width": 32}}, None),
        ({"size": {"shortest_edge": 40}}, None),
    ],
)
def test_a_crop_is_offered_only_where_it_is_the_whole_preprocessing(copy_of, changes, crop):
    folder = copy_of("clip")
    content = json.loads((folder / "processor_config.json").read_text())
    content["image_processor"] |= changes
    (folder / "processor_config.json").write_text(json.dumps(content))
    assert load(folder).crop == crop


def test_aligns_offset_and_second_deviation_are_honoured(originals):
    normalisation = load(originals / "align")._normalisation
    assert normalisation == Normalisation(
        mean=[0.5] * 3, std=pytest.approx([0.25, 0.16, 0.36]), scale=1 / 127.5, offset=-1.0
    )


def test_preprocessing_with_an_unknown_step_is_refused(originals, tmp_path):
    from transformers import AutoTokenizer, CLIPImageProcessorPil, CLIPProcessor

    class Brighter(CLIPImageProcessorPil):
        def normalize(self, image, mean, std, **kwargs):
            return super().normalize(image, mean, std, **kwargs) + 0.01

    tokenizer = AutoTokenizer.from_pretrained(originals / "clip")
    with pytest.raises(CheckpointError, match=r"a step that is not known here[\s\S]*Brighter[\s\S]*0\.01 apart"):
        ImageProcessor(CLIPProcessor(Brighter(), tokenizer), folder=tmp_path)


def test_an_image_processor_that_runs_on_torchvision_is_refused(originals, tmp_path):
    from transformers import AutoTokenizer, CLIPImageProcessor, CLIPProcessor

    tokenizer = AutoTokenizer.from_pretrained(originals / "clip")
    with pytest.raises(CheckpointError, match=r"does not run on pil[\s\S]*backend torchvision"):
        ImageProcessor(CLIPProcessor(CLIPImageProcessor(), tokenizer), folder=tmp_path)


def test_edges_are_sides_to_a_class_of_the_family_whatever_the_files_name(tmp_path):
    BUILDERS["owlvit"](tmp_path / "owl")
    for path in (tmp_path / "owl").glob("*processor_config.json"):
        content = json.loads(path.read_text())
        settings = content.get("image_processor", content)
        settings |= {"size": {"shortest_edge": 20_000, "longest_edge": 20_000}}
        settings["image_processor_type"] = "Qwen2VLImageProcessor"
        path.write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match=r"more than any model needs[\s\S]*20,000 for OwlViT"):
        load(tmp_path / "owl")


def test_a_strip_that_bridgetower_cannot_resize_is_a_clear_error(originals):
    with pytest.raises(EncodingError, match=r"cannot take this image[\s\S]*400 x 10"):
        load(originals / "bridgetower").prepare(Image.new("RGB", (400, 10)))


@pytest.mark.parametrize(("model_type", "reason"), [("clipseg", "it segments"), ("videoprism", "it reads videos")])
@pytest.mark.parametrize("family", [None, "dual_encoder", "clip"])
def test_a_type_that_no_audit_reads_is_refused_with_the_reason(copy_of, model_type, reason, family):
    folder = copy_of("clip")
    retype(folder, model_type)
    with pytest.raises(CheckpointError, match=rf"cannot be audited: {reason}[\s\S]*model_type: {model_type}"):
        load(folder, family=family)


def retype(folder, model_type):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_type": model_type}))


def test_an_unknown_type_is_offered_as_an_untested_dual_encoder(tmp_path):
    BUILDERS["dual_encoder"](tmp_path)
    with pytest.raises(CheckpointError, match=r"model_type: groupvit[\s\S]*`family: dual_encoder` reads it"):
        load(tmp_path)
    encoder = load(tmp_path, family="dual_encoder")
    assert encoder.family == "dual_encoder" and encoder.embed_texts(["a man"]).shape == (1, 24)


def test_a_type_with_a_family_is_not_read_as_an_unknown_one(originals):
    with pytest.raises(CheckpointError, match=r"model_type: clip[\s\S]*of no family of its own"):
        load(originals / "clip", family="dual_encoder")


def test_an_unknown_type_without_both_methods_is_refused(copy_of):
    folder = copy_of("clip")
    retype(folder, "bert")
    with pytest.raises(CheckpointError, match=r"no dual encoder[\s\S]*BertModel[\s\S]*get_image_features"):
        load(folder, family="dual_encoder")


def test_flava_is_read_from_a_checkpoint_of_its_whole_pre_training(tmp_path):
    import transformers

    BUILDERS["flava"](tmp_path / "plain")
    shutil.copytree(tmp_path / "plain", tmp_path / "whole")
    model = transformers.FlavaModel.from_pretrained(tmp_path / "plain")
    whole = transformers.FlavaForPreTraining(
        model.config, transformers.FlavaImageCodebook(model.config.image_codebook_config)
    )
    whole.flava.load_state_dict(model.state_dict())
    whole.save_pretrained(tmp_path / "whole")
    plain, whole = load(tmp_path / "plain"), load(tmp_path / "whole")
    assert plain.weights_sha256 != whole.weights_sha256
    np.testing.assert_array_equal(whole.embed_texts(["a man"]), plain.embed_texts(["a man"]))


def test_scale_and_bias_are_the_checkpoints_own(tmp_path):
    BUILDERS["siglip"](tmp_path)
    scale, bias = torch.tensor([2.5]), torch.tensor([-9.75])
    rewrite_weights(tmp_path, lambda weights: weights.update({"logit_scale": scale, "logit_bias": bias}))
    encoder = load(tmp_path)
    assert encoder.logit_scale == pytest.approx(np.exp(2.5)) and encoder.logit_bias == -9.75


def test_naflex_patches_are_as_many_as_the_checkpoint_says(tmp_path):
    BUILDERS["siglip2"](tmp_path, patches=30)
    encoder = load(tmp_path)
    wide, high = (encoder.prepare(Image.new("RGB", size, (9, 90, 200))) for size in ((96, 16), (16, 96)))
    assert wide.shape == high.shape == (3, 31, 64) and wide.dtype == torch.uint8
    inputs = encoder._image_inputs(torch.stack([wide, high]))
    assert inputs["spatial_shapes"].tolist() == [[2, 12], [12, 2]]
    assert inputs["pixel_attention_mask"].sum(dim=1).tolist() == [24, 24]
    assert inputs["pixel_values"][:, 24:].abs().max() == 0


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is limited where the system tells it")
def test_a_model_that_fills_the_memory_with_one_small_image_is_refused(copy_of, monkeypatch):
    folder = copy_of("clip")
    fills = lambda *_: torch.ones(loading.ROOM // 4 + 1)  # noqa: E731 - float32
    monkeypatch.setattr("plumbline.encoders.dual_encoder.PromptedTowers.embed_images", fills)
    with pytest.raises(CheckpointError, match=r"takes more memory for a small image[\s\S]*at most 4 GiB of memory"):
        load(folder)
