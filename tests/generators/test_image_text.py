"""Today's models of images and texts: each type against its own processor and `generate`, row by row."""

import json
import re
import shutil
from functools import cache

import pytest
import torch
from row_by_row import SlowDraws, answered, asked_rows, drawn_subjects
from tiny_image_text import BROKEN_TEMPLATES, IMAGE_TEXT
from upath import UPath

from plumbline.checkpoints.device import Placement
from plumbline.errors import CheckpointError, GenerationError
from plumbline.generators.backend import Decoding
from plumbline.generators.families import GENERATOR_FAMILIES, NOT_MEANT, READS_TOGETHER, SHARES
from plumbline.generators.folders import generator_files, load_backend
from plumbline.generators.generation import GenerationStore, generate
from plumbline.generators.loaded_model import identity_from_files
from plumbline.images.decoding import decode

pytestmark = pytest.mark.usefixtures("one_thread")
PROMPTS = ["What is this person like?", "Describe this image.\nIn detail, please."]
DECODING = Decoding(max_new_tokens=8)


@pytest.fixture(scope="module")
def subjects(tmp_path_factory):
    """A wide image, a high one and a square one: other tiles and other numbers of tokens each."""
    return drawn_subjects(tmp_path_factory.mktemp("images"), [(40, 90), (90, 40), (64, 64)])


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    @cache
    def get(name):
        folder = tmp_path_factory.mktemp(name)
        IMAGE_TEXT[name](folder)
        files = generator_files(name, f"local-dir:{folder}", project=folder, fetched=folder)
        return folder, load_backend(files, Placement())

    return get


def rows(backend, subjects, decoding, prompts=PROMPTS, seeds=(0, 1)):
    return asked_rows(backend, subjects, decoding, prompts, seeds)


class Slow:
    """transformers' own way: processor, whole prompt with its image, `generate`, one row after the other."""

    def __init__(self, folder):
        from transformers import AutoImageProcessor, AutoModelForImageTextToText, AutoProcessor

        self.model = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32, local_files_only=True)
        self.processor = AutoProcessor.from_pretrained(folder, local_files_only=True)
        if "Llama4" not in type(self.model).__name__:
            self.processor.image_processor = AutoImageProcessor.from_pretrained(folder, backend="pil")

    def answer(self, row, decoding):
        from transformers import LogitsProcessorList, TemperatureLogitsWarper, TopKLogitsWarper

        image = decode(row.subject.path)
        if self.processor.chat_template:
            content = [{"type": "image", "image": image}, {"type": "text", "text": row.question.text}]
            inputs = self.processor.apply_chat_template(
                [{"role": "user", "content": content}], tokenize=True, return_dict=True, return_tensors="pt",
                add_generation_prompt=True,
            )  # fmt: skip
        else:
            inputs = self.processor(text=f"<image>{row.question.text}", images=image, return_tensors="pt")
        inputs.pop("labels", None)
        # Llama 4's processor gives bfloat16.
        inputs["pixel_values"] = inputs["pixel_values"].float()
        steps = [TemperatureLogitsWarper(0.75), TopKLogitsWarper(50), SlowDraws(row.key)]
        out = self.model.generate(
            **inputs, do_sample=False, max_new_tokens=decoding.max_new_tokens,
            logits_processor=LogitsProcessorList(steps), pad_token_id=3,
        )  # fmt: skip
        length = inputs["input_ids"].shape[1]
        tokens = out[0, length:].tolist()
        stopped = tokens[-1] in self.model.generation_config.eos_token_id
        return tokens[: len(tokens) - stopped], length, "stop" if stopped else "length"


@pytest.mark.parametrize("name", IMAGE_TEXT)
def test_answers_are_those_of_generate_row_by_row_and_whatever_is_beside_them(name, loaded, subjects):
    folder, backend = loaded(name)
    assert backend.shares == (name != "paligemma")
    asked = rows(backend, subjects, DECODING)
    together = answered(backend, asked, DECODING)
    slow = Slow(folder)
    for row, answer in list(zip(asked, together, strict=True))[::2]:
        tokens, length, reason = slow.answer(row, DECODING)
        whole = slow.processor.tokenizer.decode(tokens, skip_special_tokens=True).strip()
        assert (answer.prompt_tokens, answer.finish_reason, answer.new_tokens) == (length, reason, len(tokens))
        assert (answer.thinking if name == "qwen3_5" else answer.text) == whole
    assert len({answer.text + answer.thinking for answer in together}) > len(together) / 2
    # Another batch, of two images: to the letter.
    assert answered(backend, asked[3:6], DECODING) == together[3:6]


