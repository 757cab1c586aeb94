"""`python -m tests.openapi`: what breaks clients; with `--publish`, keep the interface of now."""

import json
import sys
from pathlib import Path

from forerun.service.http.app import create_app
from tests.openapi.changes import breaking_changes

PUBLISHED = Path(__file__).with_name("published.json")


def main() -> int:
    """Print breaking changes; refuse to publish them without `--breaking`."""
    now = create_app().openapi()
    known = json.loads(PUBLISHED.read_text()) if PUBLISHED.is_file() else {"paths": {}}
    changes = breaking_changes(known, now)
    print("\n".join(changes) or "nothing breaks")
    if changes and "--breaking" not in sys.argv:
        return 1
    if "--publish" in sys.argv:
        PUBLISHED.write_text(json.dumps(now, sort_keys=True, separators=(",", ":")) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
