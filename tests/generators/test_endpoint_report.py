"""What an endpoint says that it is, and what a change of it is worth."""

import pytest
import yaml
from endpoint_doubles import settings
from fault_server import MODEL, completion, error, serving

from plumbline.errors import GenerationError
from plumbline.generators.endpoint import EndpointReport, ask_what_it_is
from resources.asking_endpoints import ask_endpoints
from resources.endpoints import changed_endpoint, keep_report
from resources.lvlms import backend_identity
from resources.workspace import Workspace

ENTRY = {"id": MODEL, "object": "model", "created": 1, "owned_by": "vllm", "root": "/models/first"}


def listed(**changes):
    return {"object": "list", "data": [{"id": "another", "object": "model", "created": 1}, ENTRY | changes]}


def test_it_is_asked_for_one_token_and_for_its_entry():
    with serving(lambda sent: completion("Hi", system_fingerprint="fp_1")) as server:
        server.listed = listed()
        report = ask_what_it_is(settings(server.url, model=MODEL))
        (sent,) = server.sent
    assert sent.body["max_tokens"] == 1 and sent.text == "Hello"
    # `created` is the time of the request where vLLM serves.
    assert report == EndpointReport({"id": MODEL, "root": "/models/first", "owned_by": "vllm"}, f"{MODEL} fp_1")


def test_an_endpoint_that_lists_nothing_is_known_by_its_answer():
    with serving(lambda sent: completion("Hi")) as server:
        assert ask_what_it_is(settings(server.url)) == EndpointReport({}, MODEL)


def test_one_that_is_down_is_asked_once():
    with serving(lambda sent: error(503)) as server:
        with pytest.raises(GenerationError):
            ask_what_it_is(settings(server.url))
        assert len(server.sent) == 1


def test_only_what_was_never_seen_is_a_change(tmp_path):
    def keep(root, source):
        keep_report(tmp_path, "model", EndpointReport({"root": root}, source))
        return changed_endpoint(tmp_path, "model")

    assert keep("a", "fp_1") is None
    assert keep("a", "fp_1") is None
    first = keep("a", "fp_2")
    assert first is not None
    assert keep("a", "fp_1") == keep("a", "fp_2") == first, "two machines behind one address"
    second = keep("b", "fp_1")
    assert second not in (None, first)
    assert keep("a", "fp_1") not in (None, first, second), "what went back is not taken for what it was"


@pytest.fixture
def workspace(tmp_path):
    """Return a function from an address and settings to a home with one endpoint."""

    def build(url, **more):
        audit = {
            "labeller": "labels",
            "datasets": {"people": {"reader": "socialcounterfactuals", "root": "nowhere"}},
            "encoders": {"labels": {"address": "local-dir:nowhere"}},
            "lvlms": {"served": {"endpoint": {"urls": [url], "model": MODEL, **more}}},
        }
        (tmp_path / "audit.yaml").write_text(yaml.safe_dump(audit))
        return Workspace(audit_path=tmp_path / "audit.yaml", home=tmp_path)

    return build


def test_a_change_is_another_version_and_asks_everything_anew(workspace, caplog):
    fingerprint = ["fp_1"]
    with serving(lambda sent: completion("Hi", system_fingerprint=fingerprint[0])) as server:
        home = workspace(server.url)

        def looked_at():
            ask_endpoints(home, ["served"])
            return home.lvlm_version("served"), backend_identity(home, "served")

        unseen = home.lvlm_version("served"), backend_identity(home, "served")
        assert looked_at() == unseen, "what was answered before it was asked stays answered"
        fingerprint[0] = "fp_2"
        changed = looked_at()
        assert changed[0] != unseen[0] and changed[1] != unseen[1]
        server.answer = lambda sent: error(503)
        assert looked_at() == changed, "the old version stands"
        assert "served did not say what it is" in caplog.text


def test_one_that_is_not_followed_is_never_asked(workspace):
    with serving(lambda sent: completion("Hi")) as server:
        home = workspace(server.url, follow=False)
        ask_endpoints(home, ["served"])
        assert not server.sent
