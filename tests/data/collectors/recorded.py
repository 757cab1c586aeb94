"""Trees of /proc and /sys as kernels wrote them, shortened: text by path."""

from forerun.data.facts import facts_of

FACTS = facts_of(__file__)
PROC = FACTS["proc"]
V1, V2 = PROC | FACTS["v1"], PROC | FACTS["v2"]
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
