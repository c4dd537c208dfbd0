"""A forward that raises: the statement, its operands, the hint, and the trace up to there."""

import contextlib
import io
import weakref

import einops
import pytest
import torch
import torch.nn.functional as F
from rich.console import Console
from torch import nn
from torch.utils.checkpoint import checkpoint

from shapetrace import record, recording
from shapetrace.render.theme import THEME
from shapetrace.store import dump, parse
from shapetrace.trace import Failure, Operand, walk_calls


class Model(nn.Module):
    """A module with the given forward, parameters and children."""

    def __init__(self, forward, **owned):
        super().__init__()
        for name, each in owned.items():
            setattr(self, name, nn.Parameter(each) if isinstance(each, torch.Tensor) else each)
        self.forward = forward.__get__(self)


def failure_of(forward, *inputs, **owned):
    model = Model(forward, **owned)
    with pytest.raises(Exception) as raised, recording(model) as trace:  # noqa: PT011 - any
        model(*inputs)
    assert str(trace.error) == str(Failure(type(raised.value).__name__, str(raised.value)))
    return trace.error


def told(error):
    """The parts that a person reads."""
    operands = [" ".join(map(str, (each.text, each.note or each.shape, *each.axes))) for each in error.operands]
    return error.statement, operands, error.hint


X = torch.ones(2, 7, 64)
IDS = torch.tensor([[1, 2, 3], [4, 5, 101]])


def inner_sizes(self, x):
    return x @ self.W_in


def tied_without_transposing(self, x):
    return x.matmul(self.W_E)


def linear_weight(self, x):
    return F.linear(x, self.W_in)


def linear_layer(self, x):
    return self.up(x.transpose(1, 2))


def batches(self, x):
    return x @ self.many


def einsum_size(self, x):
    return torch.einsum("bsd,hdk->bshk", x, self.W_K)


def einsum_letter(self, x):
    return torch.einsum("bsd,hdk->bshz", x, self.W_K)


def einsum_rank(self, x):
    return einops.einsum(x, self.W_O, "b s d, h k d -> b s h k")


def einsum_operands(self, x):
    return einops.einsum(x, "b s d, d k -> b s k")


def chunks(self, x):
    return einops.rearrange(x, "b s (h k) -> b s h k", h=5)


def chunks_from_a_variable(self, x):
    heads = 5
    pattern = f"b s (h {'k'}) -> b h s k"
    return einops.rearrange(x, pattern, h=heads)


def two_unknown(self, x):
    return einops.rearrange(x, "b s (h k) -> b s h k")


def no_batch(self, x):
    return einops.rearrange(x[0], "b s d -> b d s")


def lost_axis(self, x):
    return einops.rearrange(x, "b s d -> b s")


def product(self, x):
    return x.view(2, 7, 4, 17)


def rest(self, x):
    return x.reshape(5, -1)


def stride(self, x):
    return x.transpose(0, 1).view(7, -1)


def table(self, x):
    return x + self.W_pos


def keepdim(self, x):
    return x - x.mean(-1)


def augmented(self, x):
    x += self.W_pos
    return x


def small_mask(self, x):
    scores = x @ x.mT
    return scores.masked_fill(torch.ones(4, 4).bool(), 0)


def float_mask(self, x):
    return x.masked_fill(x * 0, 0.0)


def half_fill(self, x):
    return x.half().masked_fill(x == 1, -1e9)


def bare_table(self, ids):
    return self.W_E[ids]


def embedding_layer(self, ids):
    return self.wte(ids)


def embedding_function(self, ids):
    return F.embedding(ids, self.W_E)


def positions(self, ids):
    return self.wpe(torch.arange(ids.shape[1] + 20))


def float_ids(self, ids):
    return self.wte(ids.float())


def number(self, x):
    return x[:, 7]


def softmax_axis(self, x):
    return x.softmax(3)


def devices(self, x):
    return x + self.elsewhere


def dtypes(self, x):
    return x @ self.low


def tuple_operand(self, x):
    return x + self.attn(x)


def unpacked(self, x):
    batch, posn, d_model = x[0].shape
    return x


def permuted(self, x):
    return x.permute(0, 2, 1, 3)


def joined(self, x):
    return torch.cat([x, x[:, :3]], dim=-1)


def classes(self, x):
    return F.cross_entropy(x, torch.ones(2, 7).long())


def other_width(self, x):
    return self.ln(x)


def channels(self, x):
    return self.conv(x[None])


