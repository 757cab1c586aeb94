"""Environment variables that look like a misspelt setting are said."""

import pytest

from forerun.service.settings import OTHER_VARIABLES, Settings, misspelt


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("FORERUN_MAX_UPLOD_MIB", "FORERUN_MAX_UPLOAD_MIB"),
        ("FORERUN_HOMES", "FORERUN_HOME"),
        ("FORERUN_DATABASE_URI", "FORERUN_DATABASE_URL"),
    ],
)
def test_a_variable_that_is_nearly_one_of_ours_is_named_with_it(written, meant):
    assert misspelt(["PATH", written, meant]) == {written: meant}


def test_variables_of_ours_and_of_others_are_not():
    ours = [f"FORERUN_{name.upper()}" for name in Settings.model_fields]
    # A Service of Kubernetes that is named forerun puts the last two into each pod.
    others = ["HOME", "MAX_UPLOD_MIB", "FORERUN_SERVICE_HOST", "FORERUN_PORT_8080_TCP_ADDR"]
    assert misspelt([*ours, *OTHER_VARIABLES, *others]) == {}
