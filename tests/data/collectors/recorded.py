"""Trees of /proc and /sys as kernels wrote them, shortened: text by path."""

PROC = {
    "proc/stat": """\
cpu  1204270 1409988 200669 1776465 11429 0 2535 7475 0 0
cpu0 519195 678649 88645 1011860 3487 0 301 3647 0 0
cpu1 685075 731338 112024 764604 7942 0 2233 3828 0 0
intr 13044333 0 15 23653
ctxt 15994751
btime 1795212482
processes 89469
procs_running 4
procs_blocked 1
softirq 6659124 0 838356 3
""",
    "proc/pressure/cpu": """\
some avg10=1.02 avg60=0.91 avg300=5.38 total=6265646060
full avg10=0.00 avg60=0.00 avg300=0.00 total=0
""",
    "proc/vmstat": "nr_free_pages 5782859\nnr_dirtied 14012\nworkingset_nodes 8\npgfault 61263\n",
    "proc/diskstats": """\
   7       0 loop0 4 0 8 1 0 0 0 0 0 0 0 0 0 0 0 0 0
 254       0 vda 3181892 21 1000 1683593 497099 91 2000 211281 3 220452 1932390 5 57 3 33 9 4
 254       1 vda1 3181892 21 1000 1683593 497099 91 2000 211281 3 220452 1932390 5 57 3 33 9 4
 259       0 nvme0n1 1 0 1000 1 1 0 0 0 1 1 1
 259       1 nvme0n1p1 1 0 1000 1 1 0 0 0 1 1 1
 253       0 zram0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
""",
    "proc/net/dev": """\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop
    lo: 143812094  229819    0    0    0     0     0     0 143812094  229819    0    0  0  0  0  0
  eth0: 100  4    1    2    0     0          0         0  70   3    0    0    0     0       0    0
  eth1: 50   1    0    0    0     0          0         0  30   2    0    5    0     0       0    0
""",
    "proc/schedstat": """\
version 17
timestamp 4299634862
cpu0 0 0 0 0 0 0 1500000000 250000000 7
cpu1 0 0 0 0 0 0 500000000 750000000 3
""",
    "proc/softirqs": "          CPU0       CPU1\n  TIMER:     332067     506296\n  SCHED:  1  2\n",
    "proc/interrupts": """\
           CPU0       CPU1
 25:          1          2   PCI-MSI  virtio0-config
LOC:     100000     200000   Local timer interrupts
RES:          5          7   Rescheduling interrupts
ERR:          0
""",
    "proc/meminfo": "MemTotal: 24684092 kB\nMemFree:        1024 kB\nHugePages_Total:       3\n",
    "proc/loadavg": "0.30 0.57 0.94 2/100 24552\n",
    "proc/cpuinfo": "processor\t: 0\nmodel name\t: Made Up CPU\nflags\t\t: fpu hypervisor\n",
}

V1 = PROC | {
    "proc/self/mounts": """\
tmpfs /sys/fs/cgroup tmpfs rw 0 0
cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,relatime,cpu,cpuacct 0 0
cgroup /sys/fs/cgroup/memory cgroup rw,relatime,memory 0 0
cgroup /sys/fs/cgroup/blkio cgroup rw,relatime,blkio 0 0
cgroup /sys/fs/cgroup/systemd cgroup rw,relatime,name=systemd 0 0
""",
    "proc/self/cgroup": "4:blkio:/\n3:memory:/box/a\n2:cpu,cpuacct:/box\n1:name=systemd:/\n",
    "sys/fs/cgroup/cpu,cpuacct/box/cpu.stat": """\
nr_periods 9
nr_throttled 2
throttled_time 500000000
""",
    "sys/fs/cgroup/cpu,cpuacct/box/cpuacct.usage": "2500000000\n",
    "sys/fs/cgroup/memory/box/a/memory.usage_in_bytes": "3145728\n",
    "sys/fs/cgroup/memory/box/a/memory.limit_in_bytes": "9223372036854771712\n",
    "sys/fs/cgroup/memory/box/a/memory.stat": "cache 1048576\nrss 2097152\npgfault 10\n",
    "sys/fs/cgroup/blkio/blkio.throttle.io_service_bytes": """\
254:0 Read 4096
254:0 Write 8192
254:0 Total 12288
259:0 Read 1
Total 12289
""",
}

V2 = PROC | {
    "proc/self/mounts": "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n",
    "proc/self/cgroup": "0::/user.slice/box\n",
    "sys/fs/cgroup/user.slice/box/cpu.stat": """\
usage_usec 2500000
user_usec 2000000
system_usec 500000
nr_periods 9
nr_throttled 2
throttled_usec 500000
""",
    "sys/fs/cgroup/user.slice/box/memory.current": "3145728\n",
    "sys/fs/cgroup/user.slice/box/memory.max": "max\n",
    "sys/fs/cgroup/user.slice/box/memory.stat": "anon 2097152\nfile 1048576\npgscan 7\n",
    "sys/fs/cgroup/user.slice/box/io.stat": """\
254:0 rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=0 dios=0
259:0 rbytes=1 wbytes=0 rios=1 wios=0
""",
    "sys/fs/cgroup/user.slice/box/cpu.pressure": "some avg10=2.50 avg60=0.00 avg300=0.00 total=7\n",
}

HYBRID = (
    PROC
    | {
        "proc/self/mounts": V1["proc/self/mounts"]
        + "cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0\n",
        "proc/self/cgroup": V1["proc/self/cgroup"] + "0::/\n",
        "sys/fs/cgroup/unified/cpu.pressure": "some avg10=2.50 avg60=0.00 avg300=0.00 total=7\n",
    }
    | {path: text for path, text in V1.items() if path.startswith("sys/fs/cgroup/")}
)


def tree(folder, files):
    """Write a recorded tree under a folder; the folder."""
    for path, text in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    return folder
