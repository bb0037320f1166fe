"""Reports: a result as one HTML file, with figures by matplotlib where it is installed."""

from quadsense.report.document import Report

__all__ = ["Report"]


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
