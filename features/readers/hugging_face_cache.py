"""Models in the local cache of Hugging Face (`HF_HOME`, `HF_HUB_CACHE`). Nothing is downloaded."""

import re
from pathlib import Path
from typing import Final

HUGGING_FACE: Final = "hf:"
"""What a name of a model of Hugging Face may begin with; one without an owner has to."""
_DESCRIBE: Final = ("model_index.json", "config.json", "params.json")
"""Files that say what a model is; the first that there is counts."""
_ID: Final = re.compile(r"hf:.*|[\w-][\w.-]*/[\w.-]+(?<!\.onnx)(?<!\.pt2)(?<!\.json)")


def is_id(name: str) -> bool:
    """Whether a name may be that of a model of Hugging Face, rather than of a file."""
    return _ID.fullmatch(name) is not None


def cached_model(name: str) -> Path | None:
    """The folder of a model in the local cache; None where it is not there.

    Args:
        name: ORG/MODEL, with or without `hf:`.
    """
    if not is_id(name):
        return None
    try:
        from huggingface_hub import try_to_load_from_cache
        from huggingface_hub.errors import HFValidationError
    except ImportError:
        return None
    for file in _DESCRIBE:
        try:
            found = try_to_load_from_cache(name.removeprefix(HUGGING_FACE), file)
        except HFValidationError:
            return None
        if isinstance(found, str):
            return Path(found).parent
    return None
