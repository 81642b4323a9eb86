"""Recurrent layers, attention and transformers as PyTorch has them: writes recurrent, attention and transformer.safetensors.

    python sequence.py
"""

import torch
from recording import Recording
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


def spread(module):
    """Parameters that are all of one size, so that none of their gradients is tiny: biases and norms start from 0 and 1."""
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(torch.randn_like(p) * 0.5)
    return module


def flat(result):
    """Outputs and states in a row."""
    y, state = result
    return (y, *state) if isinstance(state, tuple) else (y, state)


def recurrent():
    out = Recording("recurrent")
    plain = lambda m, x: flat(m(x))
    from_h = lambda m, x, h: flat(m(x, h))
    from_hc = lambda m, x, h, c: flat(m(x, (h, c)))

    def packed(m, x, lengths):
        parts = pack_padded_sequence(x, lengths, batch_first=m.batch_first, enforce_sorted=False)
        y, state = m(parts)
        length = x.shape[1] if m.batch_first else x.shape[0]
        y, _ = pad_packed_sequence(y, batch_first=m.batch_first, total_length=length)
        return flat((y, state))

    T, B, I, H = 4, 3, 2, 3
    x = lambda *shape: torch.randn(*(shape or (T, B, I)))
    lengths = lambda: torch.tensor([2, 4, 3])
    table = [
        ("rnn", nn.RNN(I, H), plain, {"x": x()}),
        ("rnn_relu_layers", nn.RNN(I, H, 2, nonlinearity="relu"), plain, {"x": x()}),
        ("rnn_both_no_bias", nn.RNN(I, H, bidirectional=True, bias=False), from_h, {"x": x(), "h": x(2, B, H)}),
        ("gru", nn.GRU(I, H), plain, {"x": x()}),
        ("gru_layers_both", nn.GRU(I, H, 2, bidirectional=True), from_h, {"x": x(), "h": x(4, B, H)}),
        ("gru_batch_first", nn.GRU(I, H, batch_first=True), from_h, {"x": x(B, T, I), "h": x(1, B, H)}),
        ("gru_no_bias", nn.GRU(I, H, bias=False), plain, {"x": x()}),
        ("gru_lengths", nn.GRU(I, H), packed, {"x": x(), "lengths": lengths()}),
        ("lstm", nn.LSTM(I, H), plain, {"x": x()}),
        ("lstm_layers_both", nn.LSTM(I, H, 2, bidirectional=True), from_hc, {"x": x(), "h": x(4, B, H), "c": x(4, B, H)}),
        ("lstm_batch_first", nn.LSTM(I, H, batch_first=True), plain, {"x": x(B, T, I)}),
        ("lstm_no_bias", nn.LSTM(I, H, bias=False), plain, {"x": x()}),
        ("lstm_projected", nn.LSTM(I, H, 2, bidirectional=True, proj_size=2), from_hc, {"x": x(), "h": x(4, B, 2), "c": x(4, B, H)}),
        ("lstm_single", nn.LSTM(I, H, 2), from_hc, {"x": x(T, I), "h": x(2, H), "c": x(2, H)}),
        ("lstm_dropout_eval", nn.LSTM(I, H, 2, dropout=0.5).eval(), plain, {"x": x()}),
        ("lstm_lengths", nn.LSTM(I, H, 2, bidirectional=True, batch_first=True), packed, {"x": x(B, T, I), "lengths": lengths()}),
        ("rnn_cell", nn.RNNCell(I, H), lambda m, x, h: m(x, h), {"x": x(B, I), "h": x(B, H)}),
        ("rnn_relu_cell", nn.RNNCell(I, H, nonlinearity="relu"), lambda m, x: m(x), {"x": x(B, I)}),
        ("gru_cell", nn.GRUCell(I, H), lambda m, x, h: m(x, h), {"x": x(B, I), "h": x(B, H)}),
        ("gru_cell_single", nn.GRUCell(I, H), lambda m, x, h: m(x, h), {"x": x(I), "h": x(H)}),
        ("lstm_cell", nn.LSTMCell(I, H), lambda m, x, h, c: m(x, (h, c)), {"x": x(B, I), "h": x(B, H), "c": x(B, H)}),
        ("lstm_cell_no_bias", nn.LSTMCell(I, H, bias=False), lambda m, x: m(x), {"x": x(B, I)}),
    ]
    for name, module, forward, inputs in table:
        out.case(name, spread(module), forward, inputs)
    out.save()


