"""Tiny upstream files of hardware designs and of machines, in their own formats."""

import io
import json
import tarfile

from forerun.data.program import ProgramGraph
from tests.programs import nested

KERNELS = {"v18": ("atax", "gemm-p", "fdtd-2d", "trmm-opt"), "v20": ("atax", "symm")}
PIPES = ("", "off", "flatten")


def hlsyn() -> dict[str, bytes]:
    """Programs of both tools, a few of whose designs have no label, and their graphs."""
    files: dict[str, str] = {}
    for number, kernel in enumerate(sorted({k for kernels in KERNELS.values() for k in kernels})):
        graph = gexf(nested([8 * (number + 1), 16]))
        files[f"data/graphs/{kernel}_processed_result.gexf"] = graph
    files["data/graphs/syrkk_processed_result.gexf"] = gexf(nested([4]))
    for tool, kernels in KERNELS.items():
        for kernel in kernels:
            files[f"data/designs/{tool}/{kernel}.json"] = json.dumps(_designs())
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for path, content in files.items():
            member = tarfile.TarInfo(path)
            member.size = len(content.encode())
            archive.addfile(member, io.BytesIO(content.encode()))
    return {"data/HLSyn_data.tar.gz": packed.getvalue()}


def _designs() -> dict[str, object]:
    found = {}
    for copies in range(1, 17):
        for pipe in PIPES:
            point = {"__PIPE__L0": pipe, "__PARA__L1": copies, "__PARA__L0": 1}
            failed = copies == 7
            used = {"util-DSP": 0.01 * copies, "util-BRAM": 0, "util-LUT": 0.02, "util-FF": 0.01}
            totals = {f"total-{k}": 100 * copies for k in ("DSP", "BRAM", "LUT", "FF")}
            found[f"{copies}-{pipe}"] = {
                "perf": 0.0 if failed else 1000.0 / copies,
                "point": point,
                "res_util": {**used, **totals},
                "valid": not failed,
            }
    return found


def gexf(program: ProgramGraph) -> str:
    """A program graph as networkx writes it."""
    titles = {"node": ("block", "function", "text", "type", "full_text")}
    titles["edge"] = ("flow", "position")

    def values(*said: object) -> str:
        cells = (f'<attvalue for="{place}" value="{v}" />' for place, v in enumerate(said))
        return f"<attvalues>{''.join(cells)}</attvalues>"

    heads = "".join(
        f'<attributes class="{kind}" mode="static">'
        + "".join(f'<attribute id="{i}" title="{name}" />' for i, name in enumerate(names))
        + "</attributes>"
        for kind, names in titles.items()
    )
    own = (program.blocks, program.functions, program.texts, program.types, program.full_texts)
    nodes = "".join(
        f'<node id="{i}" label="{i}">{values(*said)}</node>'
        for i, said in enumerate(zip(*own, strict=True))
    )
    edges = "".join(
        f'<edge id="{i}" source="{source}" target="{target}">{values(*said)}</edge>'
        for i, (source, target, *said) in enumerate(program.edges)
    )
    return (
        '<gexf version="1.2" xmlns="http://www.gexf.net/1.2draft"><graph>'
        f"{heads}<nodes>{nodes}</nodes><edges>{edges}</edges></graph></gexf>"
    )


def wa_hls4ml() -> dict[str, str]:
    """Layers of three widths; the wide ones fail."""
    head = "model_name,d_in,d_out,prec,model_file,rf,strategy,hls_synth_success,"
    measured = ("TargetClockPeriod", "EstimatedClockPeriod", "BestLatency", "WorstLatency")
    measured += ("IntervalMin", "IntervalMax", "FF", "LUT", "BRAM_18K", "DSP", "URAM")
    measured += tuple(f"Available{n}" for n in ("BRAM_18K", "DSP", "FF", "LUT", "URAM"))
    lines = [head + ",".join(f"{name}_hls" for name in measured)]
    for width in (32, 64, 96):
        for reuse in (1, 2, 4, 8, 16, 32):
            asked = f"dense_{width},{width},{width},8,x.h5,{reuse},latency,"
            good = f"TRUE,5,4.2,{reuse},{reuse + 1},{reuse},{reuse},10,{width},0,4,0,9,9,9,9,9"
            lines.append(asked + (good if reuse > 1 else "False" + "," * len(measured)))
    return {"results/results_format_test.csv": "\n".join(lines) + "\n"}


def ncpp() -> dict[str, str]:
    """Two parts, two tests, two repeats; one machine's name to be left out."""
    head = "kubernetes.pod_id,RESULT.kubernetes.host,RESULT.IterationIndex,RESULT.WorkloadName,"
    head += "RESULT.WorkloadPreset,RESULT.TestName,RESULT.Value,META.metadata.cscope.qdf0,"
    head += "SVR.CPU.Core(s) per Socket"

    def rows(parts: tuple[str, ...]) -> str:
        lines = [head]
        for part in parts:
            for test in ("Triad (MB/s)", "Copy (MB/s)"):
                for repeat in (0, 1):
                    lines.append(f"pod-{part},secret,{repeat},Stream,AVX2,{test},100.5,{part},40")
        return "\n".join(lines) + "\n"

    return {
        "data/raw/SPR/train_data.csv": rows(("Q1", "Q2")),
        "data/raw/SPR/test_data.csv": rows(("Q3",)),
    }
