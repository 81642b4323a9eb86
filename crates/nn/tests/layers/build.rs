//! Layers by PyTorch's name and arguments.

use pullback::{BagMode, DType, InterpolateMode, PadFill, PadMode, Tensor, Tree};
use pullback_nn::*;
use serde_json::{Map, Value};

/// A case of `data/layers.json`.
pub struct Case {
    pub layer: String,
    args: Vec<Value>,
    kwargs: Map<String, Value>,
    pub shape: Vec<usize>,
    pub more: Map<String, Value>,
    pub state: Vec<(String, Vec<usize>)>,
}

/// A layer of one input, or of two.
#[derive(Tree)]
pub enum Built {
    One(Sequential),
    Two(Bilinear),
}

impl Built {
    pub fn forward(&self, xs: &[Tensor]) -> Tensor {
        match self {
            Built::One(layer) => layer.forward(&xs[0]),
            Built::Two(layer) => layer.forward(&xs[0], &xs[1]),
        }
    }
}

/// One number for all axes, or one for each.
fn sizes<const N: usize>(value: &Value) -> [usize; N] {
    match value {
        Value::Array(list) => std::array::from_fn(|i| list[i].as_u64().unwrap() as usize),
        one => [one.as_u64().unwrap() as usize; N],
    }
}

pub fn lengths(value: &Value) -> Vec<usize> {
    value.as_array().unwrap().iter().map(|n| n.as_u64().unwrap() as usize).collect()
}

impl Case {
    pub fn new(value: &Value) -> Case {
        let state = value["state"].as_object().unwrap();
        Case {
            layer: value["layer"].as_str().unwrap().into(),
            args: value["args"].as_array().unwrap().clone(),
            kwargs: value["kwargs"].as_object().unwrap().clone(),
            shape: lengths(&value["shape"]),
            more: value["more"].as_object().unwrap().clone(),
            state: state.iter().map(|(name, shape)| (name.clone(), lengths(shape))).collect(),
        }
    }

    fn n(&self, i: usize) -> usize {
        self.args[i].as_u64().unwrap() as usize
    }

    pub fn second_inputs(&self) -> usize {
        self.n(1)
    }

    fn real(&self, i: usize) -> Option<f64> {
        self.args.get(i).map(|x| x.as_f64().unwrap())
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.kwargs.get(key).and_then(Value::as_str)
    }

    fn says(&self, key: &str, value: bool) -> bool {
        self.kwargs.get(key).is_some_and(|x| x == value)
    }

    fn has<'a, T>(&'a self, key: &str, layer: T, with: impl FnOnce(T, &'a Value) -> T) -> T {
        match self.kwargs.get(key) {
            Some(value) => with(layer, value),
            None => layer,
        }
    }

    fn conv<const N: usize>(&self) -> Convolution<N> {
        let layer = Convolution::<N>::new(self.n(0), self.n(1), sizes(&self.args[2]));
        let layer = self.has("groups", layer, |l, v| l.groups(v.as_u64().unwrap() as usize));
        let layer = self.has("stride", layer, |l, v| l.stride(sizes(v)));
        let layer = self.has("dilation", layer, |l, v| l.dilation(sizes(v)));
        let layer = self.has("padding", layer, |l, v| match v {
            Value::String(_) => l.same(),
            v => l.padding(sizes(v)),
        });
        let layer = self.has("padding_mode", layer, |l, v| {
            l.padding_mode(match v.as_str().unwrap() {
                "reflect" => PaddingMode::Reflect,
                "replicate" => PaddingMode::Replicate,
                _ => PaddingMode::Circular,
            })
        });
        if self.says("bias", false) { layer.without_bias() } else { layer }
    }

    fn conv_transpose<const N: usize>(&self) -> TransposedConvolution<N> {
        let layer = TransposedConvolution::<N>::new(self.n(0), self.n(1), sizes(&self.args[2]));
        let layer = self.has("groups", layer, |l, v| l.groups(v.as_u64().unwrap() as usize));
        let layer = self.has("stride", layer, |l, v| l.stride(sizes(v)));
        let layer = self.has("dilation", layer, |l, v| l.dilation(sizes(v)));
        let layer = self.has("padding", layer, |l, v| l.padding(sizes(v)));
        let layer = self.has("output_padding", layer, |l, v| l.output_padding(sizes(v)));
        if self.says("bias", false) { layer.without_bias() } else { layer }
    }

