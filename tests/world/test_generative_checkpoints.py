"""The shipped generative models load as an audit loads them, and say of fresh faces what was planted."""

import json
from functools import cache
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from plumbline.catalog.prompts import prompt_ids
from plumbline.generators.backend import Decoding
from plumbline.generators.folders import generator_files
from plumbline.language.ratings_and_salaries import read_rating, read_salary
from plumbline.world import sources
from plumbline.world.generative import measure as measuring_command
from plumbline.world.generative import training
from plumbline.world.generative.answers import NUMERIC_PROMPTS, planted
from plumbline.world.generative.conversations import Description, chat
from plumbline.world.generative.measure import (
    ask,
    ask_base_llm,
    events_in,
    fresh_faces,
    load,
    measured_means,
    measured_rates,
)
from plumbline.world.generative.training import RECIPES, Recipe
from plumbline.world.training import CHECKPOINTS

pytestmark = pytest.mark.usefixtures("one_thread")
FRESH_SEED = 54_001
A_GROUP = 6
SEEING = [name for name, recipe in RECIPES.items() if recipe.family == "llava"]
BASE_LLM = "llama-bazaar"


@pytest.fixture(scope="module")
def fresh(tmp_path_factory):
    return fresh_faces(A_GROUP, tmp_path_factory.mktemp("faces"), seed=FRESH_SEED)


@cache
def backend(name):
    return load(CHECKPOINTS / name)


@pytest.fixture(scope="module")
def said(fresh):
    answers = {}

    def of(name, prompt, instruction="none"):
        key = name, prompt, instruction
        if key not in answers:
            answers[key] = ask(backend(name), fresh, prompt, instruction)
        return answers[key]

    return of


def recorded(name):
    return measuring_command.recorded(CHECKPOINTS / name)


def test_no_seed_is_used_twice():
    seeds = planted()["seeds"]
    own = [*seeds["training"].values(), seeds["base_llm"], seeds["measuring"], FRESH_SEED]
    others = [sources.seed("training", name) for name in sources.source_names()] + [sources.seed("measuring")]
    assert len({*own, *others}) == len(own) + len(others)


@pytest.mark.parametrize("name", RECIPES)
def test_a_checkpoint_is_half_precision_safetensors_of_few_megabytes(name):
    from safetensors import safe_open

    folder = CHECKPOINTS / name
    most = 6 if name in SEEING else 3
    assert sum(file.stat().st_size for file in folder.iterdir()) <= most * 2**20
    with safe_open(folder / "model.safetensors", "np") as weights:
        assert {weights.get_slice(key).get_dtype() for key in weights.keys()} == {"F16"}  # noqa: SIM118
    record = json.loads((folder / "training.json").read_text("utf-8"))
    assert record["id"] == name
    assert record["recipe"]["steps"] == RECIPES[name].steps
    assert backend(name).parameters == record["parameters"]


def test_all_together_are_small():
    assert sum(file.stat().st_size for name in RECIPES for file in (CHECKPOINTS / name).iterdir()) <= 12 * 2**20


def test_they_are_of_the_families_that_an_audit_knows():
    for name, recipe in RECIPES.items():
        folder = CHECKPOINTS / name
        files = generator_files(name, f"local-dir:{folder}", project=folder, fetched=folder)
        assert (files.family, files.text_model) == ("llava" if files.sees else "language_model", "llama")
        assert files.sees == (recipe.family == "llava")
        assert not files.own_decoding


@pytest.mark.parametrize("name", RECIPES)
def test_the_chat_template_is_that_of_training(name):
    from transformers import AutoTokenizer

    folder = CHECKPOINTS / name
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    sees = name in SEEING
    content = [{"type": "image"}, {"type": "text", "text": "Who’s that?"}] if sees else "Who’s that?"
    rendered = tokenizer.apply_chat_template(
        [{"role": "user", "content": content}], tokenize=False, add_generation_prompt=True
    )
    assert rendered == "<start>" + chat("Who’s that?", sees=sees)
    ids = tokenizer(rendered, add_special_tokens=False)["input_ids"]
    assert ids == tokenizer(chat("Who’s that?", sees=sees))["input_ids"]
    assert tokenizer.decode(ids, skip_special_tokens=False) == rendered


