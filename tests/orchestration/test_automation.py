"""What the daemon asks for when something changes: all of what follows from it, once, and nothing else."""

import pytest
from living import AUDIT, JOINED, SLICES, LivingHome, joined

from assets.up_to_date import Present

CELL_ASSETS = {"probe_logits", "outcome_metrics", "trident_metrics", "saner", "mitigated_metrics", "tracked_run"}
LANGUAGE = {"max_toxicity", "words", "base_llm_comparison", "tracked_answers"}


@pytest.fixture(autouse=True)
def known_slices(monkeypatch):
    """Let the dataset of the generative models have two slices: there is no lake to read them from."""
    monkeypatch.setattr("orchestration.conditions.asked_slices", lambda workspace, model: dict.fromkeys(SLICES))


@pytest.fixture
def own_home(tmp_path):
    """Return a home for a test that changes more than what is in it."""
    return LivingHome(tmp_path)


@pytest.fixture(scope="module")
def resting():
    """Return the homes that tests left at rest."""
    return []


@pytest.fixture
def home(resting, tmp_path_factory):
    """Return a home at rest, which the next test has again if it comes to rest."""
    home = resting.pop() if resting else LivingHome(tmp_path_factory.mktemp("home"))
    yield home
    if home.rests:
        resting.append(home)


@pytest.fixture
def reading(own_home, monkeypatch):
    """Return a home where a result is out of date once something that it is made of directly is newer."""
    monkeypatch.setattr(Present, "changes", lambda _, asset, partition="": own_home.changes(asset, partition))
    return own_home


def require_up_to_date(home):
    assert not {
        (name, partition): changes
        for name, partitions in home.everything().items()
        for partition in partitions
        if (changes := home.changes(name, partition or ""))
    }


def require_findings_last(asked):
    """The findings are asked for once, alone, after everything else."""
    assert set(asked[-1]) >= JOINED
    assert all(partitions == {None} for partitions in asked[-1].values())
    for earlier in asked[:-1]:
        assert not JOINED & set(earlier)


def test_a_changed_checkpoint_re_audits_its_column_alone_and_in_order(home, monkeypatch):
    # Between two looks the daemon keeps what it knows as text.
    monkeypatch.setattr(home, "as_text", True)
    home.observe("encoder_checkpoint", "old")
    first = home.tick()
    assert set(first) == {"text_embeddings", "valence_geometry", "image_embeddings"}
    running = home.start({"text_embeddings"}, "old")
    home.make({"image_embeddings": first["image_embeddings"]})
    assert home.tick() == {}, "nothing of a cell starts before both its prompts and its images are there"
    home.end(running)
    home.make({name: {"old"} for name in ("text_embeddings", "valence_geometry")})

    cells = home.tick()
    assert set(cells) >= CELL_ASSETS
    running = home.start({"probe_logits", "tracked_run"}, "two|old")
    home.make({name: {"one|old"} for name in cells})
    assert home.tick() == {}, "the findings wait for the last cell of a column"
    home.end(running)
    home.make({name: {"two|old"} for name in cells})

    asked = [first, cells, *home.follow()]
    total = joined(asked)
    assert total["text_embeddings"] == total["valence_geometry"] == {"old"}
    for name in {"image_embeddings", *CELL_ASSETS}:
        assert total[name] == {"one|old", "two|old"}, name
    assert not {"records", "extended_records", "generations", *LANGUAGE} & set(total)
    assert all(set(last) >= JOINED for last in asked[2:])
    require_findings_last(asked)


@pytest.mark.parametrize(
    "source",
    [
        ("encoder_checkpoint", "old"),
        *(
            pytest.param(source, marks=pytest.mark.slow)
            for source in [("encoder_checkpoint", "labels"), ("dataset_folder", "one"), ("dataset_folder", "people"),
                           ("lvlm_checkpoint", "other"), ("prompt_suites",), ("mitigation_texts",), ("answer_words",)]
        ),
    ],
    ids=" ".join,
)  # fmt: skip
def test_nothing_is_asked_for_without_what_it_is_made_of(reading, source):
    reading.observe(*source)
    asked = []
    while now := reading.tick():
        reading.require_nothing_left_out(now)
        asked.append(now)
        reading.make(now)
    assert joined(asked), "each thing once"
    require_up_to_date(reading)


