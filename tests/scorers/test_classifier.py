"""Classifiers of texts: the slow obvious way, what is refused, labels, cuts, batches."""

import json
import logging
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from tiny_classifiers import ARCHITECTURES, LABELS, LONGEST, TEXTS, write_bert, write_roberta

from plumbline.catalog.schema import SCORED_ATTRIBUTES
from plumbline.checkpoints import loading
from plumbline.checkpoints.device import Placement
from plumbline.errors import CheckpointError, ConfigError, ScoringError
from plumbline.scorers import classifier
from plumbline.scorers.classifier import (
    NO_TOKENS,
    ClassifierScorer,
    ClassifierSettings,
    activation_of,
    known_labels,
    label_positions,
    length_batches,
    load_classifier,
)

UNBIASED_TOXIC_ROBERTA = (
    "toxicity", "severe_toxicity", "obscene", "identity_attack", "insult", "threat", "sexual_explicit", "male",
    "female", "homosexual_gay_or_lesbian", "christian", "jewish", "muslim", "black", "white",
    "psychiatric_or_mental_illness",
)  # fmt: skip


def load(folder, **settings):
    chosen = ClassifierSettings(**{"kind": "classifier", "address": f"local-dir:{folder}", **settings})
    return load_classifier(chosen, project=Path("/"), fetched=Path("/none"), placement=Placement())


def scores(scorer, texts=TEXTS):
    found = dict(scorer.score(texts))
    return np.array([[found[i].scores[name] for name in scorer.attributes] for i in range(len(texts))])


@pytest.fixture()
def roberta(folders, tmp_path):
    """A copy to change."""
    return shutil.copytree(folders / "roberta", tmp_path / "roberta")


def configure(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_it_scores_as_the_model_alone_does(folders, name):
    import transformers

    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        folders / name, attn_implementation="eager"
    ).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folders / name)
    expected = []
    for text in TEXTS:
        tokens = tokenizer(text, truncation=True, max_length=LONGEST, return_tensors="pt")
        with torch.no_grad():
            row = model(**tokens).logits.sigmoid()[0]
        expected.append([row[LABELS.index(attribute)] for attribute in ("toxicity", "insult", "identity_attack")])
    scorer = load(folders / name)
    assert scorer.attributes == ("toxicity", "insult", "identity_attack")
    assert scorer.without == ("flirtation",)
    np.testing.assert_allclose(scores(scorer), np.array(expected), atol=1e-5, rtol=0)
    assert np.ptp(scores(scorer), axis=0).min() > 0.05


def test_longer_texts_are_cut_at_the_end_and_counted(folders):
    scorer = load(folders / "bert")
    long = "kind " * 100
    found = dict(scorer.score(["kind", long, long + "stupid", "stupid " + long]))
    assert [found[i].truncated for i in range(4)] == [False, True, True, True]
    assert found[1].scores == found[2].scores != found[3].scores


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_text_of_all_positions_is_whole(folders, name):
    """RoBERTa has two positions more than it can use; one token too many would end the run on a GPU."""
    scorer = load(folders / name)
    tokenizer = scorer._tokenizer
    full = "a" + " a" * (LONGEST - 3)
    assert len(tokenizer(full)["input_ids"]) == LONGEST
    found = dict(scorer.score([full, full + " a"]))
    assert [found[0].truncated, found[1].truncated] == [False, True]


def test_fewer_tokens_can_be_asked_for_but_not_more(folders):
    scorer = load(folders / "bert", max_tokens=5)
    assert [scored.truncated for _, scored in sorted(scorer.score(["a", "a lazy kind person"]))] == [False, True]
    with pytest.raises(ConfigError, match=f"max_tokens: 41(.|\n)*at most {LONGEST}"):
        load(folders / "bert", max_tokens=41)


