"""The page of tested models says what the registries say."""

from documentation.models import COMPARED, PAGE, models_page
from plumbline.encoders.families import FAMILIES


def test_the_page_is_written_from_the_registries():
    # After a change of a family: python -m documentation.models
    assert PAGE.read_text("utf-8") == models_page()


def test_every_comparison_is_of_a_family():
    assert COMPARED.keys() <= FAMILIES.keys()
