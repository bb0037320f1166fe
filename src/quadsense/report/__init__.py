"""Reports: a result as one HTML file, with pictures made here as plain SVG."""

from quadsense.report.document import Report

__all__ = ["Report"]
