"""The batched logit adjustment against one image at a time, as released, on logits of FairFace's size.

Both fit on 20 images a class for 20 epochs, for 15 probes x 3 trials, and then score every test image once.
The peer is the shape of the released code: for every probe and trial a loop over images in torch; under the
released rule it scores all test images whenever an epoch is kept. It runs in full, every epoch and every test
image, on 5 of the 15 probes and one of the three trials, and its seconds are scaled up by 9. One probe x one
trial is a row of its own, in which nothing is scaled and nothing is gained by batching probes and trials.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch

from benchmarks.statistics.contest import IMAGES, Peer, Row, timed, warmed
from plumbline.mitigations import LogitAdjustment, fit_logit_adjustment
from plumbline.mitigations.logit_adjustment.adjustment import macro_accuracy, winners_by_trial

CLASSES, PROBES, TRIALS, EPOCHS, RATE = 7, 15, 3, 20, 0.01
PART = 5
BAR = 200
TOLERANCE = 1e-5


class Answer(NamedTuple):
    """Factors (p, C + 1), epochs (p,) and test macro accuracy (p,) of one trial."""

    factors: np.ndarray
    epochs: np.ndarray
    accuracy: np.ndarray


def run() -> Iterator[Row]:
    """Give a row for each rule of choosing the epoch: all probes and trials, and one of each."""
    logits, labels = draw(np.random.default_rng(0))
    for selection, rule in (("train_loss", "training loss chooses"), ("released", "the released rule")):
        yield contest(logits, labels, selection, rule, trials=TRIALS, part=PART, reached=2 * BAR)
        yield contest(logits[:1], labels, selection, rule, trials=1, part=1)


def contest(
    logits: np.ndarray,
    labels: np.ndarray,
    selection: str,
    rule: str,
    *,
    trials: int,
    part: int,
    reached: float | None = None,
) -> Row:
    """Time the batch, the loop over images and the loop over probes and trials on the same samples.

    The loop over images runs on the first trial of the first `part` probes.
    """
    probes = len(logits)
    seconds, (fit, accuracy) = warmed(lambda: batched(logits, labels, selection, trials), repeats=5)
    first = Answer(fit.factors[:, 0], fit.chosen_epochs[:, 0], accuracy[:, 0])
    slow, theirs = timed(lambda: one_at_a_time(logits[:part], labels, fit.train_rows[0], selection))
    verdict, times = compared(Answer(*(each[:part] for each in first)), theirs), probes * trials / part
    scaled = f"{part} probes x 1 trial in full, x{times:.0f}" if times > 1 else ""
    peers = [Peer("one image at a time, as released", slow * times, *verdict, reached=reached, part=scaled)]
    if selection == "train_loss":
        looped, answers = timed(lambda: all_images_at_once(logits, labels, fit.train_rows), repeats=3)
        peers.append(Peer("torch, a loop over probes and trials", looped, *compared(first, answers)))
    return Row(f"logit adjustment, {probes} x {trials} probes and trials, {rule}", seconds, peers)


def draw(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw (probes, n, C + 1) logits of raw dot products, and labels."""
    labels = rng.integers(0, CLASSES, IMAGES)
    classes = rng.normal(22, 1, (IMAGES, CLASSES))
    classes[np.arange(IMAGES), labels] += 1
    probes = rng.normal(22.5, 1, (PROBES, IMAGES, 1))
    logits = np.concatenate([np.broadcast_to(classes, (PROBES, *classes.shape)), probes], axis=-1)
    return logits.astype(np.float32), labels


def batched(logits: np.ndarray, labels: np.ndarray, selection: str, trials: int) -> tuple[LogitAdjustment, np.ndarray]:
    """Fit every probe and trial at once, and return the macro accuracy (p, t) on test images too."""
    fit = fit_logit_adjustment(
        logits, labels, n_classes=CLASSES, learning_rate=RATE, epochs=EPOCHS, trials=trials, seed=1,
        selection=selection,
    )  # fmt: skip
    correct = winners_by_trial(fit, logits) == labels
    tests = fit.test_rows(len(labels))
    accuracy = [macro_accuracy(correct[:, t, test], labels[test], CLASSES) for t, test in enumerate(tests)]
    return fit, np.stack(accuracy, axis=1)


def score(
    rows: np.ndarray, logits: np.ndarray, labels: np.ndarray, factors: torch.Tensor
) -> tuple[torch.Tensor, float]:
    """Return mean loss and macro accuracy, image by image."""
    loss, right, total = torch.zeros((), dtype=torch.float64), np.zeros(CLASSES), np.zeros(CLASSES)
    for row in rows:
        chances = torch.softmax(torch.from_numpy(logits[row]) * factors, dim=0)
        loss = loss - torch.log(chances[labels[row]])
        total[labels[row]] += 1
        right[labels[row]] += int(torch.argmax(chances).item() == labels[row])
    return loss / len(rows), (right / total).mean()


