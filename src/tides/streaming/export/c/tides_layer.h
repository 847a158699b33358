/* The parts of a TIDES block: linear maps, eigenvalues, the evolution of a state over a gap, B_k u and Re(C_k s).
 *
 * Choices and sizes are constants of tides_model.h, so the compiler drops what this model does not use.
 * Complex numbers are pairs (re, im) lying side by side. */

#ifndef TIDES_LAYER_H
#define TIDES_LAYER_H

#include "tides_model.h"

#include <math.h>
#include <string.h>

#if TIDES_DOUBLE
#define REAL(name) name
#else
#define REAL(name) name##f
#endif

#define H TIDES_HIDDEN
#define P TIDES_MODES
#define CODE TIDES_CODE

typedef tides_real real;

/* rows x columns; `scale` holds one factor per row when the matrix is int8. */
typedef struct {
    const tides_weight *matrix;
    const real *scale;
    const real *bias;
} linear_t;

/* x <- x + (W1 x + b1) * sigmoid(W2 x + b2) */
typedef struct {
    linear_t value;
    linear_t gate;
} residual_t;

/* A number per mode: `last.bias` alone where nothing is input-dependent. */
typedef struct {
    const residual_t *deep;
    linear_t last;
    const real *norm;
} head_t;

/* B_k or C_k: factors[column][code][mode][re, im], scaled per [column][code] when int8. */
typedef struct {
    const tides_weight *factors;
    const real *scale;
    linear_t code;
    linear_t modulation;
    const real *norm;
} mix_t;

typedef struct {
    const real *norm_scale;
    const real *norm_shift;
    head_t decay;
    head_t frequency;
    const real *step;
    linear_t step_head;
    mix_t drive;
    mix_t readout;
    const real *skip;
    linear_t value;
    linear_t gate;
    linear_t out;
} block_t;


/* Scratch of one call; lives on the stack. */
typedef struct {
    real row[TIDES_INPUTS];
    real x[H];
    real u[H];
    real y[H];
    real features[H];
    real value[TIDES_WIDEST];
    real gate[TIDES_WIDEST];
    real code[CODE];
    real scaled[CODE];
    real column[2 * P];
    real pairs[2 * P];
    real theta[P];
    real s[2 * P];
    real lam[2 * P];
    real v[2 * P];
    double delta[P];
} work_t;

static void linear(const linear_t *layer, const real *x, int columns, real *out, int rows)
{
    const tides_weight *w = layer->matrix;
    int j = 0;
    for (; j + 4 <= rows; j += 4, w += 4 * columns) {
        real a = 0, b = 0, c = 0, d = 0;
        for (int i = 0; i < columns; i++) {
            a += (real)w[i] * x[i];
            b += (real)w[i + columns] * x[i];
            c += (real)w[i + 2 * columns] * x[i];
            d += (real)w[i + 3 * columns] * x[i];
        }
        out[j] = a;
        out[j + 1] = b;
        out[j + 2] = c;
        out[j + 3] = d;
    }
    for (; j < rows; j++, w += columns) {
        real sum = 0;
        for (int i = 0; i < columns; i++)
            sum += (real)w[i] * x[i];
        out[j] = sum;
    }
    for (j = 0; j < rows; j++)
        out[j] = (TIDES_INT8 ? out[j] * layer->scale[j] : out[j]) + layer->bias[j];
}

static real sigmoid(real x)
{
    return 1 / (1 + REAL(exp)(-x));
}

static real softplus(real x)
{
    return x > 40 ? x : REAL(log1p)(REAL(exp)(x));
}

static void residual(const residual_t *layer, real *x, int n, work_t *w)
{
    linear(&layer->value, x, n, w->value, n);
    linear(&layer->gate, x, n, w->gate, n);
    for (int j = 0; j < n; j++)
        x[j] += w->value[j] * sigmoid(w->gate[j]);
}

static void normalise(const block_t *block, const real *x, real *u)
{
    real mean = 0, square = 0;
    if (TIDES_NORM == TIDES_NORM_BATCH) {
        for (int h = 0; h < H; h++)
            u[h] = x[h] * block->norm_scale[h] + block->norm_shift[h];
        return;
    }
    if (TIDES_NORM == TIDES_NORM_LAYER) {
        for (int h = 0; h < H; h++)
            mean += x[h];
        mean /= H;
    }
    for (int h = 0; h < H; h++)
        square += (x[h] - mean) * (x[h] - mean);
    real factor = 1 / REAL(sqrt)(square / H + (real)TIDES_NORM_EPS);
    for (int h = 0; h < H; h++)
        u[h] = (x[h] - mean) * factor;
}

