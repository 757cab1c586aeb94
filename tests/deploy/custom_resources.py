"""Schemas of kinds that are no part of Kubernetes' own API, as far as our manifests use them.

They were written by reading the definitions of these releases, and take no field that they do not
name: the Prometheus operator 0.82.2 (PrometheusRule) and 0.84.1 (ServiceMonitor), both in
`apiextensions.k8s.io/v1`; KServe (InferenceService, Go types of 2026); KubeRay (RayJob, Go types of
`ray.io/v1`); and kube-scheduler (KubeSchedulerConfiguration, Go types of
`kubescheduler.config.k8s.io/v1`, of 2026). Pods in them are checked against Kubernetes' schemas.
"""

from typing import Any, Final

VERSIONS: Final = {
    "PrometheusRule": "monitoring.coreos.com/v1",
    "ServiceMonitor": "monitoring.coreos.com/v1",
    "InferenceService": "serving.kserve.io/v1beta1",
    "RayJob": "ray.io/v1",
}
"""Kind of a resource -> the version of its API."""
TEXT: Final = {"type": "string"}
TEXTS: Final = {"type": "object", "additionalProperties": TEXT}
DURATION: Final = {
    "type": "string",
    "pattern": "^(0|(([0-9]+)y)?(([0-9]+)w)?(([0-9]+)d)?(([0-9]+)h)?(([0-9]+)m)?"
    "(([0-9]+)s)?(([0-9]+)ms)?)$",
}


def _strict(required: list[str], **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _resource(kind: str, spec: dict[str, Any], name: str = "") -> dict[str, Any]:
    named = {"type": "object", "properties": {"name": {"type": "string", "pattern": name}}}
    return _strict(
        ["apiVersion", "kind", "metadata", "spec"],
        apiVersion={"const": VERSIONS[kind]},
        kind={"const": kind},
        metadata={**named, "required": ["name"]},
        spec=spec,
    )


def _listed(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


RULE: Final = _strict(
    ["expr"],
    alert=TEXT,
    record=TEXT,
    expr={"type": ["string", "integer"]},
    **{"for": DURATION, "keep_firing_for": DURATION},
    labels=TEXTS,
    annotations=TEXTS,
)
GROUP: Final = _strict(
    ["name"],
    name={"type": "string", "minLength": 1},
    interval=DURATION,
    limit={"type": "integer"},
    labels=TEXTS,
    rules=_listed(RULE),
)
ENDPOINT: Final = _strict(
    [],
    port=TEXT,
    path=TEXT,
    scheme={"enum": ["http", "https"]},
    interval=DURATION,
    scrapeTimeout=DURATION,
    honorLabels={"type": "boolean"},
)
SCHEMAS: Final = {
    "PrometheusRule": _resource("PrometheusRule", _strict([], groups=_listed(GROUP))),
    "ServiceMonitor": _resource(
        "ServiceMonitor",
        _strict(
            ["endpoints", "selector"],
            endpoints=_listed(ENDPOINT),
            selector=_strict([], matchLabels=TEXTS, matchExpressions={"type": "array"}),
            jobLabel=TEXT,
        ),
    ),
}
"""Kind of a resource of the Prometheus operator -> its JSON schema."""
COUNT: Final = {"type": "integer", "minimum": 0}
REPLICAS: Final = {"minReplicas": COUNT, "maxReplicas": COUNT}
"""Fields of a predictor next to those of its pod."""
INFERENCE_SERVICE: Final = _resource(
    "InferenceService",
    _strict(["predictor"], predictor={"type": "object", "properties": REPLICAS}),
    "^[a-z]([-a-z0-9]*[a-z0-9])?$",
)
RAY_GROUP: Final = {"rayStartParams": TEXTS, "template": {"type": "object"}}
RAY_JOB: Final = _resource(
    "RayJob",
    _strict(
        [],
        entrypoint=TEXT,
        shutdownAfterJobFinishes={"type": "boolean"},
        ttlSecondsAfterFinished={"type": "integer"},
        backoffLimit={"type": "integer"},
        rayClusterSpec=_strict(
            ["headGroupSpec"],
            rayVersion=TEXT,
            headGroupSpec=_strict(["rayStartParams", "template"], **RAY_GROUP),
            workerGroupSpecs=_listed(
                _strict(
                    ["groupName", "rayStartParams", "template"],
                    groupName=TEXT,
                    replicas=COUNT,
                    **REPLICAS,
                    **RAY_GROUP,
                )
            ),
        ),
    ),
)
"""Replicas that are left out take default values, at least 0 and any number."""
EXTENDER: Final = _strict(
    ["urlPrefix"],
    urlPrefix={"type": "string", "pattern": "^https?://"},
    **dict.fromkeys(("filterVerb", "prioritizeVerb", "preemptVerb", "bindVerb"), TEXT),
    weight={"type": "integer", "minimum": 1},
    httpTimeout={"type": "string", "pattern": "^([0-9]+(ms|s|m))+$"},
    **{name: {"type": "boolean"} for name in ("nodeCacheCapable", "ignorable", "enableHTTPS")},
    managedResources={"type": "array"},
    tlsConfig={"type": "object"},
)
SCHEDULER: Final = _strict(
    ["apiVersion", "kind"],
    apiVersion={"const": "kubescheduler.config.k8s.io/v1"},
    kind={"const": "KubeSchedulerConfiguration"},
    extenders=_listed(EXTENDER),
    profiles={"type": "array"},
    clientConnection={"type": "object"},
    leaderElection={"type": "object"},
)
"""The configuration of a kube-scheduler, which has no metadata."""