def test_batches_by_length_change_no_score_and_save_padding(folders, monkeypatch):
    texts = [" ".join(["kind"] * (1 + (7 * i) % 30)) for i in range(60)]
    one = load(folders / "roberta", batch_tokens=1)
    many = load(folders / "roberta", batch_tokens=160)
    np.testing.assert_allclose(scores(one, texts), scores(many, texts), atol=1e-5, rtol=0)
    assert one.passes == 60
    assert many.passes < 30
    monkeypatch.setattr(classifier, "CHUNK_ROWS", 7)
    np.testing.assert_allclose(scores(one, texts), scores(many, texts), atol=1e-5, rtol=0)


@given(st.lists(st.integers(1, 50), max_size=60), st.integers(1, 200), st.integers(1, 9))
def test_every_text_is_in_one_batch_that_fits(lengths, most_tokens, most_rows):
    batches = list(length_batches(lengths, most_tokens=most_tokens, most_rows=most_rows))
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    for batch in batches:
        own = [lengths[i] for i in batch]
        assert len(batch) <= most_rows
        assert len(batch) == 1 or max(own) * len(batch) <= most_tokens
    longest = [max(lengths[i] for i in batch) for batch in batches]
    assert longest == sorted(longest, reverse=True)


def test_two_classes_are_a_softmax(tmp_path):
    write_bert(tmp_path / "two", labels=("neutral", "toxic"), problem_type=None)
    found = load(tmp_path / "two")
    assert found.attributes == ("toxicity",)
    other = load(tmp_path / "two", labels={"toxicity": "neutral"})
    np.testing.assert_allclose(scores(found) + scores(other), 1, atol=1e-12)
    sigmoid = load(tmp_path / "two", activation="sigmoid")
    assert np.abs(scores(sigmoid) - scores(found)).max() > 0.01


def test_labels_can_be_named(folders):
    plain, named = (load(folders / "roberta"), load(folders / "roberta", labels={"flirtation": "sexual_explicit"}))
    assert named.attributes == ("flirtation",)
    assert named.identity != plain.identity


def test_an_unknown_label_is_refused_with_those_that_there_are(folders):
    with pytest.raises(ConfigError, match=r"no label `rude`(.|\n)*0: toxicity, 1: severe_toxicity, 2: obscene"):
        load(folders / "roberta", labels={"insult": "rude"})


def test_a_classifier_of_other_things_is_refused(tmp_path):
    write_bert(tmp_path / "other", labels=("positive", "negative"), problem_type=None)
    with pytest.raises(ConfigError, match=r"0: positive, 1: negative(.|\n)*labels: \{toxicity: NAME\}"):
        load(tmp_path / "other")


def test_the_labels_of_published_classifiers_are_known():
    assert label_positions(UNBIASED_TOXIC_ROBERTA) == {"toxicity": 0, "insult": 4, "identity_attack": 3}
    toxic_bert = ("toxic", "severe_toxic", "obscene", "threat", "insult", "identity_hate")
    assert label_positions(toxic_bert) == {"toxicity": 0, "insult": 4, "identity_attack": 5}
    assert label_positions(("Identity Attack", "non-toxic")) == {"identity_attack": 0}
    assert tuple(known_labels()) == SCORED_ATTRIBUTES
    with pytest.raises(ConfigError, match="two labels of one name"):
        label_positions(("toxic", "Toxic"))


@pytest.mark.parametrize(
    ("config", "outputs", "expected"),
    [
        ({"problem_type": "multi_label_classification"}, 16, "sigmoid"),
        ({"problem_type": "multi_label_classification"}, 2, "sigmoid"),
        ({"problem_type": "single_label_classification"}, 3, "softmax"),
        ({"function_to_apply": "sigmoid", "problem_type": "single_label_classification"}, 3, "sigmoid"),
        ({"function_to_apply": "softmax"}, 9, "softmax"),
        ({}, 1, "sigmoid"),
        ({}, 2, "softmax"),
    ],
)
def test_how_outputs_become_scores_is_read(config, outputs, expected):
    assert activation_of(config, outputs) == expected


@pytest.mark.parametrize(("config", "outputs"), [({}, 7), ({"problem_type": "regression"}, 1)])
def test_how_outputs_become_scores_is_not_guessed(config, outputs):
    with pytest.raises(ConfigError, match="activation: sigmoid"):
        activation_of(config, outputs)


