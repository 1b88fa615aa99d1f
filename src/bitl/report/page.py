"""HTML pages that stand alone: figures are embedded, nothing is fetched."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

from .. import _files, _validate
from . import style


def embed(path: Path) -> str:
    """Return a PNG as a data address for an ``img`` element."""
    return "data:image/png;base64," + base64.b64encode(path.read_bytes()).decode("ascii")


def embed_figure(figure: Any) -> str:
    """Return a figure as a data address for an ``img`` element, and close it."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", bbox_inches="tight")
    style.pyplot().close(figure)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def write_page(path: Path, template: str, **content: Any) -> None:
    """Fill a template of this package and write the page; text is escaped."""
    jinja2 = _validate.optional_import("jinja2", "report", "Writing a report")
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    _files.write_text(path, environment.get_template(template).render(**content))
