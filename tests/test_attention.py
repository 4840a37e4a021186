"""Attention watched from outside: the same logits, the right maps, and nothing left behind."""

import math
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from vit.attention import (
    ExplicitAttention,
    attend,
    attend_with_gradients,
    class_relevance,
    grid_of,
    own_view,
    with_cached_attention,
)
from vit.images import open_photo
from vit.maps import (
    class_mass,
    entropy,
    find_sinks,
    looked_at_by,
    looks_at,
    max_heads,
    mean_distance,
    mean_heads,
    relevance,
    rollout,
    set_aside,
)
from vit.model import Attention, ScaledDotProduct, ViT, ViTConfig
from vit.pretrained import read_weights

ROOT = Path(__file__).resolve().parents[1]
CONFIG = ViTConfig((16, 24), (8, 8), width=24, depth=2, heads=3, mlp_width=48, classes=5)


def tiny(**changes: object) -> ViT:
    torch.manual_seed(3)
    model = ViT(replace(CONFIG, **changes)).eval()  # pyright: ignore[reportArgumentType]
    for weight in model.parameters():
        nn.init.normal_(weight, std=0.3)
    return model


def photos(count: int = 2, height: int = 16, width: int = 24) -> Tensor:
    return torch.randn(count, 3, height, width, generator=torch.Generator().manual_seed(count))


def state(model: nn.Module) -> list[object]:
    """Everything that watching might have changed on a model."""
    found: list[object] = []
    for name, module in model.named_modules():
        hooks = [len(getattr(module, kind)) for kind in vars(module) if "_hooks" in kind]
        found.append((name, id(module), type(module), hooks, module.training))
    return found + [(name, id(w), w.grad) for name, w in model.named_parameters()]


def random_maps(*shape: int) -> Tensor:
    """Weights (…, N, N) whose rows sum to one."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(9)).softmax(-1)


# --- Recording --------------------------------------------------------------------------------


@pytest.mark.parametrize("changes", [{}, {"registers": 2}, {"representation": 6}, {"depth": 1}])
@pytest.mark.parametrize("size", [(16, 24), (32, 8)])
def test_logits_are_the_same_bits_and_the_model_is_untouched(
    changes: dict, size: tuple[int, int]
) -> None:
    model, images = tiny(**changes), photos(2, *size)
    before, expected = state(model), model(images)
    for _ in range(2):
        logits, maps = attend(model, images)
        N = model.num_prefix_tokens + math.prod(grid_of(model, images))
        assert torch.equal(logits, expected)
        assert maps.shape == (model.config.depth, 2, 3, N, N) and maps.dtype == torch.float32
        assert not maps.requires_grad and not logits.requires_grad
        torch.testing.assert_close(maps.sum(-1), torch.ones(maps.shape[:-1]))
        assert state(model) == before
    with torch.inference_mode():
        assert torch.equal(attend(model, images)[0], expected)


def test_maps_are_those_of_torchs_own_attention() -> None:
    model, images = tiny(), photos()
    _, maps = attend(model, images)
    tokens = model.embed(images)
    for layer, attn in enumerate(m for m in model.modules() if isinstance(m, Attention)):
        theirs = nn.MultiheadAttention(24, 3, batch_first=True)
        weights = (attn.qkv.weight, attn.qkv.bias, attn.proj.weight, attn.proj.bias)
        names = ("in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias")
        theirs.load_state_dict(dict(zip(names, weights, strict=True)))
        block = model.get_submodule(f"blocks.{layer}")
        seen = model.get_submodule(f"blocks.{layer}.norm1")(tokens)
        _, expected = theirs(seen, seen, seen, need_weights=True, average_attn_weights=False)
        torch.testing.assert_close(maps[layer], expected, atol=1e-6, rtol=1e-5)
        tokens = block(tokens)


@pytest.mark.parametrize("few", [0, 1_000_000], ids=["fused", "written out"])
def test_models_that_answer_give_the_same_maps(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, images = tiny(depth=3), photos()
    expected, maps = attend(plain, images)
    model = with_cached_attention(tiny(depth=3))
    monkeypatch.setattr("vit.attention.FEW", few)
    logits, found = attend(model, images)
    assert torch.equal(logits, model(images))
    torch.testing.assert_close(logits, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(found, maps, atol=1e-6, rtol=1e-5)
    assert torch.equal(attend(model, images, [-1, 0, 0])[1], found[[2, 0, 0]])
    _, weights, _ = attend_with_gradients(model, images, 1)
    torch.testing.assert_close(torch.stack(weights), maps, atol=1e-6, rtol=1e-5)


def test_only_the_layers_asked_for_in_their_order() -> None:
    model, images = tiny(depth=4), photos()
    logits, every = attend(model, images)
    for layers in ([2], [3, 0], [-1, 1, 1], range(1, 3)):
        again, some = attend(model, images, layers)
        assert torch.equal(some, every[list(layers)]) and torch.equal(again, logits)
        assert some.untyped_storage().nbytes() == some.numel() * 4  # not a view of all of them
    again, none = attend(model, images, [])
    assert not none.numel() and torch.equal(again, logits)
    for layer in (4, -5):
        with pytest.raises(ValueError, match="has 4"):
            attend(model, images, [layer])


MEASURE = """
import resource, torch
from vit.attention import attend, class_relevance
from vit.model import ViT, ViTConfig

