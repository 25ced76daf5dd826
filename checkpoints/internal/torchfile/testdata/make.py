"""Writes the fixtures of this folder with PyTorch 2.15 (python make.py).

state.bin is a state_dict as PyTorch saves it; hostile.bin asks Python to run a
command, as any pickle may.
"""

import os

import torch


class Command:
    def __reduce__(self):
        return (os.system, ("true",))


m = torch.nn.Linear(3, 2)
with torch.no_grad():
    m.weight.copy_(torch.arange(6.0).view(2, 3))
    m.bias.copy_(torch.tensor([-1.0, 0.5]))
state = m.state_dict()
state["half"] = torch.arange(4.0).half()
state["bf16"] = torch.tensor([[1.5, -2.0]]).bfloat16()
state["transposed"] = torch.arange(6.0).view(2, 3).T
state["rows"] = torch.arange(12.0).view(4, 3)[1:3]
state["parameter"] = torch.nn.Parameter(torch.tensor([7.0]))
state["tied"] = state["weight"]
state["d2t"] = torch.tensor([0, 5, 9])
state["t2d"] = torch.tensor([True, False])
state["scalar"] = torch.tensor(3.0)
torch.save(state, "state.bin")
torch.save({"weight": torch.ones(2), "x": Command()}, "hostile.bin")
torch.save({"weight": torch.ones(2)}, "legacy.bin", _use_new_zipfile_serialization=False)
torch.save({"model": {"weight": torch.ones(2)}}, "nested.bin")
torch.save({"w": torch.ones(2)}, "protocol4.bin", pickle_protocol=4)
