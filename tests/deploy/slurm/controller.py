"""A slurmctld of its own in a temporary folder, with two kinds of nodes that never start."""

import getpass
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.waiting import eventually

PLUGIN = Path(__file__).parents[3] / "deploy/slurm"
PROGRAMS = ("slurmctld", "munged", "sbatch", "scontrol")
LUA_MODULES = "/usr/lib/*/lua/5.*/cjson.so"
CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmctldPort={port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
ProctrackType=proctrack/linuxproc
JobSubmitPlugins=lua
SelectType=select/cons_tres
GresTypes=gpu
NodeName=n1 NodeAddr=127.0.0.1 Port=16818 Features=l4 Gres=gpu:l4:1 State=UNKNOWN
NodeName=n2 NodeAddr=127.0.0.1 Port=16819 Features=a100 Gres=gpu:a100:1 State=UNKNOWN
PartitionName=gpu Nodes=n1,n2 Default=YES
"""


@dataclass(frozen=True)
class Controller:
    """A running slurmctld.

    Attributes:
        folder: its configuration, logs and state; `folder / "f.sock"` is where the plug-in asks.
    """

    folder: Path

    def submit(self, comment: str, *more: str, variable: str = "") -> tuple[dict[str, str], str]:
        """Submit a job that is held.

        Args:
            comment: its comment.
            more: further options of sbatch.
            variable: FORERUN_WORKLOAD in its environment.

        Returns:
            The job as `scontrol` shows it, field -> text, and what sbatch printed on stderr.
        """
        options = ["--parsable", "--hold", "--comment", comment, "--output", "/dev/null"]
        done = self._run("sbatch", *options, *more, "--wrap", "true", variable=variable)
        shown = self._run("scontrol", "show", "job", done.stdout.strip()).stdout
        lines = (line.strip() for line in shown.splitlines())
        fields = (line.partition("=") for line in lines if line)
        return {name: text for name, _, text in fields}, done.stderr

    def log(self) -> str:
        """All that slurmctld has logged."""
        return (self.folder / "slurmctld.log").read_text()

    def answers(self) -> bool:
        """Whether it takes requests."""
        command = ["scontrol", "ping"]
        done = subprocess.run(command, env=self._environment(), capture_output=True, text=True)
        return " is UP" in done.stdout

    def _run(self, *command: str, variable: str = "") -> subprocess.CompletedProcess[str]:
        environment = self._environment() | {"FORERUN_WORKLOAD": variable}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True)

    def _environment(self) -> dict[str, str]:
        return os.environ | {"SLURM_CONF": str(self.folder / "slurm.conf")}


def missing() -> list[str]:
    """What the tests need and this machine does not have."""
    absent = [name for name in PROGRAMS if shutil.which(name) is None]
    if not any(Path("/").glob(LUA_MODULES.removeprefix("/"))):
        absent.append("lua-cjson")
    if not any(Path("/").glob("usr/lib/*/slurm-wlm/job_submit_lua.so")):
        absent.append("slurm-wlm-basic-plugins")
    return absent


@contextmanager
def controller(folder: Path) -> Iterator[Controller]:
    """Start munged and slurmctld with the plug-in, which may choose; both end at the end.

    Args:
        folder: an empty folder with a short path, since sockets lie in it.
    """
    _configure(folder)
    munged = [
        "munged", "--foreground", "--force", f"--socket={folder}/munge.sock",
        f"--key-file={folder}/munge.key", f"--pid-file={folder}/munge.pid",
        f"--log-file={folder}/munge.log", f"--seed-file={folder}/munge.seed",
    ]  # fmt: skip
    slurmctld = ["slurmctld", "-D", "-c", "-f", str(folder / "slurm.conf")]
    with (folder / "printed").open("wb") as printed:
        started: list[subprocess.Popen[bytes]] = []
        try:
            started.append(subprocess.Popen(munged, stdout=printed, stderr=printed))
            eventually((folder / "munge.sock").exists)
            started.append(subprocess.Popen(slurmctld, stdout=printed, stderr=printed))
            running = Controller(folder)
            eventually(running.answers, every_s=0.1)
            yield running
        finally:
            for process in reversed(started):
                process.kill()
                process.wait()


def _configure(folder: Path) -> None:
    (folder / "state").mkdir()
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o600)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    host = socket.gethostname().partition(".")[0]
    written = CONFIGURATION.format(host=host, user=getpass.getuser(), port=port, folder=folder)
    (folder / "slurm.conf").write_text(written)
    shutil.copy(PLUGIN / "forerun.lua", folder)
    text = (PLUGIN / "job_submit.lua").read_text()
    for old, new in [
        ("/run/forerun/forerun.sock", str(folder / "f.sock")),
        ("choose = false", "choose = true"),
        ('partition = "l4", ', ""),
        ('partition = "a100", ', ""),
    ]:
        assert old in text
        text = text.replace(old, new)
    (folder / "job_submit.lua").write_text(text)
