"""Every family of encoders as a case of the contract, and how its logits are taken."""

import numpy as np
import pytest
import torch

from plumbline.encoders.families import DUAL_ENCODER, FAMILIES
from plumbline.encoders.folders import checkpoint_files

# The files of one family, read as another: the way of the released Trident code.
AS_OWLVIT = "owlv2 as owlvit"
CASES = [*(name for name, family in FAMILIES.items() if not family.stored), AS_OWLVIT]
DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")),
]


def files_of(folders, case, *, family=None):
    """Return the files of one case, which may be read as another family."""
    if case == AS_OWLVIT:
        case, family = "owlv2", "owlvit"
    if case == DUAL_ENCODER:
        family = DUAL_ENCODER
    return checkpoint_files(case, f"local-dir:{folders / case}", project=folders, fetched=folders, family=family)


def batch_of(encoder, pictures):
    """Return the pictures as the encoder takes them."""
    return torch.stack([encoder.prepare(picture) for picture in pictures])


def logits_of(encoder, batch, texts):
    """(b, m) logits as `Family.logit` says that the released code takes them."""
    logit = FAMILIES[encoder.family].logit
    if logit == "pair":
        return encoder.score_pairs(batch, texts)
    images, words = encoder.embed_images(batch), encoder.embed_texts(texts)
    if logit == "dot":
        return images @ words.T
    images, words = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (images, words))
    return (images @ words.T * encoder.logit_scale + getattr(encoder, "logit_bias", 0)).astype(np.float32)
