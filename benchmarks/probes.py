"""Probes that are never formed, beside what is used today on the same transforms and sums.

python benchmarks/probes.py [--only coded_diffraction ...] [--seeds 2]
"""

from __future__ import annotations

from diffraction import coded_diffraction, photograph, small_diffraction
from task_list import Tasks, run

TASKS: Tasks = {
    "coded_diffraction": coded_diffraction,
    "small_diffraction": small_diffraction,
    "photograph": photograph,
}

if __name__ == "__main__":
    run(TASKS, __doc__, seeds=2)
