"""Lowerings tested by pytest: `pip install hlo-lens`, and the fixture `hlolens` is there.

Programs are taken as they lie in the repository, or compiled here, for targets that need not be;
compiling takes `pip install 'hlo-lens[aot]'`. Beside this file stand the expectations, here
`gate/train_step.toml` and `gate/dots_saved.toml`.
"""

import pytest

STEP = "hlo/train_step.hlo"


def test_the_step_is_as_expected(hlolens):
    hlolens.assert_lowering(STEP).expect("gate/train_step.toml")


def test_the_backward_gathers_each_weight_once_a_layer(hlolens):
    step = hlolens.assert_lowering(STEP)
    step.collectives("all-gather", in_backward_loop=True).count(2, per="loop execution")
    step.collectives("all-gather").max("gather_number", "<= 2")
    step.matmuls().every("backend = 'cublaslt'", because="the fallback is slower, not wrong")


@pytest.mark.hlolens_targets("cpu", "tpu:v6e-1", "cuda:h100")
def test_the_policy_keeps_every_product(hlolens):
    jax = pytest.importorskip("jax")

    def layer(x, w):
        return jax.numpy.tanh(x @ w)

    def loss(w, x):
        kept = jax.checkpoint(layer, policy=jax.checkpoint_policies.dots_saveable)
        return kept(kept(x, w), w).astype("float32").sum()

    w, x = (jax.ShapeDtypeStruct(shape, "bfloat16") for shape in ((128, 128), (32, 128)))
    program = hlolens.compile(jax.value_and_grad(loss), w, x)
    hlolens.assert_lowering(program).expect("gate/dots_saved.toml")
