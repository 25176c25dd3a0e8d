"""The open_clip adapter on small checkpoints saved to disk and loaded through `local-dir:`."""

import json
import os
import shutil

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from plumbline.checkpoints.device import Placement
from plumbline.checkpoints.operators import declare_missing_operators
from plumbline.encoders.encoder import Crop
from plumbline.encoders.folders import checkpoint_files, load_encoder
from plumbline.errors import CheckpointError

CONFIG = {
    "model_cfg": {
        "embed_dim": 16,
        "vision_cfg": {"image_size": 32, "layers": 1, "width": 32, "head_width": 16, "patch_size": 16},
        "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 16, "heads": 1, "layers": 1},
    },
    "preprocess_cfg": {"mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]},
}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A random checkpoint with the tokenizer of CLIP, written the way open_clip ships them."""
    declare_missing_operators()
    import open_clip
    from safetensors.torch import save_file

    folder = tmp_path_factory.mktemp("tiny-clip")
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = open_clip.CLIP(**CONFIG["model_cfg"])
    (folder / "open_clip_config.json").write_text(json.dumps(CONFIG))
    save_file({k: v.contiguous() for k, v in model.state_dict().items()}, folder / "open_clip_model.safetensors")
    return folder


def files_of(folder, tmp_path):
    return checkpoint_files("tiny", f"local-dir:{folder}", project=tmp_path, fetched=tmp_path / "fetched")


@pytest.fixture(scope="module")
def encoder(checkpoint, tmp_path_factory):
    return load_encoder(files_of(checkpoint, tmp_path_factory.mktemp("p")), Placement())


def picture(seed):
    return Image.fromarray(np.random.default_rng(seed).integers(0, 255, (40, 48, 3), dtype=np.uint8))


def own_transform(folder):
    import open_clip

    return open_clip.create_model_and_transforms(f"local-dir:{folder}", require_pretrained=True)[2]


def test_embeddings_equal_the_models_own_forward_pass(encoder, checkpoint):
    pictures = [picture(i) for i in range(5)]
    images = encoder.embed_images(torch.stack([encoder.prepare(p) for p in pictures]))
    texts = encoder.embed_texts(["a thief", "a hero"])
    batch = torch.stack([own_transform(checkpoint)(p) for p in pictures])
    with torch.inference_mode():
        own_images, own_texts, scale = encoder._model(batch, encoder._tokenizer(["a thief", "a hero"]))
    normalised = images / np.linalg.norm(images, axis=1, keepdims=True)
    np.testing.assert_allclose(normalised, own_images.numpy(), atol=1e-5)
    np.testing.assert_allclose(texts / np.linalg.norm(texts, axis=1, keepdims=True), own_texts.numpy(), atol=1e-5)
    assert encoder.logit_scale == pytest.approx(scale.item())


@pytest.mark.parametrize(
    ("preprocessing", "crop"),
    [
        ({}, Crop(32, "bicubic")),
        ({"interpolation": "bilinear"}, Crop(32, "bilinear")),
        ({"resize_mode": "squash"}, None),
        ({"resize_mode": "longest", "fill_color": 3}, None),
    ],
)
def test_grey_levels_normalised_on_the_device_are_the_checkpoints_own_transform(
    checkpoint, tmp_path, preprocessing, crop
):
    copy = shutil.copytree(checkpoint, tmp_path / "c")
    normalise = {"mean": [0.48, 0.46, 0.41], "std": [0.27, 0.26, 0.28]}
    (copy / "open_clip_config.json").write_text(
        json.dumps({**CONFIG, "preprocess_cfg": {**normalise, **preprocessing}})
    )
    encoder, transform = load_encoder(files_of(copy, tmp_path), Placement()), own_transform(copy)
    assert encoder.crop == crop
    for size in [(40, 48), (70, 31), (32, 32), (9, 40)]:
        image = picture(1).resize(size)
        pixels = encoder.prepare(image)
        assert pixels.dtype == torch.uint8
        normalised = encoder._normalisation(pixels[None], device="cpu")[0]
        torch.testing.assert_close(normalised, transform(image), atol=1e-6, rtol=1e-5)


def test_embeddings_do_not_depend_on_the_batch(encoder):
    batch = torch.stack([encoder.prepare(picture(i)) for i in range(6)])
    together = encoder.embed_images(batch)
    alone = np.concatenate([encoder.embed_images(row[None]) for row in batch])
    np.testing.assert_allclose(together, alone, rtol=1e-4, atol=1e-5)
    assert together.dtype == np.float32 and together.shape == (6, encoder.width)


def test_the_identity_follows_the_content(checkpoint, tmp_path):
    first = load_encoder(files_of(checkpoint, tmp_path), Placement())
    copy = shutil.copytree(checkpoint, tmp_path / "another-name")
    assert load_encoder(files_of(copy, tmp_path), Placement()).identity == first.identity
    (copy / "open_clip_config.json").write_text(json.dumps({**CONFIG, "preprocess_cfg": {"mean": [0.4, 0.5, 0.5]}}))
    changed = load_encoder(files_of(copy, tmp_path), Placement()).identity
    assert changed.weights != first.identity.weights and changed.processor != first.identity.processor


def test_without_weights_nothing_random_is_loaded(checkpoint, tmp_path):
    copy = shutil.copytree(checkpoint, tmp_path / "c")
    (copy / "open_clip_model.safetensors").rename(copy / "open_clip_model.h5")
    with pytest.raises(CheckpointError, match=r"no safetensors weights[\s\S]*open_clip_model\.h5"):
        files_of(copy, tmp_path)


def test_a_bias_of_logits_that_the_weights_lack_is_refused(checkpoint, tmp_path):
    copy = shutil.copytree(checkpoint, tmp_path / "c")
    biased = {**CONFIG["model_cfg"], "init_logit_bias": -10}
    (copy / "open_clip_config.json").write_text(json.dumps({**CONFIG, "model_cfg": biased}))
    with pytest.raises(CheckpointError, match="lack `logit_bias`"):
        load_encoder(files_of(copy, tmp_path), Placement())


def test_truncated_weights_are_a_clear_error(checkpoint, tmp_path):
    copy = shutil.copytree(checkpoint, tmp_path / "c")
    weights = copy / "open_clip_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(CheckpointError, match=r"the weights are not complete[\s\S]*open_clip_model"):
        load_encoder(files_of(copy, tmp_path), Placement())


def test_a_configuration_that_open_clip_does_not_know_is_a_clear_error(checkpoint, tmp_path):
    copy = shutil.copytree(checkpoint, tmp_path / "c")
    odd = {**CONFIG["model_cfg"], "text_cfg": {**CONFIG["model_cfg"]["text_cfg"], "unheard_of": 1}}
    (copy / "open_clip_config.json").write_text(json.dumps({**CONFIG, "model_cfg": odd}))
    with pytest.raises(CheckpointError, match="could not load"):
        load_encoder(files_of(copy, tmp_path), Placement())


def test_an_absent_checkpoint_says_how_to_fetch_it(tmp_path):
    with pytest.raises(CheckpointError, match="plumbline fetch clip-b32"):
        checkpoint_files("clip-b32", "ViT-B-32-quickgelu/openai", project=tmp_path, fetched=tmp_path)


@pytest.mark.parametrize("variable", ["0", None])
def test_loading_keeps_the_process_offline_whatever_its_environment(checkpoint, tmp_path, monkeypatch, variable):
    from huggingface_hub import constants, get_session, is_offline_mode
    from huggingface_hub.errors import OfflineModeIsEnabled

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    if variable is None:
        monkeypatch.delenv("HF_HUB_OFFLINE")
    load_encoder(files_of(checkpoint, tmp_path), Placement())
    assert is_offline_mode() and os.environ["HF_HUB_OFFLINE"] == "1"
    with pytest.raises(OfflineModeIsEnabled):
        get_session().get("http://127.0.0.1:9")


def test_the_weights_that_were_digested_are_loaded_whatever_stands_beside_them(checkpoint, tmp_path):
    copy = shutil.copytree(checkpoint, tmp_path / "c")
    (copy / "open_clip_model.safetensors").rename(copy / "model.safetensors")
    files = files_of(copy, tmp_path)
    (copy / "open_clip_pytorch_model.bin").write_bytes(b"a pickle")
    texts = ["a photo", "a face"]
    found, expected = (load_encoder(each, Placement()) for each in (files, files_of(checkpoint, tmp_path)))
    assert found.embed_texts(texts).tobytes() == expected.embed_texts(texts).tobytes()


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("vision_cfg.patch_size", 0, "ZeroDivisionError"),
        ("std", [0, 0, 0], "for an image"),
        ("mean", "x", "could not convert string to float"),
    ],
)
def test_a_checkpoint_that_gives_no_numbers_is_refused_before_anything_is_embedded(
    checkpoint, tmp_path, key, value, told
):
    copy = shutil.copytree(checkpoint, tmp_path / "c")
    content = json.loads((copy / "open_clip_config.json").read_text())
    if key.startswith("vision_cfg."):
        content["model_cfg"]["vision_cfg"][key.removeprefix("vision_cfg.")] = value
    else:
        content.setdefault("preprocess_cfg", {})[key] = value
    (copy / "open_clip_config.json").write_text(json.dumps(content))
    with pytest.raises(CheckpointError) as refused:
        load_encoder(files_of(copy, tmp_path), Placement())
    assert told in str(refused.value) and str(copy) in str(refused.value)


def test_a_context_whose_square_fills_memory_is_refused_before_it_is_built(checkpoint, tmp_path):
    copy = shutil.copytree(checkpoint, tmp_path / "copy")
    long = {**CONFIG["model_cfg"], "text_cfg": {**CONFIG["model_cfg"]["text_cfg"], "context_length": 60_000}}
    (copy / "open_clip_config.json").write_text(json.dumps({**CONFIG, "model_cfg": long}))
    with pytest.raises(CheckpointError, match=r"more than any model needs[\s\S]*context_length: 60000"):
        files_of(copy, tmp_path)


def test_weights_that_are_no_number_are_refused(checkpoint, tmp_path):
    copy = shutil.copytree(checkpoint, tmp_path / "c")
    weights = load_file(copy / "open_clip_model.safetensors")
    weights["visual.conv1.weight"][0] = float("nan")
    save_file(weights, copy / "open_clip_model.safetensors")
    with pytest.raises(CheckpointError, match="gives NaN or infinity"):
        load_encoder(files_of(copy, tmp_path), Placement())
