"""The client reads typed answers, states problems, and tries again what was not done."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from forerun.client import AsyncClient, Client, ServiceProblem, ServiceUnreachable
from forerun.data.device import DeviceCatalog
from forerun.service.client import calls
from forerun.service.http.app import create_app
from tests.service.conftest import GRAPH, linear_row

QUESTION = {"workload": linear_row(64, None)["workload"], "device": "l4"}
LEFT_OUT = {
    "healthz": "for load balancers",
    "metrics": "for Prometheus",
    "colocation_now": "about the host of the service",
    "filter_nodes": "for kube-scheduler",
    "prioritize_nodes": "for kube-scheduler",
    "validate_pod": "for API servers of Kubernetes",
    "table": "for plug-ins of schedulers",
    **dict.fromkeys(
        ("server", "live", "ready", "metadata", "model_ready", "infer"),
        "for clients of the Open Inference Protocol",
    ),
    **dict.fromkeys(
        ("predict_one", "predict_all", "predict_any", "add_entries", "status", "model_info"),
        "for the router of llm-d",
    ),
    **dict.fromkeys(("put_routed", "routed", "delete_routed"), "once for each router"),
}
OTHER_NAMES = {
    "upload": "upload_graph",
    "show": "graph",
    "readyz": "ready",
    "put_measurements": "adapt",
}


class Stub:
    """A service that gives these answers, one after the other, and keeps what was asked."""

    def __init__(self, *answers):
        self.answers, self.asked = list(answers), []

    def __call__(self, request):
        self.asked.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def client(self, **settings):
        return Client("http://x", transport=httpx.MockTransport(self), **settings)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    """Pauses that were taken, which take no time here."""
    taken = []
    monkeypatch.setattr("forerun.service.client.client.time.sleep", taken.append)
    return taken


@pytest.fixture
def here(client):
    """A client of the application in this process."""
    transport = httpx.MockTransport(
        lambda asked: httpx.Response(
            (found := client.request(
                asked.method, str(asked.url.copy_with(scheme="http", host="testserver", port=None)),
                content=asked.content, headers=asked.headers,
            )).status_code,
            content=found.content,
            headers={"Retry-After": found.headers.get("Retry-After", "")},
        )
    )  # fmt: skip
    with Client("http://testserver", transport=transport) as made:
        yield made


def test_every_endpoint_has_a_method_or_a_reason(settings):
    document = create_app(settings).openapi()
    named = {own["operationId"] for each in document["paths"].values() for own in each.values()}
    for name in named - LEFT_OUT.keys():
        method = OTHER_NAMES.get(name, name)
        assert hasattr(Client, method) and hasattr(AsyncClient, method), name
    assert LEFT_OUT.keys() <= named


def test_both_clients_have_the_same_methods():
    methods = [{name for name in vars(own) if name[0] != "_"} for own in (Client, AsyncClient)]
    assert methods[0] == methods[1]
    assert Client.predict.__doc__ == calls.predict.__doc__


def test_answers_are_typed(here):
    answer = here.predict(QUESTION)
    assert answer.metrics["latency_ms"].value > 0
    one, other = here.predict_batch([QUESTION, QUESTION | {"device": "none"}]).items
    assert one == answer
    assert other.status == 404
    assert here.device("l4") == DeviceCatalog.load().get("l4")
    stored = here.upload_graph(GRAPH.to_json())
    assert stored.digest == GRAPH.digest == here.graph(GRAPH.digest).digest
    assert here.delete_graph(stored.digest) is None
    assert here.ready().version == "test"
    assert here.devices(kind="cpu").devices
    made = here.observe("l4", [linear_row(64, 0.02)])
    assert here.measurements("l4", source="observe").sets[0].set == made.set


def test_a_repeated_observation_is_stored_once(here):
    rows = [linear_row(64, 0.02)]
    sets = {here.observe("l4", rows, key="one").set for _ in range(3)}
    assert len(sets) == 1
    assert here.observe("l4", rows).set not in sets


def test_a_problem_is_stated_as_the_service_states_it(here):
    with pytest.raises(ServiceProblem, match="no-such") as found:
        here.predict(QUESTION | {"device": "no-such"})
    assert (found.value.status, found.value.type) == (404, "/problems/unknown-device")
    assert found.value.content["detail"] == found.value.detail


def test_a_proxys_page_gives_its_status():
    stub = Stub(httpx.Response(502, text="<html>Bad gateway</html>"))
    with stub.client() as client, pytest.raises(ServiceProblem, match="HTTP status 502"):
        client.ready()
    assert len(stub.asked) == 1


@pytest.mark.parametrize(
    "refusal",
    [
        httpx.Response(503, headers={"Retry-After": "3"}),
        httpx.Response(429, headers={"Retry-After": "3"}),
        httpx.ConnectError("refused"),
        httpx.ReadError("reset"),
    ],
)
def test_what_was_not_done_is_tried_again(refusal, no_pauses):
    ready = httpx.Response(200, json={"models": []})
    stub = Stub(refusal, refusal, ready)
    with stub.client() as client:
        assert client.models().models == []
    assert len(stub.asked) == 3
    if isinstance(refusal, httpx.Response):
        assert all(pause >= 3 for pause in no_pauses)


def test_retries_end_with_the_last_failure(no_pauses):
    stub = Stub(httpx.Response(503, json={"detail": "busy"}))
    with stub.client(retries=2) as client, pytest.raises(ServiceProblem, match="503: busy"):
        client.models()
    assert (len(stub.asked), len(no_pauses)) == (3, 2)
    stub = Stub(httpx.ConnectError("refused"))
    with stub.client(retries=0) as client, pytest.raises(ServiceUnreachable, match="refused"):
        client.models()


def test_no_pause_goes_beyond_the_deadline(no_pauses):
    stub = Stub(httpx.Response(503, headers={"Retry-After": "100"}))
    with stub.client(timeout_s=50) as client, pytest.raises(ServiceProblem):
        client.models()
    assert not no_pauses


def test_a_request_that_is_sent_again_has_the_same_key():
    stub = Stub(httpx.ReadError("reset"), httpx.ReadError("reset"), httpx.Response(422, json={}))
    with stub.client(key="fr_secret") as client, pytest.raises(ServiceProblem):
        client.adapt("l4", [linear_row(64, 1.0)])
    keys = {asked.headers["Idempotency-Key"] for asked in stub.asked}
    assert len(stub.asked) == 3 and len(keys) == 1
    assert {asked.headers["Authorization"] for asked in stub.asked} == {"Bearer fr_secret"}
    assert json.loads(stub.asked[0].content)["source"] == "adapt"


def test_names_are_quoted_in_paths():
    stub = Stub(httpx.Response(404, json={}))
    with stub.client() as client, pytest.raises(ServiceProblem):
        client.device("a/b?c")
    assert stub.asked[0].url.raw_path == b"/v1/devices/a%2Fb%3Fc"


def test_an_awaited_client_answers_likewise(settings, loaded):
    async def asked():
        app = create_app(settings, loaded)
        async with (
            app.router.lifespan_context(app),
            AsyncClient("http://localhost", transport=httpx.ASGITransport(app)) as client,
        ):
            both = await asyncio.gather(client.predict(QUESTION), client.predict(QUESTION))
            with pytest.raises(ServiceProblem, match="no-such"):
                await client.device("no-such")
            return both

    with ThreadPoolExecutor(1) as pool:  # A browser of another test may have a loop on this thread.
        one, other = pool.submit(lambda: asyncio.run(asked())).result()
    assert one == other
    assert one.metrics["latency_ms"].value > 0
