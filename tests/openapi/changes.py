"""Changes of an OpenAPI document that break clients; additions do not."""

from collections.abc import Iterator, Mapping
from typing import Any

Document = Mapping[str, Any]
METHODS = ("get", "post", "put", "delete", "patch")
JSON = "application/json"


def breaking_changes(before: Document, after: Document) -> list[str]:
    """What worked by one document and fails by the other, one line each.

    Removed are a path, a method, a parameter, a field of a request or of an answer, or a value that
    a request may have; or a request needs what it did not need, or a type is another one.

    Args:
        before: OpenAPI document that clients were written for.
        after: the one that they meet.
    """
    return list(dict.fromkeys(_changes(before, after)))


def _changes(before: Document, after: Document) -> Iterator[str]:
    for path, methods in before["paths"].items():
        for method in filter(methods.__contains__, METHODS):
            name = f"{method.upper()} {path}"
            now = after["paths"].get(path, {}).get(method)
            if now is None:
                yield f"{name} is gone"
                continue
            yield from _parameters(name, methods[method], now)
            for part in ("request", "answer"):
                compared = _Compared(before, after, is_request=part == "request")
                schemas = [_schema(one, part) for one in (methods[method], now)]
                if schemas[0] is not None:
                    yield from compared.schemas(f"{name} {part}", *schemas)


def _parameters(name: str, before: Document, after: Document) -> Iterator[str]:
    known, now = (
        {(own["in"], own["name"]): own for own in each.get("parameters", ())}
        for each in (before, after)
    )
    for where, called in known.keys() - now.keys():
        yield f"{name}: the {where} parameter {called} is gone"
    for key, own in now.items():
        if own.get("required") and not known.get(key, {}).get("required"):
            yield f"{name}: the {key[0]} parameter {key[1]} is needed now"


def _schema(operation: Document, part: str) -> Document | None:
    if part == "request":
        content = operation.get("requestBody", {}).get("content", {})
    else:
        answers = (own for status, own in operation["responses"].items() if status[0] == "2")
        content = next(answers, {}).get("content", {})
    found: Document | None = content.get(JSON, {}).get("schema")
    return found


class _Compared:
    """Comparison of schemas of two documents; references are followed once."""

    def __init__(self, before: Document, after: Document, *, is_request: bool) -> None:
        self._documents, self._is_request = (before, after), is_request
        self._seen: set[tuple[str, str]] = set()

    def schemas(self, where: str, before: Document, after: Document | None) -> Iterator[str]:
        if after is None:
            yield f"{where} is gone"
            return
        marks = before.get("$ref", ""), after.get("$ref", "")
        if all(marks):
            if marks in self._seen:
                return
            self._seen.add(marks)
        one, other = (
            _resolved(own, document)
            for own, document in zip((before, after), self._documents, strict=True)
        )
        yield from self._types(where, one, other)
        yield from self._fields(where, one, other)
        if "items" in one and "items" in other:
            yield from self.schemas(f"{where}[]", one["items"], other["items"])

    def _types(self, where: str, before: Document, after: Document) -> Iterator[str]:
        # What a client sends must still be taken, and what it reads must be what it knows.
        given, taken = (before, after) if self._is_request else (after, before)
        known = [_types_of(own, document) for own, document in self._pairs(given, taken)]
        if known[0] and known[1] and (lost := known[0] - known[1]):
            yield f"{where}: {', '.join(sorted(lost))} is not {_verb(self._is_request)}"
        values = [set(map(str, own.get("enum", ()))) for own in (given, taken)]
        if values[0] and values[1] and (lost := values[0] - values[1]) and self._is_request:
            yield f"{where}: the value {', '.join(sorted(lost))} is gone"

    def _pairs(self, given: Document, taken: Document) -> Iterator[tuple[Document, Document]]:
        documents = self._documents if self._is_request else self._documents[::-1]
        yield from zip((given, taken), documents, strict=True)

    def _fields(self, where: str, before: Document, after: Document) -> Iterator[str]:
        fields, now = before.get("properties", {}), after.get("properties", {})
        for name, own in fields.items():
            if name in now:
                yield from self.schemas(f"{where}.{name}", own, now[name])
            elif now or not self._is_request:
                yield f"{where}.{name} is gone"
        if self._is_request and fields:
            needed = set(after.get("required", ())) - set(before.get("required", ()))
            yield from (f"{where}.{name} is needed now" for name in sorted(needed))


def _verb(is_request: bool) -> str:
    return "taken any more" if is_request else "what it was"


def _resolved(schema: Document, document: Document) -> Document:
    while "$ref" in schema:
        found: Any = document
        for step in schema["$ref"].removeprefix("#/").split("/"):
            found = found[step.replace("~1", "/").replace("~0", "~")]
        schema = found
    return schema


def _types_of(schema: Document, document: Document) -> set[str]:
    """JSON types that a schema allows; empty for any."""
    own = _resolved(schema, document)
    if "type" in own:
        types = own["type"] if isinstance(own["type"], list) else [own["type"]]
        return {"number" if each == "integer" else each for each in types}
    parts = [_types_of(each, document) for each in own.get("anyOf", own.get("oneOf", ()))]
    return set().union(*parts) if parts and all(parts) else set()
