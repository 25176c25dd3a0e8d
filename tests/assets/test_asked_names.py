"""What an entry of `generate` names has to be in its datasets, also beside names that are."""

import polars as pl
import pytest

from plumbline.config.entries import GenerateEntry
from plumbline.errors import ConfigError
from plumbline.generators.design import require_names

PEOPLE = pl.DataFrame({"subset": ["race_gender", "physical_gender", None], "occupation": ["doctor", "chef", None]})


@pytest.mark.parametrize(
    ("named", "meant"),
    [
        ({"subsets": ("race_gender", "phisical_gender")}, "did you mean `physical_gender`"),
        ({"occupations": ("chef", "doktor")}, "did you mean `doctor`"),
    ],
)
def test_a_misspelt_name_beside_a_good_one_is_refused(named, meant):
    with pytest.raises(ConfigError, match=meant):
        require_names(GenerateEntry(datasets=("faces",), **named), PEOPLE)


@pytest.mark.parametrize("named", [{}, {"subsets": ("race_gender",)}, {"occupations": ("chef", "doctor")}])
def test_names_that_are_there_pass(named):
    require_names(GenerateEntry(datasets=("faces",), **named), PEOPLE)