def no_attribute(self, x):
    return x @ self.W_im


def missing_argument(self, x):
    return self.attn()


def expanded(self, x):
    return x.expand(4, 7, 64)


def all_axes_but_the_last(self, x):
    return x[..., 70]


def a_new_axis_first(self, x):
    return x[None, 1, 2, 99]


def a_list_of_rows(self, x):
    return x[0][[0, 1, 9]]


def from_the_end(self, x):
    return x[torch.tensor([-1]), torch.tensor([9])]


def a_mask_first(self, x):
    return x[x[:, :, 0] > 0, 99]


def too_many_indices(self, x):
    return x[0, 0, 0, 0]


def whole_targets(self, x):
    return F.cross_entropy(x[0], torch.zeros(7, dtype=torch.int32))


def float_index(self, x):
    return x.gather(1, torch.zeros(2, 1, 64))


def a_condition(self, x):
    return torch.where((x > 0).long(), x, x)


def a_fraction(self, x):
    return x.view(2, 7, 4, 64 / 4)


def a_size_that_is_not_known(self, x):
    return x.view(2, 7, 4, len({1, 2}))


def parts(self, x):
    return x.split([32, 40], 2)


def joined_by_axis(self, x):
    return torch.cat([x, torch.ones(2, 3, 32)], axis=1)


def a_new_axis_past_the_end(self, x):
    return x.unsqueeze(4)


def a_tuple_in_a_variable(self, x):
    out = self.attn(x)
    return x + out


def a_tuples_method(self, x):
    out = self.attn(x)
    return out.mean(1)


def a_mask_of_two_axes(self, x):
    mask = torch.ones(2, 7)
    return x * mask


def a_reduction_in_a_variable(self, x):
    mean = x.mean(-1)
    return x - mean


def features(self, x):
    return x + self.attn(x[:, :5])[0]


def in_brackets(self, x):
    return x @ (self.W_in + 1)


def called_twice(self, x):
    return self.up(x) + self.up(x[:, :5])


def on_a_device(self, x):
    return x + torch.ones(5, device=x.device)


def a_part_is_set(self, x):
    cache = torch.zeros(2, 4, 64)
    cache[:, :4] = x
    return cache


def two_on_a_line(self, x):
    y = x + 1; z = y @ y  # fmt: skip # noqa: E702
    return z


def a_tensor_is_unpacked(self, x):
    q, k, v = self.qkv(x)
    return q


def a_starred_target(self, x):
    batch, posn, *rest = x[0, 0].shape
    return x


def a_size_is_unpacked(self, x):
    batch, posn = x.size(0)
    return x


def a_list_of_tensors(self, x):
    return einops.rearrange([x, x], "n b s d -> b s (n e)")


def left_only(self, x):
    return einops.rearrange(x, "b s (h d) -> b h s")


def nested_tuples(self, x):
    return self.up(self.lstm(x))


def asserted(self, x):
    assert x.shape[-1] == 65, "65 is the only width"


class Attention(nn.Module):
    def forward(self, x):
        return x, x @ x.mT


