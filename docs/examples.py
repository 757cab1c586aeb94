"""Renew the example answers of README.md from the bundled predictor: `python docs/examples.py`.

A block between `<!-- example: NAME -->` and `<!-- end example -->` is replaced by what
`forerun predict` answers now: `answer` is one answer as JSON with fields left out and figures
rounded, `devices` a table of two networks on three devices. Both networks are files of the `onnx`
package.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

README = Path(__file__).parent.parent / "README.md"
EXAMPLE = re.compile(
    r"<!-- example: (?P<name>\w+) -->\n.*?(?P<end><!-- end example -->)", re.DOTALL
)
NETWORKS = {"SqueezeNet 1.1": "light_squeezenet.onnx", "GoogLeNet": "light_inception_v1.onnx"}
DEVICES = {"rtx-4090": "RTX 4090", "a100-pcie-80gb": "A100 80 GB PCIe", "l4": "L4"}
METRICS = ("latency_ms", "peak_memory_mib", "power_w", "energy_j")
PARTS_SHOWN = 5
LONGEST_LIMIT = 58


def with_examples(text: str) -> str:
    """The document with every marked example made anew."""
    makers = {"answer": one_answer, "devices": table_of_devices}
    return EXAMPLE.sub(
        lambda m: f"<!-- example: {m['name']} -->\n{makers[m['name']]()}\n{m['end']}", text
    )


def one_answer() -> str:
    """The answer about SqueezeNet on an RTX 4090 as a block of JSON."""
    answer = _answers(NETWORKS["SqueezeNet 1.1"])["rtx-4090"]
    fields = ("value", "low", "high", "coverage", "unit", "in_domain")
    metrics = ",\n".join(
        f'    "{name}": ' + json.dumps({f: _rounded(answer["metrics"][name][f]) for f in fields})
        for name in METRICS
    )
    parts = sorted(answer["breakdown_ms"].items(), key=lambda part: -part[1])[:PARTS_SHOWN]
    limits = ",\n             ".join(json.dumps(_short(text)) for text in answer["limits"])
    bound = _rounded(answer["roofline"]["latency_ms"])
    predictor = {name: answer["predictor"][name] for name in ("name", "version")}
    return "\n".join(
        (
            "```json",
            "{",
            f'  "metrics": {{\n{metrics}\n  }},',
            f'  "limits": [{limits}],',
            f'  "breakdown_ms": {json.dumps({name: _rounded(ms) for name, ms in parts})},',
            f'  "roofline": {{"latency_ms": {bound}}},',
            f'  "predictor": {json.dumps(predictor)}',
            "}",
            "```",
        )
    )


def table_of_devices() -> str:
    """Latency of both networks on every device, with its interval and bound."""
    lines = [
        "| network | device | latency | 90 % interval | roofline | latency in domain |",
        "|---|---|---|---|---|---|",
    ]
    for network, file in NETWORKS.items():
        for name, answer in _answers(file).items():
            latency, bound = answer["metrics"]["latency_ms"], answer["roofline"]["latency_ms"]
            known = "yes" if latency["in_domain"] else "no"
            value, low, high = (_rounded(latency[field]) for field in ("value", "low", "high"))
            lines.append(
                f"| {network} | {DEVICES[name]} | {value} ms | {low} to {high} "
                f"| {_rounded(bound)} ms | {known} |"
            )
    return "\n".join(lines)


@cache
def _answers(file: str) -> Mapping[str, dict[str, Any]]:
    """Answers at batch 64 in amp by device, of the bundled predictor without adaptation."""
    import onnx

    network = Path(onnx.__file__).parent / "backend/test/data/light" / file
    clean = {k: v for k, v in os.environ.items() if not k.startswith("FORERUN_")}
    with tempfile.TemporaryDirectory() as home:
        run = subprocess.run(  # noqa: S603
            [
                *(sys.executable, "-c", "from forerun.service.cli import main; main()"),
                *("predict", str(network), "--device", ",".join(DEVICES)),
                *("--batch-size", "64", "--precision", "amp", "--json"),
            ],
            env=clean | {"FORERUN_HOME": home},
            capture_output=True,
            check=False,
            text=True,
        )
    if run.returncode:
        raise SystemExit(f"forerun predict {file}: {run.stderr.strip()}")
    return dict(zip(DEVICES, json.loads(run.stdout)["answers"], strict=True))


def _rounded(value: Any) -> Any:
    """A number to three significant digits, whole from 100 up; anything else as it is."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    short = float(f"{value:.3g}")
    return round(value) if abs(value) >= 100 else short


def _short(text: str) -> str:
    """The beginning of a limit, up to a whole word."""
    if len(text) <= LONGEST_LIMIT:
        return text
    return text[:LONGEST_LIMIT].rsplit(" ", 1)[0].rstrip(",;:") + " ..."


def main() -> None:
    """Write README.md anew where an example changed."""
    text = README.read_text(encoding="utf-8")
    renewed = with_examples(text)
    if renewed != text:
        README.write_text(renewed, encoding="utf-8")
        print(f"{README.name}: examples renewed")


if __name__ == "__main__":
    main()
