//! Recurrent layers, attention and transformers: PyTorch's numbers from the same weights, and what
//! PyTorch does not have compared with naive formulas.

use crate::recorded::{Inputs, Recording, near};
use pullback::{DType, Key, Tensor, Tree, catch, grad, hvp, jit, no_grad, stack, vmap};
use pullback_nn::{
    AttentionConfig, AttentionMasks, GruCell, KeyValueCache, Layer, Lstm, LstmCell, Module,
    MultiHeadAttention, Recurrence, Recurrent, RecurrentConfig, Rnn, RnnCell, Rotary,
    TransformerConfig, TransformerEncoderLayer,
};

/// All sums are short, so results differ from PyTorch's by a few roundings of `f64`.
const WITHIN: f64 = 1e-9;

fn normal(shape: &[usize], seed: u64) -> Tensor {
    Key::new(seed).normal(shape, DType::F64, 0.0, 1.0)
}

/// A copy in `f64` whose parameters are all random, biases too.
fn spread<M: Module>(module: &M) -> M {
    let module = module.to_dtype(DType::F64);
    for (i, x) in module.parameters().iter().enumerate() {
        no_grad(|| x.copy_(normal(x.shape(), 100 + i as u64) * 0.5));
    }
    module
}

/// Runs a table of cases, each under its name, and wants all that is recorded to be in it.
struct Table<'a> {
    file: &'a Recording,
    left: Vec<&'a str>,
}

impl<'a> Table<'a> {
    fn of(file: &'a Recording) -> Table<'a> {
        Table { file, left: file.cases() }
    }

    fn case<M: Module>(&mut self, name: &str, module: M, run: impl Fn(&M, &Inputs) -> Vec<Tensor>) {
        let at = self.left.iter().position(|known| *known == name);
        self.left.swap_remove(at.unwrap_or_else(|| panic!("{name} is not recorded")));
        let (module, inputs) = (self.file.load(name, &module), self.file.inputs(name));
        let outputs = run(&module, &inputs);
        self.file.compare(name, &module, &inputs, &outputs, WITHIN);
    }

    fn done(self) {
        assert!(self.left.is_empty(), "recorded, but not tested: {:?}", self.left);
    }
}

/// A recurrent layer on what a case gives: the outputs, then the states.
fn all<K: Recurrence>(layer: &Recurrent<K>, inputs: &Inputs) -> Vec<Tensor> {
    let x = inputs.get("x");
    let lengths = inputs.find("lengths");
    let given: Vec<Tensor> = ["h", "c"].iter().filter_map(|k| inputs.find(k).cloned()).collect();
    let (y, state) = match given.is_empty() {
        true => layer.forward_with(x, None, lengths),
        false => {
            let shape = layer.forward(&x.detach()).1;
            layer.forward_from(x, &shape.with_leaves(&given))
        }
    };
    [vec![y], state.leaves()].concat()
}

#[test]
fn recurrent_layers_are_pytorchs() {
    let file = Recording::read(include_bytes!("data/recurrent.safetensors"));
    let mut table = Table::of(&file);
    let base = RecurrentConfig::new(2, 3);
    let (both, two) = (base.bidirectional(), base.num_layers(2));
    table.case("rnn", base.rnn(), all);
    table.case("rnn_relu_layers", two.rnn_relu(), all);
    table.case("rnn_both_no_bias", both.without_bias().rnn(), all);
    table.case("gru", base.gru(), all);
    table.case("gru_layers_both", both.num_layers(2).gru(), all);
    table.case("gru_batch_first", base.batch_first().gru(), all);
    table.case("gru_no_bias", base.without_bias().gru(), all);
    table.case("gru_lengths", base.gru(), all);
    table.case("lstm", base.lstm(), all);
    table.case("lstm_layers_both", both.num_layers(2).lstm(), all);
    table.case("lstm_batch_first", base.batch_first().lstm(), all);
    table.case("lstm_no_bias", base.without_bias().lstm(), all);
    table.case("lstm_projected", both.num_layers(2).proj_size(2).lstm(), all);
    table.case("lstm_single", two.lstm(), all);
    let dropping = two.dropout(0.5).lstm();
    dropping.eval();
    table.case("lstm_dropout_eval", dropping, all);
    table.case("lstm_lengths", both.num_layers(2).batch_first().lstm(), all);
    table.case("rnn_cell", base.rnn_cell(), |m, i| vec![m.forward(i.get("x"), i.find("h"))]);
    table.case("rnn_relu_cell", base.rnn_relu_cell(), |m, i| vec![m.forward(i.get("x"), None)]);
    let gru_cell = |m: &GruCell, i: &Inputs| vec![m.forward(i.get("x"), i.find("h"))];
    table.case("gru_cell", base.gru_cell(), gru_cell);
    table.case("gru_cell_single", base.gru_cell(), gru_cell);
    table.case("lstm_cell", base.lstm_cell(), |m, i| {
        let state = (i.get("h").clone(), i.get("c").clone());
        m.forward(i.get("x"), Some(&state)).leaves()
    });
    table.case("lstm_cell_no_bias", base.without_bias().lstm_cell(), |m, i| {
        m.forward(i.get("x"), None).leaves()
    });
    table.done();
}

/// The masks that a case gives.
fn masks(inputs: &Inputs) -> AttentionMasks<'_> {
    let mut masks = AttentionMasks::new();
    if let Some(mask) = inputs.find("attn_mask") {
        masks = masks.attn_mask(mask);
    }
    if let Some(mask) = inputs.find("key_padding_mask") {
        masks = masks.key_padding_mask(mask);
    }
    masks
}

