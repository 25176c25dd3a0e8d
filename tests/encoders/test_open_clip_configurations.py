"""open_clip's configurations, shrunk, through its factory and `local-dir:`: the library's own numbers."""

import logging
import shutil

import numpy as np
import pytest
import torch
from tiny_architectures import TEXTS
from tiny_open_clip import configuration, write_configuration

from plumbline.checkpoints.device import Placement
from plumbline.checkpoints.loading import ready_libraries
from plumbline.encoders.folders import checkpoint_files, load_encoder

# One of each kind: of image tower, text tower, pooling, tokenizer and loss.
DOZEN = (
    "RN50", "ViT-B-32-quickgelu", "ViT-L-14-CLIPA", "ViT-H-14-worldwide", "coca_ViT-B-32", "convnext_base",
    "MobileCLIP2-B", "ViT-B-16-SigLIP", "ViT-B-16-SigLIP2-256", "mt5-base-ViT-B-32", "nllb-clip-base",
    "nllb-clip-large-siglip", "roberta-ViT-B-32", "xlm-roberta-base-ViT-B-32",
)  # fmt: skip


def names():
    ready_libraries()
    import open_clip

    return open_clip.list_models()


def difference(name, folder, pictures):
    """Return how far the adapter's vectors are from open_clip's own, of the largest of them; the adapter too."""
    ready_libraries()
    import open_clip

    logging.disable(logging.WARNING)  # weights that are still to come
    try:
        write_configuration(name, folder)
    finally:
        logging.disable(logging.NOTSET)
    files = checkpoint_files("tiny", f"local-dir:{folder}", project=folder, fetched=folder)
    encoder = load_encoder(files, Placement())
    ours = [encoder.embed_images(torch.stack([encoder.prepare(p) for p in pictures])), encoder.embed_texts(TEXTS)]
    model, _, transform = open_clip.create_model_and_transforms(f"local-dir:{folder}", require_pretrained=True)
    tokens = open_clip.get_tokenizer(f"local-dir:{folder}")(TEXTS)
    with torch.inference_mode():
        theirs = [
            model.eval().encode_image(torch.stack([transform(p) for p in pictures]), normalize=False).numpy(),
            model.encode_text(tokens, normalize=False).numpy(),
        ]
    apart = [np.abs(a - b).max() / np.abs(b).max() for a, b in zip(ours, theirs, strict=True)]
    # The texts and images must be told apart, or the comparison would show nothing.
    assert min(rows.std(axis=0).max() / np.abs(rows).max() for rows in theirs) > 1e-4
    assert encoder.width == theirs[0].shape[1] and encoder.logit_scale == pytest.approx(model.logit_scale.exp().item())
    assert encoder.logit_bias == (0 if model.logit_bias is None else pytest.approx(model.logit_bias.item()))
    return max(apart), encoder


@pytest.mark.parametrize("name", DOZEN)
def test_a_dozen_configurations_give_the_librarys_own_numbers(name, tmp_path, pictures):
    apart, encoder = difference(name, tmp_path / "shrunk", pictures[:2])
    assert apart < 1e-5
    assert (encoder.logit_bias != 0) is ("init_logit_bias" in configuration(name))


@pytest.mark.slow
def test_all_configurations_give_the_librarys_own_numbers(tmp_path, pictures):
    apart = {}
    for name in names():
        apart[name] = difference(name, tmp_path / "shrunk", pictures[:2])[0]
        shutil.rmtree(tmp_path / "shrunk")
    assert len(apart) == 144
    assert {name: value for name, value in apart.items() if value >= 1e-5} == {}
