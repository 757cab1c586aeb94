"""The OpenAPI document: whole, described, with examples that work."""

from concurrent.futures import ThreadPoolExecutor
from inspect import iscoroutinefunction
from threading import Barrier

from forerun.service.http.app import create_app
from forerun.service.http.pages import PAGES
from forerun.service.http.routes import ROUTERS


def test_every_example_in_the_document_works(adapting):
    document = adapting.get("/openapi.json").json()
    tried = 0
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            content = operation.get("requestBody", {}).get("content", {})
            for body in _examples(document, content.get("application/json", {})):
                place = path.replace("{name}", str(body.get("name") or _name(operation)))
                answer = adapting.request(method, place, json=body)
                assert answer.status_code in (200, 201, 202), (path, answer.text)
                assert all("status" not in item for item in answer.json().get("items", []))
                tried += 1
    assert tried >= 6


def _name(operation):
    """The example of the name in the path, or that of a device."""
    of_paths = [each for each in operation.get("parameters", []) if each["in"] == "path"]
    examples = [example for each in of_paths for example in each["schema"].get("examples", [])]
    return examples[0] if examples else "l4"


def _examples(document, media):
    yield from (example["value"] for example in media.get("examples", {}).values())
    reference = media.get("schema", {}).get("$ref", "").rpartition("/")[2]
    yield from document["components"]["schemas"].get(reference, {}).get("examples", [])


def test_every_field_is_described_and_every_quantity_has_its_unit(client):
    schemas = client.get("/openapi.json").json()["components"]["schemas"]
    assert len(schemas) > 15
    fields = {
        f"{name}.{field}": schema
        for name, described in schemas.items()
        for field, schema in described.get("properties", {}).items()
    }
    assert [name for name, schema in fields.items() if "description" not in schema] == []
    units = {"_gib": "GiB", "_mib": "MiB", "_mhz": "MHz", "_w": ", W", "_nm": "nm"}
    units |= {"_gbs": "1e9 bytes/s", "_tflops": "1e12", "_ms": "millisecond"}
    quantities = 0
    for name, schema in fields.items():
        for suffix, unit in units.items():
            if name.endswith(suffix):
                assert unit in schema["description"], name
                quantities += 1
    assert quantities >= 8


def test_every_number_of_a_request_has_bounds(client):
    """But for choices, and for numbers that are checked with what they belong to."""
    document = client.get("/openapi.json").json()
    elsewhere = {"attributes", "metrics", "kernel_sizes", "expansions", "depths", "zero_stage"}
    schemas = document["components"]["schemas"]
    asked = {name: s for name, s in schemas.items() if not name.endswith(("Out", "Error"))}
    parameters = [
        parameter
        for methods in document["paths"].values()
        for operation in methods.values()
        for parameter in operation.get("parameters", [])
    ]
    numbers = [*_numbers(asked), *_numbers(parameters)]
    assert len(numbers) > 60
    free = [
        place
        for place, schema in numbers
        if not ({"minimum", "exclusiveMinimum"} & set(schema))
        or not ({"maximum", "exclusiveMaximum"} & set(schema))
    ]
    assert [place for place in free if not elsewhere & set(place)] == []


def _numbers(schema, place=()):
    """Schemas of numbers with their places, without those of enumerations."""
    if isinstance(schema, dict):
        if schema.get("type") in ("number", "integer") and "enum" not in schema:
            yield place, schema
        children = schema.items()
    else:
        children = enumerate(schema) if isinstance(schema, list) else ()
    for key, child in children:
        if key not in ("examples", "example", "default"):
            yield from _numbers(child, (*place, key))


def test_every_parameter_is_described(client):
    paths = client.get("/openapi.json").json()["paths"]
    bare = [
        (path, parameter["name"])
        for path, methods in paths.items()
        for operation in methods.values()
        for parameter in operation.get("parameters", [])
        if "description" not in parameter
    ]
    assert bare == []


TOGETHER = 8


def test_threads_that_ask_at_once_get_the_same_document(settings, documents):
    documents.clear()
    app, start = create_app(settings), Barrier(TOGETHER)

    def ask(number):
        start.wait()
        return app.openapi()

    with ThreadPoolExecutor(TOGETHER) as pool:
        documents = list(pool.map(ask, range(TOGETHER)))
    assert all(each is documents[0] for each in documents)
    assert "/v1/predict" in documents[0]["paths"]


def test_no_handler_runs_on_threads_of_the_framework():
    """Plain functions would: routes run them on threads of the service, or coroutines await it."""
    handlers = [route.endpoint for router in (*ROUTERS, *PAGES) for route in router.routes]
    assert len(handlers) > 70
    assert [own.__name__ for own in handlers if not iscoroutinefunction(own)] == []