/// Queries, keys and values of a case, or one tensor as all three.
fn triple(inputs: &Inputs) -> [&Tensor; 3] {
    ["q", "k", "v"].map(|name| inputs.find(name).unwrap_or_else(|| inputs.get("x")))
}

#[test]
fn attention_is_pytorchs() {
    let file = Recording::read(include_bytes!("data/attention.safetensors"));
    let mut table = Table::of(&file);
    let base = AttentionConfig::new(4, 2);
    let plain = |m: &MultiHeadAttention, i: &Inputs| {
        let [q, k, v] = triple(i);
        vec![m.forward(q, k, v, masks(i))]
    };
    let causal = |m: &MultiHeadAttention, i: &Inputs| {
        let [q, k, v] = triple(i);
        vec![m.forward(q, k, v, masks(i).causal())]
    };
    let weights = |average: bool| {
        move |m: &MultiHeadAttention, i: &Inputs| {
            let [q, k, v] = triple(i);
            let (y, weights) = m.forward_with_weights(q, k, v, masks(i), average);
            vec![y, weights]
        }
    };
    table.case("alone", base.build(), plain);
    table.case("cross", base.build(), plain);
    table.case("other_widths", base.kdim(3).vdim(5).build(), plain);
    table.case("no_bias", base.without_bias().build(), plain);
    table.case("causal", base.build(), causal);
    table.case("single", base.build(), plain);
    let dropping = base.dropout(0.5).build();
    dropping.eval();
    table.case("dropout_eval", dropping, plain);
    table.case("bool_mask", base.build(), plain);
    table.case("float_mask", base.build(), plain);
    table.case("mask_by_head", base.build(), plain);
    table.case("float_mask_by_head", base.build(), plain);
    table.case("padding", base.build(), plain);
    table.case("float_padding", base.build(), plain);
    table.case("padding_and_mask", base.build(), plain);
    table.case("causal_and_padding", base.build(), causal);
    table.case("weights", base.build(), weights(true));
    table.case("weights_by_head", base.build(), weights(false));
    table.case("weights_single", base.build(), weights(true));
    table.done();
}

