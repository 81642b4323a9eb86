//! What every module can do, on modules made of layers.

use crate::seeded;
use pullback::{DType, Tensor, Tree, grad, jit, manual_seed, no_grad};
use pullback_nn::optim::{AdamW, Optimizer, UpdateRule};
use pullback_nn::*;

fn names(list: &[(String, Tensor)]) -> Vec<&str> {
    list.iter().map(|(name, _)| &name[..]).collect()
}

fn cnn() -> Sequential {
    Sequential::new()
        .then(Conv2d::new(1, 4, 3).padding(1).without_bias())
        .then(BatchNorm2d::new(4))
        .then(Relu)
        .then(MaxPool2d::new(2))
        .then(Residual::new(
            Sequential::new()
                .then(Conv2d::new(4, 4, 3).padding(1))
                .then(BatchNorm2d::new(4).momentum(None)),
        ))
        .then(Flatten::new())
        .then(Linear::new(4 * 4 * 4, 3))
}

#[test]
fn names_are_those_of_pytorch() {
    let _alone = seeded(0);
    let net = cnn();
    let parameters = [
        "0.weight",
        "1.weight",
        "1.bias",
        "4.inner.0.weight",
        "4.inner.0.bias",
        "4.inner.1.weight",
        "4.inner.1.bias",
        "6.weight",
        "6.bias",
    ];
    assert_eq!(names(&net.named_parameters()), parameters);
    let statistics = ["running_mean", "running_var", "num_batches_tracked"];
    let buffers: Vec<String> =
        ["1", "4.inner.1"].iter().flat_map(|at| statistics.map(|s| format!("{at}.{s}"))).collect();
    assert_eq!(names(&net.named_buffers()), buffers);
    assert_eq!(net.parameter_count(), 36 + 8 + 148 + 8 + 195);
    assert!(net.parameters().iter().all(Tensor::is_leaf));
    assert!(net.named_buffers().iter().all(|(_, b)| !b.is_tracked()));
}

#[derive(Tree)]
struct Tied {
    embedding: Embedding,
    head: Linear,
}

fn tied() -> Tied {
    let embedding = Embedding::new(5, 3);
    let head = Linear { weight: embedding.weight.clone(), bias: None };
    Tied { embedding, head }
}

#[test]
fn tied_parameters_are_one() {
    let _alone = seeded(0);
    let net = tied();
    assert_eq!(names(&net.named_parameters()), ["embedding.weight"]);
    assert_eq!(net.parameter_count(), 15);
    // Both uses add to its gradient.
    let loss = |net: &Tied| {
        let x = net.embedding.forward(&Tensor::from([1i64, 4]));
        net.head.forward(&x).square().sum()
    };
    loss(&net).backward().unwrap();
    let both = net.head.weight.grad().unwrap().to_vec::<f32>();
    assert_eq!(net.embedding.weight.grad().unwrap().to_vec::<f32>(), both);
    // A copy shares nothing with it, and is tied in itself.
    let copy = net.deep_copy();
    assert!(copy.embedding.weight.is_same(&copy.head.weight));
    assert!(!copy.head.weight.shares_memory(&net.head.weight));
    assert!(copy.head.weight.grad().is_none() && copy.head.weight.is_leaf());
    loss(&copy).backward().unwrap();
    assert_eq!(copy.head.weight.grad().unwrap().to_vec::<f32>(), both);
}

#[test]
fn a_copy_is_independent() {
    let _alone = seeded(0);
    let net = cnn();
    net.eval();
    net.parameters()[0].set_requires_grad(false);
    let copy = net.deep_copy();
    assert!(!copy.parameters()[0].is_leaf() && copy.parameters()[1].is_leaf());
    let pairs = || net.named_state().into_iter().zip(copy.named_state());
    for ((name, a), (other, b)) in pairs() {
        assert!(
            name == other && a.to_f64_vec() == b.to_f64_vec() && !a.shares_memory(&b),
            "{name}"
        );
    }
    // Modes too.
    copy.train();
    assert!(net.tree_structure().flags.iter().all(|(_, flag)| !flag.get()));
    copy.forward(&Tensor::randn([2, 1, 8, 8]));
    assert_eq!(net.named_buffers()[2].1.item::<i64>(), 0);
    assert_eq!(copy.named_buffers()[2].1.item::<i64>(), 1);
}

#[test]
fn another_dtype() {
    let _alone = seeded(0);
    let net = cnn().to_dtype(DType::F64);
    assert!(net.parameters().iter().all(|p| p.dtype() == DType::F64 && p.is_leaf()));
    let buffers = net.named_buffers();
    assert_eq!((buffers[0].1.dtype(), buffers[2].1.dtype()), (DType::F64, DType::I64));
    let x = Tensor::randn_with([2, 1, 8, 8], DType::F64);
    assert_eq!(net.forward(&x).dtype(), DType::F64);
}

