"""How a model lies in flat arrays for the compiled step: what the columns of its plan and of its settings mean.

Weights lie in one flat array, section behind section; `plan` has a row of sizes and offsets per block, and a last one
for the whole model.
"""

# Columns of `plan`.
(NORM, DECAY, DECAY_DEPTH, DECAY_SELECTIVE, DECAY_NORMED, FREQUENCY, FREQUENCY_DEPTH, FREQUENCY_SELECTIVE,
 FREQUENCY_NORMED, STEP, STEP_HEAD, DRIVE, DRIVE_KIND, DRIVE_RANK, DRIVE_FORMS, READOUT, READOUT_KIND, READOUT_RANK,
 READOUT_FORMS, SKIP, TAIL, TAIL_WIDTH, PLAN_SIZE) = range(23)  # fmt: skip
# Columns of its last row.
(METHOD, FOLLOWING, REPARAM, NORM_KIND, ENCODER, ENCODER_DEPTH, HEAD, POOL, SCALING, INPUTS, MASKED, GAP_CHANNEL,
 STATIC, SUMMARY) = range(14)  # fmt: skip
NO_POOL, MEAN_POOL, LAST_POOL, TIME_POOL = 0, 1, 2, 3
# Numbers of `settings`.
(EPS, NORM_EPS, CLIP, OUTPUT_FACTOR, TIME_SCALE) = range(5)
# What a compiled call says of its input.
FINE, BAD_VALUE, BAD_GAP, BAD_ROW = 0, 1, 2, 3
# Rows of scratch that every call needs, in the data's precision and in float64.
SCRATCH_ROWS, PRECISE_ROWS = 24, 5
