"""SGD against torch.optim.SGD."""

import pytest
import torch

from equable.training.sgd import SGD


@pytest.mark.parametrize(("momentum", "weight_decay"), [(0.0, 0.0), (0.9, 0.0), (0.9, 5e-4), (0.0, 0.1)])
def test_same_steps_as_torch(momentum, weight_decay):
    torch.manual_seed(0)
    ours = [torch.randn(3, 4, requires_grad=True), torch.randn(5, requires_grad=True)]
    theirs = [p.detach().clone().requires_grad_() for p in ours]
    sgd = SGD(ours, 0.1, momentum, weight_decay)
    oracle = torch.optim.SGD(theirs, lr=0.1, momentum=momentum, weight_decay=weight_decay)
    for _ in range(5):
        gradients = [torch.randn_like(p) for p in ours]
        for parameter, gradient in zip(theirs, gradients, strict=True):
            parameter.grad = gradient.clone()
        oracle.step()
        sgd.step(gradients)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b)


def test_frozen_parameters_stay():
    frozen = torch.ones(2)
    free = torch.ones(2, requires_grad=True)
    SGD([frozen, free], 0.5).step([torch.ones(2)])
    assert frozen.tolist() == [1, 1]
    assert free.tolist() == [0.5, 0.5]
