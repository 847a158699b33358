"""What a fused block remembers after its last step, compiled."""

from tides.kernels.cpu.intervals import compiled


@compiled
def last_steps(decay, drive, states, frequency, valid, following, out):  # type: ignore[no-untyped-def]
    """out (3, b, p, 2) = s, λ and pending drive of the last valid step of every series, zeros where there is none.

    Inputs are flat rows, one per series; `valid` (b · l), with padding at the end, is empty if all steps are valid.
    """
    batch, modes, zero = out.shape[1], out.shape[2], out.dtype.type(0)
    length = decay.shape[1] // modes
    for b in range(batch):
        count = length
        if valid.size > 0:
            count = 0
            for t in range(b * length, (b + 1) * length):
                count += valid[t]
        out[:, b] = zero
        if count > 0:
            at = (count - 1) * modes
            for p in range(modes):
                out[1, b, p, 0], out[1, b, p, 1] = decay[b, at + p], frequency[p]
                for part in range(2):
                    out[0, b, p, part] = states[b, 2 * (at + p) + part]
                    if following:
                        out[2, b, p, part] = drive[b, 2 * (at + p) + part]