torch.set_num_threads(1)
with torch.device("meta"):
    model = ViT(ViTConfig((384, 384), width=768, depth=3, heads=12, mlp_width=3072))
model = model.to_empty(device="cpu").eval()
for weight in model.parameters():
    weight.data.fill_(0.01)
photo = torch.ones(1, 3, 384, 384)
with torch.inference_mode():
    for ask in (model, model, lambda x: attend(model, x), lambda x: class_relevance(model, x)):
        answer = ask(photo)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is counted in kB on Linux only")
def test_memory_of_a_large_model_stays_in_its_bound() -> None:
    """ViT-B/16 at 384 pixels, three of its twelve layers: a quarter of what is promised."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURE], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    _, plain, watched, gradients = (int(line) / 1e3 for line in done.stdout.split())  # MB
    assert watched - plain < (192 + 64) / 4 + 20  # and what the allocator rounds up
    assert gradients - plain < 1200 / 4


class Hidden(Attention):
    """Attention that goes round `core`, as a fused one would."""

    def forward(self, tokens: Tensor) -> Tensor:
        return self.proj(tokens)


def test_a_layer_that_hides_is_an_error() -> None:
    for other in (Hidden(24, 3), nn.Identity()):
        model = tiny()
        model.get_submodule("blocks.1").attn = other
        before = state(model)
        for ask in (attend, class_relevance):
            with pytest.raises(ValueError, match="Only 1 of 2 layers .* from 0: 1"):
                ask(model, photos())
        with pytest.raises(ValueError, match="Only 1 of 2"):
            attend(model, photos(), [0])  # also when it is not the one asked for
        assert state(model) == before


class Broken(ScaledDotProduct):
    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        raise KeyError("broken")


def test_nothing_is_left_after_an_exception() -> None:
    model, images = tiny(), photos()
    attn = model.get_submodule("blocks.1.attn")
    attn.core = Broken()
    before = state(model)
    with pytest.raises(KeyError):
        attend(model, images)
    with pytest.raises(ValueError, match="do not fill"):
        attend(model, images[..., :-1])
    assert state(model) == before
    attn.core = ScaledDotProduct()
    assert len(attend(model, images)[1]) == 2


def test_lower_precision_gives_float32_maps() -> None:
    model, images = tiny(), photos()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        expected = model(images)
        logits, maps = attend(model, images)
    assert torch.equal(logits, expected) and maps.dtype == torch.float32
    torch.testing.assert_close(maps.sum(-1), torch.ones(maps.shape[:-1]))


def test_a_view_shares_weights_and_nothing_else() -> None:
    model, images = tiny(), photos()
    view, before = own_view(model), state(model)
    assert [id(w) for w in view.parameters()] == [id(w) for w in model.parameters()]
    for layer in range(2):
        view.get_submodule(f"blocks.{layer}.attn").core = Broken()
        view.get_submodule(f"blocks.{layer}.attn").proj = nn.Identity()
    assert state(model) == before
    assert torch.equal(attend(model, images)[0], model(images))


def test_two_visitors_at_once_on_one_model() -> None:
    """One only looks, one takes gradients, one classifies; each gets what it gets alone."""
    model = tiny(depth=3)
    images = [photos(1), photos(3)]
    alone = [
        [model(x).detach() for x in images],
        [attend(model, x)[1] for x in images],
        [class_relevance(model, x)[1] for x in images],
    ]
    before, wrong = state(model), []
    start = threading.Barrier(6)

    def visit(which: int) -> None:
        start.wait()
        x = images[which % 2]
        for _ in range(40):
            logits, maps = attend(model, x)
            _, relevant = class_relevance(model, x)
            got = (model(x).detach(), maps, relevant)
            same = [torch.equal(a, b[which % 2]) for a, b in zip(got, alone, strict=True)]
            if not (all(same) and torch.equal(logits, got[0])):
                wrong.append(same)

    visitors = [threading.Thread(target=visit, args=(number,)) for number in range(6)]
    for visitor in visitors:
        visitor.start()
    for visitor in visitors:
        visitor.join()
    assert wrong == [] and state(model) == before


# --- One head, mean, max, directions -----------------------------------------------------------


def test_directions_and_heads() -> None:
    model = tiny(registers=1)
    _, maps = attend(model, photos())
    P, grid = model.num_prefix_tokens, model.grid
    assert (P, grid) == (2, (2, 3))
    one = maps[1, 0, 2]  # a layer, a photo, a head
    patch = P + 1 * 3 + 2  # row 1, column 2
    assert looks_at(one, patch, P, grid)[0, 1] == one[patch, P + 1]
    assert looked_at_by(one, patch, P, grid)[0, 1] == one[P + 1, patch]
    assert looks_at(maps, 0, P, grid).shape == (2, 2, 3, 2, 3)
    torch.testing.assert_close(
        looks_at(one, 0, P, grid).sum() + one[0, :P].sum(), torch.tensor(1.0)
    )
    assert torch.equal(mean_heads(maps)[1, 0], maps[1, 0].mean(0))
    assert torch.equal(max_heads(maps)[1, 0], maps[1, 0].max(0).values)
    with pytest.raises(ValueError, match="8 tokens are not 1 prefix tokens and 2 × 3"):
        looks_at(one, 0, 1, grid)


# --- Rollout -----------------------------------------------------------------------------------


def test_rollout_on_paper() -> None:
    """Two tokens, one head: first layer A, second B, so the answer is (B + I)/2 · (A + I)/2."""
    first = torch.tensor([[0.0, 1.0], [0.0, 1.0]])
    second = torch.tensor([[0.5, 0.5], [1.0, 0.0]])
    got = rollout(torch.stack([first, second])[:, None, None])
    expected = torch.tensor([[[0.375, 0.625], [0.25, 0.75]]])
    torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("discard", [0.0, 0.3, 0.9])
def test_rollout_of_two_is_two_rollouts_of_one(discard: float) -> None:
    maps = random_maps(3, 2, 4, 7, 7)
    both = rollout(maps, discard)
    torch.testing.assert_close(both.sum(-1), torch.ones(2, 7))
    for photo in range(2):
        torch.testing.assert_close(both[photo], rollout(maps[:, photo : photo + 1], discard)[0])


def test_rollout_discards_the_smallest() -> None:
    weights = torch.tensor([[0.1, 0.9], [0.6, 0.4]])
    kept = torch.tensor([[0.0, 0.9], [0.6, 0.0]]) + torch.eye(2)
    expected = kept / kept.sum(-1, keepdim=True)
    torch.testing.assert_close(rollout(weights[None, None, None], 0.5)[0], expected)
    for discard in (1.0, -0.1, math.nan):
        with pytest.raises(ValueError, match="discard"):
            rollout(weights[None, None, None], discard)


# --- Relevance ---------------------------------------------------------------------------------


def test_relevance_on_paper_where_the_order_matters() -> None:
    """One photo, two heads, two tokens; by hand: I + C₂ + C₁ + C₂ C₁ with C = mean (g · a)⁺."""
    maps = [torch.full((1, 2, 2, 2), 0.5), torch.full((1, 2, 2, 2), 0.5)]
    first, second = torch.zeros(1, 2, 2, 2), torch.zeros(1, 2, 2, 2)
    first[0, 0, 0, 1] = 4.0  # C₁ = [[0, 1], [0, 0]]
    first[0, 1, 0, 1] = -4.0  # a head that speaks against it counts as zero, not as minus
    second[0, :, 1, 0] = 2.0  # C₂ = [[0, 0], [1, 0]]
    C1, C2 = torch.tensor([[0.0, 1], [0, 0]]), torch.tensor([[0.0, 0], [1, 0]])
    expected = torch.eye(2) + C1 + C2 + C2 @ C1
    assert torch.equal(relevance(maps, [first, second])[0], expected)
    assert not torch.equal(relevance(maps, [second, first])[0], expected)
    with pytest.raises(ValueError, match="zip"):
        relevance(maps, [first])


def test_gradients_belong_to_their_layers() -> None:
    """Each gradient tells how the logit answers when the weights of that layer move a little."""
    model, images = tiny().double(), photos(1).double()
    logits, maps, gradients = attend_with_gradients(model, images, 3)
    torch.testing.assert_close(logits, model(images).detach())
    assert len(maps) == len(gradients) == 2
    for layer in range(2):
        nudge = torch.zeros_like(maps[layer])
        nudge[0, 1, 0, 4] = 1e-6

        class Nudged(ExplicitAttention):
            def weights(self, q: Tensor, k: Tensor, nudge: Tensor = nudge) -> Tensor:
                return super().weights(q, k) + nudge

        view = own_view(model)
        view.get_submodule(f"blocks.{layer}.attn").core = Nudged()
        slope = (view(images) - logits)[0, 3].item() / 1e-6
        assert slope == pytest.approx(gradients[layer][0, 1, 0, 4].item(), rel=1e-3)
        assert slope != pytest.approx(gradients[1 - layer][0, 1, 0, 4].item(), rel=1e-1)


def test_relevance_of_two_is_relevance_of_each_and_of_its_class() -> None:
    model, images = tiny(), photos(2)
    before = state(model)
    logits, both = class_relevance(model, images, torch.tensor([1, 4]))
    assert both.shape == (2, 7, 7) and not both.requires_grad
    torch.testing.assert_close(logits, model(images).detach(), atol=1e-5, rtol=1e-5)
    for photo, target in enumerate((1, 4)):
        _, one = class_relevance(model, images[photo : photo + 1], target)
        torch.testing.assert_close(both[photo], one[0], atol=1e-5, rtol=1e-4)
    assert not torch.allclose(class_relevance(model, images, 1)[1][1], both[1])
    named = model(images).argmax(1)
    assert torch.equal(class_relevance(model, images)[1], class_relevance(model, images, named)[1])
    assert state(model) == before  # no .grad either


def test_relevance_wherever_it_is_asked() -> None:
    """A frozen model, inside no_grad and inference_mode, with an inference tensor."""
    model, images = tiny(), photos(1)
    expected = class_relevance(model, images, 2)[1]
    with torch.no_grad():
        assert torch.equal(class_relevance(model, images, 2)[1], expected)
    with torch.inference_mode():
        assert torch.equal(class_relevance(model, images.clone(), 2)[1], expected)
    model.requires_grad_(False)
    assert torch.equal(class_relevance(model, images, 2)[1], expected)


# --- Numbers about a head ----------------------------------------------------------------------


def test_entropy_and_mass() -> None:
    maps = torch.tensor([[1.0, 0.0], [0.5, 0.5]])
    torch.testing.assert_close(entropy(maps), torch.tensor([0.0, math.log(2)]))
    assert class_mass(maps).tolist() == [1.0, 0.5]


def test_mean_distance_in_pixels() -> None:
    """Patches of 4 × 8 pixels in 2 rows of 3; prefix tokens have no place."""
    P, grid, patch = 2, (2, 3), (4, 8)
    near = torch.eye(8)
    assert mean_distance(near, P, grid, patch) == 0
    right = torch.zeros(8, 8)
    right[:, P + 2] = 0.25  # all look at row 0, column 2: 16, 8, 0 and √(16² + 4²), √(8² + 4²), 4
    right[:, 0] = 0.75  # … and at the class token, which does not count
    by_hand = (16 + 8 + 0 + math.hypot(16, 4) + math.hypot(8, 4) + 4) / 6
    assert mean_distance(right, P, grid, patch).item() == pytest.approx(by_hand)
    only_class = torch.zeros(8, 8)
    only_class[:, 0] = 1
    assert mean_distance(only_class, P, grid, patch) == 0
    assert mean_distance(random_maps(5, 2, 3, 8, 8), P, grid, patch).shape == (5, 2, 3)


# --- Sinks -------------------------------------------------------------------------------------


def with_sinks(*patches: int, depth: int = 6, prefix: int = 2, side: int = 5) -> Tensor:
    maps = torch.full((depth, 3, prefix + side**2, prefix + side**2), 0.01)
    for patch in patches:
        maps[depth * 2 // 3 :, :, :, prefix + patch] = 0.2
    return maps / maps.sum(-1, keepdim=True)


@pytest.mark.parametrize("patches", [(), (0, 4), (7, 12, 13)])
def test_sinks_are_found_by_share_wherever_they_lie(patches: tuple[int, ...]) -> None:
    sinks = find_sinks(with_sinks(*patches), 2)
    assert sorted(sinks.patches) == list(patches) and sinks.layers == (4, 5)
    share = 20 * len(patches) / (20 * len(patches) + 25 - len(patches))
    assert sinks.share == pytest.approx(share) and sinks.per_layer == pytest.approx((share,) * 2)
    assert sinks.even == pytest.approx(len(patches) / 25)


def test_what_draws_only_the_class_token_is_no_sink() -> None:
    maps = with_sinks(3)
    maps[:, :, 0, 2 + 12] = maps[:, :, 0, 2 + 3]  # the dish
    assert find_sinks(maps / maps.sum(-1, keepdim=True), 2).patches == (3,)
    maps[4, :, :, 2 + 3] = maps[
        0, 0, 0, 0
    ]  # in one of the two late layers it takes no more than others
    assert find_sinks(maps / maps.sum(-1, keepdim=True), 2).patches == ()


def test_set_aside() -> None:
    heat = torch.tensor([[[4.0, 1.0], [2.0, 1.0]]])
    sinks = find_sinks(with_sinks(0), 2)
    expected = torch.tensor([[[0.0, 0.25], [0.5, 0.25]]])
    assert torch.equal(set_aside(heat, sinks), expected)
    assert torch.equal(set_aside(heat, [0]), expected) and heat[0, 0, 0] == 4
    assert set_aside(heat, range(4)).sum() == 0
    assert torch.equal(set_aside(heat, []), heat / 8)


def test_the_known_sinks_of_a_published_model(shared_data: Path, imagenet_weights: Path) -> None:
    """ViT-Ti/16 gives 29, 30, 26 and 31 % of its class token's patch attention in layers 9 to 12
    to the four corners of real food photos, where 2 % would be their even share."""
    model, card = read_weights(imagenet_weights)
    every = sorted((shared_data / "pizza_steak_sushi" / "test").rglob("*.jpg"))
    views = [card.preprocess.view(open_photo(file, 448).image) for file in every[::3]]
    corners, shares = {0, 13, 182, 195}, []
    with torch.inference_mode():
        for pixels in card.preprocess.batch(views).split(5):
            _, maps = attend(model.eval(), pixels, range(8, 12))
            for photo in maps.unbind(1):
                row = photo.mean(1)[:, 0, 1:]
                shares.append(row[:, sorted(corners)].sum(1) / row.sum(1))
                sinks = find_sinks(photo.repeat_interleave(3, 0), 1)  # as if these were 12 layers
                assert set(sinks.patches) <= corners and len(sinks.patches) >= 3
    assert len(shares) == 25
    assert torch.stack(shares).mean(0).tolist() == pytest.approx([0.29, 0.30, 0.26, 0.31], abs=0.01)
