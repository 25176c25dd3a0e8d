"""Nobody raises the version of a cheap result; dear ones, and deliveries, declare theirs."""

from assets.cells import FAMILY_VERSIONS
from orchestration.definitions import defs
from plumbline.metrics.registry import FAMILIES

DEAR = {
    "text_embeddings", "image_embeddings", "probe_logits", "generations", "toxicity_scores", "logit_adjustment",
    "bias_prompts", "prompt_array", "saner",
}  # fmt: skip
DELIVERED = {"tracked_run", "tracked_answers", "audit_record", "provenance"}


def test_only_dear_results_and_deliveries_declare_a_version():
    nodes = [node for node in defs.resolve_asset_graph().asset_nodes if node.is_materializable]
    declared = {node.key.to_user_string() for node in nodes if (node.code_version or "").isdecimal()}
    assert declared == DEAR | DELIVERED, (
        "what is dear, such as the asset of a mitigation of texts, has its name in `DEAR` of this file, a delivery in "
        "`DELIVERED`; any other asset declares no number: its version is a digest of its code (docs/decisions/0042)"
    )
    unversioned = [node.key.to_user_string() for node in nodes if not node.code_version]
    assert not unversioned, "give each a `code_version`, as the assets beside it have"


def test_each_family_has_a_version_of_its_own():
    # Families of one module are read and versioned together.
    modules = {name: FAMILIES[name].compute.__module__ for name in FAMILY_VERSIONS}
    assert len(set(FAMILY_VERSIONS.values())) == len(set(modules.values()))