#[test]
fn transformers_are_pytorchs() {
    let file = Recording::read(include_bytes!("data/transformer.safetensors"));
    let mut table = Table::of(&file);
    let base = TransformerConfig::new(4, 2).dim_feedforward(6).dropout(0.0);
    let first = base.norm_first().gelu();
    let none = AttentionMasks::new();
    table.case("encoder", base.encoder_layer(), |m, i| vec![m.forward(i.get("x"))]);
    table.case("encoder_first_gelu", first.encoder_layer(), |m, i| vec![m.forward(i.get("x"))]);
    table.case("encoder_eps", base.layer_norm_eps(0.1).encoder_layer(), |m, i| {
        vec![m.forward(i.get("x"))]
    });
    let plain = base.without_bias().encoder_layer();
    table.case("encoder_no_bias", plain, |m, i| vec![m.forward(i.get("x"))]);
    table.case("encoder_masked", base.encoder_layer(), |m, i| {
        let masks = none.attn_mask(i.get("mask")).key_padding_mask(i.get("padding"));
        vec![m.forward_masked(i.get("x"), masks)]
    });
    table.case("encoder_stack", base.encoder(2), |m, i| vec![m.forward(i.get("x"))]);
    table.case("encoder_stack_causal", first.final_norm().encoder(2), |m, i| {
        vec![m.forward_masked(i.get("x"), none.causal())]
    });
    table.case("decoder", base.decoder_layer(), |m, i| {
        vec![m.forward(i.get("x"), i.get("memory"), none, none)]
    });
    table.case("decoder_first_gelu", first.decoder_layer(), |m, i| {
        let padding = none.key_padding_mask(i.get("memory_padding"));
        vec![m.forward(i.get("x"), i.get("memory"), none.causal(), padding)]
    });
    table.case("decoder_stack", base.final_norm().decoder(2), |m, i| {
        let padding = none.key_padding_mask(i.get("memory_padding"));
        vec![m.forward(i.get("x"), i.get("memory"), none.causal(), padding)]
    });
    table.done();
}

#[test]
fn rotary_turns_pairs_by_the_formula() {
    let (positions, features) = (5, 8);
    let x = normal(&[2, positions, features], 1);
    // (rotated features, base, neighbours, first position)
    for (turned, base, interleaved, offset) in
        [(8, 1e4, false, 0), (8, 1e4, true, 3), (6, 500.0, false, 2), (4, 10.0, true, 0)]
    {
        let rotary = Rotary::new(turned).base(base);
        let rotary = if interleaved { rotary.interleaved() } else { rotary };
        let mut want = x.to_f64_vec();
        for row in 0..2 * positions {
            let at = (row % positions + offset) as f64;
            for i in 0..turned / 2 {
                let angle = at * base.powf(-2.0 * i as f64 / turned as f64);
                let (j, k) = if interleaved { (2 * i, 2 * i + 1) } else { (i, i + turned / 2) };
                let (j, k) = (row * features + j, row * features + k);
                let (a, b) = (want[j], want[k]);
                want[j] = a * angle.cos() - b * angle.sin();
                want[k] = a * angle.sin() + b * angle.cos();
            }
        }
        let want = Tensor::from_vec(want, x.shape());
        near("rotated", &rotary.rotate(&x, offset), &want, 1e-14);
        let list: Vec<i64> = (offset as i64..).take(positions).collect();
        near("at positions", &rotary.rotate_at(&x, &Tensor::from(list)), &want, 1e-14);
    }
    // Products depend on distances alone.
    let rotary = Rotary::new(features);
    let product = |i: usize, j: usize| {
        let a = rotary.rotate(&x.at((0, 0..1)), i);
        (a * rotary.rotate(&x.at((1, 0..1)), j)).sum()
    };
    near("shifted", &product(9, 5), &product(4, 0), 1e-12);
    // f32 at far positions keeps its digits.
    let far = rotary.rotate(&x.cast(DType::F32), 1_000_000);
    let exact = rotary.rotate(&x.cast(DType::F32).cast(DType::F64), 1_000_000);
    near("far away", &far.cast(DType::F64), &exact, 1e-6);
}

