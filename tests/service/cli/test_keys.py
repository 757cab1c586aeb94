"""`forerun keys`: a key is shown once, and listed without its secret."""

import json

from forerun.service.stores.keys import KeyStore


def test_a_key_is_printed_alone_once_and_works(forerun, tmp_path):
    code, text, note = forerun("keys", "create", "scheduler", "--scope", "write")
    assert code == 0
    key = KeyStore(tmp_path / "home/keys").holder(text.strip())
    assert key is not None
    assert (key.name, key.scope) == ("scheduler", "write")
    assert "not shown again" in note
    for words in (("keys", "list"), ("keys", "list", "--json")):
        _, listed, errors = forerun(*words)
        assert key.id in listed and "scheduler" in listed
        assert text.strip().split("_", 2)[2] not in listed + errors
        assert key.digest not in listed and key.salt not in listed


def test_a_key_may_read_unless_more_is_said(forerun):
    _, text, _ = forerun("keys", "create", "one", "--json")
    assert json.loads(text)["scope"] == "read"


def test_a_name_is_listed_as_it_was_given(forerun):
    forerun("keys", "create", "team [red]")
    assert "team [red]" in forerun("keys", "list")[1]


def test_a_revoked_key_is_gone(forerun, tmp_path):
    made = json.loads(forerun("keys", "create", "one", "--json")[1])
    code, text, _ = forerun("keys", "revoke", made["id"])
    assert (code, made["id"] in text) == (0, True)
    assert KeyStore(tmp_path / "home/keys").holder(made["key"]) is None
    assert json.loads(forerun("keys", "list", "--json")[1]) == {"keys": []}


def test_what_is_wrong_is_one_line(forerun):
    for words in (("create", "one", "--scope", "all"), ("revoke", "nothing")):
        code, out, err = forerun("keys", *words)
        assert (code, out) == (2, "")
        assert len(err.strip().splitlines()) == 1
    assert "read, write, admin" in forerun("keys", "create", "one", "--scope", "all")[2]


def test_a_public_address_without_keys_is_refused_before_anything_is_loaded(forerun, monkeypatch):
    monkeypatch.delenv("FORERUN_AUTH", raising=False)
    code, out, err = forerun("serve", "--host", "0.0.0.0", "--port", "0")
    assert (code, out) == (2, "")
    assert "forerun keys create" in err
    assert len(err.strip().splitlines()) == 1


def test_a_key_may_be_of_a_tenant(forerun, tmp_path):
    made = json.loads(forerun("keys", "create", "one", "--tenant", "vision", "--json")[1])
    assert made["tenant"] == "vision"
    key = KeyStore(tmp_path / "home/keys").holder(made["key"])
    assert key is not None and key.tenant == "vision"
    assert "vision" in forerun("keys", "list")[1]


def test_a_tenant_of_a_key_is_a_valid_name_and_the_only_one(forerun, monkeypatch):
    code, _, err = forerun("keys", "create", "one", "--tenant", "Vision")
    assert (code, len(err.strip().splitlines())) == (2, 1)
    assert "lower-case letters" in err
    monkeypatch.setenv("FORERUN_TENANT", "speech")
    code, _, err = forerun("keys", "create", "one", "--tenant", "vision")
    assert (code, len(err.strip().splitlines())) == (2, 1)
    assert "FORERUN_TENANT is speech" in err
