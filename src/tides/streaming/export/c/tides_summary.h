/* Statistics of what was observed, which the head reads beside the pooled features; in double, about running means. */

#ifndef TIDES_SUMMARY_H
#define TIDES_SUMMARY_H

#include "tides_layer.h"

#define D TIDES_CHANNELS
/* One of each per channel, in this order, then four of the stream. */
enum { COUNT, MEAN, SQUARE, TIME, WIDTH, CROSS, FIRST, LAST, LEAST, MOST, STEPS = TIDES_SUMS * D, SPAN, LOGS = STEPS + 3 };

/* Scaled values row[D] of one observation; `gap` time scales after the last one. */
static void note(double *sums, const real *row, const unsigned char *observed, double gap)
{
    if (sums[STEPS] > 0) {
        sums[SPAN] += gap;
        sums[LOGS] += log(gap > TIDES_SHORTEST ? gap : TIDES_SHORTEST);
    }
    sums[STEPS] += 1;
    for (int d = 0; d < D; d++) {
        double *sum = sums + d;
        double x = (double)row[d], before = sum[COUNT * D], count = before + 1, weight = before / count;
        double dx = x - sum[MEAN * D], dt = sums[SPAN] - sum[TIME * D];
        if (observed != NULL && !observed[d])
            continue;
        sum[COUNT * D] = count;
        sum[MEAN * D] += dx / count;
        sum[SQUARE * D] += dx * dx * weight;
        sum[TIME * D] += dt / count;
        sum[WIDTH * D] += dt * dt * weight;
        sum[CROSS * D] += dx * dt * weight;
        sum[LAST * D] = x;
        if (before == 0)
            sum[FIRST * D] = sum[LEAST * D] = sum[MOST * D] = x;
        if (x < sum[LEAST * D])
            sum[LEAST * D] = x;
        if (x > sum[MOST * D])
            sum[MOST * D] = x;
    }
}

/* Standard deviations from the mean of the training series, which hardly grow beyond TIDES_LARGEST_SCORE. */
static real bounded(double found, int at)
{
    double z = (found - (double)summary_shift[at]) / (double)summary_scale[at];
    return (real)(TIDES_LARGEST_SCORE * tanh(z / TIDES_LARGEST_SCORE));
}

/* out[TIDES_STATISTICS * D + 4]; a channel without values has a count, and scores of zero. */
static void score(const double *sums, real *out)
{
    double gaps = sums[STEPS] > 2 ? sums[STEPS] - 1 : 1;
    int at = TIDES_STATISTICS * D;
    for (int d = 0; d < D; d++) {
        const double *sum = sums + d;
        double count = sum[COUNT * D];
        double found[TIDES_STATISTICS] = {count, sum[MEAN * D], 0, sum[FIRST * D], sum[LAST * D], sum[LEAST * D],
                                          sum[MOST * D], sum[CROSS * D] / (sum[WIDTH * D] + 1)};
        if (count > 0)
            found[2] = sqrt(sum[SQUARE * D] / count + TIDES_SMALLEST_SQUARE);
        for (int k = 0; k < TIDES_STATISTICS; k++)
            out[k * D + d] = k == 0 || count > 0 ? bounded(found[k], k * D + d) : 0;
    }
    out[at] = bounded(sums[STEPS], at);
    out[at + 1] = bounded(sums[SPAN], at + 1);
    out[at + 2] = bounded(sums[SPAN] / gaps, at + 2);
    out[at + 3] = bounded(sums[LOGS] / gaps, at + 3);
}

#undef D

#endif
