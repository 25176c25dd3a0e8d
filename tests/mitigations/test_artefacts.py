"""Parameters that others have fitted, and the readings of a method that its paper leaves open."""

import json
import struct
from types import SimpleNamespace
from typing import Literal

import numpy as np
import pytest
from pydantic import ValidationError
from safetensors.numpy import save_file
from small_encoders import fit
from test_bias_prompts import embed
from test_prompt_array import QUICK, rows_of

from plumbline.errors import MetricError
from plumbline.mitigations.bias_prompts import BiasPromptsSettings
from plumbline.mitigations.prompt_array import PromptArraySettings, audited_queries
from plumbline.mitigations.registry import SETTINGS, apply_text_mitigation
from plumbline.mitigations.saner import SanerSettings
from plumbline.mitigations.text_mitigations import FitContext, TextMitigationSettings, read_artefact

pytestmark = pytest.mark.usefixtures("one_thread")
TEXTS = ("a photo of a thief", "a photo of a friendly person", "somebody at work")


def given(encoder, folder, settings, arrays):
    """Take parameters from a file; no training row may be asked for."""
    path = folder / "given.safetensors"
    save_file(arrays, path)
    context = FitContext(encoder, encoder.embed_texts, rows=None, seed=0)
    return settings.model_copy(update={"from_": str(path)}).fit(context)


def of_width(method, d, w, rng):
    return {
        "bias_prompts": {"projection": rng.normal(size=(d, d))},
        "prompt_array": {"tokens": rng.normal(size=(2, w))},
        "saner": {
            "weight_in": rng.normal(size=(5, d)), "bias_in": rng.normal(size=5),
            "weight_out": rng.normal(size=(d, 5)), "bias_out": rng.normal(size=d),
        },
    }[method]  # fmt: skip


CASES = {
    "bias_prompts": BiasPromptsSettings(),
    "prompt_array": PromptArraySettings(),
    "saner": SanerSettings(attribute="race"),
}


def test_what_says_that_it_reads_a_file_is_tried_with_one():
    says = {name for name, settings in SETTINGS.items() if getattr(settings, "reads_given", False)}
    assert says == set(CASES), "add a case for each method that says so to CASES and `of_width` of this file"


class Unread(TextMitigationSettings):
    """As a method is written that computes its parameters itself."""

    method: Literal["unread"] = "unread"


def test_a_method_that_reads_no_file_refuses_one():
    assert Unread.model_validate({"from": None}).trained_on == ""
    with pytest.raises(ValidationError, match=r"from\n.*no `from`: the method `unread` reads no parameters") as refused:
        Unread.model_validate({"from": "given.safetensors"})
    assert refused.value.errors()[0]["loc"] == ("from",)


@pytest.mark.parametrize("method", CASES)
def test_given_parameters_are_applied_as_fitted_ones_are(planted, tmp_path, method):
    width = planted.token_vectors("a").shape[-1]
    arrays = of_width(method, planted.width, width, np.random.default_rng(1))
    fitted = given(planted, tmp_path, CASES[method], arrays)
    assert set(fitted.parameters) == set(arrays) and not fitted.train_ids and not fitted.losses
    for name, array in fitted.parameters.items():
        assert array.dtype == np.float32
        np.testing.assert_array_equal(array, arrays[name].astype(np.float32))
    features = planted.embed_texts(TEXTS)
    changed = apply_text_mitigation(fitted, planted, TEXTS, features)
    assert changed.shape == features.shape and np.abs(changed - features).max() > 1e-3
    assert fitted.settings["from"].endswith("given.safetensors")
    other = given(planted, tmp_path, CASES[method], {name: 2 * array for name, array in arrays.items()})
    assert other.fitted_on != fitted.fitted_on, "the file's content counts, not its name"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda a: {"tokens": a["tokens"][:, :-1]}, r"`tokens` is of another shape[\s\S]*expected: \(tokens, \d+\)"),
        (lambda a: {"tokens": a["tokens"][0]}, "`tokens` is of another shape"),
        (
            lambda a: {"tokens": np.where(a["tokens"] > 0, np.nan, 1.0)},
            r"of \d+ numbers of the parameter `tokens` are not finite[\s\S]*, row \d, column \d",
        ),
        (lambda a: {"tokens": a["tokens"].astype(np.int64)}, r"no floating-point numbers[\s\S]*int64"),
        (lambda a: {"vectors": a["tokens"]}, r"other parameters[\s\S]*found: +vectors[\s\S]*expected: tokens"),
        (lambda a: {**a, "more": a["tokens"]}, r"other parameters[\s\S]*more, tokens"),
    ],
)
def test_a_file_of_another_kind_is_refused_with_what_it_holds(planted, tmp_path, wrong, said):
    arrays = of_width("prompt_array", planted.width, planted.token_vectors("a").shape[-1], np.random.default_rng(1))
    with pytest.raises(MetricError, match=said):
        given(planted, tmp_path, PromptArraySettings(), wrong(arrays))


