"""Figures of scipy for the statistics of linerate-lab: python3 reference.py > reference.json

Run it again when cases are added; the tests run it too where scipy is installed.
"""

import json
import sys

import numpy as np
from scipy import stats

LOG_RATIOS = {
    "five equal": [0.012, -0.034, 0.021, 0.005, -0.018],
    "five apart": [0.051, 0.043, 0.062, 0.038, 0.049],
    "ten": [0.031, -0.022, 0.064, 0.011, 0.042, -0.013, 0.055, 0.028, 0.003, 0.047],
    "ten skewed": [0.010, 0.020, 0.015, 0.012, 0.500, 0.018, 0.011, 0.090, 0.016, 0.013],
    "twenty": [0.08, -0.05, 0.12, 0.03, -0.07, 0.06, 0.01, 0.15, -0.02, 0.04,
               0.09, -0.11, 0.07, 0.02, 0.05, -0.04, 0.10, 0.00, 0.06, -0.03],
}


def student(values):
    test = stats.ttest_1samp(values, 0.0)
    low, high = stats.t.interval(0.95, len(values) - 1, np.mean(values), stats.sem(values))
    return {"p": test.pvalue, "low": low, "high": high}


def studentised(values):
    """The bootstrap-t interval: quantiles of the studentised mean over resamples."""
    x = np.array(values)

    def t(sample, axis):
        mean = np.mean(sample, axis=axis)
        error = np.std(sample, axis=axis, ddof=1) / np.sqrt(sample.shape[axis])
        return (mean - np.mean(x)) / np.maximum(error, 1e-300)

    # The method "percentile" of what is studentised, taken the other way round.
    done = stats.bootstrap((x,), t, n_resamples=200_000, method="percentile", batch=20_000,
                           vectorized=True, random_state=np.random.default_rng(1))
    low, high = np.quantile(done.bootstrap_distribution, [0.025, 0.975])
    error = stats.sem(x)
    return {"low": np.mean(x) - high * error, "high": np.mean(x) - low * error}


def main():
    table = {
        "means": [{"name": name, "values": values, "student": student(values),
                   "studentised": studentised(values)} for name, values in LOG_RATIOS.items()],
        "welch": [{"a": LOG_RATIOS[a], "b": LOG_RATIOS[b],
                   "p": stats.ttest_ind(LOG_RATIOS[a], LOG_RATIOS[b], equal_var=False).pvalue}
                  for a, b in [("ten", "five equal"), ("five apart", "twenty")]],
        "t": [{"t": t, "df": df, "cdf": stats.t.cdf(t, df)}
              for t in [-30.0, -2.5, -0.1, 0.0, 0.7, 3.0] for df in [2, 4.5, 9, 19, 400]],
        "quantile": [{"p": p, "df": df, "t": stats.t.ppf(p, df)}
                     for p in [0.025, 0.8, 0.95, 0.975] for df in [2, 4, 9, 19, 400]],
    }
    json.dump(table, sys.stdout, indent=1, default=float)
    print()


main()
