"""Models for other places: C99 sources, ONNX and `torch.export` graphs, int8 weights."""

from tides.streaming.export.c_source import CExport, export_c
from tides.streaming.export.program import export_onnx, export_program
from tides.streaming.export.quantise import quantised

__all__ = ["CExport", "export_c", "export_onnx", "export_program", "quantised"]
