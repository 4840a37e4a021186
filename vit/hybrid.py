"""The ResNet in front of the paper's hybrids, whose feature map is cut into patches in place of the
picture (Dosovitskiy et al. 2021, section 3.1).

It is the authors' ResNetV2 (BiT, Kolesnikov et al. 2020, arXiv:1912.11370): standardised filters,
no biases, a GroupNorm behind every convolution, and the ReLU behind the sum.

Shape legend
    B  photos in a batch      H, W  height and width of the picture in pixels
    K  channels of a map      h, w  rows and columns of tokens      D  width of a token

Parameters carry timm's names (`backbone.stages.0.blocks.1.conv2`), so that published weights load
with `strict=True`.
"""

from collections import OrderedDict
from itertools import pairwise

from torch import Tensor, nn
from torch.nn import functional as F

ROOT_CHANNELS = 64
STAGE_CHANNELS = (256, 512, 1024, 2048)
NORM_GROUPS = 32
# timm's place and value. The authors' Flax code adds 1e-5 to the standard deviation instead, which
# has no gradient where a filter is constant; on random weights that moves the logits by 1e-4 of
# their spread.
VARIANCE_EPS = 1e-8


def pixels_per_step(stages: tuple[int, ...]) -> int:
    """How many pixels lie between neighbours in the feature map of a ResNet with these stages."""
    return 4 * 2 ** max(0, len(stages) - 1)  # the root leaves 4; each stage but the first doubles


class StdConv2d(nn.Conv2d):
    """A convolution whose filters are brought to mean 0 and variance 1 each time they are used
    (weight standardisation, Qiao et al. 2019, arXiv:1903.10520).

    The padding is TensorFlow's SAME for maps that the stride divides: where it cannot be the same
    on both sides, the far side has one row or column more.
    """

    def __init__(self, channels: int, out: int, size: int, stride: int = 1) -> None:
        super().__init__(channels, out, size, stride, bias=False)
        around = max(0, size - stride)
        near, far = around // 2, around - around // 2
        self.around = (near, far, near, far)  # left, right, top, bottom

    def standardised(self) -> Tensor:
        """The filters (K, channels, size, size) as they are used."""
        return F.layer_norm(self.weight, list(self.weight.shape[1:]), eps=VARIANCE_EPS)

    def forward(self, input: Tensor) -> Tensor:
        padded = F.pad(input, self.around) if any(self.around) else input
        return F.conv2d(padded, self.standardised(), stride=self.stride)


class Bottleneck(nn.Module):
    """Three convolutions, the middle one a quarter as wide, around a residual connection."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        narrow = out // 4
        self.conv1 = StdConv2d(channels, narrow, 1)
        self.norm1 = nn.GroupNorm(NORM_GROUPS, narrow)
        self.conv2 = StdConv2d(narrow, narrow, 3, stride)
        self.norm2 = nn.GroupNorm(NORM_GROUPS, narrow)
        self.conv3 = StdConv2d(narrow, out, 1)
        self.norm3 = nn.GroupNorm(NORM_GROUPS, out)
        nn.init.zeros_(self.norm3.weight)  # a new block starts as its shortcut, as the authors' do
        self.downsample = None
        if channels != out or stride != 1:
            conv, norm = StdConv2d(channels, out, 1, stride), nn.GroupNorm(NORM_GROUPS, out)
            self.downsample = nn.Sequential(OrderedDict(conv=conv, norm=norm))

    def forward(self, maps: Tensor) -> Tensor:
        branch = F.relu(self.norm1(self.conv1(maps)), inplace=True)
        branch = F.relu(self.norm2(self.conv2(branch)), inplace=True)
        branch = self.norm3(self.conv3(branch))
        shortcut = maps if self.downsample is None else self.downsample(maps)
        return F.relu(branch + shortcut, inplace=True)


def root() -> nn.Sequential:
    """(B, 3, H, W) to (B, 64, H / 4, W / 4)."""
    return nn.Sequential(
        OrderedDict(
            conv=StdConv2d(3, ROOT_CHANNELS, 7, stride=2),
            norm=nn.GroupNorm(NORM_GROUPS, ROOT_CHANNELS),
            act=nn.ReLU(inplace=True),
            pool=nn.MaxPool2d(3, 2, ceil_mode=True),  # which is SAME: no row in front, one behind
        )
    )


def resnet(stages: tuple[int, ...]) -> tuple[nn.Sequential, int]:
    """A ResNet with so many blocks in each stage, and the channels of its feature map.

    R50 has (3, 4, 6, 3); without stages the root stands alone. Photos (B, 3, H, W) become
    (B, K, H / s, W / s), s being `pixels_per_step`, which must divide H and W.
    """
    if not stages:
        return root(), ROOT_CHANNELS
    built = nn.Sequential()
    widths = (ROOT_CHANNELS, *STAGE_CHANNELS[: len(stages)])
    for stage, ((channels, out), count) in enumerate(zip(pairwise(widths), stages, strict=True)):
        blocks = nn.Sequential(Bottleneck(channels, out, stride=2 if stage else 1))
        blocks.extend(Bottleneck(out, out, stride=1) for _ in range(count - 1))
        built.append(nn.Sequential(OrderedDict(blocks=blocks)))
    return nn.Sequential(OrderedDict(stem=root(), stages=built)), widths[-1]


class HybridEmbed(nn.Module):
    """A ResNet's feature map, cut into patches that are each mapped linearly to a token.

    `patch_size` is (height, width) in pixels of the picture. A token is about such a patch, but the
    convolutions have looked beyond its borders.
    """

    def __init__(self, stages: tuple[int, ...], patch_size: tuple[int, int], width: int) -> None:
        super().__init__()
        self.backbone, channels = resnet(stages)
        step = pixels_per_step(stages)
        size = patch_size[0] // step, patch_size[1] // step
        self.proj = nn.Conv2d(channels, width, kernel_size=size, stride=size)

    @property
    def root(self) -> StdConv2d:
        """The convolution that sees the pixels."""
        return next(conv for conv in self.backbone.modules() if isinstance(conv, StdConv2d))

    def forward(self, images: Tensor) -> Tensor:
        return self.proj(self.backbone(images))  # (B, 3, H, W) -> (B, D, h, w)
