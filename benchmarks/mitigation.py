"""Batched logit adjustment against one image at a time: `python -m benchmarks.mitigation`.

15 probes × 3 trials on logits of FairFace's size (10,954 images, 7 races). The peer is the shape of the released
code: for every probe and trial a loop over images in torch, 20 epochs, and (for the released rule) the accuracy of
all test images after each epoch. It is run on one probe and trial, and on few epochs where it scores the test
images, and scaled up.
"""

import time
from collections.abc import Callable

import numpy as np
import torch

from plumbline.mitigation import LogitAdjustment, fit_logit_adjustment

IMAGES, CLASSES, PROBES, TRIALS, EPOCHS = 10_954, 7, 15, 3, 20
TEST_EPOCHS = 2


def draw(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw (probes, n, C + 1) logits of raw dot products, and labels."""
    labels = rng.integers(0, CLASSES, IMAGES)
    classes = rng.normal(22, 1, (IMAGES, CLASSES))
    classes[np.arange(IMAGES), labels] += 1
    probes = rng.normal(22.5, 1, (PROBES, IMAGES, 1))
    logits = np.concatenate([np.broadcast_to(classes, (PROBES, *classes.shape)), probes], axis=-1)
    return logits.astype(np.float32), labels


def score(rows: np.ndarray, logits: np.ndarray, labels: np.ndarray, factors: torch.Tensor) -> tuple:
    """Return mean loss and macro accuracy, image by image."""
    loss, right, total = torch.zeros(()), np.zeros(CLASSES), np.zeros(CLASSES)
    for row in rows:
        chances = torch.softmax(torch.from_numpy(logits[row]) * factors, dim=0)
        loss = loss - torch.log(chances[labels[row]])
        total[labels[row]] += 1
        right[labels[row]] += int(torch.argmax(chances).item() == labels[row])
    return loss / len(rows), (right / total).mean()


def one_at_a_time(
    logits: np.ndarray, labels: np.ndarray, train: np.ndarray, *, epochs: int, score_test: bool
) -> np.ndarray:
    """Fit one probe and trial by torch's Adam; return the factors after the last epoch."""
    factors = torch.nn.Parameter(torch.ones(CLASSES + 1))
    optimiser = torch.optim.Adam([factors], lr=0.01)
    test = np.setdiff1d(np.arange(len(labels)), train)
    for _ in range(epochs):
        optimiser.zero_grad()
        score(train, logits, labels, factors)[0].backward()
        optimiser.step()
        if score_test:
            score(test, logits, labels, factors.detach())
    return factors.detach().numpy()


def timed(call: Callable[[], object]) -> tuple[float, object]:
    """Return seconds and the result."""
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def shortest(call: Callable[[], LogitAdjustment], repeats: int) -> tuple[float, LogitAdjustment]:
    """Return the shortest of some runs in seconds, and the result."""
    runs = [timed(call) for _ in range(repeats)]
    return min(seconds for seconds, _ in runs), runs[-1][1]


def main() -> None:
    """Print times, ratios and whether the factors agree."""
    torch.set_num_threads(1)
    logits, labels = draw(np.random.default_rng(0))

    def fit(selection: str) -> LogitAdjustment:
        return fit_logit_adjustment(
            logits, labels, n_classes=CLASSES, epochs=EPOCHS, trials=TRIALS, seed=1, selection=selection
        )

    fit("train_loss")
    seconds, ours = shortest(lambda: fit("train_loss"), 5)
    train = ours.train_rows[0]
    part, theirs = timed(lambda: one_at_a_time(logits[0], labels, train, epochs=EPOCHS, score_test=False))
    last = ours.factors[0, 0]
    assert ours.chosen_epochs[0, 0] == EPOCHS
    print(f"{IMAGES:,} images, {CLASSES} classes, {PROBES} probes x {TRIALS} trials, {EPOCHS} epochs")
    print(f"train only    : batched {seconds:7.3f} s   one at a time {part * PROBES * TRIALS:8.1f} s", end="")
    print(f"  {part * PROBES * TRIALS / seconds:,.0f}x (scaled up from 1 probe x 1 trial)")
    print(f"                factors agree to {np.abs(last - theirs).max():.1e} (the loop is float32)")
    seconds, _ = shortest(lambda: fit("released"), 3)
    part, _ = timed(lambda: one_at_a_time(logits[0], labels, train, epochs=TEST_EPOCHS, score_test=True))
    whole = part / TEST_EPOCHS * EPOCHS * PROBES * TRIALS
    print(f"released rule : batched {seconds:7.3f} s   one at a time {whole:8.1f} s", end="")
    print(f"  {whole / seconds:,.0f}x (scaled up from 1 probe x 1 trial x {TEST_EPOCHS} epochs)")


if __name__ == "__main__":
    main()
