"""A layer of SANER before training, and the texts to which the tests apply one."""

from plumbline.mitigations.saner import first_parameters, specific_pattern
from plumbline.mitigations.text_mitigations import FittedMitigation

HELD_OUT = ("a photo of a thief", "a photo of a trustworthy person", "a photo of a savior", "a photo of a worker")
SPECIFIC = ("a photo of a white man", "a photo of an Indian woman", "a photo of a Black")


def identity(d, h=5, attribute="race"):
    """Return a layer before any training, which changes nothing."""
    return FittedMitigation(
        settings={"method": "saner", "specific_pattern": specific_pattern(attribute)},
        parameters=first_parameters(d, h, seed=3),
        fitted_on="",
    )
