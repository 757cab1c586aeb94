"""The leaderboard as one self-contained HTML file, without a server."""

from forerun.service.http.pages.leaderboard.page import PATH, context
from forerun.service.http.pages.rendering import STATIC, environment
from forerun.training.leaderboard.entries import Leaderboard


def leaderboard_file(board: Leaderboard) -> str:
    """The page *Leaderboard* with the tasks of all datasets, its style and its scripts inline."""
    template = environment().get_template("leaderboard/file.html")
    return template.render(path=PATH, content=_content, **context(board))


def _content(name: str) -> str:
    """A style sheet or a script of the service; the end of a script would end it in a page."""
    return (STATIC / name).read_text(encoding="utf-8").replace("</script", r"<\/script")
