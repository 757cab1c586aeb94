"""A disk that is read-only, full, and neither: answers go on, and writes say what to mend.

One server is started on a small file system of its own, which is read-only at first.
"""

import subprocess
from pathlib import Path

import pytest

from tests.service.faults.asking import Asking
from tests.service.real_server import real_server

pytestmark = pytest.mark.slow
SIZE_KIB = 1024


def mount(place: Path, options: str) -> None:
    """Mount a file system in memory, or change how it is mounted.

    Raises:
        subprocess.CalledProcessError: this user may not.
    """
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)]
    subprocess.run(command, check=True, capture_output=True)


@pytest.fixture(scope="module")
def disk(tmp_path_factory):
    place = tmp_path_factory.mktemp("disk")
    try:
        mount(place, f"size={SIZE_KIB}k,ro")
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"this user may not mount a file system: {error}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.fixture(scope="module")
def ask(disk):
    with real_server(disk) as server, Asking(server.url) as ask:
        yield ask


@pytest.fixture
def writable(disk, ask):
    """The disk, which can be written."""
    mount(disk, f"remount,size={SIZE_KIB}k,rw")
    return disk


def fill(disk: Path) -> Path:
    """Fill a disk with one file."""
    path = disk / "filler"
    with pytest.raises(OSError, match="No space"), path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    return path


def test_a_read_only_folder_prevents_neither_the_start_nor_answers(ask):
    storing, why = ask.storing()
    assert not storing
    assert "Read-only file system" in why
    assert ask.writes() == {"graph": 503, "device": 503, "measurement": 503}
    ask.answers()
    assert ask("DELETE", "/v1/devices/unheard-of").status_code == 404


def test_it_stores_as_soon_as_the_disk_can_be_written(ask, writable):
    assert ask.storing() == (True, None)
    assert ask.writes() == {"graph": 201, "device": 200, "measurement": 201}
    ask.answers()


def test_a_full_disk_refuses_writes_alone_until_there_is_room(ask, writable):
    before = sorted(writable.rglob("*.json"))
    filler = fill(writable)
    storing, why = ask.storing()
    assert not storing
    assert "is full" in why
    refused = (ask.put_graph(7), ask.put_device("another"), ask.put_rows(77, "t4"))
    assert [answer.status_code for answer in refused] == [507] * 3
    ask.answers()
    assert [path for path in writable.rglob("*") if path.name.endswith(".part")] == []
    filler.unlink()
    assert sorted(writable.rglob("*.json")) == before
    assert ask.storing() == (True, None)
    again = (ask.put_graph(7), ask.put_device("another"), ask.put_rows(77, "t4"))
    assert [answer.status_code for answer in again] == [201, 200, 201]


def test_what_is_stored_is_not_deleted_from_a_read_only_disk(ask, writable, disk):
    digest = ask.put_graph(8).json()["digest"]
    assert ask.put_device("my-card").status_code == 200
    mount(disk, "remount,ro")
    refused = ask("DELETE", f"/v1/graphs/{digest}")
    assert (refused.status_code, "Nothing was deleted" in refused.text) == (503, True)
    assert ask("DELETE", "/v1/devices/my-card").status_code == 503
    assert ask("GET", f"/v1/graphs/{digest}").status_code == 200
    assert ask("GET", "/v1/devices/my-card").status_code == 200
