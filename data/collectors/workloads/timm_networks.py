"""Networks of the package timm, with random weights: one of each of many architecture families.

None of them is in forerun's own zoo, so that both together show how far a device's times carry from
one family to another. Architectures are those that timm builds by these names (Apache-2.0).
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from forerun.data.collectors.workloads.torch_networks import Definition

if TYPE_CHECKING:
    from torch import nn

_SHAPES: Final[Mapping[str, tuple[int, float]]] = {
    "bat_resnext26ts": (256, 5),
    "beitv2_base_patch16_224": (224, 35),
    "botnet26t_256": (256, 6.6),
    "caformer_s18": (224, 8.3),
    "cait_xxs24_224": (224, 5.1),
    "coat_lite_small": (224, 7.9),
    "convformer_s18": (224, 8),
    "convit_small": (224, 12),
    "convmixer_1024_20_ks9_p14": (224, 12),
    "crossvit_15_240": (240, 12),
    "cs3darknet_m": (256, 4.2),
    "cspdarknet53": (256, 13),
    "cspresnext50": (256, 8.1),
    "darknet53": (256, 19),
    "davit_tiny": (224, 9.1),
    "deit3_base_patch16_224": (224, 35),
    "densenetblur121d": (224, 6.2),
    "dla60": (224, 8.5),
    "dpn68": (224, 4.7),
    "ecaresnet50t": (256, 11),
    "edgenext_small": (256, 2.5),
    "efficientformer_l1": (224, 2.6),
    "efficientformerv2_s1": (224, 1.3),
    "efficientnetv2_s": (288, 9.5),
    "efficientvit_b1": (224, 1.1),
    "ese_vovnet19b_dw": (224, 2.7),
    "eva02_small_patch14_224": (224, 12),
    "fasternet_t2": (224, 3.8),
    "fbnetv3_b": (224, 0.84),
    "flexivit_small": (240, 11),
    "focalnet_tiny_srf": (224, 8.9),
    "gcresnet50t": (256, 11),
    "gcvit_tiny": (224, 9.6),
    "ghostnetv2_160": (224, 0.83),
    "gmlp_s16_224": (224, 8.8),
    "halonet26t": (256, 6.4),
    "hardcorenas_f": (224, 0.7),
    "hgnet_small": (224, 17),
    "hrnet_w18": (224, 8.6),
    "inception_v3": (299, 11),
    "inception_next_tiny": (224, 8.4),
    "lambda_resnet26t": (256, 6),
    "lcnet_150": (224, 0.68),
    "levit_256": (224, 2.3),
    "mixnet_l": (224, 1.1),
    "mnasnet_100": (224, 0.64),
    "mobilenetv3_large_100": (224, 0.45),
    "mobilenetv4_conv_medium": (256, 2.2),
    "mobileone_s1": (224, 1.7),
    "mobilevit_s": (256, 4.1),
    "mobilevitv2_100": (256, 3.7),
    "mvitv2_tiny": (224, 9.4),
    "nest_tiny": (224, 12),
    "nextvit_small": (224, 12),
    "nf_resnet50": (256, 11),
    "pit_s_224": (224, 5.8),
    "poolformer_s24": (224, 6.8),
    "pvt_v2_b1": (224, 4.2),
    "rdnet_tiny": (224, 10),
    "regnetx_032": (224, 6.4),
    "regnety_016": (224, 3.3),
    "regnety_080": (224, 16),
    "regnetz_b16": (224, 2.9),
    "repghostnet_200": (224, 1.1),
    "repvgg_b0": (224, 6.8),
    "res2net50_26w_4s": (224, 8.6),
    "resmlp_24_224": (224, 12),
    "resnetaa50": (224, 10),
    "resnetrs50": (160, 4.6),
    "resnetv2_50": (224, 8.2),
    "rexnet_150": (224, 1.8),
    "sequencer2d_s": (224, 17),
    "seresnet50": (224, 8.2),
    "seresnext26ts": (256, 4.8),
    "shvit_s3": (224, 1.2),
    "skresnet34": (224, 7.4),
    "starnet_s2": (224, 1.1),
    "swiftformer_s": (224, 2),
    "swin_tiny_patch4_window7_224": (224, 9),
    "swin_base_patch4_window7_224": (224, 31),
    "swinv2_tiny_window8_256": (256, 12),
    "tiny_vit_11m_224": (224, 4.1),
    "tnt_s_patch16_224": (224, 11),
    "tresnet_m": (224, 12),
    "twins_svt_small": (224, 5.9),
    "visformer_small": (224, 9.8),
    "vitamin_small_224": (224, 12),
    "vovnet39a": (224, 14),
    "xception41": (299, 19),
    "samvit_base_patch16_224": (224, 35),
}
"""Name in timm -> side of its images, pixels, and GFLOPs of one forward pass of one image."""


def _built(name: str) -> "nn.Module":
    from timm import create_model

    network: nn.Module = create_model(name)
    return network


def _definition(name: str, side: int, gflops: float) -> Definition:
    build: Callable[[], nn.Module] = partial(_built, name)
    return Definition(build, (3, side, side), gflops=gflops)


TIMM_NETWORKS: Mapping[str, Definition] = {
    name: _definition(name, side, gflops) for name, (side, gflops) in _SHAPES.items()
}
"""Name in timm -> network, which is built only where timm is installed."""
