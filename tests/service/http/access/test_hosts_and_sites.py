"""Foreign hosts and pages of other sites are refused; every answer has headers for safety."""

import pytest

from forerun.service.schemas.prediction import EXAMPLE
from forerun.service.settings import Settings
from tests.service.answered import content_of, problem_of
from tests.service.conftest import client_of


@pytest.fixture
def asked(settings, loaded):
    """Asks an application with further settings whether it is alive, under a name."""

    def ask(named: str, **given: str) -> int:
        client = client_of(settings, loaded, "http://127.0.0.1:8080", **given)
        return client.get("/healthz", headers={"host": named}).status_code

    return ask


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:8080", "127.0.0.1", "127.0.0.1:8080", "[::1]:8080", "[::1]"]
)
def test_loopback_names_are_answered(asked, host):
    assert asked(host) == 200


@pytest.mark.parametrize(
    "host",
    ["rebound.example", "rebound.example:8080", "localhost.rebound.example", "10.0.0.7", "::1"],
)
def test_another_name_is_refused_where_the_service_is_for_this_machine_alone(asked, host):
    assert asked(host) == 421


def test_several_hosts_are_refused(client):
    headers = [("host", "localhost"), ("host", "rebound.example")]
    problem_of(client.get("/healthz", headers=headers), 400, slug="several-hosts")


def test_a_request_without_a_host_is_answered_since_no_browser_sends_one(asked):
    assert asked("") == 200


def test_an_encoded_body_is_refused_with_the_reason(client):
    for encoding in ("gzip", "br"):
        headers = {"content-encoding": encoding}
        problem_of(client.post("/v1/predict", content=b"1f8b", headers=headers), 415, encoding)
    content_of(client.post("/v1/predict", json=EXAMPLE, headers={"content-encoding": "identity"}))


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_who_watches_the_service_may_ask_for_the_head_alone(client, path):
    answer = client.head(path)
    assert (answer.status_code, answer.content) == (200, b"")


def test_the_names_of_the_setting_are_answered_and_loopback_with_them(asked):
    names = {"allowed_hosts": "plan.example, Other.example"}
    assert asked("plan.example:443", **names) == 200
    assert asked("other.example", **names) == 200
    assert asked("localhost", **names) == 200
    assert asked("rebound.example", **names) == 421


def test_a_service_for_other_machines_answers_to_any_name_unless_some_are_set(asked):
    assert asked("plan.example", host="0.0.0.0") == 200
    assert asked("10.0.0.7", host="0.0.0.0", allowed_hosts="plan.example") == 421
    assert asked("127.0.0.1", host="0.0.0.0", allowed_hosts="plan.example") == 200
    assert asked("plan.example", allowed_hosts="*") == 200


def test_the_address_that_was_reached_is_its_name(asked, settings, loaded):
    client = client_of(settings, loaded, "http://10.0.0.7:8080")
    assert client.get("/healthz").status_code == 200
    assert client.get("/healthz", headers={"host": "10.0.0.8"}).status_code == 421


def test_the_refusal_says_how_to_allow_the_name(client):
    answer = client.post("/v1/predict", json=EXAMPLE, headers={"host": "rebound.example"})
    assert answer.headers["content-type"] == "application/problem+json"
    problem_of(answer, 421, "FORERUN_ALLOWED_HOSTS", slug="unknown-host")
    assert client.get("/problems/unknown-host").status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://other.example"},
        {"origin": "http://testserver:9999"},
        {"origin": "null"},
        {"origin": "http://[broken"},
        {"sec-fetch-site": "cross-site"},
        {"origin": "http://testserver", "sec-fetch-site": "cross-site"},
    ],
)
def test_a_page_of_another_site_cannot_write(client, digest, headers):
    for send in (client.post, client.put, client.delete):
        problem_of(send("/v1/predict", headers=headers), 403, slug="cross-site")
    assert client.get("/v1/devices", headers=headers).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"origin": "http://testserver", "sec-fetch-site": "same-origin"},
        {"sec-fetch-site": "none"},
    ],
)
def test_our_own_pages_and_programs_can_write(client, headers):
    assert client.post("/v1/predict", json=EXAMPLE, headers=headers).status_code == 200


@pytest.mark.parametrize(
    "path",
    ["/", "/docs", "/redoc", "/healthz", "/metrics", "/v1/devices", "/v1/nothing", "/openapi.json",
     "/static/style.css", "/problems/unknown-host"],
)  # fmt: skip
def test_every_answer_has_headers_against_sniffing_framing_and_foreign_scripts(client, path):
    headers = client.get(path).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "same-origin"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    policies = headers.get_list("content-security-policy")
    assert len(policies) == 1
    assert "default-src 'none'" in policies[0] and "frame-ancestors 'none'" in policies[0]
    assert "unsafe-eval" not in policies[0] and "script-src 'unsafe-inline'" not in policies[0]


def test_refusals_have_the_headers_too(client):
    refused = client.get("/", headers={"host": "rebound.example"})
    too_large = client.post("/v1/predict", content=b" " * (2**20 + 1))
    assert (refused.status_code, too_large.status_code) == (421, 413)
    for answer in (refused, too_large):
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_the_address_of_the_command_line_counts(settings):
    from forerun.service.http.access import allowed_hosts

    assert allowed_hosts(Settings(host="127.0.0.2")) > {"127.0.0.2", "localhost"}
    assert allowed_hosts(Settings(host="::1")) >= {"[::1]"}
    assert allowed_hosts(Settings(host="0.0.0.0")) == {"*"}
