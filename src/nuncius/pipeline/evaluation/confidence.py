"""Confidence intervals of a mean.

The samples are the buckets of a run, not single requests, because concurrent requests wait for the same
things and are correlated. Buckets are taken as independent. For a rate, the half-width of
the interval is t * s / sqrt(n), with Student's t for n - 1 degrees of freedom. A mean response time is a
ratio, all the time spent over all the requests: a bucket weighs as many requests as it has, and what varies
from bucket to bucket is the time spent in it less what its requests would take at the mean.
"""

from pyspark.sql import Column
from pyspark.sql import functions as sf

# The 97.5 % quantiles of t for 1, 2, ... 30 degrees of freedom.
TABLE = (
    *(12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281),
    *(2.2010, 2.1788, 2.1604, 2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860),
    *(2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484, 2.0452, 2.0423),
)
_NORMAL = 1.959964
# Beyond the table: Fisher and Cornish's expansion around the normal distribution, right to four digits.
_FIRST = (_NORMAL**3 + _NORMAL) / 4
_SECOND = (5 * _NORMAL**5 + 16 * _NORMAL**3 + 3 * _NORMAL) / 96


def t95(freedom: Column) -> Column:
    """Return the quantile of t for a 95 % interval, or null for zero degrees of freedom."""
    beyond = _NORMAL + _FIRST / freedom + _SECOND / (freedom * freedom)
    table = sf.array(*map(sf.lit, TABLE))
    return sf.when(freedom > len(TABLE), beyond).when(freedom >= 1, sf.get(table, freedom.cast("int") - 1))


def half_width(samples: str) -> Column:
    """Return the half-width of the 95 % interval around the mean of a column, as an aggregate. It is null for
    a single sample."""
    n = sf.count(samples)
    return t95(n - 1) * sf.stddev_samp(samples) / sf.sqrt(n)


def half_width_of_ratio(total: Column, weight: Column) -> Column:
    """Return the half-width around the ratio of two sums. Buckets without weight are not samples."""
    n, weights = sf.count_if(weight > 0), sf.sum(weight)
    mean = sf.sum(total) / weights
    squares = (
        sf.sum(total * total) - 2 * mean * sf.sum(total * weight) + mean * mean * sf.sum(weight * weight)
    )
    deviation = sf.sqrt(sf.greatest(squares, sf.lit(0.0)) * sf.try_divide(n, n - 1))
    return t95(n - 1) * deviation / weights
