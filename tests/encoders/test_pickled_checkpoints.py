"""Checkpoints as people have them: what open_clip's trainer writes, .bin weights, weights in parts."""

import json
import os
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tiny_architectures import BUILDERS

from plumbline.checkpoints.device import Placement
from plumbline.checkpoints.loading import ready_libraries
from plumbline.checkpoints.pickled import readable_folder
from plumbline.digests import digest_file
from plumbline.encoders.folders import checkpoint_files, load_encoder
from plumbline.errors import CheckpointError

pytestmark = pytest.mark.usefixtures("converted_here")

TINY = {
    "embed_dim": 16,
    "vision_cfg": {"image_size": 32, "layers": 1, "width": 32, "head_width": 16, "patch_size": 16},
    "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 16, "heads": 1, "layers": 1},
}


@pytest.fixture(scope="module")
def architecture(tmp_path_factory):
    """A tiny architecture among those that open_clip's factory knows by name."""
    ready_libraries()
    import open_clip

    path = tmp_path_factory.mktemp("configs") / "ViT-Tiny-Test.json"
    path.write_text(json.dumps(TINY))
    open_clip.add_model_config(path)
    return "ViT-Tiny-Test"


@pytest.fixture
def run(architecture, tmp_path):
    """What a training leaves: logs/NAME/params.txt and logs/NAME/checkpoints/epoch_1.pt."""
    import open_clip

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        model = open_clip.create_model(architecture, force_quick_gelu=True, output_dict=True)
    optimizer = torch.optim.AdamW(model.parameters())
    model.encode_text(torch.ones(1, 77, dtype=torch.long)).sum().backward()
    optimizer.step()
    folder = tmp_path / "logs" / "mine" / "checkpoints"
    folder.mkdir(parents=True)
    state = {f"module.{name}": tensor for name, tensor in model.state_dict().items()}
    made = {"epoch": 1, "name": "mine", "state_dict": state, "optimizer": optimizer.state_dict()}
    torch.save(made, folder / "epoch_1.pt")
    says = ["batch_size: 4", "force_image_size: None", "force_quick_gelu: True", "image_mean: [0.5, 0.4, 0.3]"]
    (folder.parent / "params.txt").write_text("\n".join([*says, f"model: {architecture}", "siglip: False"]) + "\n")
    return folder, model.eval()


def files_of(place, fetched, **options):
    return checkpoint_files("mine", f"local-dir:{place}", project=fetched, fetched=fetched, **options)


def test_what_the_trainer_wrote_is_converted_once_and_gives_the_models_own_numbers(run, tmp_path):
    folder, model = run
    place = folder / "epoch_1.pt"
    files = files_of(place, tmp_path / "fetched")
    note = json.loads((files.folder / "converted.json").read_text())["converted"][0]
    assert note["from"] == {"name": "epoch_1.pt", "sha256": digest_file(folder / "epoch_1.pt")}
    assert note["to"] == {"name": "open_clip_model.safetensors", "sha256": files.weights_sha256}
    assert "converted.json" not in dict(files.deciding)
    assert set(load_file(files.weights[0])) == set(model.state_dict())
    written = files.weights[0].stat().st_mtime_ns
    again = files_of(folder, tmp_path / "fetched")
    assert again == files, "the folder holds one checkpoint"
    assert files.weights[0].stat().st_mtime_ns == written

    encoder = load_encoder(files, Placement())
    import open_clip

    tokens = open_clip.get_tokenizer("ViT-B-32")(["a man", "a thief"])
    with torch.inference_mode():
        expected = model.encode_text(tokens).numpy()
    np.testing.assert_allclose(encoder.embed_texts(["a man", "a thief"]), expected, atol=1e-5)
    assert list(encoder._normalisation.mean) == [0.5, 0.4, 0.3], "as params.txt says"


def test_without_its_settings_a_trainers_checkpoint_is_refused_with_both_remedies(run, architecture, tmp_path):
    folder, _ = run
    (folder.parent / "params.txt").rename(tmp_path / "elsewhere.txt")
    with pytest.raises(CheckpointError, match=r"no params\.txt[\s\S]*put the trainer's params\.txt[\s\S]*`model: ARCH"):
        files_of(folder / "epoch_1.pt", tmp_path / "fetched")
    files = files_of(folder / "epoch_1.pt", tmp_path / "fetched", model=architecture)
    assert json.loads((files.folder / "open_clip_config.json").read_text())["model_cfg"] == TINY
    with pytest.raises(CheckpointError, match=r"no configuration[\s\S]*model: ViT-Nowhere"):
        files_of(folder / "epoch_1.pt", tmp_path / "fetched", model="ViT-Nowhere")


def test_an_architecture_of_ones_own_is_described_by_a_file(run, tmp_path):
    folder, model = run
    settings = folder.parent / "params.txt"
    settings.write_text(settings.read_text().replace("model: ViT-Tiny-Test", "model: Mine-Nobody-Else-Has"))
    with pytest.raises(CheckpointError, match=r"model: Mine-Nobody[\s\S]*`model: FILE\.json`"):
        files_of(folder / "epoch_1.pt", tmp_path / "fetched")
    (tmp_path / "fetched").mkdir(exist_ok=True)
    (tmp_path / "fetched" / "mine.json").write_text(json.dumps(TINY))
    files = files_of(folder / "epoch_1.pt", tmp_path / "fetched", model="mine.json")
    encoder = load_encoder(files, Placement())
    import open_clip

    tokens = open_clip.get_tokenizer("ViT-B-32")(["a man", "a thief"])
    with torch.inference_mode():
        expected = model.encode_text(tokens).numpy()
    np.testing.assert_allclose(encoder.embed_texts(["a man", "a thief"]), expected, atol=1e-5)
    (tmp_path / "fetched" / "mine.json").write_text(json.dumps({"vision_cfg": {}, "embed_dim": 16}))
    with pytest.raises(CheckpointError, match=r"no text_cfg"):
        files_of(folder / "epoch_1.pt", tmp_path / "fetched", model="mine.json")
    with pytest.raises(CheckpointError, match=r"absent\.json"):
        files_of(folder / "epoch_1.pt", tmp_path / "fetched", model="absent.json")


