"""How long a stage of an audit may still take, by how much work its items are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from assets.asked_cells import cell_suites
from assets.dataset_size import images_of, recorded
from plumbline.encoders.families import FAMILIES
from plumbline.errors import PlumblineError
from resources.workspace import Workspace


@dataclass(frozen=True)
class Work:
    """The items of a stage, in order, each with how much work it is beside the others."""

    weights: Sequence[float]

    @classmethod
    def of(cls, weights: Sequence[float | None]) -> "Work":
        """Return the items; all alike where something is not known of one of them."""
        known = [weight for weight in weights if weight]
        return cls(known if len(known) == len(weights) else [1.0] * len(weights))

    def left(self, *, ended: int, done: Mapping[int, float]) -> float | None:
        """Return how many seconds are left after the first `ended` items; None where nothing is known, or nothing left.

        Parameters
        ----------
        done : mapping of int to float
            Position of each item that was done -> its seconds; one that failed at once says nothing of the others.
        """
        if ended >= len(self.weights) or not done:
            return None
        pace = sum(done.values()) / sum(self.weights[i] for i in done)
        return pace * sum(self.weights[ended:])


def dataset_weight(workspace: Workspace, dataset: str) -> float | None:
    """Return how many images a dataset lists: as recorded, else as its folder does."""
    try:
        made = recorded(workspace, dataset)
        return float(made.details["listed"]) if made else float(images_of(workspace, dataset))
    except (PlumblineError, OSError):
        return None


def cell_weight(workspace: Workspace, cell: str) -> float | None:
    """Return how much a model has to look at: the images, or image × prompt where it must see both together."""
    dataset, model = cell.split("|")
    try:
        images, family = images_of(workspace, dataset), FAMILIES[workspace.checkpoint(model).family]
        if family.logit != "pair":
            return float(images)
        texts = {
            text for suite in cell_suites(workspace, dataset, model, family=family) for text in suite.texts
        }
        return float(images * len(texts))
    except (PlumblineError, OSError):
        return None
