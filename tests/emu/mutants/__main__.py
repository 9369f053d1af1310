"""`python -m tests.emu.mutants`: hunts all mutants and prints how each was found out."""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor

from .accepted import ACCEPTED
from .hunt import SEEDS, hunt, population


def main() -> int:
    """0 where all survivors are accepted."""
    parser = argparse.ArgumentParser(prog="python -m tests.emu.mutants", description=__doc__)
    parser.add_argument("--only", default="", help="part of the site's name")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    sites = [site for site in population() if options.only in str(site)]
    survivors = []
    with ProcessPoolExecutor(options.jobs) as pool:
        for site, kill in zip(sites, pool.map(hunt, sites), strict=True):
            if kill:
                print(f"{kill.kind:>13}, {kill.case}, seed {kill.seed}: {site}", flush=True)
            else:
                survivors.append(site)
                print(f"     SURVIVES: {site}: {ACCEPTED.get(str(site), 'not accepted')}", flush=True)
    killed = len(sites) - len(survivors)
    print(f"{killed} of {len(sites)} killed ({killed / len(sites):.1%}), up to {len(SEEDS)} seeds")
    return int(any(str(site) not in ACCEPTED for site in survivors))


if __name__ == "__main__":
    sys.exit(main())
