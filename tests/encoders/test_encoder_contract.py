"""One contract for every family: the released way's numbers, whatever the batch, and what it refuses."""

import json
import shutil

import numpy as np
import pytest
import torch
from every_encoder import AS_OWLVIT, CASES, DEVICES, batch_of, files_of, logits_of
from released import released
from tiny_architectures import TEXTS

from plumbline.checkpoints.device import Placement
from plumbline.encoders.encoder import match_probabilities
from plumbline.encoders.families import FAMILIES, Capability, require
from plumbline.encoders.folders import load_encoder
from plumbline.encoders.transformers_encoder import MOST_PADDED
from plumbline.errors import CheckpointError, ConfigError, EncodingError

PUBLISHED = ("open_clip", "clip", "align", "bridgetower", "owlv2", "owlvit", AS_OWLVIT)


def released_way(case, folder, pictures, texts):
    """(n, m) logits of every picture."""
    score = released(case, folder)
    return torch.cat([score(picture, texts) for picture in pictures]).numpy()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", CASES)
def test_logits_are_those_of_the_released_way(case, device, folders, encoder_on, pictures):
    encoder = encoder_on(case, device)
    expected = released_way(case, files_of(folders, case).folder, pictures, TEXTS)
    logits = logits_of(encoder, batch_of(encoder, pictures), TEXTS)
    assert logits.dtype == np.float32 and logits.shape == (len(pictures), len(TEXTS))
    # The models must tell these images and these texts apart, or the comparison would show nothing.
    assert expected.std(axis=0).min() > 1e-3 and expected.std(axis=1).min() > 1e-3
    tolerance = 1e-4 if case in PUBLISHED or device != "cpu" else 1e-5
    np.testing.assert_allclose(logits, expected, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("case", ["siglip", "siglip2", "clip", "tipsv2"])
def test_a_threshold_has_the_sigmoid_of_encoders_that_were_trained_with_one(case, folders, encoders, pictures):
    encoder = encoders[case]
    vectors = encoder.embed_images(batch_of(encoder, pictures)), encoder.embed_texts(TEXTS)
    said = {"logit_scale": encoder.logit_scale, "logit_bias": encoder.logit_bias}
    if case in ("clip", "tipsv2"):
        with pytest.raises(EncodingError, match=r"no probability[\s\S]*trained with a softmax"):
            match_probabilities(*vectors, **said)
        return
    own = torch.from_numpy(released_way(case, folders / case, pictures, TEXTS)).sigmoid().numpy()
    np.testing.assert_allclose(match_probabilities(*vectors, **said), own, atol=1e-6)
    # Candidates compared with each other never meet the bias.
    chosen = match_probabilities(*vectors, **said | {"logit_bias": -1e-3}).argmax(axis=1)
    np.testing.assert_array_equal(chosen, own.argmax(axis=1))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", CASES)
def test_results_depend_on_neither_batch_nor_order_nor_repetition(case, device, encoder_on, pictures):
    encoder = encoder_on(case, device)
    batch = batch_of(encoder, pictures)
    together = logits_of(encoder, batch, TEXTS)
    assert logits_of(encoder, batch, TEXTS).tobytes() == together.tobytes()
    alone = np.concatenate([logits_of(encoder, row[None], TEXTS) for row in batch])
    np.testing.assert_allclose(alone, together, atol=2e-5, rtol=1e-5)
    single = np.concatenate([logits_of(encoder, batch, [text]) for text in TEXTS], axis=1)
    np.testing.assert_allclose(single, together, atol=2e-5, rtol=1e-5)
    reversed_ = logits_of(encoder, batch.flip(0), TEXTS[::-1])
    np.testing.assert_allclose(reversed_[::-1, ::-1], together, atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_an_encoder_has_what_its_family_offers(case, encoders, pictures):
    encoder = encoders[case]
    offers = FAMILIES[encoder.family].offers
    assert encoder.device == "cpu" and encoder.parameters > 10_000 and encoder.identity.dtype == "float32"
    kind = torch.float32 if case == "owlv2" else torch.uint8
    batch = batch_of(encoder, pictures)
    assert batch.dtype == kind and batch.float().max() > (1 if kind == torch.uint8 else 0.5)
    assert hasattr(encoder, "score_pairs") is (FAMILIES[encoder.family].logit == "pair")
    if FAMILIES[encoder.family].logit != "pair":
        rows = [encoder.embed_images(batch), encoder.embed_texts(TEXTS)]
        assert [r.shape for r in rows] == [(len(pictures), encoder.width), (len(TEXTS), encoder.width)]
        assert all(r.dtype == np.float32 for r in rows)
    for name in ("token_vectors", "differentiable_texts"):
        assert hasattr(encoder, name) is (Capability.TEXT_GRADIENTS in offers)


GRADIENTS = [name for name, family in FAMILIES.items() if Capability.TEXT_GRADIENTS in family.offers]


@pytest.mark.parametrize("case", GRADIENTS)
def test_learned_tokens_that_are_a_words_own_are_that_word(case, encoders):
    encoder = encoders[case]
    learned = encoder.token_vectors("a hero").requires_grad_()
    embedded = encoder.differentiable_texts(["thief", "a photo of a thief"], learned)
    expected = encoder.embed_texts(["a hero thief", "a hero a photo of a thief"])
    np.testing.assert_allclose(embedded.detach().numpy(), expected, atol=1e-4, rtol=1e-4)
    # Every vector moves the embeddings, as a small step along its gradient says.
    target = embedded.square().sum()
    target.backward()
    assert learned.grad.norm(dim=1).min() > 0
    step = 1e-3 * learned.grad / learned.grad.norm()
    moved = encoder.differentiable_texts(["thief", "a photo of a thief"], (learned + step).detach())
    rise = (moved.square().sum() - target).item()
    assert rise == pytest.approx(1e-3 * learned.grad.norm().item(), rel=0.1)
    with pytest.raises(EncodingError, match="no room for the learned tokens"):
        encoder.differentiable_texts(["thief"], torch.zeros(200, learned.shape[1]))


@pytest.mark.parametrize("case", [name for name in CASES if name != "open_clip"])
def test_a_tokenizer_that_pads_on_the_left_gives_right_results_or_none(case, folders, encoders, pictures, tmp_path):
    name = "owlv2" if case == AS_OWLVIT else case
    shutil.copytree(folders / name, tmp_path / name)
    config = tmp_path / name / "tokenizer_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"padding_side": "left"}))
    if case not in ("bridgetower", "siglip", "siglip2"):
        with pytest.raises(EncodingError, match=r"pads on the left[\s\S]*padding_side: left"):
            load_encoder(files_of(tmp_path, case), Placement())
        return
    encoder = load_encoder(files_of(tmp_path, case), Placement())
    batch = batch_of(encoder, pictures)
    if case in ("siglip", "siglip2"):
        # Read at the last position, on whichever side the padding is.
        expected = released_way(case, tmp_path / name, pictures, TEXTS)
        np.testing.assert_allclose(logits_of(encoder, batch, TEXTS), expected, atol=1e-5, rtol=1e-5)
        assert np.abs(expected - logits_of(encoders[case], batch, TEXTS)).max() > 1e-3
    elif case == "bridgetower":
        expected = logits_of(encoders[case], batch, TEXTS)
        np.testing.assert_array_equal(logits_of(encoder, batch, TEXTS), expected)


def test_learned_tokens_need_a_start_token(encoders, monkeypatch):
    encoder = encoders["open_clip"]
    own = encoder._tokenizer

    class Startless:
        """As the tokenizers of SigLIP are: the words come first."""

        def __call__(self, texts):
            return own(texts).roll(-1, dims=1)

    monkeypatch.setattr(encoder, "_tokenizer", Startless())
    learned = torch.zeros(1, 16)
    for ask in (lambda: encoder.token_vectors("hero"), lambda: encoder.differentiable_texts(["a"], learned)):
        with pytest.raises(EncodingError, match=r"puts none before a text[\s\S]*with a start token"):
            ask()
    # A tokenizer may know a start token and yet leave it out.
    Startless.sot_token_id = own.sot_token_id
    with pytest.raises(EncodingError, match=rf"first token \d+[\s\S]*start token {own.sot_token_id}"):
        encoder.differentiable_texts(["a"], learned)


def test_bridgetower_runs_its_towers_once_an_image_and_once_a_prompt(folders, pictures):
    encoder = load_encoder(files_of(folders, "bridgetower"), Placement())
    calls = {"text": 0, "image": 0, "pairs": 0}

    def count(name):
        def hook(_module, inputs, _output):
            # Images are the second dimension in this library's vision tower.
            calls[name] += inputs[0].shape[1 if name == "image" else 0]

        return hook

    inner = encoder._model.bridgetower
    inner.text_model.encoder.layer[0].register_forward_hook(count("text"))
    inner.vision_model.visual.transformer.resblocks[0].register_forward_hook(count("image"))
    inner.cross_modal_text_layers[0].register_forward_hook(count("pairs"))
    batch = batch_of(encoder, pictures)
    encoder.score_pairs(batch[:3], TEXTS)
    encoder.score_pairs(batch[3:], TEXTS)
    assert calls == {"text": len(TEXTS), "image": len(pictures), "pairs": len(pictures) * len(TEXTS)}


def test_bridgetower_keeps_a_bounded_number_of_prompts(folders, encoders, pictures, monkeypatch):
    from plumbline.encoders import cross_encoders

    encoder = load_encoder(files_of(folders, "bridgetower"), Placement())
    batch = batch_of(encoder, pictures)
    expected = encoders["bridgetower"].score_pairs(batch, TEXTS)
    monkeypatch.setattr(cross_encoders, "PROMPTS_KEPT", 2)
    monkeypatch.setattr(cross_encoders, "PAIRS_AT_ONCE", 7)
    np.testing.assert_allclose(encoder.score_pairs(batch, TEXTS), expected, atol=2e-5)
    assert list(encoder._prompts) == TEXTS[-2:]


@pytest.mark.parametrize("case", [name for name in CASES if name != "open_clip"])
def test_a_text_that_is_too_long_is_refused_and_not_cut(case, encoders):
    encoder, long = encoders[case], "a photo of a thief " * 60
    with pytest.raises(EncodingError, match="longer than this encoder takes"):
        if FAMILIES[encoder.family].logit == "pair":
            encoder.score_pairs(torch.zeros(1, 3, 32, 32, dtype=torch.uint8), ["a man", long])
        else:
            encoder.embed_texts(["a man", long])


def test_texts_are_padded_to_what_texts_need_whatever_a_checkpoint_says_that_it_takes(encoders, monkeypatch):
    encoder = encoders["clip"]
    monkeypatch.setattr(encoder, "_context", 40_000)
    assert encoder._tokens(["a man"])["input_ids"].shape == (1, MOST_PADDED)
    long = "a man " * MOST_PADDED
    assert encoder._tokens([long])["input_ids"].shape[1] == len(encoder._tokenizer([long])["input_ids"][0])


def test_a_query_that_owlv2_takes_for_padding_is_refused(encoders, monkeypatch):
    encoder = encoders["owlv2"]
    tokens = encoder._tokens(["a man", "a thief"])
    tokens["input_ids"][1, 0] = 0
    monkeypatch.setattr(encoder, "_tokens", lambda texts: tokens)
    with pytest.raises(EncodingError, match=r"for padding[\s\S]*a thief"):
        encoder.embed_texts(["a man", "a thief"])


def test_prompt_array_on_a_family_without_text_gradients_is_a_refusal():
    needs = {Capability.TEXT_GRADIENTS}
    message = "Prompt Array needs text_gradients, which the family BridgeTower does not offer"
    for asked in ("bridgetower", FAMILIES["bridgetower"]):
        with pytest.raises(ConfigError, match=rf"{message}[\s\S]*CLIP \(open_clip\), CLIP \(transformers\)"):
            require(asked, needs, "Prompt Array")
    require("clip", needs, "Prompt Array")
    with pytest.raises(CheckpointError, match=r"no such family[\s\S]*vilt[\s\S]*open_clip, clip"):
        require("vilt", needs, "Prompt Array")


def test_families_are_told_apart_by_their_model_types():
    claimed = [model_type for family in FAMILIES.values() for model_type in family.model_types]
    assert len(claimed) == len(set(claimed))
    for name, family in FAMILIES.items():
        assert family.name == name and Capability.CHOICES in family.offers
        assert (Capability.LOGITS in family.offers) == (name != "stored")