#[test]
fn grouped_heads_share_keys_and_values() {
    let (embed, heads, kv_heads, length) = (12, 6, 2, 5);
    let attention = spread(&AttentionConfig::new(embed, heads).kv_heads(kv_heads).build());
    assert_eq!(attention.in_proj_weight.as_ref().unwrap().shape(), [embed + 2 * 4, embed]);
    let x = normal(&[3, length, embed], 2);
    let naive = |attention: &MultiHeadAttention, x: &Tensor| {
        let weight = attention.in_proj_weight.as_ref().unwrap();
        let y = x.matmul(&weight.t()) + attention.in_proj_bias.as_ref().unwrap();
        let mut found = Vec::new();
        for h in 0..heads {
            let group = h / (heads / kv_heads);
            let q = y.narrow(-1, 2 * h as isize, 2);
            let k = y.narrow(-1, (embed + 2 * group) as isize, 2);
            let v = y.narrow(-1, (embed + 4 + 2 * group) as isize, 2);
            let hidden =
                Tensor::arange(0, length as i64).gt(Tensor::arange(0, length as i64).unsqueeze(1));
            let scores = q.matmul(&k.t()) / 2f64.sqrt();
            found.push(scores.masked_fill(&hidden, f64::NEG_INFINITY).softmax(-1).matmul(&v));
        }
        let side_by_side = pullback::cat(&found.iter().collect::<Vec<_>>(), -1);
        side_by_side.linear(&attention.out_proj.weight, attention.out_proj.bias.as_ref())
    };
    let causal = AttentionMasks::new().causal();
    let ours = |attention: &MultiHeadAttention, x: &Tensor| attention.forward(x, x, x, causal);
    near("value", &ours(&attention, &x), &naive(&attention, &x), 1e-12);
    let (weighed, _) = attention.forward_with_weights(&x, &x, &x, causal, true);
    near("with weights", &weighed, &naive(&attention, &x), 1e-12);
    let ours = grad(|m: &MultiHeadAttention| ours(m, &x).square().sum())(&attention);
    let naive = grad(|m: &MultiHeadAttention| naive(m, &x).square().sum())(&attention);
    for ((name, a), (_, b)) in ours.named_leaves().iter().zip(&naive.named_leaves()) {
        near(name, a, b, 1e-12);
    }
}

/// An attention with everything that decoders have.
fn decoder() -> MultiHeadAttention {
    let config = AttentionConfig::new(16, 4).kv_heads(2).rotary(Rotary::new(4)).dropout(0.3);
    let attention = spread(&config.build());
    attention.eval();
    attention
}

#[test]
fn decoding_is_the_causal_run() {
    let (attention, x) = (decoder(), normal(&[2, 7, 16], 3));
    let whole = attention.forward(&x, &x, &x, AttentionMasks::new().causal());
    let cache = attention.cache(2, 10);
    let growing_parts = |x: &Tensor| {
        let (first, mut past) = attention.extend(&x.narrow(1, 0, 3), None);
        let mut parts = vec![first];
        for i in 3..7 {
            let (y, next) = attention.extend(&x.narrow(1, i, 1), Some(&past));
            parts.push(y);
            past = next;
        }
        assert_eq!(past.positions(), 7);
        pullback::cat(&parts.iter().collect::<Vec<_>>(), 1)
    };
    // Twice, with a reset between.
    for _ in 0..2 {
        let mut parts = vec![attention.decode(&x.narrow(1, 0, 3), &cache)];
        parts.extend((3..7).map(|i| attention.decode(&x.narrow(1, i, 1), &cache)));
        assert_eq!(cache.position.item::<i64>(), 7);
        let decoded = pullback::cat(&parts.iter().collect::<Vec<_>>(), 1);
        near("cached", &decoded, &whole, 1e-12);
        assert!(!decoded.is_tracked());
        cache.reset();
    }
    near("growing", &growing_parts(&x), &whole, 1e-12);
    // Gradients pass through what grows, and are those of the whole.
    let causal = AttentionMasks::new().causal();
    let whole = grad(|x: &Tensor| attention.forward(x, x, x, causal).square().sum())(&x);
    let parts = grad(|x: &Tensor| growing_parts(x).square().sum())(&x);
    near("gradient", &parts, &whole, 1e-12);
}

