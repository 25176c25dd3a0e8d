"""What encoders have to compute, against sums by hand; and what is known of a checkpoint before it is loaded."""

import json

import pytest

from plumbline.catalog.suites import load_suite
from plumbline.encoders.families import FAMILIES
from plumbline.encoders.plan import (
    ArchitectureSummary,
    ComputedCell,
    EncoderPlan,
    PlannedCell,
    Rates,
    architecture_summary,
    plan_cell,
)
from resources.checkout import PROJECT

RATES = Rates(images_per_second=50, pairs_per_second=10)


def cell(**changes):
    about = {
        "dataset": "faces", "encoder": "e", "images": 100, "prompts": (20, 25), "distinct_prompts": 30,
        "logit": "dot", "width": 512,
    }  # fmt: skip
    return PlannedCell(**about | changes)


def test_an_image_is_embedded_once_for_all_prompts():
    one = cell()
    assert (one.images_to_embed, one.pairs_to_score) == (100, 0)
    assert one.bytes == 4 * (100 * 512 + 100 * 31) + 38 * 100
    assert one.seconds(RATES) == 2


def test_a_pair_is_a_pass_of_its_own_in_every_suite():
    one = cell(logit="pair", width=None)
    assert (one.images_to_embed, one.pairs_to_score) == (0, 4500)
    assert one.bytes == 4 * (4500 + 100 * 31) + 38 * 100
    assert one.seconds(RATES) == 450


def test_what_is_there_costs_no_pass_and_an_unknown_width_no_guess():
    assert cell(is_there=True).seconds(RATES) == 0
    assert cell(is_there=True).bytes == 4 * 100 * 31 + 38 * 100
    assert cell(logit="pair", is_there=True).pairs_to_score == 0
    assert cell(width=None).bytes is None
    assert cell(width=None, is_there=True).bytes == cell(is_there=True).bytes


def test_one_that_only_labels_genders_has_no_logits():
    assert cell(prompts=(), distinct_prompts=0).bytes == 4 * 100 * 512 + 38 * 100


def test_a_plan_adds_up_and_counts_the_records_of_a_dataset_once():
    cells = [cell(), cell(encoder="f", logit="pair", width=None), cell(dataset="others", images=10)]
    plan = EncoderPlan(cells)
    assert (plan.images_to_embed, plan.pairs_to_score) == (110, 4500)
    assert plan.least_bytes == sum(one.bytes for one in cells) + 110 * (100 + 10)
    assert plan.widths_are_known
    assert plan.seconds(RATES) == pytest.approx(2 + 450 + 0.2)


def test_what_is_written_is_not_written_again():
    assert cell(has_logits=True).bytes == 4 * 100 * 512 + 38 * 100
    assert cell(has_index=True).bytes == 4 * (100 * 512 + 100 * 31)
    written = cell(is_there=True, has_records=True, has_index=True, has_logits=True)
    assert EncoderPlan([written]).least_bytes == 0
    other = cell(encoder="f", has_records=True)
    assert EncoderPlan([written, other]).least_bytes == other.bytes


def test_without_a_width_what_is_written_is_at_least_the_rest():
    unknown = cell(width=None)
    assert unknown.least_bytes == 4 * 100 * 31 + 38 * 100
    plan = EncoderPlan([cell(), unknown])
    assert not plan.widths_are_known
    assert plan.least_bytes == cell().bytes + unknown.least_bytes + 110 * 100
    assert EncoderPlan([cell(width=None, is_there=True)]).widths_are_known


@pytest.mark.parametrize(
    ("address", "family", "found"),
    [
        ("ViT-L-14/laion2b_s32b_b82k", None, ("open_clip", 768)),
        ("hf-hub:kakaobrain/align-base@fetched", None, ("align", 640)),
        ("hf-hub:BridgeTower/bridgetower-large-itm-mlm-itc@fetched", None, ("bridgetower", None)),
        ("hf-hub:google/owlv2-base-patch16-ensemble@fetched", "owlvit", ("owlvit", 513)),
        ("RN50/openai", None, ("open_clip", None)),
    ],
)
def test_a_checkpoint_that_is_not_here_is_known_by_its_address(address, family, found, tmp_path):
    known = architecture_summary("e", address, tmp_path / "absent", family=family)
    assert (known.family.name, known.width) == found


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("small-atlas-3k", ("open_clip", 64)),
        ("align-bazaar-3k", ("align", 96)),
        ("bridgetower-bazaar-3k", ("bridgetower", None)),
        ("owlv2-bazaar-3k", ("owlv2", 65)),
    ],
)
def test_a_checkpoint_that_is_here_is_known_by_its_configuration(name, found):
    folder = PROJECT / "plumbline" / "world" / "checkpoints" / name
    known = architecture_summary("e", f"local-dir:{folder}", folder)
    assert (known.family.name, known.width) == found


def test_a_configuration_without_a_width_is_no_guess(tmp_path):
    (tmp_path / "open_clip_config.json").write_text(json.dumps({"model_cfg": {}}))
    (tmp_path / "open_clip_model.safetensors").write_bytes(b"")
    assert architecture_summary("e", f"local-dir:{tmp_path}", tmp_path).width is None


@pytest.mark.parametrize(
    ("family", "computed", "shared", "is_there"),
    [
        ("clip", {}, False, False),
        ("clip", {}, True, True),
        ("clip", {"index": True}, False, True),
        ("clip", {"labels": True}, False, True),
        ("clip", {"logits": True}, False, False),
        ("bridgetower", {"index": True}, True, False),
        ("bridgetower", {"logits": True}, False, True),
    ],
)
def test_images_went_through_a_tower_to_be_embedded_or_labelled_and_pairs_to_be_scored(
    family, computed, shared, is_there
):
    crime = load_suite("crime")
    architecture = ArchitectureSummary(FAMILIES[family], 512)
    one = plan_cell(
        "faces", "e", images=100, suites=[crime], architecture=architecture, computed=ComputedCell(**computed),
        shared=shared,
    )  # fmt: skip
    assert one.is_there is is_there and one.prompts == (len(crime.texts),) and not one.has_logits


def test_logits_are_there_if_they_are_of_all_prompts_and_labels_stand_for_an_index():
    suites, architecture = [load_suite("crime"), load_suite("crime")], ArchitectureSummary(FAMILIES["clip"], 512)
    texts = frozenset(suites[0].texts)

    def planned(asked, **computed):
        return plan_cell(
            "f", "e", images=9, suites=asked, architecture=architecture, computed=ComputedCell(records=True, **computed)
        )

    assert planned(suites, logits=True, texts=texts).has_logits
    assert not planned(suites, logits=True, texts=texts - {suites[0].texts[0]}).has_logits
    assert planned(suites).distinct_prompts == len(texts) and planned(suites).has_records
    for asked, kept in ((suites, "index"), ([], "labels")):
        assert planned(asked, **{kept: True}).has_index
        assert not planned(asked, **{({"index", "labels"} - {kept}).pop(): True}).has_index
