"""Reviews of the admission webhook, in the form in which the API server asks for them."""

from typing import Any

import pytest

from tests.service.answered import content_of, problem_of
from tests.service.http.kubernetes.requests import pod, waiting_pod

UID = "705ab4f5-6393-11e8-b7cc-42010a800002"
LLM = {"llm": "llama-3.1-8b", "input-tokens": "1024", "output-tokens": "256", "concurrency": "16"}


def review(content: dict[str, Any] | None, kind: str = "Pod", group: str = "") -> dict[str, Any]:
    """An `AdmissionReview` as https://kubernetes.io/docs/reference/access-authn-authz/
    extensible-admission-controllers/#request shows it.
    """
    of = {"group": group, "version": "v1", "kind": kind}
    resource = {"group": group, "version": "v1", "resource": f"{kind.lower()}s"}
    user = {"username": "admin", "uid": "014fbff9a07c", "groups": ["system:authenticated"]}
    request = {
        "uid": UID,
        "kind": of,
        "resource": resource,
        "requestKind": of,
        "requestResource": resource,
        "name": "job-0",
        "namespace": "team",
        "operation": "CREATE",
        "userInfo": {**user, "extra": {"some-key": ["some-value1"]}},
        "object": content,
        "oldObject": None,
        "options": {"apiVersion": "meta.k8s.io/v1", "kind": "CreateOptions"},
        "dryRun": False,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def answered(client, request: dict[str, Any]) -> dict[str, Any]:
    """The response to a review, which the API server asks for with a time limit."""
    content = content_of(client.post("/v1/kubernetes/validate?timeout=5s", json=request))
    assert (content["apiVersion"], content["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    assert content["response"]["uid"] == UID
    return content["response"]


def asked(annotations, limits=None, selector=None) -> dict[str, Any]:
    made = pod(annotations, limits)
    made["spec"]["nodeSelector"] = selector or {}
    return made


GPU = {"nvidia.com/gpu": "1"}
L4 = {"nvidia.com/gpu.product": "NVIDIA-L4"}


@pytest.mark.parametrize(
    "content",
    [
        waiting_pod("a", {}),
        pod({}),
        {"metadata": {"name": "no-annotations"}, "spec": {}},
        None,
        asked({"graph": "resnet50", "batch-size": "64"}, GPU, L4),
        asked(LLM, GPU, L4),
        asked({"program": "redis", "min-relative-speed": "0.8"}),
    ],
)
def test_what_is_right_is_admitted_without_a_word(adapting, content):
    assert answered(adapting, review(content)) == {"uid": UID, "allowed": True}


@pytest.mark.parametrize(
    ("annotations", "limits", "selector", "said"),
    [
        ({"graph": "resnet50", "batchsize": "64"}, GPU, None, "forerun.dev/batchsize: "),
        ({"graph": "resnet50", "batchsize": "64"}, GPU, None, "did you mean forerun.dev/batch"),
        ({"graph": "resnet50", "max-latency": "4"}, GPU, None, "forerun.dev/max-latency-ms?"),
        ({"graph": "resnet50", "max-latency-ms": "x"}, GPU, None, "forerun.dev/max-latency-ms: "),
        ({"graph": "resnet50", "objective": "speed"}, GPU, None, "forerun.dev/objective: "),
        ({"graph": "resnet51x"}, GPU, None, "forerun.dev/graph: No graph"),
        ({"batch-size": "64"}, GPU, None, "forerun.dev/graph: "),
        ({"workload": "7"}, GPU, None, "forerun.dev/workload: give a JSON object"),
        ({"graph": "resnet50"}, GPU, {"forerun.dev/device": "l40000"}, "Did you mean l40"),
        ({"graph": "resnet50", "batch-size": "65536"}, GPU, L4, "l4: does not fit"),
        ({"graph": "resnet50"}, {"nvidia.com/gpu": "two"}, None, "is not a number of GPUs"),
        ({**LLM, "llm": "lama-3.1-8b"}, GPU, None, "Did you mean llama-3.1-8b"),
        ({**LLM, "input-token": "3"}, GPU, None, "did you mean input_tokens"),
        ({**LLM, "max-tpot": "3"}, GPU, None, "did you mean forerun.dev/max-tpot-ms?"),
        ({**LLM, "objective": "speed"}, GPU, None, "forerun.dev/objective: "),
        ({**LLM, "tp": "3"}, {"nvidia.com/gpu": "3"}, None, "forerun.dev/tp: Tensor parallel 3"),
        ({**LLM, "tp": "4"}, {"nvidia.com/gpu": "2"}, None, "runs on 4 devices, and 2 are"),
        ({**LLM, "llm": "llama-3.1-70b"}, GPU, L4, "l4: does not fit"),
        ({"min-relative-speed": "0.8"}, None, None, "forerun.dev/program: "),
    ],
)
def test_what_is_wrong_is_refused_with_its_annotation(
    adapting, annotations, limits, selector, said
):
    response = answered(adapting, review(asked(annotations, limits, selector)))
    assert response["allowed"] is False
    assert response["status"]["code"] == 422
    assert said in response["status"]["message"]


@pytest.mark.parametrize(
    ("annotations", "limits", "selector", "said"),
    [
        ({"graph": "resnet50"}, {"nvidia.com/gpu": "4"}, None, "4 are requested"),
        ({"graph": "resnet50"}, None, L4, "no container requests GPUs"),
        ({"graph": "resnet50"}, GPU, {"nvidia.com/gpu.product": "Z9"}, "No device named 'Z9'"),
    ],
)
def test_what_is_doubtful_is_admitted_with_a_warning(adapting, annotations, limits, selector, said):
    response = answered(adapting, review(asked(annotations, limits, selector)))
    assert response["allowed"] is True
    (warning,) = response["warnings"]
    assert said in warning


def test_a_device_among_several_that_is_too_small_is_a_warning(adapting):
    expression = {"key": "nvidia.com/gpu.product", "operator": "In"}

    def on(*products: str) -> dict[str, Any]:
        made = asked({"graph": "resnet50", "batch-size": "4096"}, GPU)
        terms = [{"matchExpressions": [{**expression, "values": list(products)}]}]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        made["spec"]["affinity"] = {"nodeAffinity": required}
        return answered(adapting, review(made))

    both = on("Tesla-T4", "NVIDIA-H200")
    assert both["allowed"] is True
    assert "t4: does not fit" in both["warnings"][0]
    assert on("Tesla-T4")["allowed"] is False
    assert on("NVIDIA-H200") == {"uid": UID, "allowed": True}


def test_templates_of_pods_are_reviewed_as_pods_are(adapting):
    wrong = {**asked({"graph": "resnet50", "batchsize": "4"}, GPU)}
    template = {"metadata": wrong["metadata"], "spec": wrong["spec"]}
    deployment = {"metadata": {"name": "d"}, "spec": {"replicas": 2, "template": template}}
    response = answered(adapting, review(deployment, "Deployment", "apps"))
    assert "forerun.dev/batch-size?" in response["status"]["message"]
    right = answered(adapting, review({"metadata": {}, "spec": {}}, "Deployment", "apps"))
    assert right["allowed"] is True


@pytest.mark.parametrize(
    ("name", "part", "said"),
    [
        ("forerun.dev/graph", "labels", "labels of pods are not read"),
        ("forrun.dev/graph", "annotations", "did you mean forerun.dev/graph?"),
    ],
)
def test_names_that_nothing_reads_are_refused(adapting, name, part, said):
    response = answered(adapting, review({"metadata": {part: {name: "resnet50"}}, "spec": {}}))
    assert said in response["status"]["message"]


@pytest.mark.parametrize(
    "body",
    [b"{", b"[]", b"{}", b'{"apiVersion": "admission.k8s.io/v1beta1", "request": {}}', b"[" * 9999],
)
def test_what_is_no_review_is_a_problem(adapting, body):
    problem_of(adapting.post("/v1/kubernetes/validate", content=body), 422, slug="bad-request")


@pytest.mark.parametrize("template", [[], 7, "x", [1], {"spec": 3}, {"metadata": {"labels": 3}}])
def test_objects_of_any_form_are_reviewed_or_a_problem(adapting, template):
    request = review({"spec": {"template": template}}, "Deployment", "apps")
    answer = adapting.post("/v1/kubernetes/validate", json=request)
    assert answer.status_code in (200, 422)


def test_an_answer_that_takes_too_long_refuses_no_pod(adapting, monkeypatch):
    from forerun.data.errors import DeadlineExceeded
    from forerun.service.http.kubernetes import findings

    def late(pod):
        raise DeadlineExceeded("too late")

    monkeypatch.setattr(findings, "placed_by", late)
    answer = adapting.post("/v1/kubernetes/validate", json=review(pod({"graph": "resnet50"})))
    assert answer.status_code == 503