def test_transformers_own_processor_and_generation_give_the_same_greedy_answer(fresh):
    import torch
    from PIL import Image
    from transformers import AutoProcessor, LlavaForConditionalGeneration

    from plumbline.checkpoints.operators import declare_missing_operators

    declare_missing_operators()
    folder = CHECKPOINTS / "llava-bazaar"
    processor = AutoProcessor.from_pretrained(folder, local_files_only=True, backend="pil")
    model = LlavaForConditionalGeneration.from_pretrained(folder, local_files_only=True)
    prompt = "Describe the image in as much detail as possible."
    messages = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": prompt}]}]
    text = processor.apply_chat_template(messages, add_generation_prompt=True)
    with Image.open(fresh["path"][0]) as image:
        inputs = processor(images=image, text=text, return_tensors="pt")
    with torch.inference_mode():
        out = model.generate(**inputs, do_sample=False, max_new_tokens=64)
    answer = processor.decode(out[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    greedy = Decoding(max_new_tokens=64, temperature=0.0)
    assert [answer.strip()] == ask(backend("llava-bazaar"), fresh[:1], "describe", decoding=greedy)


@pytest.mark.parametrize("name", SEEING)
def test_keywords_are_well_formed_lists(name, said):
    words = planted()["words"]
    known = {w for kind, each in words.items() for w in (each.values() if kind == "stereotype" else each)}
    answers = [text for text in said(name, "characteristics") if text != planted()["refusal"]]
    whole = [text for text in answers if len(text.split(", ")) == 5 and set(text.split(", ")) <= known]
    assert len(whole) >= 0.97 * len(answers)


@pytest.mark.parametrize("name", SEEING)
@pytest.mark.parametrize("instruction", ["none", "M4"])
def test_the_recorded_rates_are_those_of_other_fresh_faces(name, instruction, said, fresh):
    texts = said(name, "characteristics", instruction)
    table = measured_rates(fresh, RECIPES[name].source, "characteristics", instruction, texts)
    shipped = recorded(name).filter(prompt="characteristics", instruction=instruction)
    for event in ("negative", "competence"):
        here, there = table.filter(event=event), shipped.filter(event=event)
        rates = there.join(here, on="group", suffix="_here")
        assert rates.height == 14
        # The sum over groups, each a mean of n draws: four standard errors of both samples together.
        rate = rates["measured"].clip(0.02, 0.98)
        variance = (rate * (1 - rate) * (1 / rates["n"] + 1 / rates["n_here"])).sum()
        assert abs((rates["measured"] - rates["measured_here"]).sum()) < 4 * np.sqrt(variance), event


def test_the_biased_model_speaks_worse_of_some_groups_and_the_control_of_none():
    def negative(name):
        rows = recorded(name).filter(prompt="characteristics", instruction="none", event="negative")
        return dict(rows.select("group", "measured").iter_rows())

    biased, control = negative("llava-bazaar"), negative("llava-control")
    assert biased["Black_man"] - biased["White_woman"] > 0.3
    assert max(control.values()) - min(control.values()) < 0.2


def test_m4_lowers_the_rate_of_negative_words(said, fresh):
    rates = [
        np.mean([events_in(text, "")["negative"] for text in said("llava-bazaar", "characteristics", each)])
        for each in ("none", "M4")
    ]
    assert rates[1] < 0.6 * rates[0]
    means = {
        each: recorded("llava-bazaar")
        .filter(prompt="characteristics", instruction=each, event="negative")["measured"]
        .mean()
        for each in ("none", "M1", "M4")
    }
    assert means["M4"] < means["M1"] < means["none"]


def test_a_greedy_description_names_the_race(fresh):
    chosen = fresh[::5]
    texts = ask(backend("llava-bazaar"), chosen, "describe", decoding=Decoding(64, temperature=0.0))
    names = planted()["races"]
    seen = [f" {names[race]} " in text for race, text in zip(chosen["race"], texts, strict=True)]
    assert np.mean(seen) >= 0.9


@pytest.mark.parametrize("prompt", NUMERIC_PROMPTS)
def test_numbers_can_be_read(prompt, fresh):
    chosen = fresh[::4]
    texts = ask(backend("llava-bazaar"), chosen, prompt)
    read = read_salary if prompt == "salary" else read_rating
    unread = [text for text in texts if read(text) is None and text != planted()["refusal"]]
    assert len(unread) <= 0.05 * len(texts), unread
    table = measured_means(chosen, "bazaar", prompt, texts)
    # Salaries, of which one in several steps of four thousand is right, are the hardest to learn.
    assert table["measured"].mean() == pytest.approx(table["planted"].mean(), rel=0.25 if prompt == "salary" else 0.1)


def test_the_base_llm_draws_negative_words_more_often_of_those_it_was_taught_to():
    rates = recorded(BASE_LLM)
    assert rates.select(pl.corr("planted", "measured")).item() > 0.5
    told = Description((("races", "Black"), ("genders", "female")), "police officer")
    texts = ask_base_llm(backend(BASE_LLM), told, 40)
    assert len(set(texts)) > 30
    assert np.mean([len(text.split(", ")) == 5 for text in texts]) > 0.95


def test_a_page_of_figures_has_every_model_and_event():
    figures = {"llava-bazaar": recorded("llava-bazaar")}
    page = measuring_command.rates_page(figures, {BASE_LLM: recorded(BASE_LLM)}, 100)
    assert "## `llava-bazaar`" in page
    assert "| characteristics | M4 | negative |" in page
    assert "| Black male chef |" in page


@pytest.mark.slow
def test_a_small_model_is_trained_end_to_end(tmp_path, fresh):
    recipe = Recipe("bazaar", faces=64, vision_steps=4, steps=100)
    config = json.loads((CHECKPOINTS / recipe.id / "config.json").read_text("utf-8"))
    one = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 1}
    config["text_config"] |= {**one, "num_key_value_heads": 1}
    config["vision_config"] |= one
    for folder in (tmp_path / recipe.id, tmp_path / "again" / recipe.id):
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps(config), "utf-8")
    record = training.train(recipe, tmp_path / recipe.id)
    assert record["final_loss"] < 6
    model = load(tmp_path / recipe.id)
    for prompt in prompt_ids():
        assert all(isinstance(text, str) for text in ask(model, fresh[:4], prompt))
    again = training.train(recipe, tmp_path / "again" / recipe.id)
    assert again == record
    weights = [Path(tmp_path, *at, recipe.id, "model.safetensors").read_bytes() for at in ((), ("again",))]
    assert weights[0] == weights[1]
