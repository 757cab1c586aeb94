"""Tiny upstream files of kernel and system benchmarks, in their own formats, made up."""

import io
import zipfile

_MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_LINKS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006/relationships"

Cell = str | float | None


def workbook(sheets: dict[str, list[list[Cell]]]) -> bytes:
    """An .xlsx file of several sheets, texts inline; the parts are numbered from the last sheet."""
    packed = io.BytesIO()
    parts = {name: len(sheets) - place for place, name in enumerate(sheets)}
    with zipfile.ZipFile(packed, "w") as book:
        for name, rows in sheets.items():
            lines = "".join(f"<row>{''.join(map(_cell, row))}</row>" for row in rows)
            sheet = f'<worksheet xmlns="{_MAIN}"><sheetData>{lines}</sheetData></worksheet>'
            book.writestr(f"xl/worksheets/sheet{parts[name]}.xml", sheet)
        links = "".join(
            f'<Relationship Id="r{n}" Type="{_LINKS}/worksheet" Target="worksheets/sheet{n}.xml"/>'
            for n in parts.values()
        )
        root = f'<Relationship Id="r" Type="{_LINKS}/officeDocument" Target="xl/workbook.xml"/>'
        for part, content in (("_rels/.rels", root), ("xl/_rels/workbook.xml.rels", links)):
            book.writestr(part, f'<Relationships xmlns="{_PACKAGE}">{content}</Relationships>')
        listed = "".join(f'<sheet name="{name}" r:id="r{n}"/>' for name, n in parts.items())
        head = f'<workbook xmlns="{_MAIN}" xmlns:r="{_LINKS}">'
        book.writestr("xl/workbook.xml", f"{head}<sheets>{listed}</sheets></workbook>")
    return packed.getvalue()


def _cell(cell: Cell) -> str:
    if cell is None:
        return "<c/>"
    if isinstance(cell, str):
        return f'<c t="inlineStr"><is><t>{cell}</t></is></c>'
    return f"<c><v>{cell}</v></c>"


_PRODUCTS: list[Cell] = ["M", "N", "K", "A Transpose", "B Transpose", None, "Time (msec)"]
_SIZES: list[Cell] = ["W", "H", "C", "N", "K "]
_TIMES: list[Cell] = ["Forward (msec)", "wrt Inputs (msec)", "wrt Parameters (msec)"]
_CONV_BY_NAME: list[Cell] = [
    *("S (Filter width)", "R (Filter height)", "pad_w", "pad_h"),
    *("Horizontal stride", "Vertical stride"),
]
_CONV_BY_LETTER: list[Cell] = ["R", "S", "pad_h", "pad_w", "Vertical stride", "Horizontal stride"]


def deepbench_sheet(note: str, slower: float, *, by_letter: bool = False) -> list[list[Cell]]:
    """One sheet of results; windows are 5 high and 20 wide, steps 2 down and 3 across."""
    window: list[Cell] = [5.0, 20.0, 1.0, 0.0, 2.0, 3.0]
    if not by_letter:
        window = [20.0, 5.0, 0.0, 1.0, 3.0, 2.0]
    rows: list[list[Cell]] = [["Precision", note]]
    rows.append(["Dense Matrix Multiplication", None, *_PRODUCTS, "TERAFLOPS"])
    for size in (16.0, 32.0, 64.0):
        for turned in ("N", "T"):
            time = slower * (size / 100 + (turned == "T") / 1000)
            rows.append([None, "DeepSpeech", 1760.0, size, 1024.0, turned, "N", None, time, 1.0])
    rows += [[None, None], ["Convolution"]]
    names = _CONV_BY_LETTER if by_letter else _CONV_BY_NAME
    rows.append([None, None, *_SIZES, *names, *_TIMES, None, "P", "Q"])
    for batch, first in ((4.0, "N/A*"), (8.0, 0.4 * slower)):
        sizes: list[Cell] = [700.0, 161.0, 1.0, batch, 32.0]
        times: list[Cell] = [0.2 * slower, first, 0.3 * slower]
        rows.append([None, "Vision", *sizes, *window, *times, None, 79.0, 341.0])
        rows.append([None, "Vision", *sizes, *window, *times, None, 79.0, 341.0])
    rows.append([None, None, None, "* = excluded"])
    head: list[Cell] = ["Hidden Units", "N", "Timesteps", None, "Time Forward (msec) "]
    rows.append(["Recurrent Layers - LSTM", None, *head, "Time Backward (msec)", "TERAFLOPS FWD"])
    rows.append([None, None, 512.0, 16.0, 25.0, None, 1.3 * slower, 1.5 * slower, 0.6])
    rows.append(["All-Reduce", None, "Size # floats", "# chips", None, None, "Mean Time"])
    rows.append([None, None, 100000.0, 16.0, 2.0, None, 0.5, 0.1])
    return rows