def one_at_a_time(logits: np.ndarray, labels: np.ndarray, train: np.ndarray, selection: str) -> Answer:
    """Fit every probe of one trial by torch's Adam, and score its test images once with what was kept."""
    test = np.setdiff1d(np.arange(len(labels)), train)
    found = []
    for responses in logits:
        path = _released_path if selection == "released" else _lowest_loss_path
        kept, epoch = path(responses, labels, train, test)
        with torch.no_grad():
            found.append((kept.numpy(), epoch, score(test, responses, labels, kept)[1]))
    return Answer(*(np.array(part) for part in zip(*found)))


def _lowest_loss_path(
    responses: np.ndarray, labels: np.ndarray, train: np.ndarray, test: np.ndarray
) -> tuple[torch.Tensor, int]:
    """Keep the factors of the lowest training loss; the last ones need no gradient."""
    factors = torch.nn.Parameter(torch.ones(CLASSES + 1, dtype=torch.float64))
    optimiser = torch.optim.Adam([factors], lr=RATE)
    lowest, kept = np.inf, (factors.detach().clone(), 0)
    for epoch in range(EPOCHS):
        optimiser.zero_grad()
        loss, _ = score(train, responses, labels, factors)
        if loss.item() < lowest:
            lowest, kept = loss.item(), (factors.detach().clone(), epoch)
        loss.backward()
        optimiser.step()
    with torch.no_grad():
        last = score(train, responses, labels, factors)[0].item()
    return (factors.detach(), EPOCHS) if last < lowest else kept


def _released_path(
    responses: np.ndarray, labels: np.ndarray, train: np.ndarray, test: np.ndarray
) -> tuple[torch.Tensor, int]:
    """Keep factors if the training accuracy before their step exceeds the test accuracy of the last kept."""
    factors = torch.nn.Parameter(torch.ones(CLASSES + 1, dtype=torch.float64))
    optimiser = torch.optim.Adam([factors], lr=RATE)
    best, kept = 0.0, (factors.detach().clone(), 0)
    for epoch in range(1, EPOCHS + 1):
        optimiser.zero_grad()
        loss, accuracy = score(train, responses, labels, factors)
        loss.backward()
        optimiser.step()
        if accuracy > best:
            with torch.no_grad():
                best = score(test, responses, labels, factors)[1]
            kept = (factors.detach().clone(), epoch)
    return kept


def all_images_at_once(logits: np.ndarray, labels: np.ndarray, trains: np.ndarray) -> Answer:
    """Loop over trials and probes, with all images in one tensor; return the first trial's answer."""
    answers = [_one_trial(logits, labels, train) for train in trains]
    return answers[0]


def _one_trial(logits: np.ndarray, labels: np.ndarray, train: np.ndarray) -> Answer:
    test = np.setdiff1d(np.arange(len(labels)), train)
    found = []
    for responses in logits:
        z, targets = torch.from_numpy(responses[train]).double(), torch.from_numpy(labels[train])
        factors = torch.nn.Parameter(torch.ones(CLASSES + 1, dtype=torch.float64))
        optimiser = torch.optim.Adam([factors], lr=RATE)
        path, losses = [], []
        for _ in range(EPOCHS + 1):
            optimiser.zero_grad()
            loss = torch.nn.functional.cross_entropy(z * factors, targets)
            path.append(factors.detach().numpy().copy())
            losses.append(loss.item())
            loss.backward()
            optimiser.step()
        epoch = int(np.argmin(losses))
        correct = (responses[test] * path[epoch]).argmax(axis=1) == labels[test]
        found.append((path[epoch], epoch, macro_accuracy(correct, labels[test], CLASSES)))
    return Answer(*(np.array(part) for part in zip(*found)))


def compared(ours: Answer, theirs: Answer) -> tuple[bool, str]:
    """Return whether the two agree, and how far apart they are."""
    apart = float(np.abs(ours.factors - theirs.factors).max())
    accuracies = float(np.abs(ours.accuracy - theirs.accuracy).max())
    same = np.array_equal(ours.epochs, theirs.epochs)
    said = (
        f"factors {apart:.1e} apart, {TOLERANCE:.0e} allowed; epochs {'equal' if same else 'differ'}; "
        f"test macro accuracy {accuracies:.1e} apart"
    )
    return apart <= TOLERANCE and same and accuracies <= 1e-12, said