def test_the_identity_follows_all_that_decides_a_score(folders, tmp_path, roberta):
    base = load(roberta).identity
    assert load(roberta, batch_tokens=64).identity == base
    (roberta / "README.md").write_text("notes")
    assert load(roberta).identity == base
    changed = {
        load(roberta, max_tokens=20).identity,
        load(roberta, activation="softmax").identity,
        load(roberta, labels={"toxicity": "toxicity"}).identity,
    }
    write_roberta(tmp_path / "other weights", seed=4)
    changed.add(load(tmp_path / "other weights").identity)
    configure(roberta, layer_norm_eps=1e-6)
    changed.add(load(roberta).identity)
    assert len(changed | {base}) == 6


def test_the_version_is_for_people(folders, tmp_path):
    assert load(folders / "bert").version.startswith("bert ")
    commit = "36295dd80b422dc49f40052021430dae76241adc"
    shutil.copytree(folders / "roberta", tmp_path / f"unitary--unbiased-toxic-roberta--{commit}")
    address = f"hf-hub:unitary/unbiased-toxic-roberta@{commit}"
    settings = ClassifierSettings(kind="classifier", address=address)
    scorer = load_classifier(settings, project=Path("/"), fetched=tmp_path, placement=Placement())
    assert scorer.version == f"unitary/unbiased-toxic-roberta@{commit}"
    assert scorer.identity == load(folders / "roberta").identity


@pytest.mark.parametrize(
    ("break_it", "words"),
    [
        (lambda folder: (folder / "config.json").unlink(), "not on this disk"),
        (lambda folder: (folder / "model.safetensors").rename(folder / "pytorch_model.bin"), "pytorch_model.bin"),
        (lambda folder: (folder / "adapter_config.json").write_text("{}"), "adapter"),
        (lambda folder: (folder / "vocab.json").unlink(), "no files of a tokenizer"),
        (lambda folder: configure(folder, auto_map={"AutoModel": "evil.Model"}), "code of its own"),
        (lambda folder: configure(folder, quantization_config={"bits": 4}), "quantiser"),
        (lambda folder: configure(folder, model_type="clip"), "could not load"),
        (lambda folder: configure(folder, hidden_size=64), "another size than the configuration says"),
        (lambda folder: configure(folder, num_hidden_layers=3), "absent from the file"),
        (lambda folder: configure(folder, num_hidden_layers=1), "not in the model"),
        (lambda folder: (folder / "config.json").write_text("{"), "not JSON"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"torn"), "not complete"),
        (lambda folder: configure(folder, vocab_size=500_000_000), "much larger than its weights"),
        # Built with the attention that loads it, whatever the configuration names.
        (
            lambda folder: configure(folder, vocab_size=500_000_000, attn_implementation="flash_attention_2"),
            "much larger than its weights",
        ),
    ],
)  # fmt: skip
def test_what_is_not_a_whole_safe_classifier_is_refused(roberta, break_it, words):
    break_it(roberta)
    with pytest.raises(CheckpointError, match=words):
        load(roberta)


def test_a_configuration_that_grows_while_it_is_read_is_refused(roberta, monkeypatch):
    """GPT-Neo's makes a list of its attention types, as long as a number says."""
    monkeypatch.setattr(loading, "ROOM", 1 << 29)
    configure(roberta, model_type="gpt_neo", attention_types=[[["global"] * 10_000, 100_000]], classifier_dropout=0.1)
    with pytest.raises(CheckpointError, match=r"more memory than it may|could not load[\s\S]*Memory"):
        load(roberta)


def test_an_untrained_head_is_refused(roberta):
    """A bare encoder would be given a random head, and scores of chance."""
    weights = load_file(roberta / "model.safetensors")
    kept = {name: tensor for name, tensor in weights.items() if not name.startswith("classifier")}
    save_file(kept, roberta / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match="random"):
        load(roberta)


