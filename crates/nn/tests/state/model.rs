//! A small model with tied weights and buffers of several dtypes, and a small optimiser, to save
//! and load.

use pullback::{DType, Result, Tensor, Tree, bf16, no_grad};
use pullback_nn::optim::Optimizer;

#[derive(Tree)]
pub struct Embedding {
    pub weight: Tensor,
}

#[derive(Tree)]
pub struct BatchNorm {
    pub weight: Tensor,
    pub bias: Tensor,
    #[tree(buffer)]
    pub running_mean: Tensor,
    #[tree(buffer)]
    pub running_var: Tensor,
    #[tree(buffer)]
    pub num_batches_tracked: Tensor,
}

#[derive(Tree)]
pub struct Norm {
    pub bn: BatchNorm,
    pub narrow: Tensor,
    #[tree(buffer)]
    pub mask: Tensor,
}

#[derive(Tree)]
pub struct Linear {
    pub weight: Tensor,
    pub bias: Tensor,
}

#[derive(Tree)]
pub struct Model {
    pub embedding: Embedding,
    pub norm: Norm,
    pub head: Linear,
}

impl Model {
    /// The model with all floats `value`, and its head tied to its embedding.
    pub fn filled(value: f32) -> Model {
        let parameter = |shape: &[usize]| Tensor::full(shape, value).requires_grad();
        let tied = parameter(&[5, 4]);
        let bn = BatchNorm {
            weight: parameter(&[4]),
            bias: parameter(&[4]),
            running_mean: Tensor::full([4], value),
            running_var: Tensor::full([4], value),
            num_batches_tracked: Tensor::from(0i64),
        };
        let narrow = Tensor::from([bf16::from_f32(value); 3]).requires_grad();
        Model {
            embedding: Embedding { weight: tied.clone() },
            norm: Norm { bn, narrow, mask: Tensor::from([false; 3]) },
            head: Linear { weight: tied, bias: parameter(&[5]) },
        }
    }
}

/// The values of a module, for comparing.
pub fn values(module: &impl Tree) -> Vec<(String, Vec<f64>)> {
    module.named_leaves().into_iter().map(|(name, x)| (name, x.to_f64_vec())).collect()
}

/// Momentum for every parameter.
pub struct Momentum {
    pub parameters: Vec<Tensor>,
    pub lr: Tensor,
    pub buffers: Vec<Tensor>,
}

impl Momentum {
    pub fn new(parameters: Vec<Tensor>, lr: f64) -> Momentum {
        let zeros = |x: &Tensor| Tensor::zeros_with(x.shape(), x.dtype());
        let buffers = parameters.iter().map(zeros).collect();
        Momentum { parameters, lr: Tensor::from(lr), buffers }
    }
}

impl Optimizer for Momentum {
    fn step(&self) -> Result<()> {
        no_grad(|| {
            for (x, buffer) in self.parameters.iter().zip(&self.buffers) {
                if let Some(grad) = x.grad() {
                    buffer.mul_(0.9).add_(&grad);
                    x.sub_(buffer * &self.lr.cast(DType::F32));
                }
            }
        });
        Ok(())
    }

    fn groups(&self) -> Vec<Vec<Tensor>> {
        vec![self.parameters.clone()]
    }

    fn lrs(&self) -> Vec<Tensor> {
        vec![self.lr.clone()]
    }

    fn named_state(&self) -> Vec<(String, Tensor)> {
        let buffers = self.buffers.iter().enumerate();
        let buffers = buffers.map(|(i, x)| (format!("0.{i}.momentum"), x.clone()));
        std::iter::once(("0.lr".to_string(), self.lr.clone())).chain(buffers).collect()
    }
}