def test_mitigations_are_judged_once_all_of_them_are_fitted_anew(reading):
    reading.observe("encoder_checkpoint", "old")
    reading.make(reading.tick())
    cells = reading.tick()
    assert "bias_prompts" in cells and "logit_adjustment" not in cells, "it is not out of date yet"
    assert not {"mitigated_metrics", "tracked_run"} & set(cells)
    reading.make(cells)
    assert set(reading.tick()) >= {"logit_adjustment", "outcome_metrics", "mitigated_metrics"}


def test_a_run_that_was_refused_for_what_is_out_of_date_is_followed_by_another(reading):
    reading.observe("encoder_checkpoint", "new")
    reading.make(reading.tick())
    reading.make(reading.tick())
    cells = reading.tick()
    assert "mitigated_metrics" in cells
    # The texts change between two of its steps.
    reading.fail(set(cells), "one|new", made=set(cells) - {"mitigated_metrics", "tracked_run"})
    reading.observe("mitigation_texts")
    total = joined(reading.follow())
    assert total["mitigated_metrics"] >= {"one|new"} and total["tracked_run"] >= {"one|new"}
    require_up_to_date(reading)


@pytest.mark.slow
def test_a_cell_that_failed_holds_nothing_up_and_is_not_tried_for_ever(home):
    home.observe("encoder_checkpoint", "old")
    home.make(home.tick())
    cells = home.tick()
    home.make({name: {"one|old"} for name in cells})
    last = home.tick()
    assert set(last) >= JOINED
    assert not CELL_ASSETS & set(last)
    home.make(last)
    assert home.follow() == []


def test_a_checkpoint_that_no_audit_names_starts_nothing(home):
    home.observe("encoder_checkpoint", "spare")
    home.observe("encoder_checkpoint", "of-another-file")
    assert home.follow() == []


@pytest.mark.slow
def test_a_changed_labeller_labels_anew_and_passes_no_image_of_an_audited_checkpoint(home):
    home.observe("encoder_checkpoint", "labels")
    asked = home.follow()
    total = joined(asked)
    assert total["extended_records"] == {"one", "two", "people"}
    assert total["tracked_run"] == {"one|old", "two|old", "one|new"}
    assert not {"image_embeddings", "text_embeddings", "records"} & set(total)
    require_findings_last(asked)


@pytest.mark.slow
def test_an_audit_without_a_labeller_labels_nobody(tmp_path):
    home = LivingHome(tmp_path, labeller=None, encoders={}, audit=[])
    home.observe("dataset_folder", "people")
    total = joined(home.follow())
    assert total["records"] == {"people"} and total["pictured_people"] == set(SLICES)
    assert "extended_records" not in total and not set(total) & {"image_embeddings", *CELL_ASSETS}


def test_changed_prompts_embed_texts_anew_and_no_image(home):
    home.observe("prompt_suites")
    asked = home.follow()
    total = joined(asked)
    assert total["text_embeddings"] == total["valence_geometry"] == {"old", "new"}
    for name in CELL_ASSETS:
        assert total[name] == {"one|old", "two|old", "one|new"}, name
    assert not {"image_embeddings", "records", "pictured_people", "generations"} & set(total)
    require_findings_last(asked)


@pytest.mark.slow
def test_changed_texts_of_mitigations_fit_those_anew_and_nothing_before_them(home):
    home.observe("mitigation_texts")
    total = joined(home.follow())
    for name in ("saner", "bias_prompts", "prompt_array", "mitigated_metrics", "tracked_run"):
        assert total[name] == {"one|old", "two|old", "one|new"}, name
    assert not {"image_embeddings", "text_embeddings", "probe_logits", "logit_adjustment"} & set(total)


@pytest.mark.slow
def test_changed_word_lists_read_the_same_answers_anew(home):
    home.observe("answer_words")
    asked = home.follow()
    total = joined(asked)
    for name in LANGUAGE:
        assert total[name] == {"seer", "reader", "other"}, name
    assert not {"generations", "image_embeddings", *CELL_ASSETS} & set(total)
    require_findings_last(asked)


@pytest.mark.slow
def test_a_changed_dataset_of_counterfactuals_asks_about_its_slices(home):
    home.observe("dataset_folder", "people")
    asked = home.follow()
    total = joined(asked)
    assert total["pictured_people"] == set(SLICES)
    assert total["generations"] == {f"{m}|{s}" for m in ("seer", "reader", "other") for s in SLICES}
    assert total["words"] == {"seer", "reader", "other"}
    assert not {"image_embeddings", *CELL_ASSETS} & set(total)
    require_findings_last(asked)


