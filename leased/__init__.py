"""gpu-leased, the lease daemon, and gpu-leasectl."""

# The version of all parts: pyproject.toml and meson.build read it here.
__version__ = "0.2.0"
