"""Reports: a result as one HTML file, with figures by matplotlib where it is installed."""

from quadsense.report.document import Report

__all__ = ["Report"]
