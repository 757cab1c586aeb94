"""Forms that are made from the fields of a request, by the names of its options, and their pages.

What a field asks, its unit, bounds, default and help come from its schema, so that a new field of a
request appears on its page.
"""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, TypeVar
from urllib.parse import parse_qsl, urlencode

from fastapi import APIRouter, Request
from pydantic import BaseModel, ValidationError
from starlette.responses import HTMLResponse

from forerun.data.device import Device
from forerun.data.errors import InputError, in_field
from forerun.features.readers.language_model.reader import named_models
from forerun.service.http.answers import Answers
from forerun.service.http.pages.rendering import (
    asks_for_part,
    page_or_part,
    page_router,
    problem_page,
)
from forerun.service.http.pages.run_form import form_field, is_gpu, model_of, sorted_devices
from forerun.service.http.state import TheAnswers, TheBody
from forerun.service.problems import Problem, problem_of, unfit
from forerun.service.requests.field_names import renamed
from forerun.service.requests.flat_fields import WRITTEN, FlatFields

Asked = TypeVar("Asked", bound=BaseModel)
Given = Mapping[str, Any]
"""Field of a form -> what it holds, as the address has it; None where it holds nothing."""


@dataclass(frozen=True)
class RequestForm(Generic[Asked]):
    """The form of requests about a language model, which is given by its name or its config.json.

    Attributes:
        path: path of the page, by which its templates are named.
        kind: schema of the requests.
        fields: their fields, but for model and device.
        usual: what is asked where the address does not say it.
        instead: field -> those that it stands in place of, separated by spaces.
        choices: field -> value that is offered -> its title, where the schema lists none.
        lists: field with a list -> how its text is read.
        boxes: fields of boxes to check, of which none may be checked.
        offers: whether a device is offered.
    """

    path: str
    kind: type[Asked]
    fields: FlatFields
    usual: Given = field(default_factory=dict)
    instead: Mapping[str, str] = field(default_factory=dict)
    choices: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    lists: Mapping[str, Callable[[str], list[Any]]] = field(default_factory=dict)
    boxes: frozenset[str] = frozenset()
    offers: Callable[[Device], bool] = is_gpu

    @cached_property
    def described(self) -> Mapping[str, dict[str, Any]]:
        """Each field as `run_fields.html` takes it, in the order of the schema."""
        found = {}
        for name, path in self.fields.paths.items():
            found[name] = own = form_field(name, self.fields.fields[path])
            own["choices"] = self.choices.get(name, own["choices"])
            if own["choices"]:
                own["default"] = self.usual.get(name, own["default"])
        return found

    def folded(self, shown: Collection[str], titles: Mapping[str, str]) -> Mapping[str, list[str]]:
        """Title -> the fields of a group that is folded, in the order of the schema.

        Args:
            shown: fields that are not folded.
            titles: first field of a group -> its title; groups of the same title are one.
        """
        found: dict[str, list[str]] = {}
        title = "Further"
        for name in self.described:
            title = titles.get(name, title)
            if name not in shown:
                found.setdefault(title, []).append(name)
        return found

    def given(self, address: str) -> dict[str, Any]:
        """What the query of an address says, and the usual where nothing stands in its place."""
        given: dict[str, Any] = {}
        for name, value in parse_qsl(address, keep_blank_values=True):
            own = "name" if name == "model" else name
            if value or own in self.boxes:
                given[own] = f"{given.get(own, '')} {value}".strip()
        replaced = {other for name in given for other in self.instead.get(name, "").split()}
        return {name: own for name, own in self.usual.items() if name not in replaced} | given

    def address(self, given: Given) -> str:
        """The address of the page that asks the same."""
        said = {name: own for name, own in given.items() if own not in (None, self.usual.get(name))}
        return f"{self.path}?{urlencode(said)}"

    def asked(self, given: Given) -> Asked:
        """The request.

        Raises:
            InputError, ValidationError: what is given is not valid.
        """
        content = dict(given)
        with in_field("model"):
            model = model_of(content.pop("name", None), content.pop("config", None))
        for name in content.keys() & self.lists.keys():
            with in_field(name):
                content[name] = self.lists[name](content[name])
        own = self.fields.request(content)
        return self.kind.model_validate(own | {"model": model | own.get("model", {})})

    def field_of(self, path: str) -> str:
        """The field at a path of the request."""
        names = {"model": "name"} | {own: name for name, own in self.fields.paths.items()}
        part = path.partition(".")[0]
        return names.get(path, names.get(part, path))

    def label(self, path: str) -> str:
        """What the form calls the field at a path of the request."""
        name, last = self.field_of(path), path.rpartition(".")[2]
        known = {"name": "Model", "device": "Device"} | {
            n: f["label"] for n, f in self.described.items()
        }
        label = re.split(" *[,:(]", known.get(name, path))[0]
        is_part = name in self.lists and last in WRITTEN
        return f"{WRITTEN[last]} of {label.lower()}" if is_part else label

    def problem(self, error: InputError | ValidationError) -> Problem:
        """What is wrong, with fields as the form names them."""
        if isinstance(error, ValidationError):
            return unfit(error.errors(), name_of=self.label)
        names = {name: self.label(path).lower() for name, path in self.fields.paths.items()}
        found = problem_of(error)
        for one in (found, *(found.errors or ())):
            one.detail = renamed(one.detail, {"usd_per_device_hour": "NAME@USD"} | names)
        return found


def request_page(
    form: RequestForm[Any],
    answer: Callable[[Given, Answers], Mapping[str, Any]],
    more: Callable[[], Mapping[str, Any]] = dict,
) -> APIRouter:
    """A router with the page of a form; what is too long for an address is the body of a request.

    Args:
        form: the form.
        answer: makes the variables of `NAME_answer.html`.
        more: makes further variables of the form.
    """
    router, name = page_router(), form.path.removeprefix("/")

    @router.get(form.path)
    @router.post(form.path)
    def page(request: Request, body: TheBody, answers: TheAnswers) -> HTMLResponse:
        given = form.given(f"{request.url.query}&{body.decode(errors='replace')}")
        asks = bool(given) or asks_for_part(request)

        def fields() -> dict[str, Any]:
            chosen = given.get("device", "").split() if asks else ()
            catalog = list(filter(form.offers, sorted_devices(answers, chosen)))
            own = {"asks": form, "given": given, "answered": asks, "models": named_models()}
            return {**own, "catalog": catalog, **more()}

        try:
            own = answer(given, answers) if asks else {}
        except (InputError, ValidationError) as error:
            asks, problem = False, form.problem(error)
            return problem_page(request, problem, form.field_of, f"{name}.html", fields)
        return page_or_part(request, name, form.path, own, fields)

    return router