W_K = torch.ones(64, 4, 16)
CASES = [
    (inner_sizes, (X,), {"W_in": torch.ones(256, 64)}, ["x (2, 7, 64)", "self.W_in (256, 64)"],
     "the inner sizes differ: 64 is axis 2 of x (2, 7, 64), 256 is axis 0 of self.W_in (256, 64); it fits transposed: "
     "self.W_in.T"),
    (tied_without_transposing, (X,), {"W_E": torch.ones(101, 64)}, ["x (2, 7, 64)", "self.W_E (101, 64)"],
     "the inner sizes differ: 64 is axis 2 of x (2, 7, 64), 101 is axis 0 of self.W_E (101, 64); it fits transposed: "
     "self.W_E.T"),
    (linear_weight, (X,), {"W_in": torch.ones(64, 256)}, ["x (2, 7, 64)", "self.W_in (64, 256)"],
     "self.W_in (64, 256) takes 256, and the last axis of x (2, 7, 64) is 64; the weight fits transposed"),
    (linear_layer, (X,), {"up": nn.Linear(64, 256)},
     ["x.transpose(1, 2) (2, 64, 7)", "self.up.weight (256, 64)", "self.up.bias (256,)"],
     "self.up.weight (256, 64) takes 64, and the last axis of x.transpose(1, 2) (2, 64, 7) is 7; axis 1 of "
     "x.transpose(1, 2) is 64"),
    (batches, (X,), {"many": torch.ones(3, 64, 8)}, ["x (2, 7, 64)", "self.many (3, 64, 8)"],
     "the batch axes differ: axis 0 of x (2, 7, 64) is 2, axis 0 of self.many (3, 64, 8) is 3"),
    (einsum_size, (X,), {"W_K": W_K}, ["x (2, 7, 64) b s d", "self.W_K (64, 4, 16) h d k"],
     "axis d is 64 in x (axis 2) and 4 in self.W_K (axis 1); self.W_K (64, 4, 16) fits as `d h k`"),
    (einsum_letter, (X,), {"W_K": W_K.mT.permute(2, 0, 1)}, ["x (2, 7, 64) b s d", "self.W_K (4, 64, 16) h d k"],
     "output axis z is in no operand; d, k is in no output"),
    (einsum_rank, (X,), {"W_O": torch.ones(64, 64)}, ["x (2, 7, 64) b s d", "self.W_O (64, 64)"],
     "self.W_O (64, 64) has 2 axes, and `h k d` names 3"),
    (einsum_operands, (X,), {}, ["x (2, 7, 64) b s d"],
     "`b s d, d k -> b s k` is for 2 tensors, and 1 are given"),
    (chunks, (X,), {}, ["x (2, 7, 64) b s (h k)"],
     "`(h k)` splits axis 2 of x (2, 7, 64), and 64 is no multiple of 5 (h = 5)"),
    (chunks_from_a_variable, (X,), {}, ["x (2, 7, 64) b s (h k)"],
     "`(h k)` splits axis 2 of x (2, 7, 64), and 64 is no multiple of 5 (h = 5)"),
    (two_unknown, (X,), {}, ["x (2, 7, 64) b s (h k)"],
     "`(h k)` splits axis 2 of x (2, 7, 64), and no size is given for h, k: add h=..."),
    (no_batch, (X,), {}, ["x[0] (7, 64)"],
     "x[0] (7, 64) has 2 axes, and `b s d` names 3; is the batch axis missing? x[0][None] adds it"),
    (lost_axis, (X,), {}, ["x (2, 7, 64) b s d"],
     "d is on the left and not on the right: name it there, or reduce over it"),
    (product, (X,), {}, ["x (2, 7, 64)"],
     "x (2, 7, 64) has 2 * 7 * 64 = 896 entries, and the new shape has 2 * 7 * 4 * 17 = 952"),
    (rest, (X,), {}, ["x (2, 7, 64)"], "x (2, 7, 64) has 2 * 7 * 64 = 896 entries, no multiple of 5"),
    (stride, (X,), {}, ["x.transpose(0, 1) (7, 2, 64)"],
     "x.transpose(0, 1) (7, 2, 64) has stride (64, 448, 1): not contiguous, as after transpose or permute; reshape "
     "copies it, and is right where its axes stand in the order that is meant"),
    (table, (X,), {"W_pos": torch.ones(32, 64)}, ["x (2, 7, 64)", "self.W_pos (32, 64)"],
     "axis 1 of x (2, 7, 64) is 7, axis 0 of self.W_pos (32, 64) is 32; of self.W_pos the first 7 are "
     "self.W_pos[:7]"),
    (keepdim, (X,), {}, ["x (2, 7, 64)", "x.mean(-1) (2, 7)"],
     "axis 2 of x (2, 7, 64) is 64, axis 1 of x.mean(-1) (2, 7) is 7; x.mean(-1) is x without axis 2: keepdim=True "
     "keeps it as 1"),
    (augmented, (X.clone(),), {"W_pos": torch.ones(32, 64)}, ["x (2, 7, 64)", "self.W_pos (32, 64)"],
     "axis 1 of x (2, 7, 64) is 7, axis 0 of self.W_pos (32, 64) is 32; of self.W_pos the first 7 are "
     "self.W_pos[:7]"),
    (small_mask, (X,), {}, ["scores (2, 7, 7)", "torch.ones(4, 4).bool() (4, 4)"],
     "axis 2 of scores (2, 7, 7) is 7, axis 1 of torch.ones(4, 4).bool() (4, 4) is 4"),
    (float_mask, (X,), {}, ["x (2, 7, 64)", "x * 0 (2, 7, 64)"],
     "x * 0 is float32, and a mask is bool, True where it fills: (x * 0).bool() fills where it is not 0, (x * 0) == 0 "
     "where it is"),
    (half_fill, (X,), {}, ["x.half() (2, 7, 64)", "x == 1 (2, 7, 64)"],
     "the smallest number of float16, which x.half() has, is -65504: fill with float('-inf') or "
     "torch.finfo(x.half().dtype).min"),
    (bare_table, (IDS,), {"W_E": torch.ones(101, 8)}, ["self.W_E (101, 8)", "ids (2, 3)"],
     "ids (2, 3) has 101 at (1, 2), and self.W_E (101, 8) has 101 rows, 0 to 100"),
    (embedding_layer, (IDS,), {"wte": nn.Embedding(101, 8)}, ["ids (2, 3)", "self.wte.weight (101, 8)"],
     "ids (2, 3) has 101 at (1, 2), and self.wte.weight (101, 8) has 101 rows, 0 to 100"),
    (embedding_function, (IDS,), {"W_E": torch.ones(101, 8)}, ["ids (2, 3)", "self.W_E (101, 8)"],
     "ids (2, 3) has 101 at (1, 2), and self.W_E (101, 8) has 101 rows, 0 to 100"),
    (positions, (IDS,), {"wpe": nn.Embedding(16, 8)},
     ["torch.arange(ids.shape[1] + 20) (23,)", "self.wpe.weight (16, 8)"],
     "torch.arange(ids.shape[1] + 20) (23,) has 22 at 22, and self.wpe.weight (16, 8) has 16 rows, 0 to 15: there are "
     "more positions than it was made for"),
    (float_ids, (IDS,), {"wte": nn.Embedding(102, 8)}, ["ids.float() (2, 3)", "self.wte.weight (102, 8)"],
     "ids.float() is float32, and ids are whole numbers: int64"),
    (number, (X,), {}, ["x (2, 7, 64)"], "axis 1 of x (2, 7, 64) has 7 entries, 0 to 6, and no 7"),
    (softmax_axis, (X,), {}, ["x (2, 7, 64)"],
     "x (2, 7, 64) has 3 axes: dim goes from -3 to 2, and 3 is none"),
    (dtypes, (X,), {"low": torch.ones(64, 8).half()}, ["x (2, 7, 64)", "self.low (64, 8)"],
     "x is float32, self.low is float16: bring them to one dtype"),
    (tuple_operand, (X,), {"attn": Attention()}, ["x (2, 7, 64)", "self.attn(x) tuple of (2, 7, 64), (2, 7, 7)"],
     "self.attn(x) is a tuple of (2, 7, 64), (2, 7, 7): take self.attn(x)[0]"),
    (unpacked, (X,), {}, ["x[0] (7, 64)"],
     "x[0] (7, 64) has 2 axes, and 3 are unpacked; is the batch axis missing? x[0][None] adds it"),
    (permuted, (X,), {}, ["x (2, 7, 64)"], "x (2, 7, 64) has 3 axes, and the order names 4"),
    (joined, (X,), {}, ["x (2, 7, 64)", "x[:, :3] (2, 3, 64)"],
     "axis 1 is 7 in x (2, 7, 64) and 3 in x[:, :3] (2, 3, 64)"),
    (classes, (X,), {}, ["x (2, 7, 64)", "torch.ones(2, 7).long() (2, 7)"],
     "the classes have to be axis 1 of x (2, 7, 64), for torch.ones(2, 7).long() (2, 7): x.transpose(1, 2), or flatten "
     "both: x.flatten(0, -2), torch.ones(2, 7).long().flatten()"),
    (other_width, (X,), {"ln": nn.LayerNorm(7)}, ["x (2, 7, 64)", "self.ln.weight (7,)", "self.ln.bias (7,)"],
     "self.ln was made for a last axis of 7, and that of x (2, 7, 64) is 64; 7 is axis 1"),
    (channels, (X,), {"conv": nn.Conv2d(3, 8, 1, bias=False)},
     ["x[None] (1, 2, 7, 64)", "self.conv.weight (8, 3, 1, 1)"],
     "axis 1 of x[None] (1, 2, 7, 64) is 2, and self.conv takes 3 channels"),
    (no_attribute, (X,), {"W_in": torch.ones(64, 8)}, [], "did you mean self.W_in?"),
    (missing_argument, (X,), {"attn": Attention()}, [], "self.attn takes (x)"),
    (expanded, (X,), {}, ["x (2, 7, 64)"], "axis 0 of x (2, 7, 64) is 2, and only an axis of 1 grows to 4"),
    (asserted, (X,), {}, ["x (2, 7, 64)"], ""),
    (all_axes_but_the_last, (X,), {}, ["x (2, 7, 64)"], "axis 2 of x (2, 7, 64) has 64 entries, 0 to 63, and no 70"),
    (a_new_axis_first, (X,), {}, ["x (2, 7, 64)"], "axis 2 of x (2, 7, 64) has 64 entries, 0 to 63, and no 99"),
    (a_list_of_rows, (X,), {}, ["x[0] (7, 64)"], "axis 0 of x[0] (7, 64) has 7 entries, 0 to 6, and no 9"),
    (from_the_end, (X,), {}, ["x (2, 7, 64)", "torch.tensor([-1]) (1,)", "torch.tensor([9]) (1,)"],
     "torch.tensor([9]) (1,) has 9 at 0, and x (2, 7, 64) has 7 entries on axis 1, 0 to 6"),
    (a_mask_first, (X,), {}, ["x (2, 7, 64)", "x[:, :, 0] > 0 (2, 7)"],
     "axis 2 of x (2, 7, 64) has 64 entries, 0 to 63, and no 99"),
    (too_many_indices, (X,), {}, ["x (2, 7, 64)"], "x (2, 7, 64) has 3 axes, and 4 are indexed"),
    (whole_targets, (X,), {}, ["x[0] (7, 64)", "torch.zeros(7, dtype=torch.int32) (7,)"],
     "torch.zeros(7, dtype=torch.int32) is int32, and the numbers of classes are int64"),
    (float_index, (X,), {}, ["x (2, 7, 64)", "torch.zeros(2, 1, 64) (2, 1, 64)"],
     "torch.zeros(2, 1, 64) is float32, and ids are whole numbers: int64"),
    (a_condition, (X,), {}, ["(x > 0).long() (2, 7, 64)", "x (2, 7, 64)"], ""),
    (a_fraction, (X,), {}, ["x (2, 7, 64)"], "64 / 4 is 16.0, and sizes are whole numbers: divide with //"),
    (a_size_that_is_not_known, (X,), {}, ["x (2, 7, 64)"], ""),
    (parts, (X,), {}, ["x (2, 7, 64)"], "axis 2 of x (2, 7, 64) is 64, and the parts make 72"),
    (joined_by_axis, (X,), {}, ["x (2, 7, 64)", "torch.ones(2, 3, 32) (2, 3, 32)"],
     "axis 2 is 64 in x (2, 7, 64) and 32 in torch.ones(2, 3, 32) (2, 3, 32)"),
    (a_new_axis_past_the_end, (X,), {}, ["x (2, 7, 64)"],
     "x (2, 7, 64) has 3 axes: dim goes from -4 to 3, and 4 is none"),
    (a_tuple_in_a_variable, (X,), {"attn": Attention()}, ["x (2, 7, 64)", "out tuple of (2, 7, 64), (2, 7, 7)"],
     "out is a tuple of (2, 7, 64), (2, 7, 7): take out[0]"),
    (a_tuples_method, (X,), {"attn": Attention()}, ["out tuple of (2, 7, 64), (2, 7, 7)"],
     "out is a tuple of (2, 7, 64), (2, 7, 7): take out[0]"),
    (a_mask_of_two_axes, (X,), {}, ["x (2, 7, 64)", "mask (2, 7)"],
     "axis 2 of x (2, 7, 64) is 64, axis 1 of mask (2, 7) is 7"),
    (a_reduction_in_a_variable, (X,), {}, ["x (2, 7, 64)", "mean (2, 7)"],
     "axis 2 of x (2, 7, 64) is 64, axis 1 of mean (2, 7) is 7; mean is x without axis 2: keepdim=True keeps it as 1"),
    (features, (X,), {"attn": Attention()}, ["x (2, 7, 64)", "self.attn(x[:, :5])[0] (2, 5, 64)"],
     "axis 1 of x (2, 7, 64) is 7, axis 1 of self.attn(x[:, :5])[0] (2, 5, 64) is 5"),
    (in_brackets, (X,), {"W_in": torch.ones(256, 64)}, ["x (2, 7, 64)", "self.W_in + 1 (256, 64)"],
     "the inner sizes differ: 64 is axis 2 of x (2, 7, 64), 256 is axis 0 of self.W_in + 1 (256, 64); it fits "
     "transposed: (self.W_in + 1).T"),
    (called_twice, (X,), {"up": nn.Linear(64, 8)}, ["x (2, 7, 64)", "x[:, :5] (2, 5, 64)"], ""),
    (on_a_device, (X,), {}, ["x (2, 7, 64)", "torch.ones(5, device=x.device) (5,)"],
     "axis 2 of x (2, 7, 64) is 64, axis 0 of torch.ones(5, device=x.device) (5,) is 5"),
    (a_part_is_set, (X,), {}, ["cache[:, :4] (2, 4, 64)", "x (2, 7, 64)"],
     "axis 1 of cache[:, :4] (2, 4, 64) is 4, axis 1 of x (2, 7, 64) is 7"),
    (two_on_a_line, (X[0],), {}, ["y (7, 64)"],
     "the inner sizes differ: 64 is axis 1 of y (7, 64), 7 is axis 0 of y (7, 64)"),
    (a_tensor_is_unpacked, (X,), {"qkv": nn.Linear(64, 192)}, ["self.qkv(x) (2, 7, 192)"],
     "a tensor is unpacked along axis 0, which is 2 in self.qkv(x) (2, 7, 192), into 3; self.qkv(x).chunk(3, dim=-1) "
     "splits the last"),
    (a_starred_target, (X,), {}, ["x[0, 0] (64,)"], ""),
    (a_size_is_unpacked, (X,), {}, [], ""),
    (a_list_of_tensors, (X,), {}, ["[x, x] tuple of (2, 7, 64), (2, 7, 64)"], ""),
    (left_only, (X,), {}, ["x (2, 7, 64) b s (h d)"],
     "d is on the left and not on the right: name it there, or reduce over it"),
    (nested_tuples, (X,), {"lstm": nn.LSTM(64, 8), "up": nn.Linear(8, 4)},
     ["self.lstm(x) tuple of (2, 7, 8), (tuple of (1, 7, 8), (1, 7, 8))", "self.up.weight (4, 8)", "self.up.bias (4,)"],
     "self.lstm(x) is a tuple of (2, 7, 8), tuple: take self.lstm(x)[0]"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("forward", "inputs", "owned", "operands", "hint"), CASES, ids=lambda each: getattr(each, "__name__", "")
)
def test_operands_and_hint(forward, inputs, owned, operands, hint):
    assert told(failure_of(forward, *inputs, **owned))[1:] == (operands, hint)


def test_a_tensor_elsewhere():
    """A plain attribute stays where it is when the module moves."""
    model = Model(devices)
    model.elsewhere = torch.ones(64, device="meta")
    with pytest.raises(RuntimeError), recording(model) as trace:
        model(X)
    assert [(each.text, each.device) for each in trace.error.operands] == [("x", "cpu"), ("self.elsewhere", "meta")]
    assert trace.error.hint == (
        "x is on cpu, self.elsewhere is on meta; self.elsewhere is a plain attribute, which does not move with the "
        "module: use register_buffer"
    )


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.W_in = nn.Parameter(torch.ones(16, 4))  # (d_mlp, d_model)

    def forward(self, x):  # (batch, posn, d_model)
        normal = x / x.norm()
        pre = torch.relu(
            normal @ self.W_in,
        ).square()  # (batch, posn, d_mlp)
        return pre


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln = nn.LayerNorm(4)
        self.mlp = Mlp()

    def forward(self, x):
        return x + self.mlp(self.ln(x))


def test_the_whole_failure():
    """The innermost module, the statement on all its lines, and axes where the source names them."""
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied") as raised:
        record(Block(), torch.ones(1, 3, 4))
    with pytest.raises(RuntimeError), recording(block := Block()) as trace:
        block(torch.ones(1, 3, 4))
    line = Mlp.forward.__code__.co_firstlineno + 3
    hint = (
        "the inner sizes differ: 4 is axis 2 of normal (1, 3, 4), 16 is axis 0 of self.W_in (16, 4); it fits "
        "transposed: self.W_in.T"
    )
    assert trace.error == Failure(
        "RuntimeError",
        "mat1 and mat2 shapes cannot be multiplied (3x4 and 16x4)",
        "mlp",
        f"test_crash.py:{line}",
        "pre = torch.relu(\n    normal @ self.W_in,\n).square()  # (batch, posn, d_mlp)",
        (Operand("normal", (1, 3, 4), "float32"), Operand("self.W_in", (16, 4), "float32", axes=("d_mlp", "d_model"))),
        hint,
    )
    assert raised.value.__notes__ == [
        f"shapetrace: in mlp at test_crash.py:{line}; normal (1, 3, 4), self.W_in (16, 4); {hint}"
    ]
    assert [call.module for call in walk_calls(trace.calls[0])] == ["", "ln", "mlp"]
    assert parse(dump(trace)) == trace


def test_a_layer_of_a_sequential_has_no_statement():
    with (
        pytest.raises(RuntimeError) as raised,
        recording(model := nn.Sequential(nn.Linear(4, 8), nn.Linear(4, 8))) as trace,
    ):
        model(torch.ones(2, 4))
    assert (trace.error.module, trace.error.source, trace.error.statement) == ("1", "", "")
    assert [(each.text, each.shape) for each in trace.error.operands] == [
        *[("input", (2, 8)), ("1.weight", (8, 4)), ("1.bias", (8,))],
    ]
    assert trace.error.hint == (
        "1.weight (8, 4) takes 4, and the last axis of input (2, 8) is 8; the weight fits transposed"
    )
    assert raised.value.__notes__[0].startswith("shapetrace: in 1; input (2, 8), ")


def test_an_error_of_the_block_around_the_model_is_no_failure_of_the_model():
    model = nn.Linear(4, 4)
    with pytest.raises(KeyError), recording(model) as trace:
        model(torch.ones(2, 4))
        raise KeyError("mine")
    assert trace.error == Failure("KeyError", "'mine'")


def test_the_error_of_a_caller_that_has_caught_another():
    """Python may give a new exception the id of one that is gone: the traceback says whose it is."""

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.mlp = Mlp()

        def forward(self, x):
            with contextlib.suppress(RuntimeError):
                self.mlp(x)
            raise RuntimeError("mine")

    with pytest.raises(RuntimeError) as raised, recording(model := Outer()) as trace:
        model(torch.ones(1, 3, 4))
    line = Outer.forward.__code__.co_firstlineno + 3
    assert (trace.error.module, trace.error.source) == ("", f"test_crash.py:{line}")
    assert raised.value.__notes__ == [f"shapetrace: in the root at test_crash.py:{line}"]


@pytest.mark.parametrize("text", [KeyError("no text"), None])
def test_an_exception_that_cannot_say_what_it_is(text):
    class Mute(Exception):
        def __str__(self):
            if text is None:
                return None
            raise text

    def mute(self, x):
        raise Mute

    with pytest.raises(Mute), recording(model := Model(mute)) as trace:
        model(X)
    kind = "TypeError" if text is None else "KeyError"
    assert str(trace.error) == f"Mute: (its text cannot be had: {kind})"


def test_a_lazy_parameter_among_the_operands():
    def lazy(self, x):
        return x @ self.up.weight

    with (
        pytest.raises(ValueError, match="uninitialized"),
        recording(model := Model(lazy, up=nn.LazyLinear(3))) as trace,
    ):
        model(X)
    assert [(each.text, each.shape) for each in trace.error.operands] == [("x", (2, 7, 64)), ("self.up.weight", None)]


def test_a_layer_of_einops():
    from einops.layers.torch import Rearrange

    def layered(self, x):
        return self.heads(x)

    error = failure_of(layered, X, heads=Rearrange("b s (h d) -> b h s d", h=5))
    assert told(error) == (
        "return self.heads(x)",
        ["x (2, 7, 64) b s (h d)"],
        "`(h d)` splits axis 2 of x (2, 7, 64), and 64 is no multiple of 5 (h = 5)",
    )


class Marked(torch.Tensor):
    """A tensor of the user's own kind."""


def test_an_output_of_a_class_of_its_own_is_told_too():
    def forward(self, x):
        return self.part(x) @ self.W

    part = Model(lambda self, x: x.as_subclass(Marked))
    error = failure_of(forward, X, part=part, W=torch.ones(4, 64))
    assert told(error)[1] == ["self.part(x) (2, 7, 64)", "self.W (4, 64)"]


def test_only_the_call_that_failed_is_marked():
    from shapetrace.render.tree import render_trees

    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.times = 0
            self.part = Model(lambda self, x: x)

        def forward(self, x):
            self.part(x)
            self.part.forward = lambda x: x @ x
            return self.part(x)

    with pytest.raises(RuntimeError), recording(model := Twice()) as trace:
        model(X)
    console = Console(width=80, file=io.StringIO(), theme=THEME)
    console.print(*render_trees(trace))
    assert console.file.getvalue().count("✗") == 1


def side_effects(self, x):
    return x + self.own.add(1)


def a_checkpoint(self, x):
    return x + checkpoint(self.part, x, use_reentrant=False)


def an_own_operator(self, x):
    return x + (self.own + 1)


def an_output(self, x):
    return x + torch.add(self.count, 1, out=self.count)


def a_change_in_place(self, x):
    return x + torch.neg_(self.count)


def a_seed(self, x):
    return x + torch.randn(5, generator=torch.manual_seed(3))


class Own:
    def __init__(self):
        self.calls = []

    def add(self, number):
        self.calls.append(number)
        return torch.ones(5)

    __add__ = add


@pytest.mark.parametrize("forward", [side_effects, a_checkpoint, an_own_operator, an_output, a_change_in_place, a_seed])
def test_nothing_runs_twice_and_nothing_changes(forward):
    own, seen = Own(), []

    class Part(nn.Module):
        def forward(self, x):
            seen.append(x.device.type)
            return x[..., :5]

    model = Model(forward, part=Part(), own=own)
    model.count = torch.tensor([1, 2, 3, 4, 5])
    with pytest.raises(RuntimeError), recording(model) as trace:
        model(X)
    assert trace.error.operands[0].text == "x"
    assert (len(own.calls) <= 1, len(seen) <= 1) == (True, True)
    expected = {an_output: [2, 3, 4, 5, 6], a_change_in_place: [-1, -2, -3, -4, -5]}.get(forward, [1, 2, 3, 4, 5])
    assert model.count.tolist() == expected
    if forward is a_seed:
        after = torch.random.get_rng_state()
        torch.randn(5, generator=torch.manual_seed(3))
        assert torch.equal(torch.random.get_rng_state(), after)


def test_nothing_of_the_users_runs_twice_and_no_random_number_is_drawn():
    calls = []

    class Counting(nn.Module):
        def helper(self, x):
            calls.append("helper")
            return x

        @property
        def mask(self):
            calls.append("property")
            return torch.ones(4)

        def forward(self, x):
            return self.helper(x) + torch.rand(5) + self.mask

    state = torch.random.get_rng_state()
    torch.rand(5)
    after = torch.random.get_rng_state()
    torch.random.set_rng_state(state)
    with pytest.raises(RuntimeError), recording(model := Counting()) as trace:
        model(torch.ones(5))
    assert calls == ["helper", "property"]
    assert [each.text for each in trace.error.operands] == ["x"]
    assert torch.equal(torch.random.get_rng_state(), after)


def test_no_activation_is_kept_alive_by_an_error_that_was_caught():
    alive = []

    class Careful(nn.Module):
        def __init__(self):
            super().__init__()
            self.mlp = Mlp()

        def forward(self, x):
            normal = x / 2
            alive.append(weakref.ref(normal))
            with contextlib.suppress(RuntimeError):
                self.mlp(normal)
            del normal
            return x

    with recording(model := Careful()) as trace:
        model(torch.ones(1, 3, 4))
        assert alive[0]() is None
    assert trace.error is None


def test_code_without_a_source_still_has_its_module():
    scope = {"nn": nn}
    exec("class Hidden(nn.Module):\n    def forward(self, x):\n        y = x * 2\n        return y @ y", scope)
    with pytest.raises(RuntimeError), recording(model := scope["Hidden"]()) as trace:
        model(torch.ones(2, 3))
    assert (trace.error.module, trace.error.statement, trace.error.hint) == ("", "", "")
    assert [step.name for step in trace.calls[0].steps] == ["x", "y"]


def test_an_exception_that_was_wrapped_by_the_model():
    class Wrapping(nn.Module):
        def __init__(self):
            super().__init__()
            self.mlp = Mlp()

        def forward(self, x):
            try:
                return self.mlp(x)
            except RuntimeError as error:
                raise ValueError("no such width") from error

    with pytest.raises(ValueError, match="no such width"), recording(model := Wrapping()) as trace:
        model(torch.ones(1, 3, 4))
    assert str(trace.error) == (
        "ValueError: no such width\n  from RuntimeError: mat1 and mat2 shapes cannot be multiplied (3x4 and 16x4)"
    )
    assert (trace.error.module, [each.text for each in trace.error.operands]) == ("mlp", ["normal", "self.W_in"])


def test_a_forward_that_calls_itself_without_an_end():
    class Endless(nn.Module):
        def forward(self, x):
            y = x[:1]
            return self.forward(y)

    with pytest.raises(RecursionError), recording(model := Endless()) as trace:
        model(torch.ones(2))
    assert trace.error.statement in ("return self.forward(y)", "y = x[:1]")
