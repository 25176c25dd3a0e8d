"""What may be said of an endpoint in the audit file, and that keys pasted into it are not repeated."""

from __future__ import annotations

import sys

import pytest
from pydantic import BaseModel, ValidationError

from plumbline.errors import ConfigError
from plumbline.http.chat import ChatClient
from plumbline.http.settings import EndpointSettings, is_loopback, read_key

PASTED = "sk-proj-THIS-is-a-key-0123456789"


def made(*urls: str, **more: object) -> EndpointSettings:
    return EndpointSettings.model_validate({"urls": list(urls), "model": "m", **more})


class Entry(BaseModel):
    endpoint: EndpointSettings


@pytest.mark.parametrize(
    "url",
    [
        "https://api.openai.com/v1",
        "https://name.openai.azure.com:443/openai/v1",
        "http://localhost:8000/v1",
        "http://127.0.0.1:8000/v1",
        "http://127.8.8.8/v1",
        "http://[::1]:8000/v1",
    ],
)
def test_urls_that_are_safe(url):
    assert made(url + "/").urls == (url,)


@pytest.mark.parametrize(
    "url",
    [
        "http://gpu-node-7:8000/v1",
        "http://10.0.0.7/v1",
        "http://localhost.evil.example/v1",
        "http://127.0.0.1.evil.example/v1",
        "http://0.0.0.0/v1",
        "http://[::ffff:10.0.0.1]/v1",
    ],
)
def test_http_to_other_machines_must_be_allowed(url):
    with pytest.raises(ValidationError, match="is another machine"):
        made(url)
    assert made(url, allow_http=True).urls == (url,)
    assert not is_loopback(url)


@pytest.mark.parametrize(
    "url",
    [
        "api.openai.com/v1",
        "ftp://host/v1",
        "file:///etc/passwd",
        f"https://user:{PASTED}@host/v1",
        f"https://host/v1?key={PASTED}",
        f"https://host/v1#{PASTED}",
        "https://good.example\\@evil.example/v1",
        "https://host/v1\nX-Header: 1",
        "https://host/v1/chat/completions",
        "https://host:99999/v1",
        "https://host:0/v1",
        "https://:8000/v1",
        "https://[::1/v1",
        "https://",
        "",
    ],
)
def test_urls_that_are_refused_and_not_repeated(url):
    with pytest.raises(ValidationError) as caught:
        Entry.model_validate({"endpoint": {"urls": [url], "model": "m"}})
    (mistake,) = caught.value.errors()
    assert mistake["loc"] == ("endpoint", "urls")
    assert PASTED not in repr(caught.value) + str(caught.value) + repr(mistake)


def test_a_key_in_place_of_its_variables_name_is_refused_and_not_repeated():
    with pytest.raises(ValidationError, match="the NAME of an environment variable") as caught:
        Entry.model_validate({"endpoint": {"urls": ["https://host/v1"], "model": "m", "key_variable": PASTED}})
    (mistake,) = caught.value.errors()
    assert mistake["loc"] == ("endpoint", "key_variable")
    assert PASTED not in repr(caught.value) + str(caught.value) + repr(mistake)


@pytest.mark.parametrize(
    "more",
    [
        {"key": PASTED},
        {"concurrency": 0},
        {"attempts": 0},
        {"timeout_s": 0},
        {"timeout_s": float("inf")},
        {"price_input": -1},
        {"model": ""},
        {"urls": []},
        {"urls": ["https://host/v1", "https://host/v1/"]},
        {"urls": "https://host/v1"},
        {"length_field": "n"},
    ],
)
def test_values_out_of_bounds(more):
    with pytest.raises(ValidationError):
        EndpointSettings.model_validate({"urls": ["https://host/v1"], "model": "m", **more})


def test_without_the_extra_the_error_says_what_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "stamina", None)
    monkeypatch.setenv("MY_KEY", "secret-of-a-test")
    with pytest.raises(ConfigError, match=r"stamina[\s\S]*extra `lvlm`[\s\S]*pip install 'plumbline\[lvlm\]'"):
        read_key("MY_KEY")


def test_settings_are_frozen_and_survive_json():
    settings = made("https://a/v1", "https://b/v1", key_variable="MY_KEY", concurrency=4)
    with pytest.raises(ValidationError):
        settings.model = "other"
    assert EndpointSettings.model_validate_json(settings.model_dump_json()) == settings
    assert settings.slots == 8
    assert repr(ChatClient(settings)) == "ChatClient('m' at https://a/v1, https://b/v1)"