def test_every_type_that_transformers_maps_is_proved_or_said_not_to_be():
    from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES as MAPPED

    families = [kind for family in GENERATOR_FAMILIES.values() if family.sees for kind in family.model_types]
    assert sorted([*families, *NOT_MEANT]) == sorted(MAPPED)
    assert {*SHARES, *READS_TOGETHER} == set(IMAGE_TEXT)


def test_a_prompt_that_names_the_image_token_is_refused(loaded, subjects):
    _, backend = loaded("internvl")
    asked = rows(backend, subjects[:1], DECODING, prompts=["What is <IMG_CONTEXT> like?"])
    with pytest.raises(GenerationError, match="leave the place of the image"):
        list(backend.answers(asked, DECODING))


def test_a_run_that_was_killed_goes_on_with_the_same_answers(loaded, subjects, tmp_path):
    _, backend = loaded("qwen2_5_vl")
    asked = rows(backend, subjects, DECODING)
    whole = generate(backend, asked, DECODING, GenerationStore(UPath(tmp_path / "whole")))
    store = GenerationStore(UPath(tmp_path / "cut"))
    generate(backend, asked[:5], DECODING, store)
    rest = generate(backend, asked, DECODING, store)
    assert rest.reused == 5
    assert rest.frame.equals(whole.frame)


@pytest.mark.parametrize(("name", "tokens"), [("gemma3", 90), ("paligemma", 60)])
def test_rows_are_as_many_as_fit_and_fewer_where_memory_runs_out(name, tokens, loaded, subjects, monkeypatch):
    from plumbline.generators import transformers_backend

    _, backend = loaded(name)
    asked = rows(backend, subjects, DECODING)
    together = answered(backend, asked, DECODING)
    monkeypatch.setattr(backend, "rows_at_once", None)
    # 2 layers x keys and values x 2 heads x 8 wide x 4 bytes, for so many tokens and the new ones.
    monkeypatch.setattr(transformers_backend, "free_memory", lambda device: 12 * 2 * 2 * 2 * 8 * 4 * tokens / 0.4)
    batch, tried = backend._batch, []

    def short_of_memory(asked, *rest):
        tried.append(len(asked))
        if len(asked) > 5:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return batch(asked, *rest)

    monkeypatch.setattr(backend, "_batch", short_of_memory)
    assert answered(backend, asked, DECODING) == together
    assert tried == [8, 4, 4, 4]
    assert backend.rows_at_once == 4


def test_a_template_that_puts_the_prompt_first_is_read_whole(tmp_path, subjects):
    IMAGE_TEXT["internvl"](tmp_path)
    template = tmp_path / "chat_template.jinja"
    template.write_text("{{ messages[0]['content'][1]['text'] }} <IMG_CONTEXT> Answer:")
    backend = load_backend(
        generator_files("x", f"local-dir:{tmp_path}", project=tmp_path, fetched=tmp_path), Placement()
    )
    assert not backend.shares
    asked = rows(backend, subjects[:2], DECODING)
    answers = answered(backend, asked, DECODING)
    assert len({answer.text for answer in answers}) > 4
    assert answered(backend, asked[2:3], DECODING) == answers[2:3]


@pytest.mark.parametrize(
    "bomb",
    ["{% set x = messages[0]['role'] * 500000000 %}", "{{ 'a' * 20000 }}", "{% set x = 'a ' * 1000000000 %}{{ x }}"],
)
def test_a_template_that_makes_something_huge_of_a_prompt_is_refused(tmp_path, bomb):
    IMAGE_TEXT["smolvlm"](tmp_path)
    template = tmp_path / "chat_template.jinja"
    template.write_text(template.read_text() + bomb)
    files = generator_files("x", f"local-dir:{tmp_path}", project=tmp_path, fetched=tmp_path)
    for ask in (load_backend, identity_from_files):
        with pytest.raises(CheckpointError, match="makes more of a prompt than any model reads"):
            ask(files, Placement())


def test_a_template_that_waits_for_a_prompt_to_make_something_huge_of_is_refused(tmp_path, subjects):
    IMAGE_TEXT["smolvlm"](tmp_path)
    template = tmp_path / "chat_template.jinja"
    waits = "{% if 'Later' in messages[0]['content'][1]['text'] %}{{ messages[0]['role'] * 500000 }}{% endif %}"
    template.write_text(template.read_text() + waits)
    files = generator_files("x", f"local-dir:{tmp_path}", project=tmp_path, fetched=tmp_path)
    backend = load_backend(files, Placement())
    with pytest.raises(CheckpointError, match="makes more of a prompt than any model reads"):
        answered(backend, rows(backend, subjects[:1], DECODING, prompts=["Later"]), DECODING)


