//! Both preludes at once: no name collides, and every name is used here.

use both::*;

/// A name that both have cannot be used.
mod both {
    pub use pullback::prelude::*;
    pub use pullback_nn::prelude::*;
}

// The layers that no test below uses.
#[allow(unused_imports)]
use both::{
    AdaptiveAvgPool, AdaptiveMaxPool, AdaptiveMaxPool1d, AdaptiveMaxPool2d, AdaptiveMaxPool3d,
    AttentionConfig, AttentionMasks, AvgPool, BatchNorm, Celu, ChannelDropout, Convolution,
    ElmanStep, ForwardHook, GeluTanh, Glu, GruStep, Hardshrink, Hardsigmoid, Hardswish, Hardtanh,
    Identity, InstanceNorm, KeyValueCache, KeyValues, Lengths, LocalResponseNorm, LogSigmoid,
    LstmStep, MaxPool, Mish, PaddingMode, PerAxis, PixelShuffle, PixelUnshuffle, RRelu, Recurrence,
    Recurrent, RecurrentCell, RecurrentConfig, Relu6, Rotary, Selu, Softmin, Softplus, Softshrink,
    Softsign, Tanhshrink, Threshold, TransformerConfig, TransposedConvolution,
};

fn exists<T: ?Sized>() {}

#[test]
fn types_do_not_collide() {
    macro_rules! types {
        ($($type:ty)*) => {$( exists::<$type>(); )*};
    }
    types!(Borrowed<Tensor> BoxedJit<Tensor, Tensor> DType Device Flag Index Key Reduction Scalar);
    types!(Jit<Tensor, Tensor, fn(&Tensor) -> Tensor> Shape Tensor bf16 f16 dyn Operand);
    types!(DataLoader<TensorDataset<Tensor>, Tensor> BceLoss BceWithLogitsLoss CosineEmbeddingLoss);
    types!(CrossEntropyLoss CtcLoss GaussianNllLoss HingeEmbeddingLoss HuberLoss KlDivLoss L1Loss);
    types!(MarginRankingLoss MseLoss MultiMarginLoss MultilabelMarginLoss MultilabelSoftMarginLoss);
    types!(NllLoss PoissonNllLoss SmoothL1Loss SoftMarginLoss TripletMarginLoss dyn Loss dyn Layer);
    types!(Adam AdamW Lion Muon RmsProp Sgd CosineAnnealingLr LinearWarmup<StepLr> OneCycleLr AdaptiveAvgPool1d);
    types!(AdaptiveAvgPool2d AdaptiveAvgPool3d AlphaDropout AvgPool1d AvgPool2d AvgPool3d);
    types!(BatchNorm1d BatchNorm2d BatchNorm3d Bilinear Checkpointed<Linear> Conv1d Conv2d Conv3d);
    types!(ConvTranspose1d ConvTranspose2d ConvTranspose3d Dropout Dropout1d Dropout2d Dropout3d);
    types!(Elu Embedding EmbeddingBag Flatten Gelu GroupNorm Gru GruCell Hooked<Relu>);
    types!(InstanceNorm1d InstanceNorm2d InstanceNorm3d Lambda<()> LayerNorm LeakyRelu LogSoftmax);
    types!(Lstm LstmCell MaxPool1d MaxPool2d MaxPool3d MultiHeadAttention PRelu Pad Residual<Relu>);
    types!(RmsNorm Rnn RnnCell Sequential Sigmoid Silu Softmax SpectralNorm<Linear> Tanh);
    types!(TransformerDecoder TransformerDecoderLayer TransformerEncoder TransformerEncoderLayer);
    types!(Unflatten Upsample WeightNorm<Linear>);
}

#[derive(Tree)]
struct Doubled(Linear);

impl Layer for Doubled {
    fn forward(&self, x: &Tensor) -> Tensor {
        let scope = module_scope(self);
        scope.output(2.0 * self.0.forward(x))
    }
}

fn shaped(shape: impl IntoShape, axes: impl IntoAxes) -> Tensor {
    Tensor::ones(shape).sum_over(axes)
}

fn length(data: &impl Dataset) -> usize {
    data.len()
}

fn updated<R: UpdateRule>(rule: R, model: &impl Module) -> impl Optimizer {
    rule.over(model.parameters()).unwrap()
}