static void mode_head(const head_t *head, const real *u, work_t *w, real *theta)
{
    if (head->last.matrix == NULL) {
        memcpy(theta, head->last.bias, P * sizeof(real));
        return;
    }
    memcpy(w->features, u, H * sizeof(real));
    for (int k = 0; k < TIDES_DECAY_DEPTH; k++)
        residual(&head->deep[k], w->features, H, w);
    linear(&head->last, w->features, H, theta, P);
    if (head->norm == NULL)
        return;
    real square = 0;
    for (int p = 0; p < P; p++)
        square += theta[p] * theta[p];
    real factor = 1 / REAL(sqrt)(square / P + (real)TIDES_EPS);
    for (int p = 0; p < P; p++)
        theta[p] *= factor * head->norm[p];
}

/* lambda_k = rho(theta_k) + i Im lambda_k */
static void eigenvalues(const block_t *block, const real *u, work_t *w, real *lam)
{
    mode_head(&block->decay, u, w, w->theta);
    for (int p = 0; p < P; p++) {
        real x = w->theta[p];
        if (TIDES_REPARAM == TIDES_REPARAM_EXP)
            x = -REAL(exp)(x);
        else if (TIDES_REPARAM == TIDES_REPARAM_STABLE)
            x = -1 / (x * x + (real)0.5);
        else if (TIDES_REPARAM == TIDES_REPARAM_SOFTPLUS)
            x = -softplus(x);
        if (TIDES_CLIPPED && x > -(real)TIDES_CLIP)
            x = -(real)TIDES_CLIP;
        lam[2 * p] = x;
    }
    mode_head(&block->frequency, u, w, w->theta);
    for (int p = 0; p < P; p++)
        lam[2 * p + 1] = w->theta[p];
}

static void step_sizes(const block_t *block, const real *u, double gap, work_t *w)
{
    if (!TIDES_STEP_HEAD) {
        for (int p = 0; p < P; p++)
            w->delta[p] = gap * (double)block->step[p];
        return;
    }
    linear(&block->step_head, u, H, w->theta, P);
    for (int p = 0; p < P; p++)
        w->delta[p] = (double)softplus(w->theta[p] + (real)gap * block->step[p]);
}

/* s <- lam_bar s + gain v over the steps in w->delta */
static void evolve(real *s, const real *lam, const real *v, const work_t *w)
{
    for (int p = 0; p < P; p++) {
        real d = (real)w->delta[p];
        real a = lam[2 * p] * d, b = lam[2 * p + 1] * d;
        /* Angles in double: a long gap is many turns, and only their remainder matters. */
        double half = 0.5 * w->delta[p] * (double)lam[2 * p + 1];
        real bar_re, bar_im, gain_re, gain_im;
        if (TIDES_DISCRETISATION == TIDES_BILINEAR) {
            real re = 1 - a / 2, im = (real)half, square = re * re + im * im;
            re /= square;
            im /= square;
            bar_re = 2 * re - 1;
            bar_im = 2 * im;
            gain_re = d * re;
            gain_im = d * im;
        } else {
            real turn = (real)(TIDES_DOUBLE ? half : fmod(half, 6.283185307179586));
            real sine = REAL(sin)(turn), cosine = REAL(cos)(turn);
            real e = REAL(exp)(a), grown = REAL(expm1)(a), versine = 2 * sine * sine;
            bar_re = e - e * versine;
            bar_im = 2 * sine * cosine * e;
            if (TIDES_DISCRETISATION == TIDES_DIRAC) {
                gain_re = TIDES_FOLLOWING ? bar_re : 1;
                gain_im = TIDES_FOLLOWING ? bar_im : 0;
            } else {
                /* gain = d (e^z - 1)/z without cancellation, z = a + ib */
                real re = grown - grown * versine - versine, square = a * a + b * b;
                int small = square < (real)1e-30;
                real factor = d / (small ? 1 : square);
                gain_re = small ? d + d * a / 2 : (re * a + bar_im * b) * factor;
                gain_im = small ? d * b / 2 : (bar_im * a - re * b) * factor;
            }
        }
        real x = s[2 * p], y = s[2 * p + 1];
        s[2 * p] = bar_re * x - bar_im * y + gain_re * v[2 * p] - gain_im * v[2 * p + 1];
        s[2 * p + 1] = bar_re * y + bar_im * x + gain_re * v[2 * p + 1] + gain_im * v[2 * p];
    }
}

static void make_code(const mix_t *mix, const real *u, real *code)
{
    if (TIDES_MIX == TIDES_MIX_LOW_RANK)
        linear(&mix->code, u, H, code, CODE - 1);
    else if (TIDES_MIX == TIDES_MIX_FULL)
        memcpy(code, u, (CODE - 1) * sizeof(real));
    code[CODE - 1] = 1;
}

