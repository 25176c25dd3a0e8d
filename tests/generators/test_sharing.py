"""Answers of local models against the slow way: transformers' own processor and `generate`, one row at a time."""

from collections import Counter
from dataclasses import replace
from functools import cache

import pytest
import torch
from PIL import Image
from row_by_row import SlowDraws, answered, asked_rows, drawn_subjects
from scipy import stats
from tiny_lvlms import BASE_LLMS, LVLMS

from plumbline.checkpoints.device import Placement
from plumbline.errors import GenerationError
from plumbline.generators import sampling
from plumbline.generators.backend import Decoding
from plumbline.generators.folders import generator_files, load_backend
from plumbline.images.decoding import decode

pytestmark = pytest.mark.usefixtures("one_thread")
PROMPTS = [
    "What is this person like?",
    "Describe this image in as much detail as possible.",
    "Do not judge people by how they look. Describe this image in as much detail as possible.",
]
SAMPLED, GREEDY = Decoding(max_new_tokens=20), Decoding(max_new_tokens=20, temperature=0)
VICUNA = (
    "A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, detailed, "
    "and polite answers to the user's questions. USER: {} ASSISTANT:"
)
FORMATS = {
    "llava": "USER: <image>\n{} ASSISTANT:",
    "bakllava": "USER: <image>\n{}\nASSISTANT:",
    "llava_gemma": "<start_of_turn>user\n<image>\n{}<end_of_turn>\n<start_of_turn>model\n",
    "instructblip": "{}",
    "vicuna": VICUNA,
    "mistral": "[INST] {} [/INST]",
    "gemma": "<start_of_turn>user\n{}<end_of_turn>\n<start_of_turn>model\n",
}
"""As the model cards write them; the tokenizer's start token comes before each."""


@pytest.fixture(scope="module")
def subjects(tmp_path_factory):
    return drawn_subjects(tmp_path_factory.mktemp("images"), [(40 + number, 50) for number in range(3)])


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    """Each model is written and loaded once."""

    @cache
    def get(name):
        folder = tmp_path_factory.mktemp(name)
        {**LVLMS, **BASE_LLMS}[name](folder)
        files = generator_files(name, f"local-dir:{folder}", project=folder, fetched=folder)
        return name, folder, load_backend(files, Placement())

    return get


@pytest.fixture(params=[*LVLMS, *BASE_LLMS])
def model(request, loaded):
    return loaded(request.param)


@pytest.fixture(params=["llava", "instructblip", "vicuna"])
def adapter(request, loaded):
    """One model of each family: for what is the same whatever language model is inside."""
    return loaded(request.param)


@pytest.fixture(params=["llava", "instructblip"])
def seeing(request, loaded):
    return loaded(request.param)


def rows(backend, subjects, decoding, prompts=PROMPTS, seeds=(0, 1)):
    return asked_rows(backend, subjects, decoding, prompts, seeds)


class Slow:
    """transformers' own way: the whole prompt of one row with its image, then `generate`."""

    def __init__(self, name, folder):
        import transformers

        self.name, options = name, {"local_files_only": True}
        classes = {"instructblip": ("InstructBlipForConditionalGeneration", "InstructBlipProcessor")}
        classes |= dict.fromkeys(BASE_LLMS, ("AutoModelForCausalLM", "AutoTokenizer"))
        model, processor = classes.get(name, ("LlavaForConditionalGeneration", "LlavaProcessor"))
        self.model = getattr(transformers, model).from_pretrained(folder, dtype="float32", **options)
        backend = {} if name in BASE_LLMS else {"backend": "pil"}
        self.processor = getattr(transformers, processor).from_pretrained(folder, **backend, **options)
        self.tokenizer = getattr(self.processor, "tokenizer", self.processor)

    def inputs(self, row):
        prompt = FORMATS[self.name].format(row.question.text)
        images = {} if row.subject.path is None else {"images": decode(row.subject.path)}
        return self.processor(text=prompt, return_tensors="pt", **images)

    def first_logits(self, row):
        inputs = self.inputs(row)
        inputs.pop("token_type_ids", None)
        with torch.inference_mode():
            return self.model(**inputs).logits[:, -1]

    def answer(self, row, decoding):
        from transformers import LogitsProcessorList, TemperatureLogitsWarper, TopKLogitsWarper

        steps = []
        if decoding.temperature:
            steps = [TemperatureLogitsWarper(0.75), TopKLogitsWarper(50), SlowDraws(row.key)]
        inputs = self.inputs(row)
        ends = self.model.generation_config.eos_token_id
        if "gemma" in self.name:
            ends = [*ends, self.tokenizer.convert_tokens_to_ids("<end_of_turn>")]
        out = self.model.generate(
            **inputs, do_sample=False, max_new_tokens=decoding.max_new_tokens, eos_token_id=ends,
            logits_processor=LogitsProcessorList(steps), pad_token_id=0, top_p=1.0,
        )  # fmt: skip
        length = inputs["input_ids"].shape[1]
        new = out[0] if self.name == "instructblip" else out[0, length:]
        new = new[length:] if len(new) > decoding.max_new_tokens else new
        stopped = int(new[-1]) in ends
        tokens = new[: len(new) - stopped].tolist()
        text = self.tokenizer.decode(tokens, skip_special_tokens=True).strip()
        return text, "stop" if stopped else "length", length, len(tokens)