#[test]
fn functions_do_not_collide() {
    // Not called: the generator is shared with other tests.
    let _: fn(u64) = manual_seed;
    let x = shaped([2, 3], 0);
    let square = |x: &Tensor| x.square().sum();
    assert_eq!(grad(square)(&x).to_vec::<f32>(), [4.0; 3]);
    assert_eq!(value_and_grad(square)(&x).0.item::<f32>(), 12.0);
    assert_eq!(hessian(square)(&x).shape(), jacobian(grad(square))(&x).shape());
    assert_eq!(hvp(square, &x, &x).shape(), [3]);
    assert_eq!(vjp(square, &x).0.item::<f32>(), jvp(square, &x, &x).0.item::<f32>());
    assert_eq!(vmap(square, 0, 0)(&stack(&[&x, &x], 0)).shape(), [2]);
    assert_eq!(jit(|x: &Borrowed<Tensor>| x.sum()).of(&borrowed(&x)).item::<f32>(), 6.0);
    assert_eq!(cat(&[&x, &x], 0).shape(), [6]);
    assert_eq!(einsum("i,i->", &[&x, &x]).item::<f32>(), 12.0);
    assert_eq!(meshgrid(&[&x, &x])[0].shape(), [3, 3]);
    let halved = cond(&x.sum().gt(3.0), |x| x / 2.0, |x| x.clone(), &x);
    assert_eq!(halved.to_vec::<f32>(), [1.0; 3]);
    assert_eq!(fori_loop(0, 3, |_, x: &Tensor| x + 1.0, &x).to_vec::<f32>(), [5.0; 3]);
    let grown = while_loop(|x: &Tensor| x.sum().lt(10.0), |x: &Tensor| x * 2.0, &x);
    assert_eq!(grown.to_vec::<f32>(), [4.0; 3]);
    let (total, _) = scan(|sum: &Tensor, x: &Tensor| (sum + x, sum + x), &x.new_zeros([]), &x);
    assert_eq!(total.item::<f32>(), 6.0);
    detect_anomaly(|| no_grad(|| x.square()));

    let model = Doubled(Linear::new(3, 2));
    let optimizer = updated(Sgd::default(), &model);
    let y = checkpoint_with(&model, |model, x| model.forward(x), &x);
    let y = y + checkpoint(|x: &Tensor| x.sum(), &x);
    cross_entropy(&y, &Tensor::from(1i64)).backward().unwrap();
    clip_grad_norm_(&model.parameters(), 1.0).unwrap();
    clip_grad_value_(&model.parameters(), 1.0).unwrap();
    let mut schedule = Scheduler::new(&optimizer, StepLr { step_size: 1, gamma: 0.5 });
    optimizer.step().unwrap();
    schedule.step();
    let (y, _) = functional_call(&model, &[], |model| model.forward(&x)).unwrap();
    assert_eq!(y.shape(), checkpoint_sequential(std::slice::from_ref(&model), None, &x).shape());
    assert_eq!(length(&TensorDataset::new(x).unwrap()), 3);
}

/// The names that a file exports, one by one or in lists.
fn names(source: &str) -> Vec<&str> {
    let lists = source.split("pub use ").skip(1).filter_map(|list| list.split_once(';'));
    let lists = lists.map(|(list, _)| match list.split_once('{') {
        Some((_, list)) => list.trim_end_matches('}'),
        None => list.rsplit("::").next().unwrap_or(list),
    });
    let names = lists.flat_map(|list| list.split(',').map(str::trim));
    names.filter(|name| !name.is_empty() && *name != "*").collect()
}

#[test]
fn every_name_is_used() {
    let code = include_str!("prelude.rs");
    let words: Vec<&str> = code.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect();
    let ours = names(include_str!("../../pullback/src/prelude.rs"));
    let networks = names(include_str!("../src/prelude.rs"));
    let layers = names(include_str!("../src/layers/mod.rs"));
    assert!(ours.contains(&"Tensor") && networks.contains(&"AdamW"));
    assert!(layers.contains(&"Embedding") && layers.contains(&"GruStep"));
    for name in ours.iter().chain(&networks).chain(&layers) {
        assert!(words.contains(name), "{name} is not used here");
    }
}
