"""A job with a label waits for gpu-lease-placer to find its place on the Slurm of this machine.

`python3 -m tests.matrix.placed_job`, as one_job.py.
"""

from __future__ import annotations

from tests.slurm.placer import placed_site

WAITS = "a job with anti-affinity:apart is there"


def main() -> int:
    with placed_site(nodes=1) as site:
        first, second = (site.submit("anti-affinity:apart") for _ in range(2))
        site.gpu(first)
        site.wait_for_comment(second, WAITS)
        site.cancel(first)
        site.gpu(second)
        if site.comment(second):
            print(f"job {second} runs and says {site.comment(second)!r}")
            return 1
        print(f"Slurm {site.slurm.version}: a job waited for its place")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
