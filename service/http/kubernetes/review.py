"""Reviews of a validating admission webhook, version v1 of `admission.k8s.io`.

Fields: https://pkg.go.dev/k8s.io/api/admission/v1
"""

from collections.abc import Iterable
from typing import Any, Final, Self

from msgspec import Struct, ValidationError, convert, json

from forerun.service.http.kubernetes.extender import Pod, reading
from forerun.service.http.kubernetes.findings import Finding

VERSION: Final = "admission.k8s.io/v1"
REFUSED: Final = 422
LONGEST_WARNING: Final = 256
"""Characters of a warning; the API server may cut longer ones."""


class _Kind(Struct):
    kind: str = ""


class _Request(Struct):
    uid: str
    kind: _Kind
    object: dict[str, Any] | None = None


class _Review(Struct, rename="camel"):
    request: _Request
    api_version: str = ""


class Asked(Struct):
    """A pod that is to be admitted, or what makes such pods.

    Attributes:
        uid: identifier of the request.
        pod: the pod, or the template of the pods; None where there is none.
    """

    uid: str
    pod: Pod | None

    @classmethod
    def of(cls, content: bytes) -> Self:
        """What the body of a request asks.

        Raises:
            BadRequest: it is no AdmissionReview of version v1.
        """
        with reading("AdmissionReview"):
            review = json.decode(content, type=_Review)
            if review.api_version != VERSION:
                raise ValidationError(f"apiVersion is not {VERSION}")
            own = review.request.object or {}
            if review.request.kind.kind != "Pod":
                own = (own.get("spec") or {}).get("template") or {}
                own = {"metadata": {}, **own} if own else own
            return cls(review.request.uid, convert(own, Pod) if own else None)


def response(uid: str, findings: Iterable[Finding]) -> bytes:
    """JSON of the review with the response: refused for errors; warnings for the rest.

    Args:
        uid: identifier of the request.
        findings: what is wrong with the pod.
    """
    lines = {own: f"{own.name}: {own.message}" if own.name else own.message for own in findings}
    errors = [line for own, line in lines.items() if own.is_error]
    answer: dict[str, Any] = {"uid": uid, "allowed": not errors}
    if errors:
        answer["status"] = {"code": REFUSED, "reason": "Invalid", "message": "; ".join(errors)}
    if warnings := [line for own, line in lines.items() if not own.is_error]:
        answer["warnings"] = [f"forerun: {line}"[:LONGEST_WARNING] for line in warnings]
    return json.encode({"apiVersion": VERSION, "kind": "AdmissionReview", "response": answer})
