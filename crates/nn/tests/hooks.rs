//! Forward hooks: what they see, what they change, and when they run. And clones of layers, which
//! hooks rest on.

use pullback::{Flag, Tensor, grad, jit, vmap};
use pullback_nn::models::{Cnn, Gpt, GptConfig, Mlp};
use pullback_nn::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

fn linear() -> Linear {
    let layer = Linear::new(2, 2);
    pullback::no_grad(|| {
        layer.weight.copy_(Tensor::from([[1.0, 2.0], [3.0, 4.0]]));
        layer.bias.as_ref().unwrap().zero_();
    });
    layer
}

fn row(a: f32, b: f32) -> Tensor {
    Tensor::from_vec(vec![a, b], [1, 2])
}

#[test]
fn hooks_see_and_replace() {
    let layer = Hooked::new(linear());
    let net = Sequential::new().then(layer.clone()).then(Relu);
    assert_eq!(net.named_parameters()[0].0, "0.weight");
    let x = row(1.0, 1.0);
    assert_eq!(net.forward(&x).to_vec::<f32>(), [3.0, 7.0]);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let list = seen.clone();
    let watch = layer.register_forward_hook(move |layer, x, y| {
        assert_eq!(layer.weight.shape(), [2, 2]);
        list.lock().unwrap().push((x.to_vec::<f32>(), y.to_vec::<f32>()));
        None
    });
    let before = layer.register_forward_pre_hook(|_, x| Some(x * 2.0));
    let minus = layer.register_forward_hook(|_, _, y| Some(-y));
    let one = layer.register_forward_hook(|_, _, y| Some(y + 10.0));
    // Doubled before; seen; then negated, then ten more.
    assert_eq!(net.forward(&x).to_vec::<f32>(), [4.0, 0.0]);
    assert_eq!(seen.lock().unwrap().clone(), [(vec![2.0, 2.0], vec![6.0, 14.0])]);
    minus.remove();
    assert_eq!(net.forward(&x).to_vec::<f32>(), [16.0, 24.0]);
    before.remove();
    one.remove();
    watch.remove();
    assert_eq!(net.forward(&x).to_vec::<f32>(), [3.0, 7.0]);
    assert_eq!(seen.lock().unwrap().len(), 2);
}

#[test]
fn what_hooks_do_is_differentiated_and_mapped() {
    let layer = Hooked::new(linear());
    let _kept = layer.register_forward_hook(|_, _, y| Some(y * 3.0));
    let loss = |layer: &Hooked<Linear>| layer.forward(&row(1.0, 1.0)).sum();
    assert_eq!(grad(loss)(&layer).inner.weight.to_vec::<f32>(), [3.0; 4]);
    let each = vmap(|x: &Tensor| layer.forward(&x.unsqueeze(0)).sum(), 0, 0);
    let x = Tensor::from_vec(vec![1f32, 1.0, 1.0, 0.0], [2, 2]);
    assert_eq!(each(&x).to_vec::<f32>(), [30.0, 12.0]);
}

#[test]
fn compiled_functions_run_hooks_while_they_are_traced() {
    let layer = Hooked::new(linear());
    let calls = Arc::new(AtomicUsize::new(0));
    let count = calls.clone();
    // A result that could be differentiated from outside would go op by op.
    layer.freeze();
    let f = jit(|x: &Tensor| layer.forward(x));
    let x = row(1.0, 1.0);
    assert_eq!(f.of(&x).to_vec::<f32>(), [3.0, 7.0]);
    // A hook that comes later makes the function be compiled again, and then runs once.
    let hook = layer.register_forward_hook(move |_, _, y| {
        count.fetch_add(1, Ordering::Relaxed);
        Some(y + 1.0)
    });
    for _ in 0..3 {
        assert_eq!(f.of(&x).to_vec::<f32>(), [4.0, 8.0]);
    }
    let traced = calls.load(Ordering::Relaxed);
    assert_eq!(traced, 1);
    hook.remove();
    assert_eq!(f.of(&x).to_vec::<f32>(), [3.0, 7.0]);
    assert_eq!(calls.load(Ordering::Relaxed), traced);
}

#[test]
fn a_hook_may_register_another() {
    let layer = Hooked::new(linear());
    let other = layer.clone();
    let _kept = layer.register_forward_hook(move |_, _, _| {
        let _later = other.register_forward_hook(|_, _, y| Some(y * 0.0));
        None
    });
    assert_eq!(layer.forward(&row(1.0, 1.0)).to_vec::<f32>(), [3.0, 7.0]);
    assert_eq!(layer.forward(&row(1.0, 1.0)).to_vec::<f32>(), [0.0, 0.0]);
}

#[test]
fn a_copy_has_hooks_of_its_own() {
    let x = row(1.0, 1.0);
    let add =
        |layer: &Hooked<Linear>, n: f32| layer.register_forward_hook(move |_, _, y| Some(y + n));
    let out = |layer: &Hooked<Linear>| layer.forward(&x).to_vec::<f32>();
    let first = Hooked::new(linear());
    let before = add(&first, 1.0);
    let second = first.deep_copy();
    assert_eq!(
        (out(&first), out(&second)),
        (vec![4.0, 8.0], vec![4.0, 8.0]),
        "it begins with them"
    );
    // What comes later is of one of them, and what goes too.
    let _on_first = add(&first, 10.0);
    assert_eq!((out(&first), out(&second)), (vec![14.0, 18.0], vec![4.0, 8.0]));
    let _on_second = second.register_forward_pre_hook(|_, x| Some(x * 2.0));
    assert_eq!((out(&first), out(&second)), (vec![14.0, 18.0], vec![7.0, 15.0]));
    before.remove();
    assert_eq!((out(&first), out(&second)), (vec![13.0, 17.0], vec![7.0, 15.0]));
    // Inside a sequence, and in another dtype, as well.
    let net = Sequential::new().then(first.clone());
    let (copy, wide) = (net.deep_copy(), net.to_dtype(pullback::DType::F64));
    let _later = add(&first, 100.0);
    assert_eq!(net.forward(&x).to_vec::<f32>(), [113.0, 117.0]);
    assert_eq!(copy.forward(&x).to_vec::<f32>(), [13.0, 17.0]);
    assert_eq!(wide.forward(&x.cast(pullback::DType::F64)).to_vec::<f64>(), [13.0, 17.0]);
    // A clone is the same layer.
    assert_eq!(out(&first.clone()), [113.0, 117.0]);
}

