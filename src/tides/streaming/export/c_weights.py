"""The weights of a model as a C header, in the order in which `tides_step.c` reads them."""

import torch
from torch import Tensor

from tides.functional.heads import GLUWeights, ModeHead, StepHead
from tides.functional.mixes import DiagonalMix, LowRankMix, Mix, StaticMix, mix_factors
from tides.functional.tail import TailWeights
from tides.kernels.stepping import StepBlock, StepModel
from tides.streaming.export.c_arrays import ArrayWriter

_NOTHING = "{NULL, NULL, NULL}"


def write_weights(model: StepModel, *, double: bool, int8: bool) -> ArrayWriter:
    """All constants of `model`."""
    out = ArrayWriter(double=double, int8=int8)
    out.reals("input_shift", model.scaling[0])
    out.reals("input_scale", model.scaling[1])
    deep = _residuals(out, "encoder_deep", model.encoder)
    if deep == "NULL":
        out.constant("residual_t *const encoder_deep", "NULL")
    out.constant("linear_t encoder_last", out.linear("encoder", *model.encoder_out))
    rows = [_block(out, f"block{k}", block) for k, block in enumerate(model.blocks)]
    out.constant(f"block_t blocks[{len(rows)}]", "{\n" + ",\n".join(rows) + "\n}")
    if model.head is not None:
        out.constant("linear_t answer_head", out.linear("head", *model.head))
    if model.summary is not None:
        out.reals("summary_shift", model.summary[0])
        out.reals("summary_scale", model.summary[1])
    return out


def code_size(mix: Mix) -> int:
    """Entries of z̃: the rank and one, or one where B and C do not depend on the input through it."""
    return int(mix.up.shape[-1]) + 1 if isinstance(mix, LowRankMix) else 1


def _residuals(out: ArrayWriter, name: str, layers: tuple[GLUWeights, ...]) -> str:
    if not layers:
        return "NULL"
    rows = []
    for k, layer in enumerate(layers):
        value = out.linear(f"{name}{k}_value", layer.value, layer.value_bias)
        gate = out.linear(f"{name}{k}_gate", layer.gate, layer.gate_bias)
        rows.append(f"    {{{value}, {gate}}}")
    out.constant(f"residual_t {name}[{len(rows)}]", "{\n" + ",\n".join(rows) + "\n}")
    return name


def _block(out: ArrayWriter, name: str, block: StepBlock) -> str:
    ssm = block.ssm
    parts: dict[str, str] = {}
    if block.affine is not None:
        parts["norm_scale"] = out.reals(f"{name}_norm_scale", block.affine[0])
        parts["norm_shift"] = out.reals(f"{name}_norm_shift", block.affine[1])
    parts["decay"] = _head(out, f"{name}_decay", ssm.decay)
    parts["frequency"] = _head(out, f"{name}_frequency", ssm.frequency)
    if isinstance(ssm.step, StepHead):
        parts["step"] = out.reals(f"{name}_step_gap", ssm.step.weight[:, -1])
        parts["step_head"] = out.linear(f"{name}_step", ssm.step.weight[:, :-1], ssm.step.bias)
    else:
        parts["step"] = out.reals(f"{name}_step", torch.exp(ssm.step.detach().double()))
    parts["drive"] = _mix(out, f"{name}_drive", ssm.drive)
    parts["readout"] = _mix(out, f"{name}_readout", ssm.readout)
    parts["skip"] = out.reals(f"{name}_skip", ssm.skip)
    # Without hidden units only the last bias is left.
    tail = block.tail if isinstance(block.tail, TailWeights) else _bias_alone(block.tail)
    layers = zip(("value", "gate", "out"), tail[::2], tail[1::2], strict=True)
    for part, weight, bias in layers:
        parts[part] = out.linear(f"{name}_{part}", weight, bias)
    return "    {\n" + ",\n".join(f"        .{key} = {value}" for key, value in parts.items()) + "\n    }"


def _bias_alone(bias: Tensor) -> TailWeights:
    none, width = bias.new_zeros(0), bias.numel()
    return TailWeights(bias.new_zeros(0, width), none, bias.new_zeros(0, width), none, bias.new_zeros(width, 0), bias)


def _head(out: ArrayWriter, name: str, head: ModeHead) -> str:
    if head.weight is None:
        return f"{{NULL, {{NULL, NULL, {out.reals(name, head.bias)}}}, NULL}}"
    deep = _residuals(out, f"{name}_deep", head.blocks)
    last = out.linear(name, head.weight, head.bias)
    return f"{{{deep}, {last}, {_optional(out, f'{name}_norm', head.norm)}}}"


def _mix(out: ArrayWriter, name: str, mix: Mix) -> str:
    factors = mix_factors(mix) if isinstance(mix, LowRankMix) else mix.base.unsqueeze(-1)
    # (p, h, 2, i) → [column][code][mode][re, im]
    stored, scale = out.weights(f"{name}_factors", factors.permute(1, 3, 0, 2).contiguous(), (2, 3))
    code = modulation = _NOTHING
    if isinstance(mix, LowRankMix) and mix.down is not None:
        bias = mix.down.new_zeros(mix.down.shape[0]) if mix.down_bias is None else mix.down_bias
        code = out.linear(f"{name}_code", mix.down, bias)
    if isinstance(mix, DiagonalMix):
        modulation = out.linear(f"{name}_modulation", mix.weight.flatten(0, 1), mix.bias.flatten())
    norm = "NULL" if isinstance(mix, StaticMix) else _optional(out, f"{name}_norm", mix.norm)
    return f"{{{stored}, {scale}, {code}, {modulation}, {norm}}}"


def _optional(out: ArrayWriter, name: str, tensor: Tensor | None) -> str:
    return "NULL" if tensor is None else out.reals(name, tensor)
