"""Jobs that are submitted to a real slurmctld get advice, and are submitted without it too."""

import socket
import tempfile
from pathlib import Path

import pytest

from tests.deploy.slurm.controller import controller, missing
from tests.service.real_server import real_server
from tests.waiting import eventually

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing()), reason=f"needs {', '.join(missing())}"),
]
COMMENT = "forerun:graph=resnet50,batch_size=64,precision=amp"


@pytest.fixture(scope="module")
def slurm():
    with tempfile.TemporaryDirectory(dir="/tmp") as folder, controller(Path(folder)) as running:
        yield running


@pytest.fixture
def path(slurm):
    place = slurm.folder / "f.sock"
    yield place
    place.unlink(missing_ok=True)


def unadvised(job):
    return "AdminComment" not in job and job["Features"].startswith("(null)")


def advised(slurm, *given, **named):
    """The first job with advice, of equal ones: a new answer may take over 200 ms."""
    submitted = []

    def has_advice():
        submitted.append(slurm.submit(*given, **named))
        return "AdminComment" in submitted[-1][0]

    eventually(has_advice, every_s=0.1)
    return submitted[-1]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_job_gets_advice_and_with_the_service_stopped_it_is_submitted_all_the_same(
    slurm, path, tmp_path, workers
):
    environment = {"FORERUN_UNIX_SOCKET": str(path)}
    with real_server(tmp_path, workers=workers, environment=environment) as server:
        job, printed = advised(slurm, COMMENT)
        assert job["AdminComment"].startswith("forerun: latency_ms: a100-pcie-80gb ")
        assert ", l4 " in job["AdminComment"]
        assert job["Features"].startswith("a100")
        assert "forerun: latency_ms: a100-pcie-80gb " in printed
        other, _ = slurm.submit("a comment of another kind")
        assert unadvised(other)
        other, _ = advised(slurm, "", "--gres", "gpu:l4:1", variable="graph=resnet50")
        assert other["AdminComment"].startswith("forerun: latency_ms: l4 ")
        assert other["Features"].startswith("(null)")
        wrong, printed = slurm.submit("forerun:graph=resnet50,batchsize=64")
        assert unadvised(wrong)
        assert "no advice: batchsize: " in printed
        assert "did you mean batch_size?" in printed
        server.stop()
    assert not path.exists()
    job, printed = slurm.submit(COMMENT)
    assert unadvised(job)
    assert printed == ""
    assert f"no advice: cannot connect to {path}" in slurm.log()
    assert "unrecognized" not in slurm.log()


@pytest.mark.parametrize("backlog", [0, 8])
def test_a_service_that_never_answers_is_not_waited_for(slurm, path, backlog):
    """With a backlog of 0 and a client in it, connecting is what does not end."""
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as silent,
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as first,
    ):
        silent.bind(str(path))
        silent.listen(backlog)
        first.connect(str(path))
        job, _ = slurm.submit(COMMENT)
    assert unadvised(job)
    why = "no answer within 200 ms" if backlog else f"cannot connect to {path}"
    assert f"no advice: {why}" in slurm.log()
