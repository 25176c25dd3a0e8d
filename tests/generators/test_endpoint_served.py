"""The client against a real server: `transformers serve` with a tiny LLaVA."""

from __future__ import annotations

import json

import pytest
from endpoint_doubles import DECODING, asked, settings
from PIL import Image
from served import serving_checkpoint
from tiny_lvlms import write_llava

from plumbline.digests import digest_bytes
from plumbline.errors import GenerationError
from plumbline.generators.backend import Decoding, Subject
from plumbline.generators.endpoint import EndpointBackend

GREEDY = Decoding(max_new_tokens=12, temperature=0.0)


@pytest.fixture(scope="module")
def llava(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served") / "llava"
    write_llava(folder)
    # The server draws only where the checkpoint says so, whatever temperature it is told.
    (folder / "generation_config.json").write_text(
        json.dumps({**json.loads((folder / "generation_config.json").read_text()), "do_sample": True})
    )
    with serving_checkpoint(folder) as url:
        yield url, str(folder)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pictures")
    subjects = []
    for colour in ("red", "navy", "white"):
        path = folder / f"{colour}.png"
        Image.linear_gradient("L").resize((40, 32)).convert("RGB").save(path)
        with Image.open(path) as shade:
            Image.blend(shade.convert("RGB"), Image.new("RGB", shade.size, colour), 0.6).save(path)
        subjects.append(Subject(digest_bytes(path.read_bytes()), path))
    return subjects


def answers(llava, rows, decoding=GREEDY, **more):
    url, model = llava
    backend = EndpointBackend(settings(url, model=model, concurrency=2, attempts=1, **more))
    found = dict(backend.answers(rows, decoding))
    assert sorted(found) == list(range(len(rows)))
    return [found[position] for position in sorted(found)]


def test_images_and_text_reach_the_model_and_its_answers_come_back(llava, pictures):
    rows = [asked("What is this person like?", subject=subject) for subject in (*pictures, None)]
    first, again = (answers(llava, rows) for _ in range(2))
    assert first == again
    seen, alone = first[:3], first[3]
    # The picture is part of the prompt, and greedy texts follow it.
    assert {one.prompt_tokens for one in seen} == {seen[0].prompt_tokens}
    assert seen[0].prompt_tokens > alone.prompt_tokens > 0
    assert len({one.text for one in first}) > 1
    assert all(one.finish_reason in ("stop", "length") and llava[1] in one.source for one in first)
    assert all(0 < one.new_tokens <= 12 for one in first)


def test_the_answer_is_that_of_the_local_model(llava, pictures):
    from plumbline.checkpoints.operators import declare_missing_operators

    declare_missing_operators()
    from transformers import AutoProcessor, LlavaForConditionalGeneration

    model = LlavaForConditionalGeneration.from_pretrained(llava[1]).eval()
    processor = AutoProcessor.from_pretrained(llava[1])
    with Image.open(pictures[0].path) as picture:
        content = [{"type": "image", "image": picture.convert("RGB")}, {"type": "text", "text": "Who is this?"}]
    inputs = processor.apply_chat_template(
        [{"role": "user", "content": content}],
        add_generation_prompt=True,
        tokenize=True,
        return_dict=True,
        return_tensors="pt",
    )
    made = model.generate(**inputs, do_sample=False, max_new_tokens=12)[0, inputs["input_ids"].shape[1] :]
    (answer,) = answers(llava, [asked("Who is this?", subject=pictures[0])])
    assert answer.text == processor.decode(made, skip_special_tokens=True)
    assert answer.prompt_tokens == inputs["input_ids"].shape[1]
    assert answer.new_tokens == len(made)


def test_seeds_are_heard(llava):
    rows = [asked("Tell me more.", seed=seed) for seed in (0, 0, 1, 2)]
    same, twin, *others = (answers(llava, [row], DECODING)[0].text for row in rows)
    assert same == twin and {same} != set(others)


def test_a_model_that_is_not_served_is_a_clear_error(llava):
    with pytest.raises(GenerationError) as caught:
        answers((llava[0], "another"), [asked("hello")])
    assert "another" in caught.value.found and caught.value.hint