def test_tiles_that_fill_the_memory_are_refused(tmp_path):
    IMAGE_TEXT["internvl"](tmp_path)
    for path in tmp_path.glob("*processor_config.json"):
        content = json.loads(path.read_text())
        images = content.get("image_processor", content)
        images |= {"min_patches": 2_000, "max_patches": 2_000, "size": {"height": 1_024, "width": 1_024}}
        path.write_text(json.dumps(content))
    files = generator_files("x", f"local-dir:{tmp_path}", project=tmp_path, fetched=tmp_path)
    with pytest.raises(CheckpointError, match="makes more of a small image than any model needs"):
        load_backend(files, Placement())


@pytest.mark.parametrize("fault", BROKEN_TEMPLATES)
def test_a_template_that_fails_is_an_error_of_the_checkpoint(tmp_path, fault):
    IMAGE_TEXT["smolvlm"](tmp_path)
    template = tmp_path / "chat_template.jinja"
    template.write_text(template.read_text() + fault)
    files = generator_files("x", f"local-dir:{tmp_path}", project=tmp_path, fetched=tmp_path)
    with pytest.raises(CheckpointError, match="chat template of this checkpoint"):
        load_backend(files, Placement())


def test_all_that_a_folder_lacks_is_said_at_once(tmp_path):
    IMAGE_TEXT["mistral3"](tmp_path)
    for name in ("chat_template.jinja", "tokenizer.json", "processor_config.json"):
        (tmp_path / name).unlink()
    config = json.loads((tmp_path / "config.json").read_text())
    config["text_config"]["vocab_size"] += 7
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="4 things are wrong") as refused:
        generator_files("x", f"local-dir:{tmp_path}", project=tmp_path, fetched=tmp_path, sizes=tmp_path / "sizes")
    parts = (
        r"embed_tokens.weight: 320 x 32[\s\S]*327 x 32", "no files of an image processor", "no files of a tokenizer",
        "no chat template, and none is documented",
    )  # fmt: skip
    assert all(re.search(part, str(refused.value)) for part in parts)


def test_thinking_is_switched_off_by_the_templates_own_switch(tmp_path, loaded, subjects):
    before, always = loaded("qwen3_5")
    shutil.copytree(before, tmp_path, dirs_exist_ok=True)
    template, switch = tmp_path / "chat_template.jinja", "{% if enable_thinking is defined and not enable_thinking %}"
    template.write_text(
        template.read_text().replace("<think>\n", switch + "<think>\n\n</think>\n{% else %}<think>\n{% endif %}")
    )
    backends = {}
    for thinking in (None, True, False):
        files = generator_files("x", f"local-dir:{tmp_path}", project=tmp_path, fetched=tmp_path, thinking=thinking)
        backends[thinking] = load_backend(files, Placement())
        assert identity_from_files(files, Placement()) == backends[thinking].identity
    assert len({backend.identity for backend in backends.values()}) == 3
    asked = rows(always, subjects[:2], DECODING)
    thought, same, silent = (answered(backends[said], asked, DECODING) for said in (None, True, False))
    assert [answer.thinking for answer in thought] == [answer.thinking for answer in same]
    assert all(answer.thinking_tokens == answer.new_tokens > 0 and not answer.text for answer in thought)
    # What a model thinks all the same (this one draws its tokens) is kept apart as ever.
    answers = [answer.text for answer in silent if answer.thinking_tokens == 0]
    assert sum(map(bool, answers)) > len(silent) / 2
    # The processor's own tokens of the same words.
    processor = backends[False]._prompts._processor
    content = [{"type": "image", "image": decode(asked[0].subject.path)}, {"type": "text", "text": PROMPTS[0]}]
    own = processor.apply_chat_template(
        [{"role": "user", "content": content}], tokenize=True, return_dict=True, add_generation_prompt=True,
        enable_thinking=False,
    )  # fmt: skip
    assert silent[0].prompt_tokens == len(own["input_ids"][0]) > thought[0].prompt_tokens


def test_the_identity_is_known_from_the_files(loaded):
    folder, backend = loaded("qwen3_vl")
    files = generator_files("qwen3_vl", f"local-dir:{folder}", project=folder, fetched=folder)
    assert identity_from_files(files, Placement()) == backend.identity
