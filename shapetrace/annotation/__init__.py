"""Observed shapes as comments in the source that bound them."""

from shapetrace.annotation.annotated import AnnotatedFile, Annotation, annotate
from shapetrace.annotation.writing import patch_folder, write_annotations, write_patch

__all__ = ["AnnotatedFile", "Annotation", "annotate", "patch_folder", "write_annotations", "write_patch"]
