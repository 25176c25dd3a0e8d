"""Training in epochs: what is kept after each one is all that the next needs."""

import numpy as np
import pytest
from upath import UPath

from plumbline.mitigations.training import train
from plumbline.storage import ShardCache


class Adder:
    """Adds up the rows it is given, weighted by the step; the order matters."""

    def __init__(self, stop_after=None):
        self.total, self.stop_after, self.seen, self.descents = np.zeros(1), stop_after, [], [self]

    def step(self, rows, number):
        if number == self.stop_after:
            raise KeyboardInterrupt
        self.seen += rows.tolist()
        self.total = self.total * 1.1 + rows @ np.arange(1, len(rows) + 1)
        return {"loss": float(self.total[0]), "size": float(len(rows))}

    def state(self):
        return {"total": self.total.copy()}

    def restore(self, state):
        self.total = np.array(state["total"])


SETTINGS = {"rows": 23, "batch": 5, "epochs": 4, "seed": 3, "key": "ab" * 32}


@pytest.fixture
def store(tmp_path):
    return ShardCache(UPath(tmp_path))


def test_an_interrupted_training_goes_on_to_the_same_end(store):
    whole = Adder()
    wanted = train(whole, **SETTINGS)
    with pytest.raises(KeyboardInterrupt):
        train(Adder(stop_after=10), store=store, **SETTINGS)
    resumed, moved = Adder(), []
    found = train(resumed, store=store, progress=lambda *at: moved.append(at), **SETTINGS)
    assert resumed.total.tobytes() == whole.total.tobytes()
    assert moved == [(i, 8) for i in range(1, 9)], "progress is of the work of this run"
    for name, curve in wanted.items():
        np.testing.assert_array_equal(found[name], curve)
    assert len(wanted["loss"]) == 4 * (23 // 5)


def test_a_finished_training_is_found_and_another_key_is_not(store):
    first = train(Adder(), store=store, **SETTINGS)
    again = Adder(stop_after=0)
    found = train(again, store=store, **SETTINGS)
    assert not again.seen and found["loss"].tolist() == first["loss"].tolist()
    fresh = Adder()
    train(fresh, store=store, **{**SETTINGS, "key": "cd" * 32})
    assert len(fresh.seen) == 4 * 20


def test_a_damaged_state_is_not_gone_on_from(store, tmp_path):
    train(Adder(), store=store, **SETTINGS)
    (data,) = [file for file in tmp_path.rglob("*.safetensors") if _named(file, tmp_path)]
    data.write_bytes(data.read_bytes()[:-1] + b"x")
    again = Adder()
    train(again, store=store, **SETTINGS)
    assert len(again.seen) == 4 * 20


def _named(file, root):
    return any(file.stem in manifest.read_text() for manifest in root.rglob("*.json"))


def test_every_epoch_sees_each_row_at_most_once_in_an_order_of_its_own():
    model = Adder()
    train(model, **SETTINGS)
    epochs = np.array(model.seen).reshape(4, 20)
    assert all(len(set(epoch)) == 20 for epoch in epochs.tolist())
    assert len({tuple(epoch) for epoch in epochs.tolist()}) == 4
    other = Adder()
    train(other, **{**SETTINGS, "seed": 4})
    assert other.seen != model.seen


def test_fewer_rows_than_a_batch_are_one_batch():
    model = Adder()
    losses = train(model, **{**SETTINGS, "rows": 3, "epochs": 1})
    assert sorted(model.seen) == [0, 1, 2] and losses["size"].tolist() == [3.0]
