"""How Python statements are timed: contenders take turns, and the least of the rounds counts.

A slow spell of the machine meets all of them. Knows nothing of what the statements are.
"""

import gc
import timeit


def least(statements, rounds, fewest=100):
    """{name: ns} for {name: (statement, names)}; a round runs each about 4 ms long, but `fewest` times at least.

    A third in the tuple is a statement that is run before each round, and not timed."""
    timers, counts, best = {}, {}, {}
    for name, (statement, names, *setup) in statements.items():
        timers[name] = timeit.Timer(statement, *setup, globals=names)
        once = timers[name].timeit(2 * fewest) / (2 * fewest)
        counts[name] = max(fewest, int(0.004 / once))
    gc.disable()
    for _ in range(rounds):
        for name, timer in timers.items():
            spent = timer.timeit(counts[name]) / counts[name] * 1e9
            best[name] = min(spent, best.get(name, spent))
    gc.enable()
    return best