def test_a_layer_is_as_wide_inside_as_it_likes_and_alike_everywhere(planted, tmp_path):
    arrays = of_width("saner", planted.width, 0, np.random.default_rng(1))
    with pytest.raises(MetricError, match=r"`weight_out` is of another shape[\s\S]*\(\d+, 5\)"):
        given(planted, tmp_path, SanerSettings(), arrays | {"weight_out": np.zeros((planted.width, 6))})
    (tmp_path / "no.safetensors").write_bytes(b"no tensors")
    with pytest.raises(MetricError, match=r"cannot be read[\s\S]*no\.safetensors"):
        SanerSettings(**{"from": str(tmp_path / "no.safetensors")}).fit(
            FitContext(planted, planted.embed_texts, rows=None, seed=0)
        )


def test_the_key_is_called_from_and_stays_so_in_what_is_recorded():
    settings = SETTINGS["saner"].model_validate({"method": "saner", "from": "a.safetensors"})
    assert settings.model_dump(mode="json")["from"] == "a.safetensors"
    assert SETTINGS["saner"].model_validate(settings.model_dump(mode="json")) == settings


def projection(**settings):
    encoder = SimpleNamespace(identity=SimpleNamespace(digest="e"))
    return BiasPromptsSettings(**settings).fit(FitContext(encoder, embed, rows=None, seed=0)).parameters["projection"]


def test_the_spread_of_all_pairs_alike_and_given_pairs_are_other_readings():
    ours, alike = projection(), projection(spread="pairs")
    assert np.abs(ours - alike).max() > 1e-4
    # Of one attribute there is nothing to weigh.
    one = {"attributes": ["gender"]}
    np.testing.assert_allclose(projection(**one), projection(**one, spread="pairs"), atol=1e-6)
    pair = ("a photo of a male doctor", "a photo of a female doctor")
    theirs = projection(**one, pairs=[pair])
    assert np.abs(theirs - projection(**one)).max() > 1e-4
    units = embed(pair) / np.linalg.norm(embed(pair), axis=1, keepdims=True)
    left = theirs.astype(float) @ (units[0] - units[1])
    assert np.linalg.norm(left) < 0.1 * np.linalg.norm(units[0] - units[1]), "its pair is made to coincide"


def test_tokens_may_stand_before_queries_alone_and_the_audited_prompts_may_be_the_queries(planted):
    queries = audited_queries()
    assert "a photo of a thief" in queries and "a photo of a white man" not in queries
    rows = rows_of(planted)
    fits = {
        name: fit(planted, rows, QUICK.model_copy(update=changes), seed=1)
        for name, changes in {"own": {}, "audited": {"queries": "audited"}, "alone": {"before": "queries"}}.items()
    }
    tokens = {name: each.parameters["tokens"] for name, each in fits.items()}
    assert np.abs(tokens["own"] - tokens["audited"]).max() > 1e-4
    assert np.abs(tokens["own"] - tokens["alone"]).max() > 1e-4
    features = planted.embed_texts(TEXTS)
    everywhere = apply_text_mitigation(fits["own"], planted, TEXTS, features)
    alone = apply_text_mitigation(fits["alone"], planted, TEXTS, features)
    # The last is no prompt of a suite: a caption.
    assert np.abs(everywhere[2] - features[2]).max() > 1e-3
    np.testing.assert_allclose(alone[2], features[2], rtol=1e-5, atol=1e-6)
    assert np.abs(alone[:2] - features[:2]).max() > 1e-3


@pytest.mark.parametrize(("dtype", "numbers"), [("BF16", 8), ("F8_E4M3", 4), ("F8_E5M2", 4), ("F8_E8M0", 4), ("F4", 2)])
def test_a_type_that_numpy_has_not_is_refused_in_words(tmp_path, dtype, numbers):
    header = json.dumps({"projection": {"dtype": dtype, "shape": [2, 2], "data_offsets": [0, numbers]}}).encode()
    path = tmp_path / "given.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(numbers))
    with pytest.raises(MetricError, match=r"of a type that is not read[\s\S]*given\.safetensors[\s\S]*F16, F32 or F64"):
        read_artefact(path, {"projection": (2, 2)})