#[test]
fn frozen_parameters_get_no_gradient() {
    let _alone = seeded(0);
    let net = (Linear::new(3, 4), Relu, Linear::new(4, 2));
    net.0.freeze();
    let x = Tensor::randn([5, 3]);
    net.forward(&x).sum().backward().unwrap();
    assert!(net.0.weight.grad().is_none() && net.2.weight.grad().is_some());
    assert!(!net.0.weight.is_leaf());
    net.unfreeze();
    net.forward(&x).sum().backward().unwrap();
    assert!(net.0.weight.grad().is_some());
    net.zero_grad();
    assert!(net.parameters().iter().all(|p| p.grad().is_none()));
    // Integers and buffers stay as they are.
    let norm = BatchNorm1d::new(3);
    norm.freeze();
    norm.unfreeze();
    assert!(norm.weight.unwrap().is_leaf() && !norm.running_mean.unwrap().is_tracked());
}

#[test]
fn modes_reach_everything_inside() {
    let _alone = seeded(0);
    let deep = Sequential::new().then(Residual::new((Linear::new(3, 3), Dropout::new(0.9))));
    let net = (vec![deep], Some(BatchNorm1d::new(3)));
    let x = Tensor::randn([8, 3]);
    let same = || net.forward(&x).to_vec::<f32>() == net.forward(&x).to_vec::<f32>();
    assert!(!same());
    net.eval();
    assert!(same());
    let count = net.1.as_ref().unwrap().num_batches_tracked.clone().unwrap();
    assert_eq!(count.item::<i64>(), 2);
    net.train();
    assert!(!same());
    assert_eq!(count.item::<i64>(), 4);
}

#[test]
fn a_compiled_forward_sees_the_mode() {
    let _alone = seeded(0);
    let net = Sequential::new().then(Linear::new(4, 4)).then(Dropout::new(0.5));
    let forward = jit(|x: &Tensor| no_grad(|| net.forward(x)));
    let x = Tensor::ones([64, 4]);
    let first = forward.of(&x).to_vec::<f32>();
    assert!(first.contains(&0.0));
    assert_ne!(forward.of(&x).to_vec::<f32>(), first, "a new draw at each call");
    net.eval();
    let plain = net.forward(&x).to_vec::<f32>();
    assert_eq!(forward.of(&x).to_vec::<f32>(), plain);
    net.train();
    assert!(forward.of(&x).to_vec::<f32>().contains(&0.0));
    assert_eq!(forward.explain().specialisations.len(), 2);
}

/// Three steps of training, op by op or compiled: the losses, and the state afterwards.
fn trained(compiled: bool) -> (Vec<f64>, Vec<f64>) {
    manual_seed(3);
    let net = cnn().to_dtype(DType::F64);
    let x = Tensor::randn_with([6, 1, 8, 8], DType::F64);
    let step = jit(|x: &Tensor| {
        net.zero_grad();
        let loss = net.forward(x).square().mean();
        loss.backward()?;
        no_grad(|| net.parameters().iter().for_each(|p| drop(p.sub_(p.grad().unwrap() * 0.01))));
        Ok(loss)
    });
    let run = |x: &Tensor| if compiled { step.of(x) } else { step.eager(x) };
    let losses = (0..3).map(|_| run(&x).item::<f64>()).collect();
    assert_eq!(step.explain().specialisations.len(), usize::from(compiled));
    (losses, net.named_state().iter().flat_map(|(_, s)| s.to_f64_vec()).collect())
}

#[test]
fn a_compiled_step_of_a_cnn_is_the_step() {
    let _alone = seeded(0);
    let ((losses, state), (compiled_losses, compiled_state)) = (trained(false), trained(true));
    let pairs = losses.iter().chain(&state).zip(compiled_losses.iter().chain(&compiled_state));
    for (a, b) in pairs {
        assert!((a - b).abs() <= 1e-10 * a.abs().max(1.0), "{a} {b}");
    }
    assert!(losses[2] < losses[0], "{losses:?}");
    // The running statistics advanced in both: three batches were seen, twice.
    assert_eq!(state.iter().filter(|&&v| v == 3.0).count(), 2);
}

#[test]
fn a_compiled_function_of_a_model_tells_options_apart() {
    let _alone = seeded(0);
    let apply = jit(|(net, x): &(Conv1d, Tensor)| net.forward(x));
    let x = Tensor::ones([1, 1, 6]);
    let lengths = [1, 2].map(|stride| {
        let net = Conv1d::new(1, 1, 2).stride(stride);
        net.freeze();
        apply.of(&(net, x.clone())).shape()[2]
    });
    assert_eq!(lengths, [5, 3]);
    let apply = jit(|(net, x): &(Upsample, Tensor)| net.forward(x));
    let lengths =
        [2.0, 3.0].map(|by| apply.of(&(Upsample::scale_factor(by), x.clone())).shape()[2]);
    assert_eq!(lengths, [12, 18]);
}

