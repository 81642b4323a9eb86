//! The table of a module.

use crate::seeded;
use pullback::{Tensor, Tree};
use pullback_nn::models::{Gpt, GptConfig};
use pullback_nn::*;

#[derive(Tree)]
struct Block {
    conv: Conv2d,
    norm: BatchNorm2d,
    drop: Dropout2d,
}

impl Layer for Block {
    fn forward(&self, x: &Tensor) -> Tensor {
        module_scope(self)
            .output(self.drop.forward(&self.norm.forward(&self.conv.forward(x)).relu()))
    }
}

#[derive(Tree)]
struct Net {
    body: Sequential,
    head: Linear,
}

impl Layer for Net {
    fn forward(&self, x: &Tensor) -> Tensor {
        module_scope(self).output(self.head.forward(&self.body.forward(x)))
    }
}

fn block(inputs: usize, outputs: usize) -> Block {
    Block {
        conv: Conv2d::new(inputs, outputs, 3).padding(1).without_bias(),
        norm: BatchNorm2d::new(outputs),
        drop: Dropout2d::new(0.1),
    }
}

fn net() -> Net {
    let body = Sequential::new()
        .then(block(1, 8))
        .then(MaxPool2d::new(2))
        .then(Residual::new(Sequential::new().then(block(8, 8)).then(Relu)))
        .then(Flatten::new());
    Net { body, head: Linear::new(8 * 14 * 14, 10) }
}

#[test]
fn with_an_input_it_shows_outputs() {
    let _alone = seeded(0);
    let net = net();
    net.head.freeze();
    let before = net.body.named_buffers()[0].1.to_vec::<f32>();
    let expected = "\
===============================================================================
Layer (type (field):depth-idx)                 Output Shape        Param #
===============================================================================
Net                                            [2, 10]             --
├─Sequential (body): 1-1                       [2, 1568]           --
│    ├─Block (0): 2-1                          [2, 8, 28, 28]      --
│    │    ├─Conv2d (conv): 3-1                 [2, 8, 28, 28]      72
│    │    ├─BatchNorm2d (norm): 3-2            [2, 8, 28, 28]      16
│    │    └─Dropout2d (drop): 3-3              [2, 8, 28, 28]      --
│    ├─MaxPool2d (1): 2-2                      [2, 8, 14, 14]      --
│    ├─Residual (2): 2-3                       [2, 8, 14, 14]      --
│    │    └─Sequential (inner): 3-4            [2, 8, 14, 14]      --
│    │         ├─Block (0): 4-1                [2, 8, 14, 14]      --
│    │         │    ├─Conv2d (conv): 5-1       [2, 8, 14, 14]      576
│    │         │    ├─BatchNorm2d (norm): 5-2  [2, 8, 14, 14]      16
│    │         │    └─Dropout2d (drop): 5-3    [2, 8, 14, 14]      --
│    │         └─Relu (1): 4-2                 [2, 8, 14, 14]      --
│    └─Flatten (3): 2-4                        [2, 1568]           --
└─Linear (head): 1-2                           [2, 10]             (15,690)
===============================================================================
Total params: 16,370
Trainable params: 680
Non-trainable params: 15,690
Buffers: 34
Total mult-adds (M): 0.37
===============================================================================
Input size (MB): 0.01
Forward/backward pass size (MB): 0.25
Params size (MB): 0.07
Buffers size (MB): 0.00
Estimated total size (MB): 0.32
===============================================================================";
    let text = net.summary_of(&Tensor::randn([2, 1, 28, 28])).to_string();
    assert_eq!(text, expected, "\n{text}");
    // It leaves no trace: the module is in training again, and its statistics have seen nothing.
    assert_eq!(net.body.named_buffers()[0].1.to_vec::<f32>(), before);
    assert!(net.tree_structure().flags.iter().all(|(_, flag)| flag.get()));
}

#[test]
fn without_an_input_it_shows_parameters_and_tied_ones_once() {
    let _alone = seeded(0);
    let first = Linear::new(4, 4);
    let again = Linear { weight: first.weight.clone(), bias: None };
    let net = (first, PRelu::new(), again);
    let expected = "\
===========================================================================
Layer (type (field):depth-idx)        Parameter Shapes         Param #
===========================================================================
(module)                              --                       --
├─Linear (0): 1-1                     weight [4, 4], bias [4]  20
├─PRelu (1): 1-2                      weight [1]               1
└─Linear (2): 1-3                     weight [4, 4]            (tied)
===========================================================================
Total params: 21
Trainable params: 21
Non-trainable params: 0
Buffers: 0
===========================================================================
Params size (MB): 0.00
Buffers size (MB): 0.00
Estimated total size (MB): 0.00
===========================================================================";
    let text = net.summary().to_string();
    assert_eq!(text, expected, "\n{text}");
}

#[test]
fn parts_that_share_their_first_tensor_are_told_apart() {
    let _alone = seeded(0);
    // The inner sequence ends first, and gives [2, 6]; the outer one [2, 2].
    let inner = Sequential::new().then(Linear::new(3, 6));
    let net = Sequential::new().then(inner).then(Linear::new(6, 2));
    let text = net.summary_of(&Tensor::zeros([2, 3])).to_string();
    let lines: Vec<Vec<&str>> =
        text.lines().map(|l| l.split("  ").filter(|s| !s.is_empty()).collect()).collect();
    assert_eq!(lines[3][1].trim(), "[2, 2]", "{text}");
    assert_eq!(lines[4][1].trim(), "[2, 6]", "{text}");
    // A layer of the same type and without tensors is found by the order of calls.
    let net = (Relu, Linear::new(3, 5), Relu);
    let text = net.summary_of(&Tensor::zeros([2, 3])).to_string();
    let shapes: Vec<bool> =
        text.lines().filter(|l| l.contains("Relu")).map(|l| l.contains("[2, 5]")).collect();
    assert_eq!(shapes, [false, true], "{text}");
}

#[test]
fn modules_with_a_call_of_their_own() {
    let _alone = seeded(0);
    let config =
        GptConfig { vocabulary: 16, length: 8, width: 8, heads: 2, layers: 2, dropout: 0.0 };
    let gpt = Gpt::new(&config);
    let summary = gpt.summary_with(&Tensor::from([[1i64, 2, 3]]), |gpt, ids| gpt.forward(ids));
    assert_eq!(summary.parameters, gpt.parameter_count());
    assert_eq!(summary.input_bytes, 3 * 8);
    let text = summary.to_string();
    for (layer, shape) in [
        ("Embedding (token)", "[1, 3, 8]"),
        ("(blocks.1)", "[1, 3, 8]"),
        ("Linear (linear1)", "[1, 3, 32]"),
    ] {
        let found = text.lines().any(|line| line.contains(layer) && line.contains(shape));
        assert!(found, "no {layer} with {shape} in\n{text}");
    }
}
