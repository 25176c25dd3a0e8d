"""Answers in the order of their rows, and the draws of `generate` row by row: what sharing is held against."""

from dataclasses import replace

import numpy as np
import torch
from PIL import Image

from plumbline.digests import digest_file
from plumbline.generators.backend import Asked, Question, Subject, row_key


def drawn_subjects(folder, sizes):
    """Return an image of noise of each size, written to a folder."""
    paths = [folder / f"{number}.png" for number in range(len(sizes))]
    for number, (path, size) in enumerate(zip(paths, sizes, strict=True)):
        Image.fromarray(np.random.default_rng(number).integers(0, 256, (*size, 3), dtype=np.uint8)).save(path)
    return [Subject(digest_file(path), path) for path in paths]


def asked_rows(backend, subjects, decoding, prompts, seeds=(0, 1)):
    if not backend.sees:
        subjects = [replace(subject, path=None) for subject in subjects]
    questions = [Question("p", "none", prompt, seed) for prompt in prompts for seed in seeds]
    return [
        Asked(subject, question, row_key(backend.identity, subject, question, decoding))
        for subject in subjects
        for question in questions
    ]


def answered(backend, asked, decoding):
    found = dict(backend.answers(asked, decoding))
    assert sorted(found) == list(range(len(asked)))
    return [found[position] for position in range(len(asked))]


class SlowDraws:
    """A logits processor that leaves only the row's own token: the last step of `generate` then takes it."""

    def __init__(self, key):
        self.drawn = np.random.Generator(np.random.Philox(key=int(key, 16)))

    def __call__(self, input_ids, scores):
        sums = scores.double().softmax(-1).cumsum(-1)
        token = int(torch.searchsorted(sums[0], self.drawn.random() * sums[0, -1], right=True))
        alone = torch.full_like(scores, -torch.inf)
        alone[0, token] = 0.0
        return alone