    fn max_pool<const N: usize>(&self) -> MaxPool<N> {
        let layer = MaxPool::<N>::new(sizes(&self.args[0])).ceil_mode(self.says("ceil_mode", true));
        let layer = self.has("stride", layer, |l, v| l.stride(sizes(v)));
        let layer = self.has("dilation", layer, |l, v| l.dilation(sizes(v)));
        self.has("padding", layer, |l, v| l.padding(sizes(v)))
    }

    fn avg_pool<const N: usize>(&self) -> AvgPool<N> {
        let layer = AvgPool::<N>::new(sizes(&self.args[0]))
            .ceil_mode(self.says("ceil_mode", true))
            .count_include_pad(!self.says("count_include_pad", false));
        let layer = self.has("stride", layer, |l, v| l.stride(sizes(v)));
        let layer =
            self.has("divisor_override", layer, |l, v| l.divisor_override(v.as_i64().unwrap()));
        self.has("padding", layer, |l, v| l.padding(sizes(v)))
    }

    fn output<const N: usize>(&self) -> [Option<usize>; N] {
        match &self.args[0] {
            Value::Array(list) => std::array::from_fn(|i| list[i].as_u64().map(|n| n as usize)),
            one => [Some(one.as_u64().unwrap() as usize); N],
        }
    }

    fn batch_norm<const N: usize>(&self) -> BatchNorm<N> {
        let layer = BatchNorm::<N>::new(self.n(0));
        let layer = self.has("eps", layer, |l, v| l.eps(v.as_f64().unwrap()));
        let layer = self.has("momentum", layer, |l, v| l.momentum(v.as_f64()));
        let layer = if self.says("affine", false) { layer.without_affine() } else { layer };
        let tracked = !self.says("track_running_stats", false);
        if tracked { layer } else { layer.without_running_stats() }
    }

    fn instance_norm<const N: usize>(&self) -> InstanceNorm<N> {
        let layer = InstanceNorm::<N>::new(self.n(0));
        let layer = self.has("eps", layer, |l, v| l.eps(v.as_f64().unwrap()));
        let layer = self.has("momentum", layer, |l, v| l.momentum(v.as_f64().unwrap()));
        let layer = if self.says("affine", true) { layer.affine() } else { layer };
        if self.says("track_running_stats", true) { layer.track_running_stats() } else { layer }
    }

    fn upsample(&self) -> Upsample {
        let layer = match (self.kwargs.get("size"), self.kwargs.get("scale_factor")) {
            (Some(size), _) => Upsample::size(lengths(size)),
            (_, factor) => Upsample::scale_factor(factor.unwrap().as_f64().unwrap()),
        };
        layer.align_corners(self.says("align_corners", true)).mode(match self.text("mode") {
            Some("bilinear" | "linear") => InterpolateMode::Linear,
            Some("bicubic") => InterpolateMode::Cubic,
            _ => InterpolateMode::Nearest,
        })
    }

    fn embedding(&self) -> Embedding {
        let layer = Embedding::new(self.n(0), self.n(1));
        let layer = self.has("padding_idx", layer, |l, v| l.padding_idx(sizes::<1>(v)[0]));
        if self.says("scale_grad_by_freq", true) { layer.scale_grad_by_freq() } else { layer }
    }

    fn embedding_bag(&self) -> EmbeddingBag {
        let mode = match self.text("mode") {
            Some("sum") => BagMode::Sum,
            Some("max") => BagMode::Max,
            _ => BagMode::Mean,
        };
        let layer = EmbeddingBag::new(self.n(0), self.n(1), mode);
        self.has("padding_idx", layer, |l, v| l.padding_idx(sizes::<1>(v)[0]))
    }

    fn layer_norm(&self) -> LayerNorm {
        let layer = LayerNorm::new(lengths(&self.args[0]));
        let layer = self.has("eps", layer, |l, v| l.eps(v.as_f64().unwrap()));
        let layer = if self.says("bias", false) { layer.without_bias() } else { layer };
        if self.says("elementwise_affine", false) { layer.without_affine() } else { layer }
    }

