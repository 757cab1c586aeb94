"""The service with the bundled predictors holds its promises, whatever it is asked.

`python -m tests.fuzz` asks more than this: these are its first cases, with a fixed seed.
"""

from pathlib import Path

import pytest

from forerun.models.artifact.sealed_folder import bundled
from tests.fuzz.asked import Asked
from tests.fuzz.generated import generated_cases
from tests.fuzz.mutated import mutated_cases
from tests.fuzz.promises import broken, promises_broken_by
from tests.fuzz.service import in_process
from tests.fuzz.valid import valid_requests

pytestmark = pytest.mark.slow
SEED = 0
CASES = 200
GENERATED = 100
SAVED = sorted((Path(__file__).parent / "cases").glob("*.json"))


@pytest.fixture(scope="module")
def client():
    with in_process(bundled()) as client:
        yield client


@pytest.fixture(scope="module")
def valid(client):
    """Valid requests with their answers."""
    return [(asked, asked.sent(client)) for asked in valid_requests(client)]


def test_valid_requests_are_answered(valid):
    assert [(a.name, r.text[:300]) for a, r in valid if r.status_code >= 300] == []
    assert [(a.name, wrong) for a, r in valid if (wrong := promises_broken_by(a, r))] == []


def test_valid_requests_reach_every_endpoint(client, valid):
    reached = {(asked.method.lower(), asked.path) for asked, _ in valid}
    for path, methods in client.get("/openapi.json").json()["paths"].items():
        for method in set(methods) - {"delete"}:
            start = path.partition("{")[0]
            assert any(m == method and p.startswith(start) for m, p in reached), (method, path)


def test_the_promises_are_about_the_numbers_of_real_answers(valid):
    """An interval above its estimate would be found in each."""
    answers = [r.text for asked, r in valid if asked.path == "/v1/predict" and '"p95"' in r.text]
    assert len(answers) > 30
    for text in answers:
        changed = text.replace('"low":', '"low":1e300,"before":').encode()
        assert broken("/v1/predict", 200, "application/json", changed), text[:300]


def test_mutated_requests_break_no_promise(client):
    wrong = [
        (number, asked.name, promises)
        for number, asked in mutated_cases(client, SEED, range(CASES))
        if (promises := promises_broken_by(asked, asked.sent(client)))
    ]
    assert wrong == []


def test_generated_requests_break_no_promise():
    """Of an application of its own, which schemathesis ends afterwards."""
    found = []

    def note(asked: Asked, promises: list[str], status: int) -> None:
        found.append((asked.name, promises))

    with in_process(bundled()) as client:
        generated_cases(client, GENERATED, SEED, note)
    assert len(found) > GENERATED / 2
    assert [each for each in found if each[1]] == []


@pytest.mark.parametrize("file", SAVED, ids=lambda file: file.stem)
def test_requests_that_once_broke_a_promise_break_none(client, file):
    asked = Asked.load(file)
    assert promises_broken_by(asked, asked.sent(client)) == []


def test_a_request_is_the_same_after_it_was_saved(tmp_path):
    for body in (b'{"a": "\xc3\xa9"}', b"\xff\x00"):
        asked = Asked("PUT", "/v1/devices/x", "a=%20", body, "text/plain")
        asked.save(tmp_path / "case.json", "status 500")
        assert Asked.load(tmp_path / "case.json") == asked
