"""Take the pictures of README and docs from a running service: `python docs/pictures.py`.

A service with the bundled predictors is started in an empty FORERUN_HOME, Chromium opens its pages,
and each picture of `PICTURES` is written into docs/pictures. `--check` writes nothing and fails
where a page cannot be opened.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

FOLDER: Final = Path(__file__).with_suffix("")
SIZE: Final = {"width": 1280, "height": 860}
ASKED: Final = [
    ("title", "light_resnet50.onnx"),
    ("devices", "rtx-4090"),
    ("devices", "a100-pcie-80gb"),
    ("devices", "l4"),
    ("batch_size", "64"),
    ("precision", "amp"),
]
PICTURES: Final[Mapping[str, str]] = {
    "predict": "/?" + urlencode([("graph", "DIGEST"), *ASKED]),
    "leaderboard": "/leaderboard",
}
"""Name of the picture -> path of the page; DIGEST stands for that of the uploaded network."""


@contextmanager
def service() -> Iterator[str]:
    """The address of a service that stops at the end."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("FORERUN_")}
    start = "import sys; sys.argv[1:] = ['serve', '--port', '0']"
    code = f"{start}; from forerun.service.cli import main; main()"
    with tempfile.TemporaryDirectory() as home:
        served = subprocess.Popen(  # noqa: S603
            [sys.executable, "-c", code],
            env=clean | {"FORERUN_HOME": home},
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            found = re.search(r"http://[\d.:]+", served.stdout.readline() if served.stdout else "")
            if found is None:
                raise SystemExit("the service does not start")
            yield found[0]
        finally:
            served.terminate()
            served.wait()


def uploaded(browser: Any, address: str) -> str:
    """The digest of ResNet-50, a file of the onnx package, after its upload."""
    import onnx

    file = Path(onnx.__file__).parent / "backend/test/data/light/light_resnet50.onnx"
    asked = browser.new_context().request.post(f"{address}/v1/graphs", data=file.read_bytes())
    return str(asked.json()["digest"])


def take(browser: Any, url: str, target: Path | None) -> None:
    """Open a page and write what its first screen shows, or nothing where the target is None."""
    page = browser.new_page(viewport=SIZE, device_scale_factor=1, color_scheme="light")
    answer = page.goto(url, wait_until="networkidle")
    if answer is None or not answer.ok:
        raise SystemExit(f"{url} is not answered")
    if target is not None:
        page.screenshot(path=target)
        print(f"{target.name}: {target.stat().st_size / 1e3:.0f} kB")
    page.close()


def main() -> None:
    """Take every picture."""
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(prog="python docs/pictures.py")
    parser.add_argument("--check", action="store_true", help="open the pages, write nothing")
    check = parser.parse_args().check
    names = ("chromium", "chromium-browser", "google-chrome")
    program = next((path for name in names if (path := shutil.which(name))), None)
    with service() as address, sync_playwright() as tools:
        browser = tools.chromium.launch(executable_path=program, args=["--no-sandbox"])
        digest = uploaded(browser, address)
        FOLDER.mkdir(exist_ok=True)
        for name, path in PICTURES.items():
            url = address + path.replace("DIGEST", digest)
            take(browser, url, None if check else FOLDER / f"{name}.png")
        browser.close()


if __name__ == "__main__":
    main()