@pytest.mark.parametrize("decoding", [SAMPLED, GREEDY], ids=["sampled", "greedy"])
def test_answers_are_those_of_generate_row_by_row(model, subjects, decoding):
    name, folder, backend = model
    asked = rows(backend, subjects[:2], decoding, seeds=(0, 1) if decoding is SAMPLED else (0,))
    slow = Slow(name, folder)
    expected = [slow.answer(row, decoding) for row in asked]
    found = [
        (answer.text, answer.finish_reason, answer.prompt_tokens, answer.new_tokens)
        for answer in answered(backend, asked, decoding)
    ]
    assert found == expected
    # Otherwise the test would say little.
    assert len({answer[0] for answer in found}) >= len(PROMPTS)
    if decoding is SAMPLED:
        assert {answer[1] for answer in found} == {"stop", "length"}


def test_first_tokens_of_many_seeds_follow_the_models_own_distribution(adapter, subjects):
    name, folder, backend = adapter
    decoding = Decoding(max_new_tokens=1)
    asked = rows(backend, subjects[:1], decoding, prompts=PROMPTS[:1], seeds=range(800))
    found = Counter(answer.text for answer in answered(backend, asked, decoding))
    scores = Slow(name, folder).first_logits(asked[0])[0].double() / 0.75
    scores[scores < scores.topk(50).values[-1]] = -torch.inf
    expected = Counter()
    for token, chance in enumerate(scores.softmax(-1).tolist()):
        stops = token in backend._stops
        expected["" if stops else backend._tokenizer.decode([token], skip_special_tokens=True).strip()] += chance
    assert set(found) <= {text for text, chance in expected.items() if chance > 0}
    often = [text for text, chance in expected.items() if chance * len(asked) >= 5]
    counts = [found[text] for text in often]
    chances = [expected[text] * len(asked) for text in often]
    rest = len(asked) - sum(chances)
    if rest > 1:
        counts, chances = [*counts, len(asked) - sum(counts)], [*chances, rest]
    assert len(often) > 10
    assert stats.chisquare(counts, chances, sum_check=False).pvalue > 1e-3


@pytest.mark.parametrize("name", ["llava_gemma", "instructblip", "mistral"])
def test_half_precision_answers_too(name, subjects, tmp_path):
    {**LVLMS, **BASE_LLMS}[name](tmp_path / name)
    files = generator_files(name, f"local-dir:{name}", project=tmp_path, fetched=tmp_path)
    backend = load_backend(files, Placement(dtype="bfloat16"))
    asked = rows(backend, subjects[:2], SAMPLED)
    answers = answered(backend, asked, SAMPLED)
    assert len({answer.text for answer in answers}) > 6
    assert answers == answered(backend, asked, SAMPLED)


def test_what_is_answered_depends_on_the_image_and_on_the_prompt(model, subjects):
    _, _, backend = model
    with torch.inference_mode():
        seen = backend._look({subject.image_id: subject.path for subject in subjects[:2]})
        first, image, prompt = backend._read(seen, [(0, "What?"), (1, "What?"), (0, "Why?")]).logits
    assert (first - prompt).abs().max() > 0.1
    assert ((first - image).abs().max() > 0.1) == backend.sees


def test_answers_do_not_depend_on_what_is_asked_beside_them(model, subjects):
    _, _, backend = model
    asked = rows(backend, subjects, SAMPLED)
    together = answered(backend, asked, SAMPLED)
    apart = [answered(backend, [row], SAMPLED)[0] for row in asked[:4]]
    assert apart == together[:4]
    last = asked[12:]
    assert answered(backend, last, SAMPLED) == together[12:]


def test_batches_of_any_size_answer_the_same(adapter, subjects, monkeypatch):
    _, _, backend = adapter
    asked = rows(backend, subjects, SAMPLED)
    together = answered(backend, asked, SAMPLED)
    monkeypatch.setattr(backend, "rows_at_once", 5)
    monkeypatch.setattr(backend, "_images_at_once", 2)
    assert answered(backend, asked, SAMPLED) == together


