"""The same mathematics, fast, behind one door."""

from tides.functional import linear_scan, selective_ssm

__all__ = ["linear_scan", "selective_ssm"]
