"""Importing checkpoints of the authors' public code: constructor arguments and parameter names → our modules."""

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from tides.artefacts.folder import register_model
from tides.errors import ConfigError, DataError
from tides.nn import SSM, Backbone, Block, SequenceClassifier, TIDESConfig
from tides.nn.glu import FeedForwardGLU, ResidualGLU
from tides.nn.norm import MaskedBatchNorm
from tides.nn.projections import MixProjector, ModeProjector, StaticModes, StaticProjection

_RELEASE_CLIP = 1e-4
_VARIANTS = {
    # (Re Λ, Im Λ, B and C, step) input-dependent?
    (False, False, False, False): "s5",
    (True, False, False, False): "tides-lambda",
    (False, False, True, False): "tides-bc",
    (True, False, True, False): "tides",
    (True, True, True, False): "tides-full",
    (False, False, True, True): "mamba-s",
}


class Slot(NamedTuple):
    """One of our tensors and how the release lays it out."""

    tensor: Tensor
    transposed: bool = False
    """C and its head are (h, p, 2[, r]) there and (p, h, 2[, r]) here."""

    def arrange(self, source: Tensor) -> Tensor:
        """A release tensor in our layout: heads unflattened, the state axis first."""
        if not self.transposed:
            return source.reshape(self.tensor.shape)
        p, h, *rest = self.tensor.shape
        return source.reshape(h, p, *rest).transpose(0, 1)


class StepwiseForecaster(nn.Module):
    """The release's forecaster: a linear map of the features at every step (queries are steps of the timeline)."""

    def __init__(self, config: TIDESConfig, channels: int) -> None:
        super().__init__()
        self.config, self.channels = config, channels
        self.backbone = Backbone(config)
        self.head = nn.Linear(config.hidden_size, channels)

    def forward(self, x: Tensor, gaps: Tensor) -> Tensor:
        features, _ = self.backbone(x, gaps)
        answer: Tensor = self.head(features)
        return answer


register_model(
    "stepwise-forecaster",
    StepwiseForecaster,
    lambda model: {"config": model.config.to_dict(), "channels": model.channels},
    lambda config: StepwiseForecaster(TIDESConfig.from_dict(config["config"]), config["channels"]),
)


_NEEDED = {
    "backbone": ("d_input", "d_hidden", "ssm_size"),
    "classifier": ("num_classes",),
    "forecaster": (),
}
_CHOICES = {
    "kind": tuple(_NEEDED),
    "mode": ("train", "eval"),
    "lambda_re_mode": ("lti", "input_dependent"),
    "lambda_im_mode": ("lti", "input_dependent"),
    "bc_mode": ("lti", "input_dependent"),
    "step_mode": ("lti", "input_dependent"),
    "proj_norm": ("rmsnorm",),
}
_ARGUMENTS = {
    *_CHOICES,
    *("d_input", "d_hidden", "ssm_size", "ssm_blocks", "num_blocks", "num_classes", "encoder_depth"),
    *("lambda_encoder_depth", "conj_sym", "clip_eigs", "discretization", "learn_lambda", "bidir", "bc_rank"),
    *("ff_mult", "drop_rate", "dt_min", "dt_max", "proj_init_method"),
}
_NEVER_READ = ("ssm.Lambda_re", "ssm.Lambda_im", "ssm.B", "ssm.C", "ssm.log_step", "norm.num_batches_tracked")
"""What a checkpoint holds beside the heads that replace it, and a count."""