#[test]
fn decoding_compiles_once() {
    let (attention, x) = (decoder(), normal(&[2, 7, 16], 3));
    let whole = attention.forward(&x, &x, &x, AttentionMasks::new().causal());
    let cache = attention.cache(2, 7);
    let step = jit(|x: &Tensor| attention.decode(x, &cache));
    for i in 0..7 {
        let y = step.call(&x.narrow(1, i, 1)).unwrap();
        near("compiled", &y, &whole.narrow(1, i, 1), 1e-12);
    }
    assert_eq!(step.explain().specialisations.len(), 1);
    assert_eq!(cache.position.item::<i64>(), 7);
    // There is no place for an eighth.
    let error = step.call(&x.narrow(1, 0, 1)).unwrap_err().to_string();
    assert!(error.contains('7'), "{error}");
}

#[test]
fn stacks_decode_as_they_run() {
    let config = TransformerConfig::new(8, 2).dim_feedforward(12).norm_first().gelu().final_norm();
    let config = config.rotary(Rotary::new(4).interleaved());
    let x = normal(&[2, 5, 8], 4);
    let (causal, none) = (AttentionMasks::new().causal(), AttentionMasks::new());
    let blocks = spread(&config.encoder(2));
    blocks.eval();
    let caches = blocks.caches(2, 5);
    let whole = blocks.forward_masked(&x, causal);
    let parts: Vec<Tensor> = (0..5).map(|i| blocks.decode(&x.narrow(1, i, 1), &caches)).collect();
    near("encoder", &pullback::cat(&parts.iter().collect::<Vec<_>>(), 1), &whole, 1e-12);
    caches.iter().for_each(KeyValueCache::reset);
    let step = jit(|x: &Tensor| blocks.decode(x, &caches));
    for i in 0..5 {
        let y = step.call(&x.narrow(1, i, 1)).unwrap();
        near("compiled", &y, &whole.narrow(1, i, 1), 1e-12);
    }
    assert_eq!(step.explain().specialisations.len(), 1);

    let blocks = spread(&config.decoder(2));
    blocks.eval();
    let memory = normal(&[2, 3, 8], 5);
    let caches = blocks.caches(2, 5);
    let whole = blocks.forward(&x, &memory, causal, none);
    let step = |i| blocks.decode(&x.narrow(1, i, 1), &memory, &caches, none);
    let parts: Vec<Tensor> = (0..5).map(step).collect();
    near("decoder", &pullback::cat(&parts.iter().collect::<Vec<_>>(), 1), &whole, 1e-12);
}

#[test]
fn a_query_that_sees_nothing_gives_the_bias_and_no_gradient() {
    let attention = spread(&MultiHeadAttention::new(4, 2));
    let x = normal(&[1, 3, 4], 6).requires_grad();
    let hidden = Tensor::from([[true, true, true], [false, true, true], [false, false, false]]);
    let masks = AttentionMasks::new().attn_mask(&hidden);
    let plain = attention.forward(&x, &x, &x, masks);
    let (weighed, weights) = attention.forward_with_weights(&x, &x, &x, masks, false);
    let bias = attention.out_proj.bias.as_ref().unwrap();
    near("plain", &plain.at((0, 0)).detach(), &bias.detach(), 1e-15);
    near("with weights", &weighed, &plain, 1e-12);
    assert_eq!(weights.at((0, .., 0)).to_vec::<f64>(), [0.0; 6]);
    weighed.at((0, 0)).sum().backward().unwrap();
    assert_eq!(x.grad().unwrap().to_vec::<f64>(), [0.0; 12]);
}