@pytest.mark.parametrize("name", ["{own}", "../private.json", "local-dir:{folder}", "hf-hub:org/name"])
def test_settings_that_came_with_a_checkpoint_name_no_file_elsewhere(run, tmp_path, name):
    folder, _ = run
    own = tmp_path / "private.json"
    own.write_text(json.dumps(TINY | {"secret": "of another file"}))
    settings = folder.parent / "params.txt"
    named = name.format(own=own, folder=tmp_path)
    settings.write_text(settings.read_text().replace("model: ViT-Tiny-Test", f"model: {named}"))
    with pytest.raises(CheckpointError, match=r"no configuration[\s\S]*`model: FILE\.json`"):
        files_of(folder / "epoch_1.pt", tmp_path / "fetched")
    assert not any("secret" in path.read_text() for path in (tmp_path / "fetched").rglob("*.json"))


@pytest.mark.parametrize("size", ["{[]: 1}", "[[1], [2]]", "[]"])
def test_settings_of_a_training_that_are_no_size_are_an_error_in_words(run, tmp_path, size):
    folder, _ = run
    settings = folder.parent / "params.txt"
    settings.write_text(settings.read_text().replace("force_image_size: None", f"force_image_size: {size}"))
    with pytest.raises(CheckpointError):
        load_encoder(files_of(folder / "epoch_1.pt", tmp_path / "fetched"), Placement())
    with settings.open("ab") as file:
        file.truncate(20 << 20)
    with pytest.raises(CheckpointError, match=r"cannot be read[\s\S]*larger than 16,777,216 bytes"):
        files_of(folder / "epoch_1.pt", tmp_path / "fetched")


def test_several_epochs_of_a_folder_are_told_apart_by_name(run, tmp_path):
    folder, _ = run
    shutil.copy(folder / "epoch_1.pt", folder / "epoch_2.pt")
    with pytest.raises(CheckpointError, match=r"several checkpoints[\s\S]*epoch_1\.pt, epoch_2\.pt"):
        files_of(folder, tmp_path / "fetched")


def test_an_architecture_for_another_kind_of_checkpoint_is_refused(tmp_path):
    BUILDERS["clip"](tmp_path / "clip")
    with pytest.raises(CheckpointError, match=r"of open_clip's trainer[\s\S]*leave `model`"):
        files_of(tmp_path / "clip", tmp_path, model="ViT-B-32")


@pytest.mark.parametrize("parts", [1, 2])
def test_bin_weights_and_weights_in_parts_give_the_same_numbers(tmp_path, parts):
    BUILDERS["clip"](tmp_path / "clip")
    weights = load_file(tmp_path / "clip" / "model.safetensors")
    shutil.copytree(tmp_path / "clip", tmp_path / "bin", ignore=shutil.ignore_patterns("*.safetensors"))
    if parts == 1:
        torch.save(weights, tmp_path / "bin" / "pytorch_model.bin")
    else:
        names, index = list(weights), {}
        for i in range(parts):
            file = f"pytorch_model-{i + 1:05}-of-{parts:05}.bin"
            torch.save({name: weights[name] for name in names[i::parts]}, tmp_path / "bin" / file)
            index |= dict.fromkeys(names[i::parts], file)
        (tmp_path / "bin" / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": index}))
    files = files_of(tmp_path / "bin", tmp_path / "fetched")
    assert len(files.weights) == parts
    expected = load_encoder(files_of(tmp_path / "clip", tmp_path / "fetched"), Placement())
    encoder = load_encoder(files, Placement())
    np.testing.assert_array_equal(encoder.embed_texts(["a man"]), expected.embed_texts(["a man"]))
    assert sorted(path.name for path in (tmp_path / "fetched" / "converted").iterdir()) == [files.folder.name]


@pytest.mark.parametrize("kind", ["pipe", "folder", "link to a device"])
def test_what_is_called_like_weights_and_is_no_file_is_never_read(tmp_path, kind):
    (tmp_path / "open_clip_config.json").write_text("{}")
    weights = tmp_path / "open_clip_pytorch_model.bin"
    {
        "pipe": lambda: os.mkfifo(weights), "folder": weights.mkdir,
        "link to a device": lambda: weights.symlink_to("/dev/zero"),
    }[kind]()  # fmt: skip
    assert readable_folder(tmp_path, "encoder `e`", kept=tmp_path / "kept", project=tmp_path) == tmp_path


def test_a_damaged_pickle_leaves_no_folder(run, tmp_path):
    folder, _ = run
    (folder / "epoch_1.pt").write_bytes(b"PK" + b"x" * 100)
    with pytest.raises(CheckpointError, match="not converted to safetensors"):
        files_of(folder / "epoch_1.pt", tmp_path / "fetched")
    assert not list((tmp_path / "fetched" / "converted").iterdir())
