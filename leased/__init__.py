"""gpu-leased, the lease daemon, and gpu-leasectl."""

__version__ = "0.1.0"