def test_a_changed_dataset_whose_checks_fail_stops_there_and_re_does_its_row_once_they_pass(home):
    home.refused = frozenset({"one"})
    home.observe("dataset_folder", "one")
    total = joined(home.follow())
    assert total["records"] == {"one"}
    assert not {"image_embeddings", *CELL_ASSETS} & set(total)
    assert set(total) >= JOINED, "the table has to leave its numbers out"
    home.refused = frozenset()
    home.observe("dataset_folder", "one")
    asked = home.follow()
    total = joined(asked)
    for name in ("records", "quarantine", "extended_records"):
        assert total[name] == {"one"}, name
    for name in {"image_embeddings", *CELL_ASSETS}:
        assert total[name] == {"one|old", "one|new"}, name
    assert not {"text_embeddings", "pictured_people", "generations"} & set(total)
    require_findings_last(asked)


def test_bad_automatic_labels_stop_only_what_uses_them(own_home):
    own_home.refused, own_home.failing = frozenset({"one"}), frozenset({"extended_records"})
    for suites, audited in ((["crime"], {"one|old"}), (["crime", "trident"], set())):
        own_home.write({**AUDIT, "audit": [{"encoders": ["old"], "datasets": ["one"], "suites": suites}]})
        own_home.observe("dataset_folder", "one")
        total = joined(own_home.follow())
        assert total["extended_records"] == {"one"}
        assert total.get("tracked_run", set()) == audited


def test_a_changed_generative_model_is_asked_anew_alone(home):
    home.observe("lvlm_checkpoint", "other")
    asked = home.follow()
    total = joined(asked)
    assert total["generations"] == total["toxicity_scores"] == {f"other|{s}" for s in SLICES}
    for name in LANGUAGE:
        assert total[name] == {"other"}, name
    assert not {"pictured_people", "records", *CELL_ASSETS} & set(total)
    require_findings_last(asked)


@pytest.mark.slow
def test_a_changed_language_model_concerns_the_models_that_were_built_on_it(home):
    home.observe("lvlm_checkpoint", "reader")
    total = joined(home.follow())
    assert total["generations"] == {f"reader|{s}" for s in SLICES}
    assert total["base_llm_comparison"] == {"reader", "seer"}


def test_a_new_encoder_waits_until_it_has_been_observed_and_is_audited_once(own_home):
    audit = [*AUDIT["audit"], {"encoders": ["fresh"], "datasets": ["two"], "suites": ["crime"]}]
    own_home.write({**AUDIT, "audit": audit, "encoders": AUDIT["encoders"] | {"fresh": {"address": "local-dir:fresh"}}})
    own_home.instance.add_dynamic_partitions("encoder", ["fresh"])
    assert own_home.follow() == []
    own_home.observe("encoder_checkpoint", "fresh")
    asked = own_home.follow()
    total = joined(asked)
    assert total["text_embeddings"] == {"fresh"}
    assert total["image_embeddings"] == total["tracked_run"] == {"two|fresh"}
    require_findings_last(asked)


@pytest.mark.slow
def test_what_is_observed_again_and_is_the_same_starts_nothing(home):
    home.observe("encoder_checkpoint", "old", version="same")
    assert home.follow()
    home.observe("encoder_checkpoint", "old", version="same")
    assert home.follow() == []


@pytest.mark.slow
def test_while_an_audit_runs_the_daemon_asks_for_nothing(home):
    from orchestration.instance import audit_lock

    with audit_lock(home.workspace):
        home.observe("encoder_checkpoint", "old")
        assert home.tick() == {}
    assert joined(home.follow())["tracked_run"] == {"one|old", "two|old"}


@pytest.mark.slow
def test_what_an_audit_has_done_itself_is_not_done_again(home):
    from orchestration.instance import audit_lock

    with audit_lock(home.workspace):
        home.observe("encoder_checkpoint", "old")
        home.tick()
        home.make({"text_embeddings": {"old"}, "valence_geometry": {"old"}, "image_embeddings": {"one|old"}})
        home.tick()
        home.make(home.everything())
    assert home.follow() == []
