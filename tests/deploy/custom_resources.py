"""Schemas of the custom resources of the Prometheus operator, as far as our manifests use them.

Names, types and patterns follow definitions of the era of `apiextensions.k8s.io/v1beta1`. Each field
that our manifests have is also one of the operator's Go types of `monitoring.coreos.com/v1`, as they
are since `ServiceMonitorSpec` has `bodySizeLimit`; no generated definition was at hand.
"""

from typing import Any, Final

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


def _resource(spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"type": "object", "required": ["name"]}
    return _strict(
        ["apiVersion", "kind", "metadata", "spec"],
        apiVersion={"const": "monitoring.coreos.com/v1"},
        kind=TEXT,
        metadata=metadata,
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
    "PrometheusRule": _resource(_strict([], groups=_listed(GROUP))),
    "ServiceMonitor": _resource(
        _strict(
            ["endpoints", "selector"],
            endpoints=_listed(ENDPOINT),
            selector=_strict([], matchLabels=TEXTS, matchExpressions={"type": "array"}),
            jobLabel=TEXT,
        )
    ),
}
"""Kind of a resource -> its JSON schema, which takes no field that it does not name."""