def from_release(config: Mapping[str, Any], state_dict: Mapping[str, Any]) -> nn.Module:
    """Our module with the weights of the authors' release, under `compat="release"`.

    `config` holds the release's keyword arguments and `kind`: `backbone`, `classifier` or `forecaster`. The module is
    in the dtype of the checkpoint, and in training mode unless `config` says `mode="eval"`. Arguments that the release
    does not have raise `ConfigError`, tensors that are missing or have no place in such a model `DataError`.
    """
    _check_arguments(config)
    state_dict = {name: torch.as_tensor(value) for name, value in state_dict.items()}
    kind = config.get("kind", "backbone")
    missing = [name for name in (*_NEEDED["backbone"], *_NEEDED[kind]) if name not in config]
    if missing:
        raise ConfigError(f"{missing[0]}: missing among the release's arguments of a {kind}")
    if kind == "forecaster" and "output_proj.weight" not in state_dict:
        raise DataError("state_dict: 'output_proj.weight' is missing")
    ours = _translate(config)
    model: nn.Module
    if kind == "backbone":
        model = backbone = Backbone(ours)
        prefix = ""
    elif kind == "classifier":
        classifier = SequenceClassifier(ours, int(config["num_classes"]))
        model, backbone, prefix = classifier, classifier.backbone, "backbone."
    else:
        forecaster = StepwiseForecaster(ours, int(state_dict["output_proj.weight"].shape[0]))
        model, backbone, prefix = forecaster, forecaster.backbone, "tides."
    model.to(next((tensor.dtype for tensor in state_dict.values() if tensor.is_floating_point()), torch.float32))
    names = release_names(model, backbone, prefix)
    with torch.no_grad():
        for name, slot in names.items():
            if name not in state_dict:
                raise DataError(f"state_dict: {name!r} is missing")
            if state_dict[name].numel() != slot.tensor.numel():
                found, wanted = state_dict[name].numel(), slot.tensor.numel()
                raise DataError(f"state_dict: {name!r} has {found} numbers, wanted {wanted} for these arguments")
            slot.tensor.copy_(slot.arrange(state_dict[name]))
    _check_all_read(state_dict.keys() - names.keys())
    return model.train(config.get("mode", "train") == "train")


def _check_arguments(config: Mapping[str, Any]) -> None:
    for name in config:
        if name not in _ARGUMENTS:
            nearest = difflib.get_close_matches(str(name), _ARGUMENTS, n=1)
            hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
            raise ConfigError(f"{name}: no argument of the release{hint}")
    for name, choices in _CHOICES.items():
        value = config.get(name)
        if value is not None and value not in choices:
            raise ConfigError(f"{name}: found {value!r}, wanted {', '.join(choices)}")


def _check_all_read(left: Iterable[str]) -> None:
    """A tensor that nothing was made of says that the arguments are those of another model."""
    for name in sorted(left):
        if not name.endswith(_NEVER_READ):
            raise DataError(f"state_dict: {name!r} has no place in a model of these arguments")


def release_names(model: nn.Module, backbone: Backbone, prefix: str) -> dict[str, Slot]:
    """The release's name of every parameter and running statistic of `model`."""
    names: dict[str, Slot] = {}
    *deep, linear = backbone.encoder
    for index, layer in enumerate(deep):
        _name_glu(names, f"{prefix}encoder.glu_layers.{index}", layer)
    _name_linear(names, f"{prefix}encoder.linear", linear)
    for index, block in enumerate(backbone.blocks):
        assert isinstance(block, Block)
        _name_block(names, f"{prefix}blocks.{index}", block)
    if isinstance(model, SequenceClassifier):
        _name_linear(names, "head", model.head)
    if isinstance(model, StepwiseForecaster):
        _name_linear(names, "output_proj", model.head)
    return names


def _name_block(names: dict[str, Slot], at: str, block: Block) -> None:
    if isinstance(block.norm, MaskedBatchNorm):
        names[f"{at}.norm.running_mean"] = Slot(block.norm.running_mean)
        names[f"{at}.norm.running_var"] = Slot(block.norm.running_var)
    _name_feed_forward(names, f"{at}.glu", block.glu)
    _name_ssm(names, f"{at}.ssm", block.ssm)


def _name_ssm(names: dict[str, Slot], at: str, ssm: SSM) -> None:
    names[f"{at}.D"] = Slot(ssm.skip)
    if ssm.log_step is None:
        names[f"{at}.step_proj.weight"], names[f"{at}.step_proj.bias"] = Slot(ssm.step_weight), Slot(ssm.step_bias)
    else:
        names[f"{at}.log_step"] = Slot(ssm.log_step.value)
    for ours, static, part in ((ssm.decay, "Lambda_re", "lambda_re"), (ssm.frequency, "Lambda_im", "lambda_im")):
        if isinstance(ours, StaticModes):
            names[f"{at}.{static}"] = Slot(ours.value)
        elif isinstance(ours, ModeProjector):
            for index, block in enumerate(ours.blocks):
                _name_glu(names, f"{at}.{part}_proj.glu_layers.{index}", block)
            names[f"{at}.{part}_proj.linear.weight"] = Slot(ours.weight)
            names[f"{at}.{part}_proj.linear.bias"] = Slot(ours.bias)
            if ours.norm is not None:
                names[f"{at}.{part}_norm.weight"] = Slot(ours.norm)
    _name_mix(names, at, ssm.drive, "B", "b")
    _name_mix(names, at, ssm.readout, "C", "c", transposed=True)