def test_each_image_is_seen_once_however_many_batches_ask_of_it(seeing, subjects, monkeypatch):
    name, _, backend = seeing
    tower = backend._model.vision_model if name == "instructblip" else backend._model.model.vision_tower
    seen, forward = [], tower.forward

    def counted(pixel_values, **options):
        seen.append(len(pixel_values))
        return forward(pixel_values, **options)

    monkeypatch.setattr(tower, "forward", counted)
    monkeypatch.setattr(backend, "rows_at_once", 4)
    answered(backend, rows(backend, subjects, SAMPLED), SAMPLED)
    assert sum(seen) == 3


def test_memory_that_runs_out_halves_the_rows_and_changes_nothing_else(adapter, subjects, monkeypatch):
    _, _, backend = adapter
    asked = rows(backend, subjects, SAMPLED)
    together = answered(backend, asked, SAMPLED)
    batch, tried = backend._batch, []

    def short_of_memory(asked, *rest):
        tried.append(len(asked))
        if len(asked) > 5:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return batch(asked, *rest)

    monkeypatch.setattr(backend, "_batch", short_of_memory)
    monkeypatch.setattr(backend, "rows_at_once", 18)
    assert answered(backend, asked, SAMPLED) == together
    assert tried == [18, 9, 4, 4, 4, 4, 2]


def test_memory_for_no_row_at_all_is_an_error(adapter, subjects, monkeypatch):
    _, _, backend = adapter

    def no_memory(*_):
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(backend, "_batch", no_memory)
    monkeypatch.setattr(backend, "rows_at_once", 4)
    with pytest.raises(GenerationError, match="memory for a single row"):
        list(backend.answers(rows(backend, subjects[:1], SAMPLED), SAMPLED))


def test_fewer_images_are_looked_at_where_memory_runs_out(adapter, subjects, monkeypatch):
    _, _, backend = adapter
    asked = rows(backend, subjects, SAMPLED)
    together = answered(backend, asked, SAMPLED)
    look, tried = backend._look, []

    def short_of_memory(paths):
        tried.append(len(paths))
        if len(paths) > 1:
            raise RuntimeError("CUDA error: out of memory")
        return look(paths)

    monkeypatch.setattr(backend, "_look", short_of_memory)
    monkeypatch.setattr(backend, "_images_at_once", 3)
    assert answered(backend, asked, SAMPLED) == together
    assert tried == [3, 1, 1, 1]


def test_another_error_of_torch_is_not_taken_for_short_memory(adapter, subjects, monkeypatch):
    _, _, backend = adapter

    def broken(*_):
        raise RuntimeError("shapes do not match")

    monkeypatch.setattr(backend, "_batch", broken)
    with pytest.raises(RuntimeError, match="shapes do not match"):
        list(backend.answers(rows(backend, subjects[:1], SAMPLED), SAMPLED))


def test_a_prompt_without_room_for_its_answer_is_refused(adapter, subjects):
    _, _, backend = adapter
    decoding = replace(SAMPLED, max_new_tokens=500)
    with pytest.raises(GenerationError, match="longer than the model's context"):
        list(backend.answers(rows(backend, subjects[:1], decoding), decoding))


def test_a_prompt_that_the_model_cannot_read_is_refused_before_it_reads_it(adapter, subjects, monkeypatch):
    _, _, backend = adapter
    read = []
    for name in ("read_prompts", "read_on"):
        monkeypatch.setattr(sampling, name, lambda *_: read.append(1))
    with pytest.raises(GenerationError, match=r"longer than the (model's context|Q-Former)"):
        list(backend.answers(rows(backend, subjects[:1], SAMPLED, prompts=["a man " * 2_000]), SAMPLED))
    assert not read


def test_an_image_that_changed_since_it_was_recorded_is_refused(seeing, subjects, tmp_path):
    _, _, backend = seeing
    changed = tmp_path / "changed.png"
    Image.new("RGB", (40, 40)).save(changed)
    asked = rows(backend, [replace(subjects[0], path=changed)], SAMPLED)
    with pytest.raises(GenerationError, match="no longer the one"):
        list(backend.answers(asked, SAMPLED))
    asked = rows(backend, [replace(subjects[0], path=None)], SAMPLED)
    with pytest.raises(GenerationError, match="a subject has none"):
        list(backend.answers(asked, SAMPLED))
    asked = rows(backend, [replace(subjects[0], path=tmp_path / "absent.png")], SAMPLED)
    with pytest.raises(GenerationError, match="cannot be read"):
        list(backend.answers(asked, SAMPLED))


def test_a_prompt_that_names_the_image_token_is_refused(loaded, subjects):
    _, _, backend = loaded("llava")
    asked = rows(backend, subjects[:1], SAMPLED, prompts=["What is <image> like?"])
    with pytest.raises(GenerationError, match="leave the place of the image"):
        list(backend.answers(asked, SAMPLED))