#[test]
fn models_go_between_threads() {
    let _alone = seeded(0);
    fn sendable<T: Send + Sync>(_: &T) {}
    sendable(&cnn());
    sendable(&Lambda::new(|x: &Tensor| x.relu()));
}

/// A user-defined layer together with built-in ones.
#[derive(Tree)]
struct Scale {
    by: Tensor,
}

impl Layer for Scale {
    fn forward(&self, x: &Tensor) -> Tensor {
        x * &self.by
    }
}

#[test]
fn layers_of_ones_own() {
    let _alone = seeded(0);
    let net = Sequential::new()
        .then(Scale { by: Tensor::from(2.0).requires_grad() })
        .then(Lambda::new(|x: &Tensor| x + 1.0));
    assert_eq!(names(&net.named_parameters()), ["0.by"]);
    assert_eq!(net.forward(&Tensor::from([1.0, 2.0])).to_vec::<f64>(), [3.0, 5.0]);
    assert_eq!((net.len(), Sequential::new().is_empty()), (2, true));
}

#[test]
fn bags_by_offsets_are_bags_by_rows() {
    let _alone = seeded(0);
    let layer = EmbeddingBag::new(6, 3, pullback::BagMode::Mean);
    let rows = Tensor::from([[0i64, 1], [5, 5], [2, 4]]);
    let flat = layer.forward_offsets(&rows.reshape([6]), &Tensor::from([0i64, 2, 4]));
    assert_eq!(flat.to_vec::<f32>(), layer.forward(&rows).to_vec::<f32>());
}

#[test]
fn a_model_is_what_functions_are_differentiated_over() {
    let _alone = seeded(0);
    let net = Sequential::new().then(Linear::new(3, 4)).then(Tanh).then(Linear::new(4, 2));
    let x = Tensor::randn([5, 3]);
    let slopes = grad(|net: &Sequential| net.forward(&x).square().sum())(&net);
    net.forward(&x).square().sum().backward().unwrap();
    for ((name, p), slope) in net.named_parameters().iter().zip(slopes.leaves()) {
        assert_eq!(p.grad().unwrap().to_vec::<f32>(), slope.to_vec::<f32>(), "{name}");
    }
}

/// Which parameters of a network move in each step, with the first layer trained or frozen.
fn moved<const N: usize>(compiled: bool, trained: [bool; N]) -> [Vec<bool>; N] {
    let net = Sequential::new().then(Linear::new(3, 4)).then(Tanh).then(Linear::new(4, 2));
    // Weight decay would move what has no gradient too, if it were looked at.
    let optimiser = AdamW { lr: 0.1, weight_decay: 0.5, ..AdamW::default() };
    let optimiser = optimiser.over(net.parameters()).unwrap();
    let step = jit(|x: &Tensor| {
        optimiser.zero_grad();
        let loss = net.forward(x).square().mean();
        loss.backward()?;
        optimiser.step()?;
        Ok(loss)
    });
    let x = Tensor::randn([5, 3]);
    trained.map(|trained| {
        net.parameters()[..2].iter().for_each(|p| p.set_requires_grad(trained));
        let before: Vec<_> = net.parameters().iter().map(Tensor::deep_clone).collect();
        let _ = if compiled { step.of(&x) } else { step.eager(&x) };
        let pairs = net.parameters().into_iter().zip(before);
        pairs
            .map(|(now, old)| now.detach().to_vec::<f32>() != old.detach().to_vec::<f32>())
            .collect()
    })
}

#[test]
fn optimisers_leave_frozen_parameters_alone() {
    let _alone = seeded(0);
    let (frozen, all) = (vec![false, false, true, true], vec![true; 4]);
    assert_eq!(moved(false, [false, true, false]), [frozen.clone(), all.clone(), frozen.clone()]);
    assert_eq!(moved(true, [false, true, false]), [frozen.clone(), all.clone(), frozen.clone()]);
    assert_eq!(moved(true, [true, false, true]), [all.clone(), frozen, all]);
}

#[test]
fn normalised_shapes_are_one_length_or_a_list() {
    let _alone = seeded(3);
    let (n, x) = (6usize, Tensor::randn([2, 5, 6]));
    let expected = LayerNorm::new([6]).forward(&x).to_vec::<f32>();
    for layer in [LayerNorm::new(n), LayerNorm::new(6), LayerNorm::new(vec![n])] {
        assert_eq!(layer.normalized_shape, [6]);
        assert_eq!(layer.forward(&x).to_vec::<f32>(), expected);
    }
    assert_eq!(LayerNorm::new([5, n]).weight.unwrap().shape(), [5, 6]);
    assert_eq!(RmsNorm::new(n).weight.unwrap().shape(), [6]);
    assert_eq!(Upsample::size(4).forward(&Tensor::ones([1, 1, 2, 2])).shape(), [1, 1, 4, 4]);
}
