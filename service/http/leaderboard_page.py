"""The leaderboard as one self-contained HTML page, without external scripts, fonts or styles.

All text is escaped. There is one table per dataset and one table body per task.
"""

from collections.abc import Sequence
from html import escape
from importlib.resources import files
from string import Template

from forerun.training.leaderboard.entries import (
    Entry,
    Leaderboard,
    Ranked,
    Section,
    score_text,
    value_text,
)

HEADINGS = (
    ("#", ""),
    ("predictor", ""),
    ("score", ""),
    ("shots", ""),
    ("seeds", "minor"),
    ("n", "minor"),
    ("median error", "minor"),
    ("Spearman", "minor"),
    ("in 90 % interval", "minor"),
    ("high / low", "minor"),
)
"""Heading and CSS class of each column; `minor` columns are hidden on a narrow screen."""


def page(board: Leaderboard) -> str:
    """The whole page: each entry with its rank, and below it its command or citation."""
    template = (files("forerun.service.http") / "templates" / "leaderboard.html").read_text("utf-8")
    sections = board.sections()
    tables = [
        _table(dataset, [s for s in sections if s.dataset == dataset])
        for dataset in board.datasets()
    ]
    links = [f'<a href="#{escape(name)}">{escape(name)}</a>' for name in board.datasets()]
    command = "<code>forerun leaderboard --fresh</code>"
    empty = f"<p>Nothing is stored yet: {command} runs the evaluation.</p>"
    return Template(template).substitute(
        links="".join(links), tables="\n".join(tables) if tables else empty
    )


def _table(dataset: str, sections: Sequence[Section]) -> str:
    heads = "".join(
        f'<th scope="col" class="{kind}"><button>{escape(heading)}</button></th>'
        for heading, kind in HEADINGS
    )
    bodies = "\n".join(map(_body, sections))
    return (
        f'<h2 id="{escape(dataset)}">{escape(dataset)}</h2>\n<div class="table"><table>'
        f"<thead><tr>{heads}</tr></thead>\n{bodies}\n</table></div>"
    )


def _body(section: Section) -> str:
    index = f"{section.task}, {section.device or 'all devices'}"
    title = f"{index}: {section.score} of {section.metric}"
    head = f'<tr><th class="task" colspan="{len(HEADINGS)}">{escape(title)}</th></tr>'
    return f"<tbody>{head}{''.join(map(_row, section.rows))}</tbody>"


def _row(row: Ranked) -> str:
    entry = row.entry
    cells = (
        ("" if row.rank is None else str(row.rank), row.rank),
        (_name(row), entry.predictor),
        (escape(value_text(entry)), entry.value),
        ("" if entry.cited else str(entry.shots), None if entry.cited else entry.shots),
        ("" if entry.seeds is None else str(entry.seeds), entry.seeds),
        ("" if entry.n is None else f"{entry.n:,}", entry.n),
        (score_text("median_ape", entry.median_ape), entry.median_ape),
        (score_text("spearman", entry.spearman), entry.spearman),
        (score_text("coverage_90", entry.coverage_90), entry.coverage_90),
        (score_text("ratio", entry.mean_interval_ratio), entry.mean_interval_ratio),
    )
    columns = "".join(
        f'<td class="{kind}" data-value="{"" if value is None else escape(str(value))}">{text}</td>'
        for (text, value), (_, kind) in zip(cells, HEADINGS, strict=True)
    )
    how = f'<tr class="how"><td></td><td colspan="{len(HEADINGS) - 1}">{_how(entry)}</td></tr>'
    return f'<tr class="entry {entry.kind}">{columns}</tr>{how}'


def _name(row: Ranked) -> str:
    entry = row.entry
    tags: list[str] = [] if entry.kind == "ours" else [entry.kind]
    tags += [row.note] if row.note else []
    return escape(entry.predictor) + "".join(
        f'<span class="tag">{escape(tag)}</span>' for tag in tags
    )


def _how(entry: Entry) -> str:
    parts = [f"<code>{escape(entry.command)}</code>"] if entry.command else []
    parts += [escape(text) for text in (entry.over, entry.citation) if text]
    if entry.date:
        parts.append(escape(entry.date[:10]))
    if entry.commit:
        parts.append(f"code {escape(entry.commit[:12])}")
    if entry.digest:
        parts.append(f"data {escape(entry.digest[:8])}")
    return " · ".join(parts)
