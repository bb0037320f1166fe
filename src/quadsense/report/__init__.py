"""Reports: all that there is to say of a result, as one HTML file that can be mailed."""

from __future__ import annotations

import base64
import datetime
import hashlib
import os
import tempfile
import webbrowser
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from quadsense import files
from quadsense.arrays import to_numpy
from quadsense.core.records import cached_property
from quadsense.measurements import Measurements
from quadsense.measurements.oracle import SpectralOracle
from quadsense.plot.pictures import labelled, readings_of
from quadsense.report import evidence, sections
from quadsense.result.result import Result
from quadsense.view import Markup, element
from quadsense.vocabulary import Verification

__all__ = ["Report"]

FRAME_HEIGHT = 720
"""Of a report within a notebook, in pixels."""


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)


class Report:
    """A result as one HTML file: verdict, certificate, pictures, suspects, how to do it again.

    It needs no network and no other file, and reads the same without its script, which sorts the
    table of rows and shows values where the pointer is; see `Result.report`.

    Parameters
    ----------
    result : Result
    data : Measurements or SpectralOracle, optional
        Those of the solve: at hand unless the result was read from a file.
    intervals : Interval, list of Interval, or dict of str to Interval, optional
        To be drawn too.
    title : str, optional
        Above the verdict.
    check : bool, default=True
        Whether to check all that the result states against the data, where these are available.
    names : (str, str), optional
        Files of the data and of the result, for the lines that ask the same again.
    """

    def __init__(
        self,
        result: Result,
        data: Any = None,
        *,
        intervals: Any = None,
        title: str | None = None,
        check: bool = True,
        names: tuple[str, str] = ("data.npz", "result.npz"),
    ) -> None:
        if not isinstance(result, Result):
            raise ValueError(f"a report is of a quadsense.Result, got {type(result).__name__}")
        if data is not None and not isinstance(data, Measurements | SpectralOracle):
            raise ValueError(
                f"data must be the quadsense.Measurements of the solve, got {type(data).__name__}"
            )
        self.result, self.title, self.names = result, title, names
        self._given = data
        self._check = check
        self._intervals = {} if intervals is None else labelled(intervals)
        if isinstance(data, Measurements):
            _check_size(result, data)

    @property
    def data(self) -> Measurements | None:
        """The measurements, where they are available."""
        if isinstance(self._given, Measurements):
            return self._given.plain
        kept = self.result.certificate.data
        return None if kept is None else kept.plain

    @cached_property
    def checked(self) -> Verification | None:
        """What a check of the result against the data found; None where there was none."""
        against = self._given if self._given is not None else self.data
        if not self._check or against is None or self.result.certificate.kind == "none":
            return None
        return self.result.check(against)

    def html(self) -> str:
        """Return the page as text."""
        return self._page

    @cached_property
    def _page(self) -> str:
        result, readings = self.result, readings_of(self.result)
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        return page(
            self.title or f"quadsense: {result.status}",
            [
                sections.verdict(result, self.title, self.checked),
                evidence.suspects(result, readings, self.data) if result.suspects.size else None,
                sections.intervals(result, self._intervals),
                sections.pictures(result, readings),
                evidence.certificate(result, self.data, self.checked, self.names),
                sections.unseen(result),
                evidence.objective(result),
                None if result.suspects.size else evidence.suspects(result, readings, self.data),
                sections.plan(result),
                sections.reproduction(result, self.names),
            ],
            f"Written by quadsense on {today} (UTC).",
        )

    def write_html(self, path: str | os.PathLike[str]) -> None:
        """Write the page, whole or not at all; the name must end in .html."""
        files.check_writable(path, ".html")
        files.write_text(path, self.html())

    def open(self) -> Path:
        """Write the page to a temporary file, show it in the browser, and say where it is."""
        handle, name = tempfile.mkstemp(prefix="quadsense-", suffix=".html")
        os.close(handle)
        path = Path(name)
        self.write_html(path)
        webbrowser.open(path.as_uri())
        return path

    def __repr__(self) -> str:
        """What it is of."""
        return f"<Report of {self.result!r}>"

    def _repr_html_(self) -> str:
        """The page within a notebook, in a frame of its own that runs nothing but its script."""
        return str(
            element(
                "iframe", srcdoc=_quoted(self.html()), sandbox="allow-scripts", width="100%",
                height=FRAME_HEIGHT, title="quadsense report", style="border:0",
            )
        )  # fmt: skip


def _check_size(result: Result, data: Measurements) -> None:
    """Refuse data that the result cannot be about."""
    rows, order = np.size(to_numpy(result.residuals)), int(result.matrix.shape[0])
    if (data.plain.m, data.n) != (rows, order):
        raise ValueError(
            f"the result is about {rows} measurements of a matrix of order {order}, the data are "
            f"{data.plain.m} of order {data.n}"
        )


def _quoted(page: str) -> str:
    """The page as an attribute takes it: `element` escapes it once more, as it must be."""
    assert not isinstance(page, Markup)
    return page


def page(title: str, body: list[Markup | None], foot: str) -> str:
    """Return the document: one file that requests nothing and can run nothing but its own script.

    The policy names the script by its hash, so that no other text of the page can be one.
    """
    style, script = _resource("style.css"), _resource("script.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    policy += f"; script-src 'sha256-{digest}'"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", title),
        element("style", Markup(style)),
    )
    main = element("main", *body, element("footer", foot))
    content = element("body", main, element("script", Markup(script)))
    return "<!DOCTYPE html>\n" + element("html", head, content, lang="en") + "\n"


def _resource(name: str) -> str:
    """Return a file of this folder."""
    return resources.files("quadsense.report").joinpath(name).read_text("utf-8")
