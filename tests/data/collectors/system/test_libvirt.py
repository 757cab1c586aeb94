"""Virtual machines as `virsh domstats --raw` tells of them."""

import pytest

from forerun.data.collectors.system import host_inventory as libvirt
from forerun.data.collectors.system.host_inventory import SOCKET, Libvirt, machines

OUTPUT = """\
Domain: 'web'
  state.state=1
  cpu.time=5000000000
  cpu.user=1000000000
  balloon.current=2097152
  vcpu.current=2
  vcpu.0.time=3000000000
  vcpu.0.delay=250000000
  vcpu.1.delay=750000000
  net.count=2
  net.0.name=vnet0
  net.0.rx.bytes=100
  net.1.rx.bytes=11
  block.0.name=vda
  block.0.path=/images/secret-customer.qcow2
  block.0.rd.times=2000000000

Domain: 'batch'
  cpu.time=1
  balloon.current=none
"""


def test_what_a_machine_has_several_of_is_added_up_and_no_name_is_kept():
    found = machines(OUTPUT, {})
    web = {name: v for name, v in found.cumulative.items() if name.startswith("libvirt.vm0.")}
    assert web == {
        "libvirt.vm0.cpu_s": 5.0,
        "libvirt.vm0.cpu_user_s": 1.0,
        "libvirt.vm0.vcpu_delay_s": 1.0,
        "libvirt.vm0.net_rx_bytes": 111.0,
        "libvirt.vm0.disk_read_s": 2.0,
    }
    assert found.cumulative["libvirt.vm1.cpu_s"] == pytest.approx(1e-9)
    assert found.gauges == {"libvirt.vm0.memory_mib": 2048.0}
    assert not [name for name in (*found.cumulative, *found.gauges) if "web" in name]


def test_a_machine_that_is_gone_does_not_renumber_the_others():
    numbers = {}
    machines(OUTPUT, numbers)
    later = OUTPUT[OUTPUT.index("Domain: 'batch'") :] + "Domain: 'new'\n  cpu.time=7\n"
    assert set(machines(later, numbers).cumulative) == {"libvirt.vm1.cpu_s", "libvirt.vm2.cpu_s"}


def test_an_empty_output_gives_no_reading():
    assert machines("", {}) == machines("error: failed to connect\n", {})
    assert machines("", {}).cumulative == {}


def the_tool(tmp_path, monkeypatch, script):
    """A host on which libvirt runs, with this in place of virsh."""
    (tmp_path / SOCKET).parent.mkdir(parents=True)
    (tmp_path / SOCKET).touch()
    tool = tmp_path / "virsh"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    monkeypatch.setattr(libvirt.shutil, "which", lambda name: str(tool))
    return tmp_path


def test_the_tool_is_asked_where_libvirt_runs(tmp_path, monkeypatch):
    root = the_tool(tmp_path, monkeypatch, f"cat <<'END'\n{OUTPUT}END")
    assert Libvirt().read(root) == machines(OUTPUT, {})


@pytest.mark.parametrize("script", ["exit 1", "exec sleep 60"])
def test_a_tool_that_refuses_or_hangs_does_not_stop_the_clock(tmp_path, monkeypatch, script):
    monkeypatch.setattr(libvirt, "LONGEST_S", 0.1)
    with pytest.raises(OSError, match="virsh: "):
        Libvirt().read(the_tool(tmp_path, monkeypatch, script))


def test_a_machine_without_libvirt_is_recognised(tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match=f"no /{SOCKET}"):
        Libvirt().read(tmp_path)
    (tmp_path / SOCKET).parent.mkdir(parents=True)
    (tmp_path / SOCKET).touch()
    monkeypatch.setattr(libvirt.shutil, "which", lambda name: None)
    with pytest.raises(FileNotFoundError, match="no virsh"):
        Libvirt().read(tmp_path)
