"""Every numerical tolerance of the test suite. They fail hard; a looser one needs a reason beside it."""

# Two float64 evaluations of the same formula, relative to the largest entry.
EXACT = 1e-12
# The authors' checkpoints: outputs, input gradient and parameter gradients in float64, as specified.
GOLDEN = 1e-9
# Identities that pass through a chain of layers in float64.
IDENTITY = 1e-10
# float32 backends against the float64 oracle.
FLOAT32_FORWARD = 1e-5
FLOAT32_GRADIENT = 1e-4