    fn rms_norm(&self) -> RmsNorm {
        let layer = RmsNorm::new(lengths(&self.args[0]));
        let layer = self.has("eps", layer, |l, v| l.eps(v.as_f64().unwrap()));
        if self.says("elementwise_affine", false) { layer.without_affine() } else { layer }
    }

    fn group_norm(&self) -> GroupNorm {
        let layer = GroupNorm::new(self.n(0), self.n(1));
        let layer = self.has("eps", layer, |l, v| l.eps(v.as_f64().unwrap()));
        if self.says("affine", false) { layer.without_affine() } else { layer }
    }

    fn pad(&self, fill: PadFill) -> Pad {
        let all: Vec<isize> =
            self.args[0].as_array().unwrap().iter().map(|n| n.as_i64().unwrap() as isize).collect();
        Pad::new(all.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect::<Vec<_>>(), fill)
    }

    fn local_response_norm(&self) -> LocalResponseNorm {
        let plain = LocalResponseNorm::new(self.n(0));
        LocalResponseNorm {
            alpha: self.real(1).unwrap_or(plain.alpha),
            beta: self.real(2).unwrap_or(plain.beta),
            k: self.real(3).unwrap_or(plain.k),
            ..plain
        }
    }

    fn linear(&self) -> Linear {
        let layer = Linear::new(self.n(0), self.n(1));
        if self.says("bias", false) { layer.without_bias() } else { layer }
    }