def deepbench() -> dict[str, str | bytes]:
    """Three GPUs and a phone."""
    specs: list[list[Cell]] = [["GPU Model", "made up"]]
    single = deepbench_sheet("Float", 1.0)
    half = deepbench_sheet("16 bit inputs, 16 bit multiplication, 32 bit addition", 0.5)
    integers: list[list[Cell]] = [
        ["Precision", "Int8 inputs 32 bit math"],
        ["Dense Matrix Multiplication", None, *_PRODUCTS],
        [None, None, 35.0, 700.0, 2048.0, "N", "N", None, 7.5],
        ["Sparse Matrix Multiplication", None, "M", "N", "K"],
        [None, None, 7680.0, 1.0, 2560.0],
        ["Convolution"],
        [None, None, "W (input - time)", "H (input)", "C (channels)", "N (batch size)"],
        [None, None, 151.0, 40.0, 1.0, 1.0],
    ]
    old = deepbench_sheet("Float", 2.0, by_letter=True)
    return {
        "results/train/DeepBench_NV_V100.xlsx": workbook(
            {"Results FP32": single, "Results - FP16": half, "Specs": specs}
        ),
        "results/train/DeepBench_NV_TitanX.xlsx": workbook({"Results - FP32": old, "Specs": specs}),
        "results/train/DeepBench_NV_M40.xlsx": workbook(
            {"Results - FP32": deepbench_sheet("Float", 3.0), "Specs": specs}
        ),
        "results/inference/device/DeepBench_iPhone_6.xlsx": workbook({"Kernels": integers}),
    }


_MODELS = "ssd,bert_base_squad,resnet50"
_EARLIER = (("V100 16GB", 1, 300.0), ("RTX 3090", 1, 350.0), ("2x RTX 3090", 2, 700.0))


def lambda_bench() -> dict[str, str]:
    """Two tables a precision and three traces, one of which missed its run."""
    files = {}
    for precision, speed in (("fp16", 2.0), ("fp32", 1.0)):
        rates = [f"name_gpu,num_gpu,watt,price,{_MODELS}"]
        sizes = [f"name_gpu,num_gpu,watt,price,{_MODELS}"]
        for system, count, watts in _EARLIER:
            missing = 0.0 if system == "RTX 3090" else 60.0 * speed * count
            rate = f"{100.0 * speed * count},{missing},{300.0 * speed * count}"
            rates.append(f"{system},{float(count)},{watts},9.5,{rate}")
            sizes.append(
                f"{system},{count},{int(watts)},9.5,{96 * count},{48 * count},{256 * count}"
            )
        files[f"pytorch/pytorch-train-throughput-{precision}.csv"] = "\n".join(rates) + "\n"
        files[f"pytorch/pytorch-train-bs-{precision}.csv"] = "\n".join(sizes) + "\n"
        later = [f",{_MODELS}"]
        for node in ("LambdaOD_4x_Texas_1xH100_80GB_SXM5_1-2-3-4_v2", "SMC_8xH100_80GB_SXM5_a_v2"):
            later.append(f"{node},{780.0 * speed},{900.0 * speed},{3000.0 * speed}")
        files[f"pytorch/pytorch-train-throughput-v2-{precision}.csv"] = "\n".join(later) + "\n"
    for system, peak in (("2080Ti", 10_420), ("V100", 15_100), ("QuadroRTX8000", 11)):
        lines = ["37, 0 %, 0 MiB", f"71, 98 %, {peak} MiB", f"70, 90 %, {peak - 1} MiB"]
        path = f"pytorch/results/{system}/PyTorch_resnet50_FP16/17-06-2020_18-48-18_monitor.csv"
        files[path] = "\n".join(lines) + "\n"
    return files
