"""A block for one observation, and for a moment between two of them, compiled.

States are planes (6, block · mode): s, λ and drive. `wide` is scratch of rows ≥ every size. The column norms' quadratic
forms lie in an array of their own, in float64.
"""

from tides.kernels.cpu.elementary import normal
from tides.kernels.cpu.intervals import compiled
from tides.kernels.cpu.step_parts import (
    add_tail,
    apply_mix,
    evolve,
    inverse_rms,
    let_pass,
    make_code,
    mode_head,
    normalise,
    reparameterise,
    selected_steps,
)
from tides.kernels.cpu.step_plan import (
    CLIP,
    DECAY,
    DECAY_DEPTH,
    DECAY_NORMED,
    DECAY_SELECTIVE,
    DRIVE,
    DRIVE_FORMS,
    DRIVE_KIND,
    DRIVE_RANK,
    EPS,
    FOLLOWING,
    FREQUENCY,
    FREQUENCY_DEPTH,
    FREQUENCY_NORMED,
    FREQUENCY_SELECTIVE,
    METHOD,
    NORM,
    NORM_EPS,
    NORM_KIND,
    OUTPUT_FACTOR,
    READOUT,
    READOUT_FORMS,
    READOUT_KIND,
    READOUT_RANK,
    REPARAM,
    SKIP,
    STEP,
    STEP_HEAD,
    TAIL,
    TAIL_WIDTH,
)


@compiled
def run_block(plan, spec, settings, weights, forms, x, gap, begin, end, flat, asked, wide, half, precise):  # type: ignore[no-untyped-def]
    """A block whose modes are [begin, end) takes in x (h), which becomes its output.

    When it is only `asked` what it would give for x at this moment, the state takes in nothing; where the gap alone
    decides, it has been taken to this moment already.
    """
    n, modes = x.size, end - begin
    decay, frequency, planes = flat[2, begin:end], flat[3, begin:end], wide[12:18]
    real = x.dtype.type
    u, y, inverse, pairs = wide[3, :n], wide[4, :n], wide[5, :n], wide[6, : 2 * modes]
    code, mixed, coefficients, work = wide[7], wide[8], wide[9], wide[:3]
    normalise(spec[NORM_KIND], weights, plan[NORM], settings[NORM_EPS], x, u)
    if plan[STEP_HEAD]:
        selected_steps(weights, plan[STEP], u, gap, planes[1, begin:end], half[begin:end])
        if asked:
            let_pass(spec[METHOD], begin, end, planes, half, flat)
        elif spec[FOLLOWING]:
            evolve(spec[METHOD], True, begin, end, planes, half, flat)
    if not asked:
        mode_head(
            weights, plan[DECAY], plan[DECAY_DEPTH], plan[DECAY_SELECTIVE], plan[DECAY_NORMED], settings[EPS], u,
            decay, work,
        )  # fmt: skip
        reparameterise(decay, spec[REPARAM], real(settings[CLIP]))
        mode_head(
            weights, plan[FREQUENCY], plan[FREQUENCY_DEPTH], plan[FREQUENCY_SELECTIVE], plan[FREQUENCY_NORMED],
            settings[EPS], u, frequency, work,
        )  # fmt: skip
        size, at = make_code(weights, plan[DRIVE], plan[DRIVE_KIND], plan[DRIVE_RANK], u, code)
        mixed[:n] = u
        if plan[DRIVE_FORMS] >= 0:
            inverse_rms(forms, plan[DRIVE_FORMS], code, size, precise, inverse)
            for h in range(n):
                mixed[h] *= inverse[h]
        apply_mix(weights, at, code, size, mixed, n, pairs, 2 * modes, coefficients)
        for p in range(modes):
            flat[4, begin + p], flat[5, begin + p] = pairs[2 * p], pairs[2 * p + 1]
        if not spec[FOLLOWING]:
            evolve(spec[METHOD], False, begin, end, planes, half, flat)
            flat[4:, begin:end] = real(0)
    size, at = make_code(weights, plan[READOUT], plan[READOUT_KIND], plan[READOUT_RANK], u, code)
    for p in range(modes):
        mixed[2 * p], mixed[2 * p + 1] = flat[0, begin + p], flat[1, begin + p]
    apply_mix(weights, at, code, size, mixed, 2 * modes, y, n, coefficients)
    if plan[READOUT_FORMS] >= 0:
        inverse_rms(forms, plan[READOUT_FORMS], code, size, precise, inverse)
        for h in range(n):
            y[h] *= inverse[h]
    factor = real(settings[OUTPUT_FACTOR])
    skip = weights[plan[SKIP] : plan[SKIP] + n]
    for h in range(n):
        y[h] = factor * y[h] + skip[h] * u[h]
    for h in range(n):
        y[h] *= normal(y[h])[0]
    add_tail(weights, plan[TAIL], plan[TAIL_WIDTH], y, x, work)
