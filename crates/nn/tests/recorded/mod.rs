//! Cases recorded from PyTorch (`data/recording.py` says how), and the comparison with them.

use pullback::{DType, Tensor, no_grad};
use pullback_nn::Module;
use safetensors::{Dtype, SafeTensors};
use std::collections::HashMap;

/// All cases of a file.
pub struct Recording {
    tensors: HashMap<String, Tensor>,
    /// The names of parameters in order, by case.
    order: HashMap<String, String>,
}

/// The inputs of one case; those of floats are leaves.
pub struct Inputs(HashMap<String, Tensor>);

impl Inputs {
    #[track_caller]
    pub fn get(&self, name: &str) -> &Tensor {
        self.0.get(name).unwrap_or_else(|| panic!("no input {name}"))
    }

    pub fn find(&self, name: &str) -> Option<&Tensor> {
        self.0.get(name)
    }
}

impl Recording {
    pub fn read(bytes: &[u8]) -> Recording {
        let (_, header) = SafeTensors::read_metadata(bytes).unwrap();
        let order = header.metadata().clone().unwrap_or_default();
        let file = SafeTensors::deserialize(bytes).unwrap();
        let tensors = file.tensors().into_iter().map(|(name, x)| {
            let shape = x.shape();
            let eight = || x.data().chunks_exact(8).map(|b| <[u8; 8]>::try_from(b).unwrap());
            let tensor = match x.dtype() {
                Dtype::F64 => {
                    Tensor::from_vec(eight().map(f64::from_le_bytes).collect::<Vec<_>>(), shape)
                }
                Dtype::I64 => {
                    Tensor::from_vec(eight().map(i64::from_le_bytes).collect::<Vec<_>>(), shape)
                }
                Dtype::BOOL => {
                    Tensor::from_vec(x.data().iter().map(|&b| b != 0).collect::<Vec<_>>(), shape)
                }
                other => panic!("{name} is of {other:?}"),
            };
            (name, tensor)
        });
        Recording { tensors: tensors.collect(), order }
    }

    /// The names of all cases.
    pub fn cases(&self) -> Vec<&str> {
        self.order.keys().map(String::as_str).collect()
    }

    #[track_caller]
    pub fn get(&self, name: &str) -> &Tensor {
        self.tensors.get(name).unwrap_or_else(|| panic!("nothing is recorded as {name}"))
    }

    /// What is recorded of one kind (`in`, `par`, …), by its name.
    fn all(&self, case: &str, kind: &str) -> HashMap<String, Tensor> {
        let lead = format!("{case}/{kind}/");
        let found = self
            .tensors
            .iter()
            .filter_map(|(name, x)| Some((name.strip_prefix(&lead)?.to_string(), x.deep_clone())));
        found.collect()
    }

    /// The inputs of a case.
    pub fn inputs(&self, case: &str) -> Inputs {
        let leaf = |x: Tensor| if x.dtype().is_float() { x.requires_grad() } else { x };
        Inputs(self.all(case, "in").into_iter().map(|(name, x)| (name, leaf(x))).collect())
    }

    /// A copy of the module in `f64`, with the parameters of a case, whose names must be its own,
    /// in order.
    pub fn load<M: Module>(&self, case: &str, module: &M) -> M {
        let module = module.to_dtype(DType::F64);
        let parameters = module.named_parameters();
        let names: Vec<&str> = parameters.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names.join(","), self.order[case], "{case}");
        for (name, x) in &parameters {
            let recorded = self.get(&format!("{case}/par/{name}"));
            assert_eq!(x.spec(), recorded.spec(), "{case}: {name}");
            no_grad(|| x.copy_(recorded));
        }
        module
    }

    /// Compares outputs, then the gradients of inputs and parameters, with what is recorded, to
    /// `within` of the largest number.
    pub fn compare<M: Module>(
        &self,
        case: &str,
        module: &M,
        inputs: &Inputs,
        outputs: &[Tensor],
        within: f64,
    ) {
        let recorded = self.all(case, "out");
        assert_eq!(outputs.len(), recorded.len(), "{case}: outputs");
        for (i, y) in outputs.iter().enumerate() {
            near(&format!("{case}: output {i}"), y, &recorded[&i.to_string()], within);
        }
        let weighed = outputs.iter().map(|y| (y * cotangent(y)).sum());
        let total = weighed.reduce(|a, b| a + b).unwrap();
        total.backward().unwrap();
        for (name, dx) in self.all(case, "din") {
            let found = inputs.get(&name).grad();
            let found = found.unwrap_or_else(|| panic!("{case}: {name} has no gradient"));
            near(&format!("{case}: gradient of {name}"), &found, &dx, within);
        }
        for (name, x) in module.named_parameters() {
            let found = x.grad().unwrap_or_else(|| panic!("{case}: {name} has no gradient"));
            let dx = self.get(&format!("{case}/dpar/{name}"));
            near(&format!("{case}: gradient of {name}"), &found, dx, within);
        }
    }
}

/// The weights that the outputs of a case were added up with.
pub fn cotangent(y: &Tensor) -> Tensor {
    let values = (0..y.len()).map(|i| (i as f64 + 1.0).cos()).collect::<Vec<_>>();
    Tensor::from_vec(values, y.shape())
}

/// That two tensors agree, up to `within` of the largest number (or of 1).
#[track_caller]
pub fn near(what: &str, found: &Tensor, wanted: &Tensor, within: f64) {
    assert_eq!(found.spec(), wanted.spec(), "{what}");
    let (a, b) = (found.to_f64_vec(), wanted.to_f64_vec());
    let scale = b.iter().fold(1.0f64, |m, x| m.max(x.abs()));
    for (i, (a, b)) in a.iter().zip(&b).enumerate() {
        assert!((a - b).abs() <= within * scale, "{what}: element {i} is {a}, not {b}");
    }
}
