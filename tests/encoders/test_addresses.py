"""Addresses of checkpoints, and the one weights file of a folder: digested, loaded, and never a pickle."""

import json

import pytest

from plumbline.checkpoints.addresses import parse_address
from plumbline.digests import digest_bytes
from plumbline.encoders.folders import locate
from plumbline.errors import CheckpointError

COMMIT = "0123456789abcdef0123456789abcdef01234567"
OWN, OLDER = "open_clip_model.safetensors", "open_clip_pytorch_model.safetensors"


def folder_of(tmp_path, *names, config=None):
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    for name in names:
        (folder / name).write_bytes(name.encode())
    (folder / "open_clip_config.json").write_text(json.dumps(config or {}))
    return folder


def located(folder, *, family=None):
    address = parse_address(f"local-dir:{folder}", project=folder.parent)
    return locate(address, fetched=folder.parent / "fetched", encoder="e", family=family)


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        ((OWN,), OWN),
        ((OLDER, OWN, "other.safetensors"), OWN),
        ((OLDER, "model.safetensors", "open_clip_pytorch_model.bin"), OLDER),
        ((OWN, "open_clip_pytorch_model.bin", "pytorch_model.bin", "model.pth"), OWN),
        (("model.safetensors", "pytorch_model.bin", "a.pth"), "model.safetensors"),
        (("mine.safetensors", "a.bin", "a.pt"), "mine.safetensors"),
    ],
)
def test_exactly_one_weights_file_is_chosen_and_digested(tmp_path, names, chosen):
    folder = folder_of(tmp_path, *names)
    files = located(folder)
    assert files.weights == (folder / chosen,)
    assert files.weights_sha256 == digest_bytes(chosen.encode())
    for name in names:
        (folder / name).write_bytes(b"changed")
        assert (located(folder).digest != files.digest) is (name == chosen)
        (folder / name).write_bytes(name.encode())


def test_several_weights_of_unknown_names_are_refused(tmp_path):
    folder = folder_of(tmp_path, "model.safetensors", "epoch_2.safetensors")
    with pytest.raises(CheckpointError, match=r"several weights[\s\S]*epoch_2\.safetensors, model\.safetensors"):
        located(folder)


@pytest.mark.parametrize("name", ["tokenizer.json", "vocab.txt", "merges.txt", "spiece.model", "vocab.bpe"])
def test_the_digest_covers_the_tokenizer_and_not_the_notes(tmp_path, name):
    folder = folder_of(tmp_path, OWN)
    before = located(folder).digest
    (folder / "fetched.json").write_text("{}")
    (folder / "README.md").write_text("read me")
    assert located(folder).digest == before
    (folder / name).write_text("x")
    assert located(folder).digest != before


@pytest.mark.parametrize(
    ("part", "content"),
    [
        ("text_cfg", {"hf_model_name": "roberta-base"}),
        ("vision_cfg", {"timm_model_name": "hf-hub:org/name"}),
        ("text_cfg", {"tokenizer_kwargs": {"trust_remote_code": True}}),
        ("text_cfg", {"tokenizer_kwargs": {"reduction_mask": "syntax"}}),
        ("text_cfg", {"tokenizer_kwargs": {"bpe_path": "merges.txt.gz"}}),
        ("text_cfg", {"hf_model_name": "/no/such/folder"}),
    ],
)
def test_a_configuration_that_would_download_or_run_code_is_refused(tmp_path, part, content):
    folder = folder_of(tmp_path, OWN, config={"model_cfg": {part: content}})
    with pytest.raises(CheckpointError, match=rf"nothing is downloaded[\s\S]*model_cfg\.{part}\.{next(iter(content))}"):
        located(folder)


def test_a_text_model_is_not_looked_for_from_where_the_process_runs(tmp_path, monkeypatch):
    folder = folder_of(tmp_path, OWN, config={"model_cfg": {"text_cfg": {"hf_model_name": "text-model"}}})
    for place in (tmp_path, folder):
        (place / "text-model").mkdir()
        monkeypatch.chdir(place)
        with pytest.raises(CheckpointError, match=r"hf_model_name: text-model[\s\S]*absolute path"):
            located(folder)


def test_code_in_the_folder_of_a_text_model_is_refused(tmp_path):
    text = tmp_path / "text-model"
    text.mkdir()
    (text / "config.json").write_text('{"auto_map": {"AutoModel": "modeling.Model"}}')
    folder = folder_of(tmp_path, OWN, config={"model_cfg": {"text_cfg": {"hf_model_name": str(text)}}})
    with pytest.raises(CheckpointError, match=r"code of its own[\s\S]*text-model[\s\S]*auto_map"):
        located(folder)


def test_code_beside_a_tokenizer_of_transformers_is_refused(tmp_path):
    options = {"clean": "canonicalize", "strip_sep_token": True}
    text = {"hf_tokenizer_name": "org/name", "tokenizer_kwargs": options}
    folder = folder_of(tmp_path, OWN, "tokenizer.json", config={"model_cfg": {"text_cfg": text}})
    assert located(folder).family == "open_clip"
    (folder / "tokenizer_config.json").write_text('{"auto_map": {"AutoTokenizer": ["tokens.Mine", null]}}')
    with pytest.raises(CheckpointError, match=r"code of its own[\s\S]*tokenizer_config\.json"):
        located(folder)


def test_a_text_model_on_disk_is_part_of_the_digest(tmp_path):
    text = tmp_path / "text-model"
    text.mkdir()
    (text / "config.json").write_text("{}")
    folder = folder_of(tmp_path, OWN, config={"model_cfg": {"text_cfg": {"hf_model_name": str(text)}}})
    before = located(folder).digest
    (text / "config.json").write_text('{"layers": 2}')
    assert located(folder).digest != before


def test_a_configuration_that_is_not_json_is_a_clear_error(tmp_path):
    folder = folder_of(tmp_path, OWN)
    (folder / "open_clip_config.json").write_text("{")
    with pytest.raises(CheckpointError, match="not JSON"):
        located(folder)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hf-hub:org/name", "must name a commit"),
        ("hf-hub:org/name@main", "must name a commit"),
        ("hf-hub:org/name@v1.0", "must name a commit"),
        (f"hf-hub:org/name@{COMMIT[:12]}", "40 hexadecimal digits"),
        ("just-a-name", "not a checkpoint address"),
        ("local-dir:", "not a checkpoint address"),
        ("local-dir:~no-such-user-here/x", "no home folder"),
    ],
)
def test_addresses_that_cannot_be_audited_are_refused(text, message, tmp_path):
    with pytest.raises(CheckpointError, match=message):
        parse_address(text, project=tmp_path)


def test_a_local_folder_may_be_relative_absolute_or_at_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    folders = [
        parse_address(f"local-dir:{path}", project=tmp_path / "project").folder
        for path in ("~/x", "x", str(tmp_path / "x"))
    ]
    assert folders == [tmp_path / "me" / "x", tmp_path / "project" / "x", tmp_path / "x"]


def test_addresses_name_their_fetched_folder(tmp_path):
    assert parse_address(f"hf-hub:org/name@{COMMIT}", project=tmp_path).slug == f"org--name--{COMMIT}"
    assert parse_address("ViT-B-32-quickgelu/openai", project=tmp_path).slug == "ViT-B-32-quickgelu--openai"
    fetched = parse_address("hf-hub:org/name@fetched", project=tmp_path)
    assert (fetched.slug, fetched.repository, fetched.revision) == ("org--name--fetched", "org/name", None)
