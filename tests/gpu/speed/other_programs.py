"""Programs of check_speed that are not PyTorch's: Triton's kernels, JAX and CuPy."""

from __future__ import annotations

from collections.abc import Callable

from tests.gpu.workloads import Workload, cupy_math, jax_train, triton_kernel

# Those that check the results of frameworks are of the right kind: many short kernels a step.
PROGRAMS: dict[str, Callable[[], Workload]] = {
    "triton": triton_kernel,
    "jax_jit": jax_train,
    "cupy": cupy_math,
}
