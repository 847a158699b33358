"""The same mathematics, fast, behind one door."""

from tides.kernels.dispatch import Backend, current_ops, explain, gated_tail, linear_scan, selective_ssm, use_backend

__all__ = ["Backend", "current_ops", "explain", "gated_tail", "linear_scan", "selective_ssm", "use_backend"]
