"""Keys: only their holders are known, only hashes are stored, and a change is seen at once."""

import os

import pytest

from forerun.service.stores.keys import SCOPES, BadKeyName, KeyStore, UnknownKey


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "keys"


@pytest.fixture
def store(folder) -> KeyStore:
    return KeyStore(folder)


def settled(folder):
    """Let the folder look as if it had not changed for a while, so that its stamp is trusted."""
    past = folder.stat().st_mtime_ns - 10**9
    os.utime(folder, ns=(past, past))


def test_the_holder_of_a_key_is_known_and_nobody_else(store):
    key, text = store.create("scheduler", "read")
    other, _ = store.create("scheduler", "read")
    assert store.holder(text) == key
    last = "A" if text[-2] != "A" else "B"
    secret = text.partition(f"{key.id}_")[2]
    for wrong in (
        "",
        key.id,
        text + "A",
        f"{text[:-2]}{last}{text[-1]}",
        text.replace(key.id, other.id),
        f"fr_{key.id}_{key.digest[:43]}",
        f"fr_../{key.id}_{secret}",
        f" {text}",
    ):
        assert store.holder(wrong) is None, wrong


def test_keys_have_256_random_bits(store):
    texts = {store.create("one", "read")[1] for _ in range(4)}
    secrets = {text.split("_", 2)[2] for text in texts}
    assert {len(secret) for secret in secrets} == {43}
    assert len(secrets) == 4


def test_only_a_hash_of_the_secret_is_stored_and_for_its_owner_alone(store, folder):
    key, text = store.create("scheduler", "write")
    secret = text.split("_", 2)[2]
    (path,) = folder.iterdir()
    assert secret not in path.read_text() and secret.encode().hex() not in path.read_text()
    assert secret not in repr(key) and key.digest not in repr(key)
    assert path.stat().st_mode & 0o077 == 0


def test_equal_secrets_have_different_hashes(store, monkeypatch):
    monkeypatch.setattr("secrets.token_urlsafe", lambda count: "A" * 43)
    assert store.create("one", "read")[0].digest != store.create("two", "read")[0].digest


@pytest.mark.parametrize("kept", [False, True])
def test_a_revoked_key_is_refused_at_once_by_every_process(store, folder, kept):
    key, text = store.create("scheduler", "read")
    if kept:
        settled(folder)
    assert store.holder(text) == store.holder(text) == key
    KeyStore(folder).revoke(key.id)
    assert store.holder(text) is None
    assert store.keys() == []


def test_a_key_of_another_process_is_known_at_once(store, folder):
    _, first = store.create("one", "read")
    settled(folder)
    store.holder(first)
    key, text = KeyStore(folder).create("two", "read")
    assert store.holder(text) == key


def test_a_known_key_is_not_read_again(store, folder, monkeypatch):
    key, text = store.create("scheduler", "read")
    settled(folder)
    store.holder(text)
    monkeypatch.setattr(store, "_verify", None)
    assert store.holder(text) == key


def test_keys_stay_in_use_when_the_last_one_is_revoked(store):
    assert not store.is_used()
    key, _ = store.create("scheduler", "read")
    store.revoke(key.id)
    assert store.is_used()


def test_a_folder_that_cannot_be_examined_counts_as_used(tmp_path):
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    assert KeyStore(loop).is_used()
    (tmp_path / "file").touch()
    assert not KeyStore(tmp_path / "file" / "keys").is_used()


def test_a_damaged_key_is_refused_and_others_are_not(store, folder, capsys):
    key, text = store.create("one", "read")
    other, other_text = store.create("two", "read")
    (folder / f"{key.id}.json").write_text(other.model_dump_json())
    fresh = KeyStore(folder)
    assert fresh.holder(text) is None
    assert fresh.holder(other_text) == other
    assert fresh.keys() == [other]
    assert key.id in capsys.readouterr().err


def test_keys_of_a_mounted_secret_are_read_through_its_links(store, folder, tmp_path):
    key, text = store.create("scheduler", "read")
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    (mounted / "..data").symlink_to(folder)
    (mounted / f"{key.id}.json").symlink_to(f"..data/{key.id}.json")
    assert KeyStore(mounted).holder(text) == key


def test_a_scope_includes_those_before_it(store):
    for at, scope in enumerate(SCOPES):
        key, _ = store.create("one", scope)
        assert [key.may(each) for each in SCOPES] == [other <= at for other in range(3)]


@pytest.mark.parametrize(
    "name, scope", [("", "read"), ("x" * 65, "read"), ("a\nb", "read"), ("one", "all")]
)
def test_a_bad_name_or_scope_is_refused_and_nothing_stored(store, name, scope):
    with pytest.raises(BadKeyName):
        store.create(name, scope)
    assert not store.is_used()


@pytest.mark.parametrize("identifier", ["0" * 12, "../devices/l4", ""])
def test_revoking_an_unknown_key_is_refused(store, identifier):
    store.create("one", "read")
    with pytest.raises(UnknownKey, match="forerun keys list"):
        store.revoke(identifier)