    /// The layer, in f64.
    #[rustfmt::skip]
    pub fn build(&self) -> Built {
        if self.layer == "Bilinear" {
            let layer = Bilinear::new(self.n(0), self.n(1), self.n(2));
            let layer = if self.says("bias", false) { layer.without_bias() } else { layer };
            return Built::Two(layer.to_dtype(DType::F64));
        }
        let alone = Sequential::new();
        let axis = |default| self.args.first().map_or(default, |x| x.as_i64().unwrap() as isize);
        let built = match &self.layer[..] {
            "Linear"            => alone.then(self.linear()),
            "Conv1d"            => alone.then(self.conv::<1>()),
            "Conv2d"            => alone.then(self.conv::<2>()),
            "Conv3d"            => alone.then(self.conv::<3>()),
            "ConvTranspose1d"   => alone.then(self.conv_transpose::<1>()),
            "ConvTranspose2d"   => alone.then(self.conv_transpose::<2>()),
            "ConvTranspose3d"   => alone.then(self.conv_transpose::<3>()),
            "MaxPool1d"         => alone.then(self.max_pool::<1>()),
            "MaxPool2d"         => alone.then(self.max_pool::<2>()),
            "MaxPool3d"         => alone.then(self.max_pool::<3>()),
            "AvgPool1d"         => alone.then(self.avg_pool::<1>()),
            "AvgPool2d"         => alone.then(self.avg_pool::<2>()),
            "AvgPool3d"         => alone.then(self.avg_pool::<3>()),
            "AdaptiveAvgPool1d" => alone.then(AdaptiveAvgPool1d::new(self.output())),
            "AdaptiveAvgPool2d" => alone.then(AdaptiveAvgPool2d::new(self.output())),
            "AdaptiveAvgPool3d" => alone.then(AdaptiveAvgPool3d::new(self.output())),
            "AdaptiveMaxPool1d" => alone.then(AdaptiveMaxPool1d::new(self.output())),
            "AdaptiveMaxPool2d" => alone.then(AdaptiveMaxPool2d::new(self.output())),
            "AdaptiveMaxPool3d" => alone.then(AdaptiveMaxPool3d::new(self.output())),
            "Embedding"         => alone.then(self.embedding()),
            "EmbeddingBag"      => alone.then(self.embedding_bag()),
            "LayerNorm"         => alone.then(self.layer_norm()),
            "RMSNorm"           => alone.then(self.rms_norm()),
            "GroupNorm"         => alone.then(self.group_norm()),
            "BatchNorm1d"       => alone.then(self.batch_norm::<1>()),
            "BatchNorm2d"       => alone.then(self.batch_norm::<2>()),
            "BatchNorm3d"       => alone.then(self.batch_norm::<3>()),
            "InstanceNorm1d"    => alone.then(self.instance_norm::<1>()),
            "InstanceNorm2d"    => alone.then(self.instance_norm::<2>()),
            "InstanceNorm3d"    => alone.then(self.instance_norm::<3>()),
            "Dropout"           => alone.then(Dropout::new(self.real(0).unwrap())),
            "Dropout1d"         => alone.then(Dropout1d::new(self.real(0).unwrap())),
            "Dropout2d"         => alone.then(Dropout2d::new(self.real(0).unwrap())),
            "Dropout3d"         => alone.then(Dropout3d::new(self.real(0).unwrap())),
            "AlphaDropout"      => alone.then(AlphaDropout::new(self.real(0).unwrap())),
            "Identity"          => alone.then(Identity),
            "ReLU"              => alone.then(Relu),
            "ReLU6"             => alone.then(Relu6),
            "LeakyReLU"         => alone.then(self.real(0).map_or_else(LeakyRelu::default, LeakyRelu::new)),
            "GELU" if self.text("approximate").is_some() => alone.then(GeluTanh),
            "GELU"              => alone.then(Gelu),
            "SiLU"              => alone.then(Silu),
            "Tanh"              => alone.then(Tanh),
            "Sigmoid"           => alone.then(Sigmoid),
            "LogSigmoid"        => alone.then(LogSigmoid),
            "ELU"               => alone.then(self.real(0).map_or_else(Elu::default, Elu::new)),
            "SELU"              => alone.then(Selu),
            "CELU"              => alone.then(self.real(0).map_or_else(Celu::default, Celu::new)),
            "Softplus" if self.args.is_empty() => alone.then(Softplus::default()),
            "Softplus"          => alone.then(Softplus::new(self.real(0).unwrap(), self.real(1).unwrap())),
            "Softsign"          => alone.then(Softsign),
            "Mish"              => alone.then(Mish),
            "Hardswish"         => alone.then(Hardswish),
            "Hardsigmoid"       => alone.then(Hardsigmoid),
            "Hardtanh" if self.args.is_empty() => alone.then(Hardtanh::default()),
            "Hardtanh"          => alone.then(Hardtanh::new(self.real(0).unwrap(), self.real(1).unwrap())),
            "Softshrink"        => alone.then(self.real(0).map_or_else(Softshrink::default, Softshrink::new)),
            "Hardshrink"        => alone.then(self.real(0).map_or_else(Hardshrink::default, Hardshrink::new)),
            "Tanhshrink"        => alone.then(Tanhshrink),
            "Threshold"         => alone.then(Threshold::new(self.real(0).unwrap(), self.real(1).unwrap())),
            "PReLU" if self.args.is_empty() => alone.then(PRelu::new()),
            "PReLU"             => alone.then(PRelu::per_channel(self.n(0))),
            "RReLU"             => alone.then(RRelu::new(self.real(0).unwrap(), self.real(1).unwrap())),
            "GLU"               => alone.then(Glu::new(axis(-1))),
            "Softmax"           => alone.then(Softmax::new(axis(-1))),
            "Softmin"           => alone.then(Softmin::new(axis(-1))),
            "LogSoftmax"        => alone.then(LogSoftmax::new(axis(-1))),
            "Flatten" if self.args.is_empty() => alone.then(Flatten::new()),
            "Flatten"           => alone.then(Flatten::over(axis(1), self.n(1) as isize)),
            "Unflatten"         => {
                let parts: Vec<isize> = self.args[1].as_array().unwrap().iter().map(|n| n.as_i64().unwrap() as isize).collect();
                alone.then(Unflatten::new(axis(1), parts))
            }
            "Upsample"          => alone.then(self.upsample()),
            "ZeroPad2d"         => alone.then(self.pad(PadFill::Constant(0.0))),
            "ConstantPad1d"     => alone.then(self.pad(PadFill::Constant(self.real(1).unwrap()))),
            "ReflectionPad1d"   => alone.then(self.pad(PadFill::Mode(PadMode::Reflect))),
            "ReplicationPad2d"  => alone.then(self.pad(PadFill::Mode(PadMode::Replicate))),
            "CircularPad3d"     => alone.then(self.pad(PadFill::Mode(PadMode::Circular))),
            "LocalResponseNorm" => alone.then(self.local_response_norm()),
            "PixelShuffle"      => alone.then(PixelShuffle::new(self.n(0))),
            "PixelUnshuffle"    => alone.then(PixelUnshuffle::new(self.n(0))),
            other               => panic!("no layer is called {other}"),
        };
        Built::One(built.to_dtype(DType::F64))
    }
}
