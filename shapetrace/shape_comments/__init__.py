"""What the shape comments of a model's source claim, against what ran."""

from shapetrace.shape_comments.checking import check
from shapetrace.shape_comments.findings import Finding, ShapeComments

__all__ = ["Finding", "ShapeComments", "check"]
