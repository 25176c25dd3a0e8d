"""Generative models from folders: what is digested is what is loaded, and what is unsafe or torn is refused."""

import json
import resource
import shutil
from dataclasses import replace

import pytest
import torch
from tiny_image_text import BROKEN_TEMPLATES
from tiny_lvlms import BASE_LLMS, LVLMS, write_instructblip, write_llava, write_llava_gemma, write_vicuna

from plumbline.checkpoints.device import Placement
from plumbline.checkpoints.folders import family_of_model_type
from plumbline.errors import CheckpointError, ConfigError
from plumbline.generators.families import GENERATOR_FAMILIES
from plumbline.generators.folders import generator_files, load_backend

pytestmark = pytest.mark.usefixtures("converted_here")

WRITERS = {**LVLMS, **BASE_LLMS}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Each checkpoint is written once; tests that change one take a copy."""
    folder = tmp_path_factory.mktemp("checkpoints")

    def get(name):
        if not (folder / name).exists():
            WRITERS[name](folder / name)
        return folder / name

    return get


@pytest.fixture
def copied(made, tmp_path):
    def copy(name):
        shutil.copytree(made(name), tmp_path / name)
        return tmp_path / name

    return copy


def files_of(folder, name="tiny"):
    return generator_files(name, f"local-dir:{folder}", project=folder, fetched=folder)


def change(path, **settings):
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, **settings}))


@pytest.mark.parametrize("name", WRITERS)
def test_each_architecture_is_found_and_loaded_whole(made, name):
    files = files_of(made(name))
    expected = name if name in GENERATOR_FAMILIES else "llava" if name in LVLMS else "language_model"
    assert files.family == expected
    assert files.sees == (name in LVLMS)
    assert [path.name for path in files.weights] == ["model.safetensors"]
    backend = load_backend(files, Placement())
    assert backend.sees == files.sees
    assert backend.device == "cpu"
    assert backend.parameters > 10_000
    assert load_backend(files, Placement()).identity == backend.identity


def test_what_the_checkpoint_says_of_decoding_is_told(made):
    assert files_of(made("vicuna")).own_decoding == {"do_sample": True, "top_p": 0.6}
    assert files_of(made("mistral")).own_decoding == {}


def test_weights_in_parts_give_the_same_answers_and_are_all_digested(made, tmp_path):
    write_llava(tmp_path / "parts", shards="60KB")
    files, whole = files_of(tmp_path / "parts"), files_of(made("llava"))
    assert len(files.weights) > 2
    assert files.weights_sha256 != whole.weights_sha256
    parts, one = (load_backend(each, Placement())._model.state_dict() for each in (files, whole))
    assert all(torch.equal(parts[name], tensor) for name, tensor in one.items())
    last = files.weights[-1]
    data = bytearray(last.read_bytes())
    data[-1] ^= 1
    last.write_bytes(bytes(data))
    assert files_of(tmp_path / "parts").digest != files.digest
    last.unlink()
    with pytest.raises(CheckpointError, match=r"1 of \d+ parts .* not on this disk"):
        files_of(tmp_path / "parts")


def test_an_index_that_points_out_of_its_folder_is_refused(tmp_path):
    write_llava(tmp_path / "parts", shards="60KB")
    change(tmp_path / "parts" / "model.safetensors.index.json", weight_map={"a": "../other/model.safetensors"})
    with pytest.raises(CheckpointError, match="safetensors files of its folder"):
        files_of(tmp_path / "parts")
    change(tmp_path / "parts" / "model.safetensors.index.json", weight_map={"a": "pytorch_model.bin"})
    with pytest.raises(CheckpointError, match="safetensors files of its folder"):
        files_of(tmp_path / "parts")


@pytest.mark.parametrize("name", ["llava", "instructblip", "gemma"])
def test_every_file_that_decides_is_part_of_the_digest(copied, name):
    folder = copied(name)
    before = files_of(folder).digest
    deciding = [p for p in folder.rglob("*") if p.suffix in (".json", ".jinja", ".safetensors")]
    assert len(deciding) > 4
    for path in deciding:
        kept = path.read_bytes()
        path.write_bytes(kept + b" ")
        assert files_of(folder).digest != before, path.name
        path.write_bytes(kept)
    (folder / "README.md").write_text("new")
    assert files_of(folder).digest == before


def test_identities_differ_by_number_type_template_and_end_of_an_answer(copied):
    folder = copied("llava")
    identity = load_backend(files_of(folder), Placement()).identity
    half = load_backend(files_of(folder), Placement(dtype="bfloat16"))
    assert half._model.dtype == torch.bfloat16
    assert half.identity != identity
    (folder / "chat_template.jinja").write_text("USER: <image> {{ messages[0]['content'][1]['text'] }} A:")
    assert load_backend(files_of(folder), Placement()).identity != identity


@pytest.mark.parametrize("name", ["llava", "instructblip"])
def test_pickled_weights_are_converted_and_answer_as_the_original(copied, name):
    from safetensors.torch import load_file

    folder = copied(name)
    original = load_backend(files_of(folder), Placement())._model.state_dict()
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    files = files_of(folder)
    assert files.folder != folder and (files.folder / "converted.json").is_file()
    converted = load_backend(files, Placement())._model.state_dict()
    assert all(torch.equal(converted[key], tensor) for key, tensor in original.items())


def test_parts_of_pickled_weights_are_converted_together(copied):
    """As Vicuna was released."""
    from safetensors.torch import load_file

    folder = copied("vicuna")
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    parts = {"pytorch_model-00001-of-00002.bin": [*weights][:5], "pytorch_model-00002-of-00002.bin": [*weights][5:]}
    for part, names in parts.items():
        torch.save({key: weights[key] for key in names}, folder / part)
    index = {"weight_map": {key: part for part, names in parts.items() for key in names}}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    files = files_of(folder)
    assert [path.name for path in files.weights] == [f"model-0000{n}-of-00002.safetensors" for n in (1, 2)]
    converted = load_backend(files, Placement())._model.state_dict()
    assert all(torch.equal(converted[key], tensor) for key, tensor in weights.items())


def test_a_pickle_of_something_else_is_refused(copied):
    folder = copied("llava")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="were not converted to safetensors"):
        files_of(folder)


def test_weights_under_another_name_are_not_guessed(copied):
    folder = copied("llava")
    (folder / "model.safetensors").rename(folder / "other.safetensors")
    with pytest.raises(CheckpointError, match="not under the name"):
        files_of(folder)


@pytest.mark.parametrize(
    ("name", "file", "settings"),
    [
        ("llava", "config.json", {"auto_map": {"AutoModel": "modeling.Model"}}),
        ("llava", "processor_config.json", {"auto_map": {"AutoProcessor": "processing.Processor"}}),
        ("llava", "tokenizer_config.json", {"auto_map": {"AutoTokenizer": ["tokens.Tokens", None]}}),
        ("instructblip", "qformer_tokenizer/tokenizer_config.json", {"auto_map": {"AutoTokenizer": "t.T"}}),
        ("vicuna", "config.json", {"quantization_config": {"load_in_8bit": True}}),
    ],
)
def test_code_and_quantisers_of_a_checkpoint_are_refused(copied, name, file, settings):
    folder = copied(name)
    change(folder / file, **settings)
    with pytest.raises(CheckpointError, match="this checkpoint asks for"):
        files_of(folder)


def test_adapters_are_refused(copied):
    folder = copied("vicuna")
    (folder / "adapter_config.json").write_text("{}")
    with pytest.raises(CheckpointError, match="is an adapter"):
        files_of(folder)


@pytest.mark.parametrize(
    ("name", "absent", "said"),
    [
        ("llava", "processor_config.json", "an image processor"),
        ("llava", "tokenizer.json", "a tokenizer"),
        ("instructblip", "qformer_tokenizer/tokenizer.json", "a tokenizer"),
        ("gemma", "tokenizer.json", "a tokenizer"),
    ],
)
def test_absent_parts_are_named(copied, name, absent, said):
    folder = copied(name)
    (folder / absent).unlink()
    with pytest.raises(CheckpointError, match=f"no files of {said}"):
        files_of(folder)


def test_an_absent_folder_says_how_to_get_it(tmp_path):
    with pytest.raises(CheckpointError, match="is not on this disk") as error:
        generator_files("llava", f"hf-hub:a/b@{'0' * 40}", project=tmp_path, fetched=tmp_path)
    assert "plumbline fetch llava" in str(error.value)
    with pytest.raises(CheckpointError, match="correct the path"):
        files_of(tmp_path / "absent")
    with pytest.raises(CheckpointError, match="address of open_clip"):
        generator_files("clip", "ViT-B-32/openai", project=tmp_path, fetched=tmp_path)


def test_other_models_are_refused_with_the_known_ones(copied):
    folder = copied("llava")
    change(folder / "config.json", model_type="internlm_xcomposer")
    with pytest.raises(CheckpointError, match="of no family") as error:
        files_of(folder)
    assert "llava, instructblip, llama, mistral, gemma, qwen2_5_vl" in str(error.value)
    change(folder / "config.json", model_type="video_llava")
    with pytest.raises(CheckpointError, match="cannot be audited: it was made for videos"):
        files_of(folder)
    change(folder / "config.json", model_type="llava", text_config={"model_type": "qwen2"})
    with pytest.raises(CheckpointError, match="of no kind that LLaVA"):
        files_of(folder)
    assert family_of_model_type(GENERATOR_FAMILIES, "clip") is None


def test_weights_that_are_absent_are_not_drawn_at_random(copied):
    from safetensors.torch import load_file, save_file

    folder = copied("llava")
    weights = load_file(folder / "model.safetensors")
    projector = next(name for name in weights if "multi_modal_projector" in name)
    save_file(
        {name: t for name, t in weights.items() if name != projector},
        folder / "model.safetensors",
        metadata={"format": "pt"},
    )
    with pytest.raises(CheckpointError, match=r"1 weight\(s\) are absent from the files"):
        load_backend(files_of(folder), Placement())
    save_file(
        {**weights, "other.weight": torch.ones(2), "vision_tower.position_ids": torch.ones(2)},
        folder / "model.safetensors",
        metadata={"format": "pt"},
    )
    with pytest.raises(CheckpointError, match=r"1 weight\(s\) are not in the model"):
        load_backend(files_of(folder), Placement())


def test_files_that_are_torn_are_refused(copied):
    folder = copied("llava")
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match="not complete"):
        load_backend(files_of(folder), Placement())


def test_the_weights_are_the_models_own_memory(copied):
    folder = copied("vicuna")
    backend = load_backend(files_of(folder), Placement())
    before = backend._model.lm_head.weight.clone()
    weights = folder / "model.safetensors"
    with weights.open("r+b") as file:
        file.seek(-4096, 2)
        file.write(b"\0" * 4096)
    assert torch.equal(backend._model.lm_head.weight, before)


def test_a_number_type_that_no_model_runs_in_is_refused(made):
    with pytest.raises(ConfigError, match="number type"):
        load_backend(files_of(made("vicuna")), Placement(dtype="int8"))


# Formats.


@pytest.mark.parametrize(
    "template",
    [
        "{% for m in messages %}{{ m['content'] }}{% endfor %}",
        "USER: {{ messages[0]['content'][1]['text'] }}",
        "<image><image> {{ messages[0]['content'][1]['text'] }}",
        "{{ raise_exception('no') }}",
        "{{ not a template",
    ],
)
def test_a_template_that_takes_no_image_and_prompt_is_refused_or_gets_a_text(copied, template):
    folder = copied("llava")
    (folder / "chat_template.jinja").write_text(template)
    if "endfor" in template:
        # It takes the content as one text, as templates of tokenizers do.
        assert load_backend(files_of(folder), Placement())._prompts.render("Hi") == "<image>\nHi"
        return
    with pytest.raises(CheckpointError, match="does not take a prompt with one image"):
        load_backend(files_of(folder), Placement())


@pytest.mark.parametrize(
    "bomb",
    ["{% set x = 'a' * 3000000000 %}", "{{ 'a' * 2000000 }}", "{{ '%2000000d' % 1 }}", "{{ 'a'.center(3000000000) }}"],
)
def test_a_template_that_makes_something_huge_of_a_prompt_is_refused(copied, bomb):
    folder = copied("llava")
    path = folder / "chat_template.jinja"
    path.write_text(bomb + path.read_text())
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with pytest.raises(CheckpointError, match=r"makes more of a prompt than any model reads"):
        load_backend(files_of(folder), Placement())
    assert resource.getrlimit(resource.RLIMIT_DATA) == before


@pytest.mark.parametrize("fault", BROKEN_TEMPLATES)
def test_a_template_that_fails_is_an_error_of_the_checkpoint(copied, fault):
    folder = copied("llava")
    path = folder / "chat_template.jinja"
    path.write_text(fault + path.read_text())
    with pytest.raises(CheckpointError, match="chat template of this checkpoint"):
        load_backend(files_of(folder), Placement())


def test_a_template_with_the_prompt_before_the_image_is_refused(copied):
    folder = copied("llava")
    (folder / "chat_template.jinja").write_text("USER: {{ messages[0]['content'][1]['text'] }} <image> A:")
    with pytest.raises(CheckpointError, match="puts the prompt before the image"):
        load_backend(files_of(folder), Placement())


@pytest.mark.parametrize("file", ["chat_template.json", "processor_config.json"])
def test_templates_of_older_checkpoints_are_found(copied, file):
    folder = copied("llava")
    template = (folder / "chat_template.jinja").read_text()
    (folder / "chat_template.jinja").unlink()
    path = folder / file
    if not path.exists():
        path.write_text("{}")
    change(path, chat_template=template.replace("ASSISTANT", "OLDER"))
    assert load_backend(files_of(folder), Placement())._prompts.render("Hi") == "USER: <image>\nHi OLDER:"


@pytest.mark.parametrize("name", ["llava", "vicuna"])
def test_further_templates_are_digested_and_none_of_them_is_the_default(copied, name):
    folder = copied(name)
    before = files_of(folder).digest
    further = folder / "additional_chat_templates"
    further.mkdir()
    (further / "tool_use.jinja").write_text("{{ messages }}")
    assert "additional_chat_templates/tool_use.jinja" in dict(files_of(folder).deciding)
    assert files_of(folder).digest != before
    (further / "default.jinja").write_text("ANSWER BADLY {{ messages }}")
    with pytest.raises(CheckpointError, match=r"among its further ones[\s\S]*default\.jinja"):
        files_of(folder)


def test_another_image_token_than_the_models_is_refused(copied):
    folder = copied("llava")
    change(folder / "config.json", image_token_index=7)
    with pytest.raises(CheckpointError, match="another image token"):
        load_backend(files_of(folder), Placement())


@pytest.mark.parametrize("writer", [write_llava_gemma, write_instructblip, write_vicuna])
def test_an_answer_ends_where_the_turn_ends(writer, tmp_path):
    writer(tmp_path / "model")
    backend = load_backend(files_of(tmp_path / "model"), Placement())
    expected = {backend._tokenizer.eos_token_id, *range(60, 70)}
    if writer is write_llava_gemma:
        expected.add(backend._tokenizer.convert_tokens_to_ids("<end_of_turn>"))
    assert set(backend._stops) == expected


def test_files_can_be_passed_on_with_another_name(made):
    files = replace(files_of(made("vicuna")), name="other")
    assert load_backend(files, Placement()).identity == load_backend(files_of(made("vicuna")), Placement()).identity
