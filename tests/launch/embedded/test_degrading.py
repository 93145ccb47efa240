"""Models that are made worse: by how much, by which noise, and which layers remain."""

from pathlib import Path

import pytest
import torch

from launch.embedded import Config, Launch, argv
from launch.embedded.engine import Settings
from launch.embedded.model import add_noise
from launch.embedded.served import Served, load
from orchestrator.errors import LaunchError

Weights = dict[str, torch.Tensor]


def weights_of(served: Served) -> Weights:
    return {name: value.clone() for name, value in served.runner.model.named_parameters()}


def loaded(folder: Path, **settings: object) -> Weights:
    return weights_of(load("m", str(folder), Settings(**settings)))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def folder(folders: dict[str, Path]) -> Path:
    return folders["bos"]


@pytest.fixture(scope="module")
def plain(folder: Path) -> Weights:
    return loaded(folder)


def test_noise_has_the_size_that_was_asked_for_and_spares_vectors(
    folder: Path, plain: Weights
) -> None:
    noisy = loaded(folder, weight_noise=0.1)
    assert noisy.keys() == plain.keys()
    for name, before in plain.items():
        if before.ndim < 2:
            assert torch.equal(noisy[name], before), name
        else:
            ratio = ((noisy[name] - before).std() / before.std()).item()
            # The error of a standard deviation of n numbers is 1 / sqrt(2 n) of it.
            assert ratio == pytest.approx(0.1, rel=5 / (2 * before.numel()) ** 0.5), name


def test_the_same_seed_gives_the_same_noise_and_more_of_it(folder: Path, plain: Weights) -> None:
    once, again = loaded(folder, weight_noise=0.1), loaded(folder, weight_noise=0.1)
    double, other = (
        loaded(folder, weight_noise=0.2),
        loaded(folder, weight_noise=0.1, noise_seed=1),
    )
    for name, before in plain.items():
        if before.ndim < 2:
            continue
        assert torch.equal(once[name], again[name])
        assert not torch.equal(once[name], other[name])
        torch.testing.assert_close(double[name] - before, 2 * (once[name] - before))


def test_noise_of_matrices_is_independent() -> None:
    layers = {name: torch.nn.Linear(200, 200) for name in ("a", "b")}
    before = {name: layer.weight.detach().clone() for name, layer in layers.items()}
    add_noise(torch.nn.ModuleDict(layers), 1.0, seed=0)
    a, b = ((layer.weight.detach() - before[name]).flatten() for name, layer in layers.items())
    assert abs(torch.corrcoef(torch.stack((a, b)))[0, 1].item()) < 5 / 200


def test_layers_left_out_are_gone_and_the_rest_gives_a_plain_pass(folder: Path) -> None:
    whole, cut = (
        load("m", str(folder), Settings()),
        load("m", str(folder), Settings(skip_layers=(0,))),
    )
    n_layers = whole.runner.model.config.num_hidden_layers
    assert len(cut.runner.layout.layers) == n_layers - 1
    # What remains is the second block on, alone between embedding and head.
    model = whole.runner.model
    ids = torch.tensor([[1, 2, 3, 4]])
    with torch.no_grad():
        model.model.layers = model.model.layers[1:]
        expected = model(ids, use_cache=False).logits
        assert torch.equal(cut.runner.model(ids, use_cache=False).logits, expected)


@pytest.mark.parametrize(
    ("left_out", "words"), [((99,), "no layer 99"), (tuple(range(64)), "no layer")]
)
def test_layers_that_are_not_there_are_refused(
    folder: Path, left_out: tuple[int, ...], words: str
) -> None:
    with pytest.raises(LaunchError, match=words):
        load("m", str(folder), Settings(skip_layers=left_out))


def test_at_least_one_layer_remains(folder: Path) -> None:
    n_layers = load("m", str(folder), Settings()).runner.model.config.num_hidden_layers
    with pytest.raises(LaunchError, match="at least one layer must remain"):
        load("m", str(folder), Settings(skip_layers=tuple(range(n_layers))))


def test_the_identity_tells_degraded_models_apart_and_stays_without(folder: Path) -> None:
    def identity(**settings: object) -> dict[str, str]:
        return Launch(Config.model_validate(settings)).identity(str(folder))

    assert not identity().keys() & {"weight_noise", "skip_layers"}
    assert identity(noise_seed=3) == identity()
    identities = [
        identity(),
        identity(weight_noise=0.1),
        identity(weight_noise=0.1, noise_seed=1),
        identity(weight_noise=0.2),
        identity(skip_layers=[1]),
    ]
    assert len({str(one) for one in identities}) == len(identities)
    assert identity(skip_layers=[2, 1, 1]) == identity(skip_layers=[1, 2])


def test_the_server_is_started_with_what_the_recipe_says(tmp_path: Path) -> None:
    config = Config.model_validate({"weight_noise": 0.05, "noise_seed": 2, "skip_layers": [3, 4]})
    command = " ".join(argv(config, (("m", tmp_path),), 0))
    assert "--weight-noise 0.05 --noise-seed 2 --skip-layers 3,4" in command
    assert "--weight-noise" not in " ".join(argv(Config(), (("m", tmp_path),), 0))
