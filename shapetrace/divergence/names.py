"""What else an activation is called where a GPT-2 is written by hand, by what TransformerLens calls it."""

from __future__ import annotations

_NAMES = {
    "embed": ("embed", "tok_emb", "token_emb", "tok_embeds", "token_embedding", "inputs_embeds", "embedded"),
    "pos_embed": ("pos_embed", "pos_emb", "position_emb", "pos_embeds", "position_embeds", "position_embedding"),
    "resid_pre": ("resid_pre", "residual_pre"),
    "scale": ("scale", "residual_std", "std", "rms", "denominator"),
    "normalized": ("normalized", "residual", "x_norm", "norm_x", "x_hat", "normed"),
    "q": ("q", "query", "queries", "query_states", "query_layer", "xq"),
    "k": ("k", "key", "keys", "key_states", "key_layer", "xk"),
    "v": ("v", "value", "values", "value_states", "value_layer", "xv"),
    "attn_scores": ("attn_scores", "attn_scores_masked", "scores", "masked", "att", "attn", "attn_weights"),
    "pattern": ("pattern", "attn_pattern", "weights", "probs", "attn_probs", "att", "attn", "attn_weights"),
    "z": ("z", "context", "context_vec", "attn_output", "y"),
    "attn_out": ("attn_out", "attn_output"),
    "resid_mid": ("resid_mid", "residual_mid"),
    "pre": ("pre", "pre_act", "hidden", "h"),
    "post": ("post", "post_act", "act", "activated"),
    "mlp_out": ("mlp_out", "ff_out", "feed_forward_hidden_states"),
    "resid_post": ("resid_post", "residual_post"),
    "out": ("out", "logits"),
}
# Three tensors that nothing but their names tells apart.
_RIVALS = {each: {name for other in "qkv" if other != each for name in _NAMES[other]} for each in "qkv"}


def is_called(name: str, tensor: str) -> bool:
    """Whether a name of yours is one for that tensor of the reference."""
    return name in _NAMES.get(tensor, (tensor,))


def is_rival(name: str, tensor: str) -> bool:
    """Whether a name of yours says that it is another one of q, k and v."""
    return name in _RIVALS.get(tensor, ())
