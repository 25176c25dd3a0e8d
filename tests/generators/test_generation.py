"""The generation engine: nothing twice, nothing lost but a group, the same table however often a run was cut off."""

import os
import signal
import sys
from collections import Counter
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import torch
from forked import server
from PIL import Image
from tiny_image_text import IMAGE_TEXT
from upath import UPath

from plumbline.checkpoints.device import Placement
from plumbline.digests import digest_file
from plumbline.errors import GenerationError, StorageError
from plumbline.generators import generation
from plumbline.generators.backend import Answer, Asked, Decoding, Question, Subject, row_key
from plumbline.generators.folders import generator_files, load_backend
from plumbline.generators.generation import ANSWER_SCHEMA, GenerationStore, generate

DECODING = Decoding(max_new_tokens=12)


class Interrupted(BaseException):
    """Like KeyboardInterrupt, which pytest would take for itself."""


class Double:
    """A backend that counts what it is asked, and can be made to fail at one row."""

    identity, device, sees, at_once = "double", "cpu", True, 2

    def __init__(self, fails_at=None, error=None):
        self.asked, self.calls = Counter(), []
        self.fails_at, self.error = fails_at, error or GenerationError("it broke")

    def answers(self, asked, decoding):
        self.calls.append([row.key for row in asked])
        # In another order than asked, as an endpoint's answers come.
        for position in reversed(range(len(asked))):
            if sum(self.asked.values()) == self.fails_at:
                raise self.error
            key = asked[position].key
            self.asked[key] += 1
            yield position, Answer(f"answer to {key}", "stop", 5, len(key), "weights")


def questions(prompts=("a", "b"), seeds=(0, 1)):
    return [Question(prompt, "none", f"Text {prompt}", seed) for prompt in prompts for seed in seeds]


def rows(subjects=5, identity="double", **asking):
    made = [Subject(f"image{number}", None) for number in range(subjects)]
    return [
        Asked(subject, question, row_key(identity, subject, question, DECODING))
        for subject in made
        for question in questions(**asking)
    ]


@pytest.fixture
def store(tmp_path):
    return GenerationStore(UPath(tmp_path / "answers"))


def parts(store):
    return sorted(store.root.glob("**/*.parquet"))


def test_every_row_is_asked_once_and_comes_back_in_the_order_asked(store):
    asked, backend = rows(), Double()
    moved = []
    made = generate(backend, asked, DECODING, store, progress=lambda *at: moved.append(at))
    assert dict(made.frame.schema) == dict(ANSWER_SCHEMA)
    assert made.frame["row_key"].to_list() == [row.key for row in asked]
    assert made.frame["text"].to_list() == [f"answer to {row.key}" for row in asked]
    assert (made.generated, made.reused, made.damaged) == (20, 0, 0)
    assert set(backend.asked.values()) == {1}
    assert moved == [(done, 20) for done in range(1, 21)]
    assert [len(call) for call in backend.calls] == [8, 8, 4]
    again = generate(backend, asked, DECODING, store, progress=lambda *at: moved.append(at))
    assert again.frame.equals(made.frame)
    assert (again.generated, again.reused) == (0, 20)
    assert len(backend.calls) == 3
    assert len(moved) == 20


@pytest.mark.parametrize("fails_at", [0, 1, 8, 13, 19])
@pytest.mark.parametrize("error", [GenerationError("it broke"), Interrupted(), RuntimeError("it broke")])
def test_what_was_answered_before_an_error_stays_answered(store, fails_at, error):
    asked, broken = rows(), Double(fails_at, error)
    with pytest.raises(type(error)):
        generate(broken, asked, DECODING, store)
    whole = Double()
    made = generate(whole, asked, DECODING, store)
    assert (made.generated, made.reused) == (20 - fails_at, fails_at)
    assert set((broken.asked + whole.asked).values()) == {1}
    assert made.frame.equals(generate(Double(), asked, DECODING, GenerationStore(store.root / "new")).frame)


@pytest.mark.parametrize("damage", [lambda data: data[:-40], lambda data: b"", lambda data: data + b"x"])
def test_a_damaged_part_is_told_and_its_rows_alone_are_made_again(store, damage, caplog):
    asked = rows()
    before = generate(Double(), asked, DECODING, store).frame
    part = parts(store)[1]
    part.write_bytes(damage(part.read_bytes()))
    backend = Double()
    made = generate(backend, asked, DECODING, store)
    assert made.frame.equals(before)
    assert made.damaged == 1
    assert made.generated in (4, 8)
    assert "damaged" in caplog.text
    # The bytes are the same again, and so is the name.
    assert part.exists()


def test_a_prompt_that_is_added_asks_only_its_own_rows_in_the_same_groups(store):
    generate(Double(), rows(), DECODING, store)
    backend, more = Double(), rows(prompts=("a", "c", "b"))
    made = generate(backend, more, DECODING, store)
    assert made.frame["row_key"].to_list() == [row.key for row in more]
    assert (made.generated, made.reused) == (10, 20)
    assert [len(call) for call in backend.calls] == [4, 4, 2]


def test_fewer_rows_than_are_kept_come_back_alone(store):
    generate(Double(), rows(), DECODING, store)
    less = rows(subjects=2, prompts=("b",))
    made = generate(Double(fails_at=0), less, DECODING, store)
    assert made.frame["row_key"].to_list() == [row.key for row in less]


def test_rows_of_equal_keys_are_one_row(store):
    asked = rows()
    made = generate(Double(), [*asked, *asked[:3]], DECODING, store)
    assert made.frame["row_key"].to_list() == [row.key for row in asked]
    assert generate(Double(), [], DECODING, store).frame.is_empty()


