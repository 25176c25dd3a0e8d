"""While a family is trained, its captions are ranked as transformers' own forward pass ranks them."""

from functools import cache

import pytest

from plumbline.world.captions import caption_texts
from plumbline.world.training import CHECKPOINTS, FAMILIES, training_set

TRANSFORMERS = ("align", "bridgetower", "owlv2")


@cache
def started(name: str):
    """Return (trainee, folder, texts) of a family, on a dozen captions of unequal length."""
    folder = CHECKPOINTS / f"{'small' if name == 'open_clip' else name}-bazaar-3k"
    texts = caption_texts(FAMILIES[name].wordings)[:90:9]
    return FAMILIES[name](folder, texts, seed=3), folder, texts


def pixels(n: int):
    import torch

    images = torch.from_numpy(training_set("control", n).images[:n]).permute(0, 3, 1, 2)
    return images.float() / 127.5 - 1


def plain_logits(name, model, encoded, images):
    """Ask transformers for one pair, or one image, at a time."""
    import torch

    rows = []
    for image in images:
        if name == "bridgetower":
            of_texts = [
                model(input_ids=ids[None], attention_mask=mask[None], pixel_values=image[None]).logits[0, 1]
                for ids, mask in zip(encoded["input_ids"], encoded["attention_mask"])
            ]
            rows.append(torch.stack(of_texts))
        else:
            out = model(**encoded, pixel_values=image[None])
            rows.append(out.logits_per_image[0] if name == "align" else out.logits[0].mean(0))
    return torch.stack(rows)


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_a_trainees_logits_are_those_of_the_models_own_forward_pass(name):
    import torch
    from transformers import AutoTokenizer

    trainee, folder, texts = started(name)
    images = pixels(3)
    # Untrained batch norms leave next to nothing of an image.
    trainee.settle(iter([images]))
    trainee.model.eval()
    encoded = AutoTokenizer.from_pretrained(folder)(list(texts), padding=True, return_tensors="pt")
    with torch.inference_mode():
        ours, plain = trainee.logits(images), plain_logits(name, trainee.model, encoded, images)
    assert ours.shape == (3, len(texts))
    assert float(plain.std()) > 1e-4
    assert torch.allclose(ours, plain, atol=1e-5)


@pytest.mark.parametrize("name", [*TRANSFORMERS, "open_clip"])
def test_the_loss_moves_every_weight_that_ranks(name):
    import torch

    trainee, _, texts = started(name)
    trainee.model.train()
    trainee.model.zero_grad()
    targets = torch.rand(8, len(texts), generator=torch.Generator().manual_seed(0)).softmax(1)
    trainee.loss(pixels(8), targets).backward()
    still = {n.split(".")[0] if "head" in n else n for n, p in trainee.model.named_parameters() if p.grad is None}
    # Pooler, projection and scale of the whole image, and the heads for boxes, have no part in the ranking.
    unused = {
        "align": {"text_model.pooler.dense.weight", "text_model.pooler.dense.bias"},
        "bridgetower": {"bridgetower.text_model.pooler.dense.weight", "bridgetower.text_model.pooler.dense.bias"},
        "owlv2": {"box_head", "objectness_head", "owlv2.visual_projection.weight", "owlv2.logit_scale"},
        "open_clip": set(),
    }
    assert still == unused[name]


def test_align_is_left_with_the_batch_statistics_of_all_its_images():
    import torch

    trainee, _, _ = started("align")
    first = next(m for m in trainee.model.modules() if isinstance(m, torch.nn.BatchNorm2d))
    images = pixels(12)
    trainee.model.train()
    trainee.settle(iter(images.split(4)))
    with torch.no_grad():
        stem = trainee.model.vision_model.embeddings
        features = stem.convolution(stem.padding(images))
    assert torch.allclose(first.running_mean, features.mean((0, 2, 3)), atol=1e-5)
    assert first.momentum == 0.1