/// The derivative of the gradient along some direction compared with central differences of the
/// gradient, which are right to eps².
fn second_derivatives<T: Tree>(at: &T, loss: impl Fn(&T) -> Tensor) {
    let mut i = 0;
    let along = at.map(&mut |p| {
        i += 1;
        normal(p.shape(), 300 + i)
    });
    let found = hvp(&loss, at, &along).leaves();
    let eps = 1e-5;
    let moved = |by: f64| {
        let mut steps = along.leaves().into_iter();
        let there = at.map(&mut |p| p.detach() + steps.next().expect("a direction") * by);
        grad(&loss)(&there).leaves()
    };
    for (k, (up, down)) in moved(eps).iter().zip(&moved(-eps)).enumerate() {
        near(&format!("leaf {k}"), &found[k], &((up - down) / (2.0 * eps)), 1e-7);
    }
}

#[test]
fn second_derivatives_by_parameters_and_inputs() {
    let lstm = spread(&RecurrentConfig::new(2, 3).bidirectional().lstm());
    let x = normal(&[4, 2, 2], 7);
    second_derivatives(&lstm, |m: &Lstm| m.forward(&x).0.sin().sum());
    second_derivatives(&x, |x: &Tensor| lstm.forward(x).0.sin().sum());
    let block = TransformerConfig::new(4, 2).dim_feedforward(6).dropout(0.0).gelu().encoder_layer();
    let (block, x) = (spread(&block), normal(&[2, 3, 4], 8));
    let causal = AttentionMasks::new().causal();
    let of = |m: &TransformerEncoderLayer, x: &Tensor| m.forward_masked(x, causal).sin().sum();
    second_derivatives(&block, |m: &TransformerEncoderLayer| of(m, &x));
    second_derivatives(&x, |x: &Tensor| of(&block, x));
}

#[test]
fn layers_are_mapped_over_examples() {
    let lstm = spread(&RecurrentConfig::new(2, 3).num_layers(2).bidirectional().lstm());
    let of_lstm = |x: &Tensor| lstm.forward(x).0;
    let attention = spread(&AttentionConfig::new(2, 1).rotary(Rotary::new(2)).build());
    let causal = AttentionMasks::new().causal();
    let of_attention = |x: &Tensor| attention.forward(x, x, x, causal);
    let xs = normal(&[3, 4, 2], 9);
    let runs: [&dyn Fn(&Tensor) -> Tensor; 2] = [&of_lstm, &of_attention];
    for (name, one) in ["lstm", "attention"].into_iter().zip(runs) {
        let looped = |f: &dyn Fn(&Tensor) -> Tensor| {
            let each: Vec<Tensor> = (0..3).map(|i| f(&xs.select_at(0, i))).collect();
            stack(&each.iter().collect::<Vec<_>>(), 0)
        };
        near(name, &vmap(one, 0, 0)(&xs), &looped(one), 1e-13);
        let slope = |x: &Tensor| grad(|x: &Tensor| one(x).square().sum())(x);
        near(name, &vmap(slope, 0, 0)(&xs), &looped(&slope), 1e-13);
    }
    // In a batch it is the same.
    let batch = of_lstm(&xs.transpose(0, 1)).transpose(0, 1);
    near("a batch", &batch, &vmap(of_lstm, 0, 0)(&xs), 1e-13);
    near("a batch", &of_attention(&xs), &vmap(of_attention, 0, 0)(&xs), 1e-13);
}

#[test]
fn a_state_carries_on() {
    let gru = spread(&RecurrentConfig::new(2, 3).num_layers(2).gru());
    let x = normal(&[6, 2, 2], 10);
    let (whole, last) = gru.forward(&x);
    let (first, state) = gru.forward(&x.narrow(0, 0, 4));
    let (second, end) = gru.forward_from(&x.narrow(0, 4, 2), &state);
    near("outputs", &pullback::cat(&[&first, &second], 0), &whole, 1e-14);
    near("state", &end, &last, 1e-14);
}