def test_what_older_checkpoints_have_more_is_left_aside(folders, roberta):
    weights = load_file(roberta / "model.safetensors")
    weights["roberta.embeddings.position_ids"] = torch.arange(LONGEST + 2)[None]
    weights["roberta.pooler.dense.weight"] = torch.zeros(32, 32)
    save_file(weights, roberta / "model.safetensors", metadata={"format": "pt"})
    np.testing.assert_array_equal(scores(load(roberta)), scores(load(folders / "roberta")))


def test_addresses_of_other_things_are_refused(folders):
    for address, words in (("ViT-B-32/openai", "open_clip"), ("hf-hub:unitary/toxic-bert@main", "commit")):
        settings = ClassifierSettings.model_construct(kind="classifier", address=address)
        with pytest.raises(CheckpointError, match=words):
            load_classifier(settings, project=Path("/"), fetched=Path("/none"), placement=Placement())
    settings = ClassifierSettings(kind="classifier", address=f"hf-hub:unitary/toxic-bert@{'a' * 40}")
    with pytest.raises(CheckpointError, match="plumbline fetch"):
        load_classifier(settings, project=Path("/"), fetched=Path("/none"), placement=Placement())


def test_without_a_token_to_pad_with_it_is_refused(folders, tmp_path):
    folder = shutil.copytree(folders / "bert", tmp_path / "bert")
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"pad_token": None}))
    with pytest.raises(CheckpointError, match="to pad with"):
        load(folder)


def test_no_number_is_an_error(roberta):
    weights = load_file(roberta / "model.safetensors")
    weights["classifier.out_proj.weight"][0, 0] = math.nan
    save_file(weights, roberta / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ScoringError, match=r"gave no number(.|\n)*float32"):
        list(load(roberta).score(["a"]))


def test_a_text_without_tokens_has_a_reason(folders, monkeypatch):
    scorer = load(folders / "roberta")
    plain = scorer._tokenizer

    class WithoutSpecialTokens:
        def __call__(self, texts, **more):
            return plain(texts, add_special_tokens=False, **more)

    monkeypatch.setattr(scorer, "_tokenizer", WithoutSpecialTokens())
    found = dict(scorer.score(["", "a"]))
    assert found[0].reason == NO_TOKENS
    assert all(math.isnan(score) for score in found[0].scores.values())
    assert found[1].reason is None


def test_memory_that_runs_out_halves_the_batch_and_ends_at_one_text(folders, monkeypatch):
    scorer = load(folders / "roberta")
    expected, forward, most = scores(scorer), scorer._scores_of, [3]

    def short(ids):
        if len(ids) > most[0]:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return forward(ids)

    monkeypatch.setattr(scorer._forward, "_forward", short)
    np.testing.assert_allclose(scores(scorer), expected, atol=1e-5, rtol=0)
    most[0] = 0
    with pytest.raises(ScoringError, match="memory for a single text"):
        list(scorer.score(["a"]))


@pytest.mark.parametrize(
    ("wanted", "placement", "dtype"),
    [
        ("auto", Placement("cpu", "float32"), "float32"),
        ("bfloat16", Placement("cpu", "bfloat16"), "float32"),
        ("auto", Placement("cuda", "bfloat16"), "float16"),
        ("auto", Placement("cuda", "float32"), "float32"),
        ("bfloat16", Placement("cuda", "float32"), "bfloat16"),
    ],
)
def test_number_types(wanted, placement, dtype):
    assert classifier._dtype(wanted, placement) == dtype


def test_nothing_is_logged_of_the_texts(folders, caplog, capsys):
    caplog.set_level(logging.DEBUG)
    list(load(folders / "bert").score(["a secret canary " * 60]))
    assert "canary" not in caplog.text + "".join(capsys.readouterr())


def test_what_is_written_into_the_file_later_changes_no_score(roberta):
    scorer = load(roberta)
    before = scores(scorer)
    size = (roberta / "model.safetensors").stat().st_size
    with (roberta / "model.safetensors").open("r+b") as file:
        file.seek(size // 2)
        file.write(b"\xff" * (size - size // 2))
    np.testing.assert_array_equal(scores(scorer), before)


def test_the_class_takes_what_the_loader_gives(folders):
    assert isinstance(load(folders / "distilbert"), ClassifierScorer)
