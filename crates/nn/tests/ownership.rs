//! Who owns what: clones, copies, boxed layers, compiled steps in structs, borrowed models.

use pullback::{BoxedJit, DType, Result, Tensor, Tree, catch, checkpoint_with, jit};
use pullback_nn::optim::{Optimizer, Sgd, UpdateRule};
use pullback_nn::*;

fn values(x: &Tensor) -> Vec<f64> {
    x.cast(DType::F64).to_vec::<f64>()
}

fn gradients(module: &impl Module) -> Vec<Vec<f64>> {
    let found = module.parameters();
    found.iter().map(|x| x.grad().map_or(Vec::new(), |g| values(&g))).collect()
}

#[test]
fn every_layer_is_clone() {
    fn clone<T: Clone + Layer>() {}
    macro_rules! clones {
        ($($layer:ty)*) => {$( clone::<$layer>(); )*};
    }
    clones!(AdaptiveAvgPool2d AdaptiveMaxPool2d AlphaDropout AvgPool2d BatchNorm2d Conv2d Celu);
    clones!(Checkpointed<Linear> ConvTranspose2d Dropout Dropout2d Elu Embedding Flatten Gelu);
    clones!(GeluTanh Glu GroupNorm Hardshrink Hardsigmoid Hardswish Hardtanh Hooked<Linear>);
    clones!(Identity InstanceNorm2d LayerNorm LeakyRelu Linear LocalResponseNorm LogSigmoid);
    clones!(LogSoftmax MaxPool2d Mish PRelu Pad PixelShuffle PixelUnshuffle RRelu Relu Relu6);
    clones!(Residual<Linear> RmsNorm Selu Sequential Sigmoid Silu Softmax Softmin Softplus);
    clones!(Softshrink Softsign SpectralNorm<Linear> Tanh Tanhshrink Threshold Unflatten Upsample);
    clones!(WeightNorm<Linear> Vec<Linear> Option<Linear> (Linear, Relu) [Linear; 2] Box<Linear>);
    clones!(Box<dyn Layer> models::Mlp models::Cnn);
    fn clone_module<T: Clone + Module>() {}
    macro_rules! modules {
        ($($module:ty)*) => {$( clone_module::<$module>(); )*};
    }
    modules!(Bilinear EmbeddingBag Gru GruCell Lstm LstmCell MultiHeadAttention Rnn RnnCell);
    modules!(Rotary TransformerDecoder TransformerDecoderLayer TransformerEncoder);
    modules!(TransformerEncoderLayer);
}

#[derive(Clone, Tree)]
struct Net {
    layers: Vec<Box<dyn Layer>>,
    head: Box<dyn Layer>,
}

impl Layer for Net {
    fn forward(&self, x: &Tensor) -> Tensor {
        let scope = module_scope(self);
        scope.output(self.head.forward(&self.layers.forward(x)))
    }
}

fn net() -> Net {
    Net {
        layers: vec![
            Box::new(Linear::new(4, 6)),
            Box::new(BatchNorm1d::new(6)),
            Box::new(Hooked::new(Dropout::new(0.5))),
        ],
        head: Box::new(Sequential::new().then(Relu).then(Linear::new(6, 2))),
    }
}

#[test]
fn boxed_layers_are_layers() {
    let net = net();
    let names: Vec<String> = net.named_state().into_iter().map(|(name, _)| name).collect();
    let expected = [
        "layers.0.weight",
        "layers.0.bias",
        "layers.1.weight",
        "layers.1.bias",
        "layers.1.running_mean",
        "layers.1.running_var",
        "layers.1.num_batches_tracked",
        "head.1.weight",
        "head.1.bias",
    ];
    assert_eq!(names, expected);
    assert_eq!(net.named_buffers().len(), 3);
    net.eval();
    let x = Tensor::ones([3, 4]);
    net.forward(&x).sum().backward().unwrap();
    assert!(net.parameters().iter().all(|x| x.grad().is_some()));
    // In a sequence, compiled, and cast.
    let sequence = Sequential::new().then(net.layers.clone()).then(net.head.clone());
    let (eager, compiled) = (net.forward(&x), jit(|x: &Tensor| sequence.forward(x)).of(&x));
    assert_eq!(values(&eager), values(&compiled));
    assert_eq!(net.to_dtype(DType::F64).parameters()[0].dtype(), DType::F64);
    assert!(net.summary().to_string().contains("BatchNorm1d"));
    // Errors name the line of the call.
    let error = catch(|| net.head.forward(&Tensor::ones([3, 5]))).unwrap_err().to_string();
    assert!(error.contains("ownership.rs"), "{error}");
}

