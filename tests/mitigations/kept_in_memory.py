"""Epochs of a training that are kept in memory, and what two trainings have in common."""

from types import SimpleNamespace

import numpy as np


class Kept:
    """A store of epochs in memory, which can stop the work after some."""

    def __init__(self, stop_after=None):
        self.states, self.stop_after = {}, stop_after

    def load(self, key):
        return SimpleNamespace(arrays=self.states[key]) if key in self.states else None

    def commit(self, key, arrays, *, details):
        self.states[key] = {name: np.array(array) for name, array in arrays.items()}
        if self.stop_after == details["epochs"]:
            raise KeyboardInterrupt


def assert_same_training(one, other):
    """Assert that parameters and losses are the same to the last bit."""
    for first, second in ((one.parameters, other.parameters), (one.losses, other.losses)):
        assert {name: array.tobytes() for name, array in first.items()} == {
            name: array.tobytes() for name, array in second.items()
        }


def assert_same_fit(one, other):
    """Assert that the training is the same, and what is said of it."""
    assert one.settings == other.settings and one.fitted_on == other.fitted_on
    assert one.train_ids == other.train_ids
    assert_same_training(one, other)
