"""How often `low_rank` recovers A*, and how its steps grow with the condition number.

``python benchmarks/low_rank.py`` (some minutes). n = 50, real Gaussian rows, 20 seeds, up to 200
restarts; recovered means a relative error of A below 1e-4. Then n = 100, r = 5, m = 4000.
"""

import numpy as np
from tqdm import tqdm

import quadsense

FACTORS = (1.5, 2.0, 2.5, 3.0)


def recovered(n, rank, m, seed):
    p = quadsense.datasets.gaussian(n, m, rank=rank, condition=1.0, seed=seed)
    delta = 1e-8 * p.b.max()
    result = quadsense.solve(
        p.U, p.b, delta=delta, rank=rank, prefer="any", rng=seed, max_restarts=200
    )
    error = np.linalg.norm(result.A - p.A_star) / np.linalg.norm(p.A_star)
    return result.success and error < 1e-4


def main():
    print("share of 20 seeds recovered, n = 50:")
    print("  r   " + "".join(f"m = {factor} nr   " for factor in FACTORS))
    for rank in (1, 2, 5):
        shares = []
        for factor in FACTORS:
            seeds = tqdm(range(20), desc=f"r={rank} m={factor}nr", leave=False)
            wins = [recovered(50, rank, round(factor * 50 * rank), seed) for seed in seeds]
            shares.append(np.mean(wins))
        print(f"  {rank}   " + "".join(f"{share:<12.2f}" for share in shares))
    print("steps, n = 100, r = 5, m = 4000, mean of 10 seeds:")
    steps = {}
    for condition in (1.0, 20.0):
        counts = []
        for seed in range(10):
            p = quadsense.datasets.gaussian(100, 4000, rank=5, condition=condition, seed=seed)
            result = quadsense.solve(p.U, p.b, delta=1e-6 * p.b.max(), rank=5, prefer="any", rng=0)
            assert result.success, result.message
            counts.append(result.n_iter)
        steps[condition] = np.mean(counts)
        print(f"  condition {condition:>4.0f}: {steps[condition]:.1f}")
    print(f"  ratio {steps[20.0] / steps[1.0]:.2f}")


if __name__ == "__main__":
    main()
