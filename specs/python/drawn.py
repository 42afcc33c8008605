"""What `make test` runs of a list of cases that is long only: some of them, others with each commit.

All of it where MOONFERRY_SPEC_EVERY is set. CPU time decides what is drawn from, never what a case is worth.
"""

import os

# Where QEMU runs them, each case takes ten times as long.
FEWER = 10 if os.environ.get("MOONFERRY_SPEC_EMULATED") else 1


def one_in(count, cases):
    """Every count-th case, from the one at which MOONFERRY_SPEC_SEED points."""
    cases = list(cases)
    count = min(count * FEWER, len(cases))
    if os.environ.get("MOONFERRY_SPEC_EVERY"):
        return cases
    return cases[int(os.environ.get("MOONFERRY_SPEC_SEED", "0")) % count :: count]