#[test]
fn clones_share_and_deep_copies_do_not() {
    let net = net();
    net.forward(&Tensor::ones([3, 4]));
    let (same, own) = (net.clone(), net.deep_copy());
    for ((a, b), c) in net.named_state().iter().zip(&same.named_state()).zip(&own.named_state()) {
        assert!(a.1.is_same(&b.1), "{}", a.0);
        assert!(!a.1.shares_memory(&c.1), "{}", a.0);
        assert_eq!(values(&a.1), values(&c.1), "{}", a.0);
        assert_eq!((a.1.spec(), a.1.is_leaf()), (c.1.spec(), c.1.is_leaf()), "{}", a.0);
    }
    // So with the mode: dropout drops where it is trained.
    let drops = |net: &Net| {
        let y = net.layers[2].forward(&Tensor::ones([100]));
        values(&y).contains(&0.0)
    };
    assert!(drops(&net) && drops(&same) && drops(&own));
    same.eval();
    assert!(!drops(&net) && !drops(&same) && drops(&own));
    assert!(!drops(&net.deep_copy()));
    own.eval();
    net.train();
    assert!(drops(&net) && drops(&same) && !drops(&own));
    // And with hooks of the layer inside.
    let hooked = Hooked::new(Relu);
    let boxed: Box<dyn Layer> = Box::new(hooked.clone());
    let clone = boxed.clone();
    hooked.register_forward_hook(|_, _, y| Some(y + 1.0));
    assert_eq!(clone.forward(&Tensor::zeros([])).item::<f32>(), 1.0);
}

/// A model with its compiled step.
struct Fit {
    model: Sequential,
    step: BoxedJit<(Tensor, Tensor), Result<Tensor>>,
}

impl Fit {
    fn new(model: Sequential) -> Result<Fit> {
        let optimizer = Sgd { lr: 0.1, ..Sgd::default() }.over(model.parameters())?;
        let net = model.clone();
        let step = jit(move |(x, y): &(Tensor, Tensor)| {
            optimizer.zero_grad();
            let loss = losses::mse(&net.forward(x), y, losses::Reduction::Mean);
            loss.backward()?;
            optimizer.step()?;
            Ok(loss)
        });
        Ok(Fit { model, step: step.boxed() })
    }
}

#[test]
fn a_compiled_step_lives_next_to_its_model() {
    let fit = Fit::new(Sequential::new().then(Linear::new(3, 1))).unwrap();
    let x = Tensor::from([[1.0f32, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]);
    let data = (x.clone(), Tensor::from([[1.0f32], [2.0], [3.0]]));
    let fits = vec![fit];
    for _ in 0..300 {
        fits[0].step.call(&data).unwrap();
    }
    assert_eq!(fits[0].step.explain().specialisations.len(), 1);
    let error = (fits[0].model.forward(&x) - &data.1).abs().max().item::<f32>();
    assert!(error < 0.1, "{error}");
    // It may move to another thread.
    let fit = fits.into_iter().next().unwrap();
    std::thread::spawn(move || fit.step.call(&data).map(|y| y.item::<f32>()))
        .join()
        .unwrap()
        .unwrap();
}

/// The net without its dropout.
fn sure(net: &Net, x: &Tensor) -> Tensor {
    net.head.forward(&net.layers[1].forward(&net.layers[0].forward(x)))
}

#[test]
fn a_checkpoint_borrows_its_model() {
    let model = net();
    let x = Tensor::from([[1.0f32, -2.0, 0.5, 3.0], [0.0, 1.0, 2.0, -1.0]]).requires_grad();
    sure(&model, &x).square().sum().backward().unwrap();
    let expected = (gradients(&model), values(&x.grad().unwrap()));
    model.zero_grad();
    x.zero_grad();
    let batches = |net: &Net| net.named_buffers()[2].1.item::<i64>();
    let y = {
        // Borrowed for the call alone.
        let borrowed = model.clone();
        checkpoint_with(&borrowed, sure, &x)
    };
    assert_eq!(batches(&model), 2);
    y.square().sum().backward().unwrap();
    assert_eq!(batches(&model), 2);
    assert_eq!((gradients(&model), values(&x.grad().unwrap())), expected);
}

#[test]
fn a_borrowed_model_that_changed_mode_is_refused() {
    let (model, x) = (net(), Tensor::ones([3, 4]).requires_grad());
    let y = checkpoint_with(&model, |m, x| m.forward(x), &x);
    model.eval();
    let error = y.sum().backward().unwrap_err().to_string();
    assert!(error.contains("call backward before train() or eval()"), "{error}");
}