/// What is compiled takes a layer as an argument, or copies one inside: other hooks are another
/// function.
#[test]
fn copies_in_what_is_compiled_follow_the_hooks() {
    let layer = Hooked::new(linear());
    layer.freeze();
    let x = row(1.0, 1.0);
    let given = jit(|(layer, x): &(Hooked<Linear>, Tensor)| layer.forward(x));
    let inside = jit(|x: &Tensor| functional_call(&layer, &[], |m| m.forward(x)).unwrap().0);
    let both = || {
        let given = given.of(&(layer.clone(), x.clone())).to_vec::<f32>();
        (given, inside.of(&x).to_vec::<f32>())
    };
    assert_eq!(both(), (vec![3.0, 7.0], vec![3.0, 7.0]));
    let hook = layer.register_forward_hook(|_, _, y| Some(y + 1.0));
    assert_eq!(both(), (vec![4.0, 8.0], vec![4.0, 8.0]));
    hook.remove();
    assert_eq!(both(), (vec![3.0, 7.0], vec![3.0, 7.0]));
    assert!(given.explain().uncompiled.0 == 0 && inside.explain().uncompiled.0 == 0);
}

/// Clones share parameters, buffers and the mode; deep copies share nothing.
fn cloned<M: Module + Clone>(what: &str, model: &M) {
    let (same, own) = (model.clone(), model.deep_copy());
    for ((a, b), c) in model.leaves().iter().zip(same.leaves()).zip(own.leaves()) {
        assert!(a.is_same(&b), "{what}");
        assert!(!a.shares_memory(&c), "{what}");
    }
    assert_eq!(model.named_leaves().len(), own.named_leaves().len(), "{what}");
    let flags = |m: &M| {
        m.tree_structure().flags.iter().map(|(_, f): &(_, Flag)| f.get()).collect::<Vec<_>>()
    };
    model.eval();
    assert_eq!(flags(&same), vec![false; flags(&same).len()], "{what}");
    assert_eq!(flags(&own), vec![true; flags(&own).len()], "{what}");
    model.train();
}

#[test]
fn every_layer_and_model_is_clone() {
    cloned("Linear", &Linear::new(2, 3));
    cloned("Bilinear", &Bilinear::new(2, 3, 2));
    cloned("Conv1d", &Conv1d::new(1, 2, 2));
    cloned("Conv2d", &Conv2d::new(1, 2, 2));
    cloned("ConvTranspose3d", &ConvTranspose3d::new(1, 2, 2));
    cloned("BatchNorm1d", &BatchNorm1d::new(2));
    cloned("InstanceNorm2d", &InstanceNorm2d::new(2).affine().track_running_stats());
    cloned("LayerNorm", &LayerNorm::new([4]));
    cloned("GroupNorm", &GroupNorm::new(2, 4));
    cloned("RmsNorm", &RmsNorm::new([4]));
    cloned("Embedding", &Embedding::new(5, 3));
    cloned("EmbeddingBag", &EmbeddingBag::new(5, 3, pullback::BagMode::Mean));
    cloned("Dropout", &Dropout::new(0.5));
    cloned("Dropout2d", &Dropout2d::new(0.5));
    cloned("AlphaDropout", &AlphaDropout::new(0.5));
    cloned("PRelu", &PRelu::new());
    cloned("Lstm", &Lstm::new(2, 3));
    cloned("Gru", &Gru::new(2, 3));
    cloned("LstmCell", &LstmCell::new(2, 3));
    cloned("MultiHeadAttention", &MultiHeadAttention::new(4, 2));
    cloned("TransformerEncoderLayer", &TransformerConfig::new(4, 2).encoder_layer());
    cloned("Residual", &Residual::new(Linear::new(2, 2)));
    cloned("Checkpointed", &Checkpointed::new(Linear::new(2, 2)));
    cloned("WeightNorm", &WeightNorm::new(Linear::new(2, 2)));
    cloned("SpectralNorm", &SpectralNorm::new(Linear::new(2, 2)));
    cloned("Hooked", &Hooked::new(BatchNorm1d::new(2)));
    cloned("Lambda", &Lambda::new(|x: &Tensor| x * 2.0));
    let net = || {
        Sequential::new().then(Linear::new(2, 2)).then(BatchNorm1d::new(2)).then(Dropout::new(0.1))
    };
    cloned("Sequential", &net());
    cloned("nested Sequential", &Sequential::new().then(net()).then(net()));
    cloned("a tuple", &(net(), vec![Linear::new(2, 2)]));
    cloned("Mlp", &Mlp::new(&[2, 3, 2]));
    cloned("Cnn", &Cnn::new(1, &[2], 3));
    let config =
        GptConfig { vocabulary: 5, length: 4, width: 4, layers: 1, heads: 2, dropout: 0.1 };
    cloned("Gpt", &Gpt::new(&config));
}
