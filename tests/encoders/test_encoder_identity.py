"""The identity of an encoder: by content and code, and what is loaded stays what was read."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from every_encoder import AS_OWLVIT, CASES, batch_of, files_of, logits_of
from tiny_architectures import BUILDERS, TEXTS

from plumbline.checkpoints.device import Placement
from plumbline.encoders.families import FAMILIES
from plumbline.encoders.folders import load_encoder


@pytest.mark.parametrize("case", CASES)
def test_the_identity_follows_the_content_and_not_the_place(case, folders, encoders, tmp_path):
    original = encoders[case].identity
    name = "owlv2" if case == AS_OWLVIT else case
    shutil.copytree(folders / name, tmp_path / name)
    assert load_encoder(files_of(tmp_path, case), Placement()).identity == original
    config = tmp_path / name / ("open_clip_config.json" if case == "open_clip" else "processor_config.json")
    content = json.loads(config.read_text())
    part = content["preprocess_cfg"] if case == "open_clip" else content["image_processor"]
    part["mean" if case == "open_clip" else "image_mean"] = [0.1, 0.2, 0.3]
    config.write_text(json.dumps(content))
    changed = load_encoder(files_of(tmp_path, case), Placement()).identity
    assert changed.weights != original.weights and changed.processor != original.processor
    BUILDERS[name](tmp_path / "other" / name, seed=4)
    other = load_encoder(files_of(tmp_path / "other", case), Placement()).identity
    assert other.weights != original.weights and other.processor == original.processor


@pytest.mark.parametrize("case", CASES)
def test_a_change_of_plumblines_own_code_changes_the_identity(case, folders, encoders, monkeypatch):
    from plumbline.encoders import torch_encoder

    before = encoders[case].identity
    family = FAMILIES[encoders[case].family]
    monkeypatch.setitem(FAMILIES, family.name, replace(family, version=family.version + 1))
    after = load_encoder(files_of(folders, case), Placement()).identity
    assert after == replace(before, processor=after.processor) and after.processor != before.processor
    monkeypatch.undo()
    monkeypatch.setattr(torch_encoder, "DECODING_VERSION", 99)
    after = load_encoder(files_of(folders, case), Placement()).identity
    assert after == replace(before, decoder=after.decoder) and after.decoder.endswith("/plumbline-99")


@pytest.mark.parametrize("case", CASES)
def test_weights_that_are_overwritten_in_place_do_not_reach_a_loaded_model(case, folders, encoders, pictures, tmp_path):
    name = "owlv2" if case == AS_OWLVIT else case
    shutil.copytree(folders / name, tmp_path / name)
    files = files_of(tmp_path, case)
    encoder = load_encoder(files, Placement())
    with files.weights[0].open("r+b") as file:
        start = 8 + int.from_bytes(file.read(8), "little")
        # As a tool that writes into the file does: the same inode, with other numbers behind the same header.
        file.seek(start)
        file.write(np.full((files.weights[0].stat().st_size - start) // 4, 0.5, dtype=np.float32).tobytes())
    batch = batch_of(encoder, pictures)
    expected = logits_of(encoders[case], batch, TEXTS)
    np.testing.assert_array_equal(logits_of(encoder, batch, TEXTS), expected)


def test_tied_weights_stay_tied():
    from plumbline.checkpoints.loading import clone_weights

    first, second = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)
    second.weight = first.weight
    before, model = first.weight.data, torch.nn.Sequential(first, second)
    clone_weights(model)
    assert model[0].weight is model[1].weight and torch.equal(model[0].weight, before)
    assert model[0].weight.data_ptr() != before.data_ptr()


def test_one_folder_read_as_two_families_has_two_identities(encoders):
    first, second = encoders["owlv2"].identity, encoders[AS_OWLVIT].identity
    assert first.weights == second.weights and first.processor != second.processor
