"""Models for other places: C99 sources, ONNX and `torch.export` graphs, int8 weights, folders for the hub."""

from tides.streaming.export.c_source import CExport, export_c
from tides.streaming.export.hub import from_pretrained, pretrained_metadata, push_to_hub, save_pretrained
from tides.streaming.export.program import export_onnx, export_program
from tides.streaming.export.quantise import quantised

__all__ = [
    "CExport",
    "export_c",
    "export_onnx",
    "export_program",
    "from_pretrained",
    "pretrained_metadata",
    "push_to_hub",
    "quantised",
    "save_pretrained",
]
