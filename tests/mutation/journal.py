"""What became of mutants in earlier runs, so that an interrupted run goes on where it was."""

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

JOURNAL = ".mutants.jsonl"


@dataclass
class Journal:
    """A file with one line a mutant; a run appends, the last line of a mutant counts.

    An outcome holds as long as the mutated file and its nearest tests have the same text: a new
    test makes its mutants run again.

    Attributes:
        path: the file; none yet is an empty journal.
    """

    path: Path
    known: dict = field(init=False)

    def __post_init__(self):
        lines = self.path.read_text().splitlines() if self.path.is_file() else []
        self.known = {entry["key"]: entry for entry in map(json.loads, lines)}

    def get(self, key):
        """The outcome under a key; None where there is none."""
        return self.known[key]["outcome"] if key in self.known else None

    def add(self, key, mutant, outcome, after, tests):
        """Remember an outcome, on disk at once."""
        entry = {"key": key, "outcome": outcome, **asdict(mutant), "after": after, "tests": tests}
        self.known[key] = entry
        with self.path.open("a") as file:
            file.write(json.dumps(entry) + "\n")


def key_of(root, mutant, tests):
    """Names a mutant together with the texts that its outcome depends on."""
    digest = hashlib.sha256()
    for path in (mutant.path, *tests):
        digest.update((Path(root) / path).read_bytes())
    return f"{mutant.path}:{mutant.operator}:{mutant.occurrence}:{digest.hexdigest()[:16]}"
