"""Spec sheets that users registered: one JSON file a device, beside the catalogue."""

import os
import tempfile
from pathlib import Path

from pydantic import ValidationError

from forerun.data.device import Device, DeviceCatalog
from forerun.data.errors import InputError


class TakenName(InputError):
    """The catalogue holds a device of that name."""

    slug, status = "taken-name", 409


def load_catalog(folder: Path) -> DeviceCatalog:
    """The catalogue with every registered device.

    Raises:
        InputError: a registered sheet cannot be read; the message names the file.
    """
    catalog = DeviceCatalog.load()
    for path in sorted(folder.glob("*.json")):
        try:
            catalog = catalog.with_device(Device.model_validate_json(path.read_text()))
        except ValidationError as error:
            raise InputError(f"Cannot read the spec sheet {path}: {error}") from None
    return catalog


def register(folder: Path, catalog: DeviceCatalog, device: Device) -> DeviceCatalog:
    """A catalogue that also holds the device, once its sheet is safe on disk.

    Raises:
        TakenName: the catalogue's own devices cannot be replaced.
    """
    if any(known.name == device.name and known.origin == "catalog" for known in catalog):
        raise TakenName(f"{device.name} is in the catalogue; register under another name.")
    device = device.model_copy(update={"origin": "registered"})
    wider = catalog.with_device(device)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=folder, suffix=".part", delete=False) as draft:
        draft.write(device.model_dump_json(exclude_none=True))
        draft.flush()
        os.fsync(draft.fileno())
    Path(draft.name).replace(folder / f"{device.name}.json")
    return wider