def attention():
    out = Recording("attention")
    N, L, S, E, heads = 2, 3, 4, 4, 2
    make = lambda **more: nn.MultiheadAttention(E, heads, batch_first=True, **more)
    x = lambda *shape: torch.randn(*shape)
    hidden = lambda *shape: torch.rand(*shape) < 0.4

    def seen(mask):
        """No query without any key: PyTorch's answer to those is NaN."""
        mask[..., 0] = False
        return mask

    alone = lambda m, x, **how: m(x, x, x, need_weights=False, **how)[0]
    cross = lambda m, q, k, v, **how: m(q, k, v, need_weights=False, **how)[0]
    causal = lambda m, x, **how: alone(m, x, is_causal=True, attn_mask=nn.Transformer.generate_square_subsequent_mask(x.shape[-2]), **how)
    q_k_v = lambda: {"q": x(N, L, E), "k": x(N, S, E), "v": x(N, S, E)}
    table = [
        ("alone", make(), alone, {"x": x(N, L, E)}),
        ("cross", make(), cross, q_k_v()),
        ("other_widths", make(kdim=3, vdim=5), cross, {"q": x(N, L, E), "k": x(N, S, 3), "v": x(N, S, 5)}),
        ("no_bias", make(bias=False), cross, q_k_v()),
        ("causal", make(), causal, {"x": x(N, L, E)}),
        ("single", make(), alone, {"x": x(L, E)}),
        ("dropout_eval", make(dropout=0.5).eval(), cross, q_k_v()),
        ("bool_mask", make(), cross, {**q_k_v(), "attn_mask": seen(hidden(L, S))}),
        ("float_mask", make(), cross, {**q_k_v(), "attn_mask": x(L, S)}),
        ("mask_by_head", make(), cross, {**q_k_v(), "attn_mask": seen(hidden(N * heads, L, S))}),
        ("float_mask_by_head", make(), cross, {**q_k_v(), "attn_mask": x(N * heads, L, S)}),
        ("padding", make(), cross, {**q_k_v(), "key_padding_mask": seen(hidden(N, S))}),
        ("float_padding", make(), cross, {**q_k_v(), "key_padding_mask": x(N, S)}),
        ("padding_and_mask", make(), cross, {**q_k_v(), "attn_mask": seen(hidden(L, S)), "key_padding_mask": seen(hidden(N, S))}),
        ("causal_and_padding", make(), causal, {"x": x(N, L, E), "key_padding_mask": torch.tensor([[0.0, 0.0, 0.0], [0.0, 0.3, -2.0]])}),
        ("weights", make(), lambda m, q, k, v: m(q, k, v), q_k_v()),
        ("weights_by_head", make(), lambda m, q, k, v, **how: m(q, k, v, average_attn_weights=False, **how), {**q_k_v(), "attn_mask": seen(hidden(L, S)), "key_padding_mask": seen(hidden(N, S))}),
        ("weights_single", make(), lambda m, x: m(x, x, x), {"x": x(L, E)}),
    ]
    for name, module, forward, inputs in table:
        out.case(name, spread(module), forward, inputs)
    out.save()


def transformer():
    out = Recording("transformer")
    N, L, S, E, heads, F = 2, 3, 4, 4, 2, 6
    x = lambda *shape: torch.randn(*shape)
    encoder = lambda **more: nn.TransformerEncoderLayer(E, heads, F, dropout=0.0, batch_first=True, **more)
    decoder = lambda **more: nn.TransformerDecoderLayer(E, heads, F, dropout=0.0, batch_first=True, **more)
    future = nn.Transformer.generate_square_subsequent_mask(L)
    padding = lambda n: torch.arange(n) >= torch.tensor([[n], [n - 1]])
    first = {"norm_first": True, "activation": "gelu"}
    beside = lambda m, x, memory: m(x, memory)

    def masked(m, x, memory, memory_padding):
        return m(x, memory, tgt_mask=future, memory_key_padding_mask=memory_padding)

    stacked = lambda layer, norm: nn.TransformerEncoder(layer, 2, norm, enable_nested_tensor=False)
    table = [
        ("encoder", encoder(), lambda m, x: m(x), {"x": x(N, L, E)}),
        ("encoder_first_gelu", encoder(**first), lambda m, x: m(x), {"x": x(N, L, E)}),
        ("encoder_eps", encoder(layer_norm_eps=0.1), lambda m, x: m(x), {"x": x(L, E)}),
        ("encoder_no_bias", encoder(bias=False), lambda m, x: m(x), {"x": x(N, L, E)}),
        ("encoder_masked", encoder(), lambda m, x, mask, padding: m(x, mask, padding), {"x": x(N, L, E), "mask": future < 0, "padding": padding(L)}),
        ("encoder_stack", stacked(encoder(), None), lambda m, x: m(x), {"x": x(N, L, E)}),
        ("encoder_stack_causal", stacked(encoder(**first), nn.LayerNorm(E)), lambda m, x: m(x, mask=future), {"x": x(N, L, E)}),
        ("decoder", decoder(), beside, {"x": x(N, L, E), "memory": x(N, S, E)}),
        ("decoder_first_gelu", decoder(**first), masked, {"x": x(N, L, E), "memory": x(N, S, E), "memory_padding": padding(S)}),
        ("decoder_stack", nn.TransformerDecoder(decoder(), 2, nn.LayerNorm(E)), masked, {"x": x(N, L, E), "memory": x(N, S, E), "memory_padding": padding(S)}),
    ]
    for name, module, forward, inputs in table:
        out.case(name, spread(module), forward, inputs)
    out.save()


if __name__ == "__main__":
    torch.manual_seed(5)
    recurrent()
    attention()
    transformer()
