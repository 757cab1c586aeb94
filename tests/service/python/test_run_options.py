"""An option of a run is one line: the description of a set-up, from which every door is made."""

from dataclasses import dataclass
from inspect import signature
from typing import Annotated, TypedDict, get_type_hints

from pydantic import Field

from forerun.data.workload import TrainingSetup
from forerun.service.cli.options import run_options
from forerun.service.cli.questions.predict import predict as predict_command
from forerun.service.cli.questions.rank import rank as rank_command
from forerun.service.http.pages.run_form import training_options
from forerun.service.python.asking import predict
from forerun.service.python.run_options import (
    READING,
    LlmSizes,
    RunOptions,
    TrainingRun,
    keywords_of,
)
from forerun.service.schemas.fields import Strict
from forerun.service.schemas.fields import options_of as request_of
from forerun.service.schemas.run_options import InferenceIn, ModelQuestion, RunIn, run_in
from tests.docs.documents import program


@dataclass(frozen=True)
class Longer(TrainingSetup):
    """A set-up with one option more."""

    loss_scale: Annotated[int, Field(ge=1, le=9, description="scale of the loss")] = 2


def test_an_option_more_is_one_of_http_of_the_command_line_of_pages_and_of_python():
    training = request_of(Longer, Strict)
    assert training(loss_scale=3).loss_scale == 3
    own = training.model_json_schema()["properties"]["loss_scale"]
    assert (own["minimum"], own["maximum"], own["default"]) == (1, 9, 2)
    run = run_in(training, InferenceIn)
    query = run.model_json_schema()["properties"]["loss_scale"]
    assert query["description"] == "training: scale of the loss"
    (option,) = [own for own in run_options(run) if own.name == "loss_scale"]
    (shown,) = option.annotation.__metadata__
    assert (shown.default, shown.min, shown.max) == ("--loss-scale", 1, 9)
    assert shown.help == "training: scale of the loss"
    (field,) = [own for own in training_options(training) if own["name"] == "loss_scale"]
    assert (field["label"], field["low"], field["high"]) == ("Training: scale of the loss", 1, 9)
    assert (
        "    loss_scale: int | None"
        in program("reference")
        .stub(Run=get_type_hints(TypedDict("Run", keywords_of(run))))
        .splitlines()
    )


def test_every_option_of_http_is_one_of_python_and_of_its_stub():
    over_http = {"shapes" if name == "shape" else name for name in RunIn.model_fields}
    assert set(RunOptions.__annotations__) - set(READING) == over_http - set(READING)
    of_predict = {"device", "explain"}
    assert set(ModelQuestion.model_fields) == {*RunIn.model_fields, *of_predict}
    assert of_predict <= set(signature(predict).parameters)
    for verb in (predict_command, rank_command):
        assert set(RunIn.model_fields) <= set(signature(verb).parameters)
    generator = program("reference")
    own = {each.__name__: get_type_hints(each) for each in (RunOptions, LlmSizes, TrainingRun)}
    assert generator.STUB.read_text() == generator.stub(**own)
