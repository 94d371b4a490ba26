"""How long the certificate takes: the toy domain within 1 %, the 3×4 cliff within 5 %.

python benchmarks/lp_certificate.py [--seconds 120] [--jobs 2]
"""

from __future__ import annotations

import argparse

import multihorizon as mh


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    for domain, bound, gap in ((mh.domains.toy(), 10, 0.01), (mh.domains.cliff(), 20, 0.05)):
        solver = mh.MPLP(reward_bound=bound, certify=gap, certify_seconds=options.seconds, jobs=options.jobs)
        found = mh.solve(mh.Problem(domain.mdp, domain.lp_experts()), solver)
        proof = found.evidence["certificate"]
        print(f"{domain.name}: {found.objective:.6f}, bound {proof['upper']:.6f}, gap {100 * proof['gap']:.2f} %, ", end="")
        print(f"proved {proof['proved']}, {proof['boxes']} boxes, {proof['seconds']:.1f} s", flush=True)


if __name__ == "__main__":
    main()
