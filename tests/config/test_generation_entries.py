"""The audit file on generation: designs, and every mistake with line, key, found and expected."""

import pytest
import yaml

from plumbline.config.file import read_audit
from plumbline.errors import ConfigError
from resources.checkout import PROJECT

SHIPPED = PROJECT / "audit.yaml"


def write(tmp_path, **changes):
    path = tmp_path / "audit.yaml"
    path.write_text(yaml.safe_dump({**yaml.safe_load(SHIPPED.read_text()), **changes}, sort_keys=False))
    return path


ENDPOINT = {"urls": ["https://example.org/v1"], "model": "gpt-4o-2024-05-13"}
DESIGN = {"lvlms": ["llava-bazaar"], "datasets": ["counterfactuals"]}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"lvlms": {"m": {}}, "generate": []}, r"key lvlms\.m\n[\s\S]*either `address` or `endpoint`"),
        (
            {"lvlms": {"m": {"address": "local-dir:x", "endpoint": ENDPOINT}}, "generate": []},
            "either `address` or `endpoint`",
        ),
        ({"lvlms": {"m": {"address": "hf-hub:o/n"}}, "generate": []}, "40 hexadecimal digits"),
        ({"lvlms": {"m": {"address": "local-dir:x", "base_lm": "m"}}, "generate": []}, "did you mean `base_llm`"),
        (
            {"lvlms": {"m": {"address": "local-dir:x", "twin": "m"}}, "generate": []},
            r"key lvlms\.m\.twin\n.*unknown key `twin`\n.*expected: `base_llm`, as the key is called now",
        ),
        ({"lvlms": {"m": {"address": "local-dir:x", "base_llm": "n"}}, "generate": []}, r"key lvlms\.m\.base_llm"),
        ({"lvlms": {"small-bazaar-3k": {"address": "local-dir:x"}}, "generate": []}, "an id that no encoder has"),
        (
            {
                "lvlms": {
                    "m": {"endpoint": ENDPOINT},
                    "n": {"endpoint": {**ENDPOINT, "urls": ["https://example.com/v1"]}},
                },
                "generate": [],
            },
            r"key lvlms\.n\.endpoint\.model[\s\S]*as `m` is",
        ),
        ({"generate": [{**DESIGN, "prompts": ["characteristic"]}]}, "did you mean `characteristics`"),
        ({"generate": [{**DESIGN, "instructions": ["M6"]}]}, r"key generate\.0\.instructions\.0"),
        ({"generate": [{**DESIGN, "seeds": []}]}, r"key generate\.0\.seeds"),
        ({"generate": [{**DESIGN, "datasets": ["counterfactual"]}]}, "did you mean `counterfactuals`"),
        ({"generate": [{**DESIGN, "lvlms": ["llava"]}]}, r"line \d+, key generate\.0\.lvlms\.0"),
        ({"scorers": {"s": {}}}, "the key `kind`"),
        ({"scorers": {"s": {"kind": "classifer"}}}, r"key scorers\.s\.kind[\s\S]*did you mean `classifier`"),
        ({"scorers": {"s": {"kind": "perspective", "key_variable": "sk-123456"}}}, "the NAME of an environment"),
        ({"scorers": {"s": {"kind": "offline", "path": "x"}}}, "unknown key `path`"),
        ({"generation": {"limit": {"row": 3}}}, "did you mean `rows`"),
        ({"generation": {"decoding": {"top_p": 0}}}, r"key generation\.decoding\.top_p"),
    ],
)
def test_a_mistake_is_said_with_its_place(tmp_path, changes, said):
    with pytest.raises(ConfigError, match=said):
        read_audit(write(tmp_path, **changes))


def test_a_key_that_was_pasted_is_not_repeated(tmp_path):
    lvlms = {"m": {"endpoint": {**ENDPOINT, "key_variable": "sk-secret-123456"}}}
    with pytest.raises(ConfigError) as caught:
        read_audit(write(tmp_path, lvlms=lvlms, generate=[]))
    assert "sk-secret" not in str(caught.value)


def test_a_language_model_is_asked_what_the_models_built_on_it_are(tmp_path):
    more = {**DESIGN, "prompts": ["describe"]}
    audit = read_audit(write(tmp_path, generate=[{**DESIGN, "prompts": ["main"]}, more]))
    assert set(audit.designs) == {("llava-bazaar", "counterfactuals"), ("llama-bazaar", "counterfactuals")}
    assert len(audit.designs["llava-bazaar", "counterfactuals"]) == 2
    # It gets the prompt of the comparison alone, so only designs that have it.
    (entry,) = audit.designs["llama-bazaar", "counterfactuals"]
    assert entry.prompt_ids[0] == "describe" and entry.asks_base_llms


def test_all_models_are_those_that_see(tmp_path):
    audit = read_audit(write(tmp_path, generate=[{"datasets": ["pata"], "prompts": ["describe"]}]))
    assert set(audit.designs) == {(name, "pata") for name in ("llava-bazaar", "llava-control", "stored-answers")}


def test_kinds_of_prompts_stand_for_their_members_once(tmp_path):
    design = {**DESIGN, "prompts": ["characteristics", "main", "numeric"]}
    (entry,) = read_audit(write(tmp_path, generate=[design])).generate
    assert entry.prompt_ids[0] == "characteristics" and len(entry.prompt_ids) == 10


def test_a_limit_is_no_part_of_what_is_audited(tmp_path):
    limited = read_audit(write(tmp_path, generation={"limit": {"rows": 7}})).digest
    assert limited == read_audit(write(tmp_path, generation={})).digest
    assert limited != read_audit(write(tmp_path, generation={"decoding": {"temperature": 0}})).digest


def test_a_language_model_is_asked_about_no_dataset_without_occupations(tmp_path):
    design = {**DESIGN, "prompts": ["characteristics"]}
    audit = read_audit(write(tmp_path, generate=[{**design, "datasets": ["counterfactuals", "pata"]}]))
    assert ("llava-bazaar", "pata") in audit.designs and ("llama-bazaar", "counterfactuals") in audit.designs
    assert ("llama-bazaar", "pata") not in audit.designs