def _name_mix(
    names: dict[str, Slot],
    at: str,
    mix: MixProjector | StaticProjection,
    static: str,
    part: str,
    transposed: bool = False,
) -> None:
    if isinstance(mix, StaticProjection):
        names[f"{at}.{static}"] = Slot(mix.base, transposed)
        return
    if mix.norm is not None:
        names[f"{at}.{part}_norm.weight"] = Slot(mix.norm)
    if mix.rank == "diag":
        names[f"{at}.{static}"] = Slot(mix.base, transposed)
        names[f"{at}.{part}_proj.up.weight"], names[f"{at}.{part}_proj.up.bias"] = Slot(mix.up), Slot(mix.bias)
        return
    names[f"{at}.{part}_proj.up.weight"] = Slot(mix.up, transposed)
    names[f"{at}.{part}_proj.up.bias"] = Slot(mix.base, transposed)
    if mix.down is not None:
        _name_linear(names, f"{at}.{part}_proj.down", mix.down)


def _name_glu(names: dict[str, Slot], at: str, block: nn.Module) -> None:
    assert isinstance(block, ResidualGLU)
    _name_linear(names, f"{at}.w1", block.value)
    _name_linear(names, f"{at}.w2", block.gate)


def _name_feed_forward(names: dict[str, Slot], at: str, glu: FeedForwardGLU) -> None:
    if glu.value is None or glu.gate is None or glu.out is None:
        assert glu.bias is not None
        names[f"{at}.proj.bias"] = Slot(glu.bias)
        return
    _name_linear(names, f"{at}.w1", glu.value)
    _name_linear(names, f"{at}.w2", glu.gate)
    _name_linear(names, f"{at}.proj", glu.out)


def _name_linear(names: dict[str, Slot], at: str, linear: nn.Module) -> None:
    assert isinstance(linear, nn.Linear)
    names[f"{at}.weight"], names[f"{at}.bias"] = Slot(linear.weight), Slot(linear.bias)


def _translate(config: Mapping[str, Any]) -> TIDESConfig:
    def selective(key: str) -> bool:
        return bool(config.get(key) == "input_dependent")

    flags = (selective("lambda_re_mode"), selective("lambda_im_mode"), selective("bc_mode"), selective("step_mode"))
    if flags not in _VARIANTS:
        raise ConfigError(f"lambda_re_mode, lambda_im_mode, bc_mode, step_mode: no variant is selective in {flags}")
    bc_rank = int(config.get("bc_rank", 0))
    rank: int | Literal["full", "diag"] = bc_rank if bc_rank > 0 else "full" if bc_rank == 0 else "diag"
    fields: dict[str, Any] = {
        "compat": "release",
        "input_size": int(config["d_input"]),
        "hidden_size": int(config["d_hidden"]),
        "state_size": int(config["ssm_size"]),
        "groups": int(config.get("ssm_blocks", 1)),
        "depth": int(config.get("num_blocks", 1)),
        "rank": rank,
        "variant": _VARIANTS[flags],
        "reparam": config.get("learn_lambda") or "standard",
        "discretisation": config.get("discretization", "zoh"),
        "bidirectional": bool(config.get("bidir", False)),
        "encoder_depth": int(config.get("encoder_depth", 0)),
        "decay_depth": int(config.get("lambda_encoder_depth", 0)),
        "expand": float(config.get("ff_mult", 1.0)),
        "dropout": float(config.get("drop_rate", 0.0)),
        "projector_norm": config.get("proj_norm") == "rmsnorm",
        "projector_init": config.get("proj_init_method", "zeros"),
        "conjugate": bool(config.get("conj_sym", False)),
        "clip": _RELEASE_CLIP if config.get("clip_eigs") else None,
    }
    if fields["variant"] != "mamba-s":
        fields["step_init"] = (float(config.get("dt_min", 1e-3)), float(config.get("dt_max", 1e-1)))
    return TIDESConfig(**fields)