/* Column h of B_k (row h of C_k) into w->column; returns what the norm over the modes multiplies it with. */
static real column(const mix_t *mix, int h, work_t *w)
{
    const tides_weight *factors = mix->factors + (size_t)h * 2 * P * CODE;
    real square = 0;
    for (int i = 0; i < CODE; i++)
        w->scaled[i] = TIDES_INT8 ? w->code[i] * mix->scale[h * CODE + i] : w->code[i];
    int j = 0;
    /* Four sums at a time stay in registers and share the loads of the code. */
    for (; j + 4 <= 2 * P; j += 4) {
        real a = 0, b = 0, c = 0, d = 0;
        const tides_weight *at = factors + j;
        for (int i = 0; i < CODE; i++) {
            real factor = w->scaled[i];
            a += (real)at[0] * factor;
            b += (real)at[1] * factor;
            c += (real)at[2] * factor;
            d += (real)at[3] * factor;
            at += 2 * P;
        }
        w->column[j] = a;
        w->column[j + 1] = b;
        w->column[j + 2] = c;
        w->column[j + 3] = d;
    }
    for (; j < 2 * P; j++) {
        real sum = 0;
        for (int i = 0; i < CODE; i++)
            sum += (real)factors[i * 2 * P + j] * w->scaled[i];
        w->column[j] = sum;
    }
    for (j = 0; TIDES_COLUMN_NORM && j < 2 * P; j++)
        square += w->column[j] * w->column[j];
    return TIDES_COLUMN_NORM ? 1 / REAL(sqrt)(square / P + (real)TIDES_EPS) : 1;
}

/* Per mode: the norm's weight, or the diagonal modulation b_k of rank "diag". */
static void weigh_modes(const mix_t *mix, const real *u, work_t *w, real *pairs)
{
    if (TIDES_COLUMN_NORM) {
        for (int p = 0; p < P; p++) {
            pairs[2 * p] *= mix->norm[p];
            pairs[2 * p + 1] *= mix->norm[p];
        }
    }
    if (TIDES_MIX != TIDES_MIX_DIAG)
        return;
    real *modulation = w->column, factor = 1;
    linear(&mix->modulation, u, H, modulation, 2 * P);
    if (mix->norm != NULL) {
        real square = 0;
        for (int j = 0; j < 2 * P; j++)
            square += modulation[j] * modulation[j];
        factor = 1 / REAL(sqrt)(square / P + (real)TIDES_EPS);
    }
    for (int p = 0; p < P; p++) {
        real weight = mix->norm == NULL ? factor : factor * mix->norm[p];
        real re = modulation[2 * p] * weight, im = modulation[2 * p + 1] * weight;
        real x = pairs[2 * p], y = pairs[2 * p + 1];
        pairs[2 * p] = re * x - im * y;
        pairs[2 * p + 1] = re * y + im * x;
    }
}

/* v = B_k u */
static void drive(const mix_t *mix, const real *u, work_t *w, real *v)
{
    make_code(mix, u, w->code);
    memset(v, 0, 2 * P * sizeof(real));
    for (int h = 0; h < H; h++) {
        real factor = column(mix, h, w) * u[h];
        for (int j = 0; j < 2 * P; j++)
            v[j] += factor * w->column[j];
    }
    weigh_modes(mix, u, w, v);
}

/* y = Re(C_k s) + skip u */
static void read_out(const block_t *block, const real *s, work_t *w)
{
    memcpy(w->pairs, s, 2 * P * sizeof(real));
    weigh_modes(&block->readout, w->u, w, w->pairs);
    make_code(&block->readout, w->u, w->code);
    for (int h = 0; h < H; h++) {
        real factor = (real)TIDES_OUTPUT_FACTOR * column(&block->readout, h, w), sum = 0;
        for (int p = 0; p < P; p++)
            sum += w->column[2 * p] * w->pairs[2 * p] - w->column[2 * p + 1] * w->pairs[2 * p + 1];
        w->y[h] = factor * sum + block->skip[h] * w->u[h];
    }
}

/* x <- x + GLU(GELU(y)) */
static void tail(const block_t *block, work_t *w)
{
    for (int h = 0; h < H; h++)
        w->y[h] *= (real)0.5 + (real)0.5 * REAL(erf)(w->y[h] * (real)0.7071067811865476);
    linear(&block->value, w->y, H, w->value, TIDES_INNER);
    linear(&block->gate, w->y, H, w->gate, TIDES_INNER);
    for (int j = 0; j < TIDES_INNER; j++)
        w->value[j] *= sigmoid(w->gate[j]);
    linear(&block->out, w->value, TIDES_INNER, w->y, H);
    for (int h = 0; h < H; h++)
        w->x[h] += w->y[h];
}

static void run_block(const block_t *block, real *layer, double gap, work_t *w)
{
    /* A layer keeps s, and the pending pair (lambda, v) where an observation drives the interval after it. */
    real *lam = TIDES_FOLLOWING ? layer + 2 * P : w->lam;
    real *v = TIDES_FOLLOWING ? layer + 4 * P : w->v;
    normalise(block, w->x, w->u);
    step_sizes(block, w->u, gap, w);
    if (TIDES_FOLLOWING)
        evolve(layer, lam, v, w);
    eigenvalues(block, w->u, w, lam);
    drive(&block->drive, w->u, w, v);
    if (!TIDES_FOLLOWING)
        evolve(layer, lam, v, w);
    read_out(block, layer, w);
    tail(block, w);
}

#endif