def test_backends_and_shards_do_not_share_rows(store):
    asked, other = rows(), Double()
    generate(Double(), asked, DECODING, store, shard="first")
    other.identity = "other"
    assert generate(other, asked, DECODING, store, shard="first").generated == 20
    assert generate(Double(), asked, DECODING, store, shard="second").generated == 20
    assert generate(Double(), asked, DECODING, store, shard="first").generated == 0


class Endpoint(Double):
    device, at_once = "endpoint", 3


def test_answers_of_an_endpoint_are_kept_after_some_rows_or_some_time(store, monkeypatch):
    monkeypatch.setattr(generation, "PART_ROWS", 7)
    generate(Endpoint(), rows(), DECODING, store)
    assert sorted(pl.read_parquet(part.read_bytes()).height for part in parts(store)) == [6, 7, 7]
    later = GenerationStore(store.root / "later")
    monkeypatch.setattr(generation, "PART_ROWS", 100)
    clock = iter(range(0, 1000, 8))
    generate(Endpoint(), rows(), DECODING, later, clock=lambda: next(clock))
    heights = [pl.read_parquet(part.read_bytes()).height for part in parts(later)]
    assert sum(heights) == 20
    assert max(heights) == 4


def test_two_writers_at_once_do_no_harm(store):
    asked = rows()

    class Beside(Double):
        def answers(self, asked_now, decoding):
            if not self.calls:
                generate(Double(), asked, DECODING, store)
            return super().answers(asked_now, decoding)

    made = generate(Beside(), asked, DECODING, store)
    assert made.frame["row_key"].to_list() == [row.key for row in asked]
    assert generate(Double(fails_at=0), asked, DECODING, store).frame.equals(made.frame)


class Odd(Double):
    def answers(self, asked, decoding):
        yield from list(super().answers(asked, decoding))[self.part]


@pytest.mark.parametrize("part", [slice(1, None), slice(0, 0)])
def test_a_backend_that_leaves_rows_out_is_an_error_that_keeps_the_others(store, part):
    backend = Odd()
    backend.part = part
    with pytest.raises(GenerationError, match="without an answer"):
        generate(backend, rows(), DECODING, store)
    assert generate(Double(), rows(), DECODING, store).reused == (7 if part.start else 0)


def test_a_backend_that_answers_twice_is_an_error(store):
    class Twice(Double):
        def answers(self, asked, decoding):
            for answer in super().answers(asked, decoding):
                yield answer
                yield answer

    with pytest.raises(GenerationError, match="or twice"):
        generate(Twice(), rows(), DECODING, store)


def test_a_text_that_is_no_unicode_costs_no_other_row(store):
    class Halves(Double):
        def answers(self, asked, decoding):
            for position, answer in super().answers(asked, decoding):
                yield position, replace(answer, text="half \ud83d a pair")

    assert set(generate(Halves(), rows(), DECODING, store).frame["text"]) == {"half ? a pair"}


def test_a_full_disk_is_an_error_of_storage_and_nothing_half_is_read(store, monkeypatch):
    from plumbline.storage import kept_rows

    def full(path, data):
        raise StorageError("could not be written; what was there before is intact")

    monkeypatch.setattr(kept_rows, "commit_bytes", full)
    with pytest.raises(StorageError):
        generate(Double(), rows(), DECODING, store)
    monkeypatch.undo()
    assert generate(Double(), rows(), DECODING, store).generated == 20


# Real models, killed: one that shares an image's reading, and one that `generate` reads with each prompt.


def real(folder):
    """A tiny model, loaded as any other, and what it is asked of six images."""
    torch.set_num_threads(1)
    files = generator_files("tiny", "local-dir:model", project=folder, fetched=folder)
    backend = load_backend(files, Placement())
    backend.at_once = 2
    subjects = [Subject(digest_file(path), path) for path in sorted(folder.glob("*.png"))]
    return backend, [
        Asked(subject, question, row_key(backend.identity, subject, question, DECODING))
        for subject in subjects
        for question in questions()
    ]


def generate_and_die(folder, row):
    """For a process of its own, which is killed when it has so many rows."""

    def die(done, _):
        if done == row:
            os.kill(os.getpid(), signal.SIGKILL)

    generate(*real(folder), DECODING, GenerationStore(UPath(folder / "answers")), progress=die)


def killed_at(row, folder):
    """Return how a process ended that was killed when it had so many rows."""
    code = f"""
import pathlib, sys
sys.path[:] = {sys.path!r}
from test_generation import generate_and_die
generate_and_die(pathlib.Path({str(folder)!r}), {row})
"""
    process = server().start(("-c", code), {**os.environ, "OMP_NUM_THREADS": "1"})
    output, _ = process.communicate()
    assert process.returncode < 0, output
    return process.returncode


@pytest.mark.parametrize("model", ["qwen2_5_vl", "paligemma"])
def test_a_killed_run_goes_on_where_it_was_and_ends_with_the_same_bytes(model, tmp_path, one_thread):
    IMAGE_TEXT[model](tmp_path / "model")
    for number in range(6):
        pixels = np.random.default_rng(number).integers(0, 256, (36, 36, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
    assert killed_at(11, tmp_path) == -signal.SIGKILL
    backend, asked = real(tmp_path)
    whole, cut_off = GenerationStore(UPath(tmp_path / "whole")), GenerationStore(UPath(tmp_path / "answers"))
    expected = generate(backend, asked, DECODING, whole)
    made = generate(backend, asked, DECODING, cut_off)
    # Three groups of eight rows: the first was kept, the second was lost with its three rows.
    assert (made.generated, made.reused) == (16, 8)
    assert made.frame.equals(expected.frame)
    assert [part.name for part in parts(cut_off)] == [part.name for part in parts(whole)]
    assert made.frame["text"].n_unique() > 12