#[test]
fn dropout_is_for_training() {
    let config = RecurrentConfig::new(2, 8).num_layers(2).dropout(0.5);
    let (lstm, x) = (config.lstm().to_dtype(DType::F64), normal(&[4, 3, 2], 11));
    let attention = AttentionConfig::new(8, 2).dropout(0.5).build().to_dtype(DType::F64);
    let block = TransformerConfig::new(8, 2).dim_feedforward(16).dropout(0.5).encoder_layer();
    let (block, z) = (block.to_dtype(DType::F64), normal(&[2, 6, 8], 12));
    let none = AttentionMasks::new();
    let runs: [&dyn Fn() -> Tensor; 4] = [
        &|| lstm.forward(&x).0,
        &|| attention.forward(&z, &z, &z, none),
        &|| attention.forward_with_weights(&z, &z, &z, none, true).0,
        &|| block.forward(&z),
    ];
    for (i, run) in runs.iter().enumerate() {
        assert_ne!(run().to_vec::<f64>(), run().to_vec::<f64>(), "{i} in training");
    }
    lstm.eval();
    attention.eval();
    block.eval();
    for (i, run) in runs.iter().enumerate() {
        assert_eq!(run().to_vec::<f64>(), run().to_vec::<f64>(), "{i} in evaluation");
    }
    // What is not dropped is scaled, so that the mean stays: biases are 0, so without scaling it
    // would be half.
    let exact = attention.forward(&z, &z, &z, none);
    attention.train();
    let sum = (0..400).map(|_| attention.forward(&z, &z, &z, none)).reduce(|a, b| a + b).unwrap();
    let share = (sum / 400.0 * &exact).sum() / exact.square().sum();
    assert!((share.item::<f64>() - 1.0).abs() < 0.1, "{share}");
}

#[test]
fn weights_start_as_pytorchs() {
    let within = |x: &Tensor, bound: f64| {
        let largest = x.detach().abs().max().item::<f32>() as f64;
        assert!(largest <= bound && largest > 0.9 * bound, "{largest} of {bound}");
    };
    let lstm = RecurrentConfig::new(20, 25).num_layers(2).proj_size(10).lstm();
    lstm.parameters().iter().for_each(|x| within(x, 0.2));
    within(&Rnn::new(9, 16).cells[0].weight_hh, 0.25);
    within(&RnnCell::new(9, 16).weight_ih, 0.25);
    let attention = MultiHeadAttention::new(32, 4);
    within(attention.in_proj_weight.as_ref().unwrap(), (6.0f64 / 128.0).sqrt());
    within(&attention.out_proj.weight, 32f64.powf(-0.5));
    for bias in [attention.in_proj_bias.as_ref(), attention.out_proj.bias.as_ref()] {
        assert!(bias.unwrap().to_vec::<f32>().iter().all(|&b| b == 0.0));
    }
    assert_eq!(LstmCell::new(3, 5).parameter_count(), 4 * 5 * (3 + 5 + 2));
    assert_eq!(lstm.tree_structure().kinds, [(String::new(), "Lstm")]);
}

