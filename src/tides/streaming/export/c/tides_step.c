/* One observation through a TIDES model: C99, fixed memory, nothing but the mathematical library. */

#include "tides_layer.h"
#include "tides_weights.h"
#if TIDES_SUMMARY
#include "tides_summary.h"
#endif

static void encode(work_t *w)
{
    for (int k = 0; k < TIDES_ENCODER_DEPTH; k++)
        residual(&encoder_deep[k], w->row, TIDES_INPUTS, w);
    linear(&encoder_last, w->row, TIDES_INPUTS, w->x, H);
}

static void run_blocks(tides_state *state, double gap, work_t *w)
{
    for (int k = 0; k < TIDES_DEPTH; k++)
        run_block(&blocks[k], state->layers[k], gap, w);
}

/* Time units since the last observation, or what stands for it before the first one. */
static int elapsed(const tides_state *state, int64_t t, double *gap)
{
    if (state->started) {
        if (t < state->last)
            return TIDES_TIME_GOES_BACK;
        /* Unsigned, because the difference of two distant times need not fit into int64_t. */
        *gap = (double)((uint64_t)t - (uint64_t)state->last) * TIDES_TICK;
        return TIDES_OK;
    }
    *gap = TIDES_FIRST_FROM_ZERO ? (double)t * TIDES_TICK : TIDES_FIRST_GAP;
    return *gap < 0 ? TIDES_TIME_GOES_BACK : TIDES_OK;
}

static int read_row(const real *x, const unsigned char *observed, double gap, work_t *w)
{
    memset(w->row, 0, sizeof w->row);
    for (int d = 0; d < TIDES_CHANNELS; d++) {
        int seen = observed == NULL || observed[d];
        if (!seen && TIDES_ALL_OBSERVED)
            return TIDES_VALUE_MISSING;
        if (seen) {
            w->row[d] = (x[d] - input_shift[d]) / input_scale[d];
            if (!(w->row[d] < (real)TIDES_LARGEST && w->row[d] > -(real)TIDES_LARGEST))
                return TIDES_VALUE_NOT_FINITE;
        }
        if (TIDES_MASKED)
            w->row[TIDES_CHANNELS + d] = seen ? 1 : 0;
    }
    if (TIDES_GAP_CHANNEL)
        w->row[TIDES_INPUTS - 1] = (real)(gap / TIDES_TIME_SCALE);
    return TIDES_OK;
}

#if TIDES_KIND == TIDES_READOUT
/* The answer `gap` after the last observation; the state stays as it is. */
static void ask(const tides_state *state, double gap, work_t *w, real *out)
{
    memcpy(w->x, state->held, sizeof w->x);
    for (int k = 0; k < TIDES_DEPTH; k++) {
        const real *layer = state->layers[k];
        normalise(&blocks[k], w->x, w->u);
        step_sizes(&blocks[k], w->u, gap / TIDES_TIME_SCALE, w);
        memcpy(w->s, layer, sizeof w->s);
        evolve(w->s, layer + 2 * P, layer + 4 * P, w);
        /* A pending impulse has not happened before any time has passed. */
        for (int p = 0; TIDES_DISCRETISATION == TIDES_DIRAC && p < P; p++) {
            if (!(w->delta[p] > 0)) {
                w->s[2 * p] = layer[2 * p];
                w->s[2 * p + 1] = layer[2 * p + 1];
            }
        }
        read_out(&blocks[k], w->s, w);
        tail(&blocks[k], w);
    }
    linear(&answer_head, w->x, H, out, TIDES_OUTPUTS);
}
#elif TIDES_KIND == TIDES_QUERY_STEPS
/* A query is a row in which nothing is observed, taken in by a copy of the state. */
static void ask(const tides_state *state, double gap, work_t *w, real *out)
{
    tides_state copy = *state;
    memset(w->row, 0, sizeof w->row);
    if (TIDES_QUERY_FLAG)
        w->row[TIDES_INPUTS - 1 - TIDES_GAP_CHANNEL] = 1;
    if (TIDES_GAP_CHANNEL)
        w->row[TIDES_INPUTS - 1] = (real)(gap / TIDES_TIME_SCALE);
    encode(w);
    run_blocks(&copy, gap / TIDES_TIME_SCALE, w);
    linear(&answer_head, w->x, H, out, TIDES_OUTPUTS);
}
#endif

#if TIDES_KIND == TIDES_EVERY_STEP || TIDES_KIND == TIDES_POOLED
/* What the head says of w->x and of the statistics, where it reads them. */
static void answer(const tides_state *state, work_t *w, real *out)
{
#if TIDES_SUMMARY
    real known[H + TIDES_SUMMARY];
    memcpy(known, w->x, H * sizeof(real));
    score(state->summary, known + H);
    linear(&answer_head, known, H + TIDES_SUMMARY, out, TIDES_OUTPUTS);
#else
    (void)state;
    linear(&answer_head, w->x, H, out, TIDES_OUTPUTS);
#endif
}
#endif

void tides_init(tides_state *state)
{
    memset(state, 0, sizeof *state);
#if TIDES_KIND == TIDES_READOUT
    work_t w;
    memset(w.row, 0, sizeof w.row);
    encode(&w);
    memcpy(state->held, w.x, sizeof w.x);
#endif
}

int tides_step(tides_state *state, int64_t t, const tides_real *x, const unsigned char *observed, tides_real *out)
{
    work_t w;
    double gap;
    int status = elapsed(state, t, &gap);
    if (status == TIDES_OK)
        status = read_row(x, observed, gap, &w);
    if (status != TIDES_OK)
        return status;
#if TIDES_SUMMARY
    note(state->summary, w.row, observed, gap / TIDES_TIME_SCALE);
#endif
    encode(&w);
#if TIDES_KIND == TIDES_READOUT
    memcpy(state->held, w.x, sizeof w.x);
#endif
    run_blocks(state, gap / TIDES_TIME_SCALE, &w);
    state->last = t;
    state->started = 1;
#if TIDES_KIND == TIDES_FEATURES
    memcpy(out, w.x, sizeof w.x);
#elif TIDES_KIND == TIDES_EVERY_STEP
    answer(state, &w, out);
#elif TIDES_KIND == TIDES_POOLED
    {
        double share = TIDES_POOL == TIDES_POOL_TIME ? gap : 1.0;
        state->weight += share;
        for (int h = 0; h < H; h++) {
            state->sums[h] += share * (double)w.x[h];
            if (state->weight > 0)
                w.x[h] = (real)(state->sums[h] / state->weight);
        }
        answer(state, &w, out);
    }
#else
    if (out != NULL)
        ask(state, 0.0, &w, out);
#endif
    return TIDES_OK;
}

#if TIDES_KIND == TIDES_READOUT || TIDES_KIND == TIDES_QUERY_STEPS
int tides_peek(const tides_state *state, int64_t t, tides_real *out)
{
    work_t w;
    double gap;
    int status = elapsed(state, t, &gap);
    if (status != TIDES_OK)
        return status;
    /* Before the first observation no time has passed that a readout could know of. */
    ask(state, TIDES_KIND == TIDES_READOUT && !state->started ? 0.0 : gap, &w, out);
    return TIDES_OK;
}
#endif
