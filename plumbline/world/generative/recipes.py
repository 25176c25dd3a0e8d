"""The generative models of the planted world that are shipped, and what each is made with."""

from __future__ import annotations

from dataclasses import dataclass

from plumbline.world.generative.architecture import Architecture

_LLAVA = Architecture()
_TWIN = Architecture(width=96, layers=2, hidden=256, heads=3, vision_width=0, vision_layers=0)


@dataclass(frozen=True)
class Recipe:
    """One generative model.

    Attributes
    ----------
    source : str
        `bazaar` or `control`.
    family : str
        `llava`, or `llama` for the twin without eyes.
    faces : int
        Number of faces that are trained on; each is asked about many times. 0 without eyes.
    vision_steps, steps : int
        Batches that the vision tower and then the rest are trained on.
    tower_of : str, optional
        The checkpoint beside it whose vision tower it has, so that both see alike; it must be there already.
    architecture : Architecture
        Dimensions.
    seed : int
        Of the first weights and of every order.
    """

    source: str
    family: str = "llava"
    faces: int = 8000
    vision_steps: int = 500
    steps: int = 1500
    tower_of: str | None = None
    architecture: Architecture = _LLAVA
    seed: int = 7

    @property
    def id(self) -> str:
        """Return the checkpoint's slug, such as `llava-bazaar`."""
        return f"{self.family}-{self.source}"


RECIPES = {
    recipe.id: recipe
    for recipe in (
        Recipe("bazaar"),
        Recipe("control", vision_steps=0, steps=600, tower_of="llava-bazaar"),
        Recipe("bazaar", "llama", faces=0, vision_steps=0, steps=2500, architecture=_TWIN),
    )
}