#[test]
fn what_does_not_fit_is_refused_at_the_users_line() {
    #[track_caller]
    fn fails<R>(f: impl FnOnce() -> R, parts: &[&str]) {
        let text = catch(f).err().expect("it must fail").to_string();
        for part in parts.iter().chain(&["tests/sequence.rs:"]) {
            assert!(text.contains(part), "no `{part}` in:\n{text}");
        }
    }
    let zeros = |shape: &[usize]| Tensor::zeros(shape);
    let lstm = RecurrentConfig::new(3, 5).batch_first().lstm();
    fails(|| lstm.forward(&zeros(&[2, 4])), &["Lstm", "[batch, steps, 3]", "f32[2,4]"]);
    fails(|| lstm.forward(&zeros(&[1, 2, 4, 3])), &["Lstm", "f32[1,2,4,3]"]);
    let (x, state) = (zeros(&[2, 4, 3]), (zeros(&[1, 2, 5]), zeros(&[2, 2, 5])));
    fails(|| lstm.forward_from(&x, &state), &["Lstm", "takes states [1, 2, 5]", "f32[2,2,5]"]);
    let lengths = Tensor::from([1i64, 2, 3]);
    fails(|| lstm.forward_with(&x, None, Some(&lengths)), &["Lstm", "2 integers", "i64[3]"]);
    fails(|| RecurrentConfig::new(3, 5).proj_size(2).gru(), &["Gru", "proj_size"]);
    fails(|| RecurrentConfig::new(3, 5).num_layers(0).gru(), &["Gru", "at least one layer"]);
    fails(|| LstmCell::new(3, 5).forward(&zeros(&[2, 4]), None), &["LstmCell", "[batch, 3]"]);
    let h = zeros(&[3, 5]);
    fails(|| RnnCell::new(3, 5).forward(&zeros(&[2, 3]), Some(&h)), &["RnnCell", "f32[3,5]"]);

    fails(|| MultiHeadAttention::new(10, 3), &["MultiHeadAttention", "3 heads", "10 features"]);
    fails(|| AttentionConfig::new(8, 4).kv_heads(3).build(), &["4 heads", "3 of keys"]);
    let attention = MultiHeadAttention::new(8, 2);
    let (x, none) = (zeros(&[2, 5, 8]), AttentionMasks::new());
    let bad = zeros(&[2, 5, 6]);
    fails(|| attention.forward(&x, &bad, &x, none), &["keys", "positions, 8", "f32[2,5,6]"]);
    let short = zeros(&[2, 4, 8]);
    fails(|| attention.forward(&x, &short, &x, none), &["attention", "f32[2,2,4,4]"]);
    let mask = Tensor::from([[true; 4]; 5]);
    fails(|| attention.forward(&x, &x, &x, none.attn_mask(&mask)), &["bool[5,4]"]);
    let padding = Tensor::from([[true; 5]; 3]);
    let padded = none.key_padding_mask(&padding);
    fails(|| attention.forward(&x, &x, &x, padded), &["key_padding_mask", "bool[3,5]"]);
    fails(|| Rotary::new(6).rotate(&zeros(&[3, 4]), 0), &["Rotary", "6 features", "f32[3,4]"]);
    fails(|| Rotary::new(3).rotate(&zeros(&[3, 4]), 0), &["Rotary", "even", "3"]);

    let cache = KeyValueCache::new(1, 2, 4, 4, DType::F32);
    fails(|| attention.decode(&x, &cache), &["KeyValueCache", "f32[1,2,4,4]", "f32[2,2,5,4]"]);
    let cache = attention.cache(2, 4);
    let _ = attention.decode(&zeros(&[2, 3, 8]), &cache);
    fails(
        || attention.decode(&zeros(&[2, 2, 8]), &cache),
        &["KeyValueCache", "f32[2,2,4,4] has fewer than 2 positions left", "reset"],
    );
    // What was refused has not changed it.
    assert_eq!(cache.position.item::<i64>(), 3);

    let config = TransformerConfig::new(8, 2).dim_feedforward(16);
    fails(|| TransformerConfig::new(9, 2).encoder_layer(), &["2 heads", "9 features"]);
    fails(|| config.encoder_layer().forward(&zeros(&[2, 5, 6])), &["f32[2,5,6]"]);
    fails(|| config.encoder(2).forward(&zeros(&[2, 5, 6])), &["f32[2,5,6]"]);
    let blocks = config.encoder(2);
    fails(|| blocks.decode(&x, &blocks.caches(2, 9)[..1]), &["2 layers", "not 1"]);
    let decoder = config.decoder_layer();
    fails(|| decoder.forward(&x, &zeros(&[2, 3, 7]), none, none), &["keys", "f32[2,3,7]"]);
}
