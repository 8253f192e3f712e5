"""NVIDIA's MPS as a mode of a GPU: its servers, who may be together, and what a job needs."""
