"""A service on a public address starts with keys, or where a setting says that it needs none."""

import shutil
import subprocess
import sys

import pytest

from forerun.service.http.access import (
    NoKeys,
    asks_for_keys,
    check_address,
    key_store,
)


@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.7", "::", "plan.example"])
def test_a_public_address_needs_keys_or_a_setting_that_says_it_does_not(settings, host):
    public = settings.model_copy(update={"host": host})
    with pytest.raises(NoKeys, match=r"forerun keys create .* FORERUN_AUTH=off"):
        check_address(public)
    for auth in ("off", "required"):
        check_address(public.model_copy(update={"auth": auth}))
    key_store(settings).create("one", "read")
    check_address(public)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.0.0.2"])
def test_a_loopback_address_needs_no_keys(settings, host):
    check_address(settings.model_copy(update={"host": host}))


def test_counters_are_not_imported_before_they_are_set_up():
    module = "forerun.service.http.access"
    code = f"import sys, {module}; print('prometheus_client' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"


@pytest.mark.parametrize("host, asks", [("127.0.0.1", False), ("0.0.0.0", True)])
def test_a_public_service_stays_closed_when_its_folder_of_keys_disappears(settings, host, asks):
    named = settings.model_copy(update={"host": host})
    key_store(named).create("one", "read")
    assert asks_for_keys(named, key_store(named))
    shutil.rmtree(settings.home / "keys")
    assert asks_for_keys(named, key_store(named)) == asks
