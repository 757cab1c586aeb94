"""Options of the Python API are those of HTTP."""

from inspect import signature

from forerun.service.python.asking import predict
from forerun.service.python.question import READING, RunOptions
from forerun.service.schemas.run_options import ModelQuestion, RunIn


def test_every_option_of_http_is_one_of_python():
    over_http = {"shapes" if name == "shape" else name for name in RunIn.model_fields}
    assert set(RunOptions.__annotations__) - set(READING) == over_http - set(READING)
    of_predict = {"device", "explain"}
    assert set(ModelQuestion.model_fields) == {*RunIn.model_fields, *of_predict}
    assert of_predict <= set(signature(predict).parameters)
