//! What is about memory of the host: moved there and back, or refused with a sentence. Custom ops.

use super::device_second::{alone, second};
use super::{bits, sample};
use pullback::{
    Backward, Compress, CudaKernel, CustomOp, DType, Derivative, Error, HostInput, HostOutput,
    Offload, Result, Spec, Tensor, catch, custom_op, fori_loop, grad, hvp, jit, jvp, no_grad, vmap,
    with_packing,
};
use std::sync::Arc;

fn gradient(x: &Tensor) -> Tensor {
    let x = x.detach().requires_grad();
    let y = (x.matmul(&x.t()).tanh() * x.sigmoid().sum()).square();
    Backward::of(&y.sum()).wrt(&[&x]).unwrap().remove(0)
}

#[test]
fn saved_values_wait_on_disk_and_come_back_to_their_device() {
    let _alone = alone();
    let x = sample(&[40, 40], 1);
    let wanted = gradient(&x);
    let dir = std::env::temp_dir().join(format!("pullback-second-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let offload = Offload::to_disk(&dir).unwrap().min_bytes(1).buffer_bytes(0);
    let found = with_packing(Arc::new(offload.clone()), || gradient(&x.to(second())));
    assert!(offload.stats().written_bytes > 0, "{:?}", offload.stats());
    assert_eq!((found.device(), bits(&found)), (second(), bits(&wanted)));
    drop(offload);
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn compression_leaves_values_of_other_devices_as_they_are() {
    let _alone = alone();
    let x = sample(&[40, 40], 1);
    let found =
        with_packing(Arc::new(Compress::new().half(DType::F16)), || gradient(&x.to(second())));
    assert_eq!(bits(&found), bits(&gradient(&x)));
}

/// The cube, by a loop over slices; its derivative is tensor code that calls it again.
struct Cube;

impl CustomOp for Cube {
    fn name(&self) -> &'static str {
        "cube"
    }
    fn specs(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        match inputs[0].dtype {
            DType::F64 | DType::F32 => Ok(vec![inputs[0].clone()]),
            _ => Err(Error::dtype("cube", "takes floats").on(inputs)),
        }
    }
    fn forward(&self, inputs: &[HostInput], outputs: &mut [HostOutput]) -> Result<()> {
        if inputs[0].dtype() == DType::F32 {
            let (x, y) = (inputs[0].as_slice::<f32>()?, outputs[0].as_mut_slice::<f32>()?);
            if let Some(i) = x.iter().position(|&x| x > 1e6) {
                return Err(Error::argument("cube", format!("element {i} is too large")));
            }
            x.iter().zip(y).for_each(|(x, y)| *y = x * x * x);
        } else {
            let (x, y) = (inputs[0].as_slice::<f64>()?, outputs[0].as_mut_slice::<f64>()?);
            x.iter().zip(y).for_each(|(x, y)| *y = x * x * x);
        }
        Ok(())
    }
    fn derivative(&self) -> Derivative {
        Derivative::Vjp
    }
    fn vjp(&self, x: &[Tensor], _y: &[Tensor], dy: &[Tensor]) -> Vec<Tensor> {
        vec![3.0 * x[0].square() * &dy[0]]
    }
}

/// A function that uses the op, the same thing on both devices: bits and device.
fn same_on_both(what: &str, f: impl Fn(&Tensor) -> Tensor) {
    let x = sample(&[3, 4], 1);
    let (here, there) = (f(&x), f(&x.to(second())));
    assert_eq!((there.device(), bits(&there)), (second(), bits(&here)), "{what}");
}

#[test]
fn code_on_slices_gets_copies_and_its_results_come_back() {
    let _alone = alone();
    let cube = custom_op(Cube);
    let f = |x: &Tensor| cube.one(&[x]);
    let loss = |x: &Tensor| (f(x) * x).sum();
    same_on_both("eager", f);
    same_on_both("a view", |x| f(&x.t()));
    same_on_both("gradient", grad(loss));
    same_on_both("second derivative", hvp_of(loss));
    same_on_both("forward mode", |x| jvp(f, x, &x.ones_like()).1);
    same_on_both("vmap", vmap(f, 0, 0));
    same_on_both("vmap of a gradient", vmap(grad(loss), 0, 0));
    same_on_both("compiled", |x| jit(f).of(x));
    same_on_both("compiled gradient", |x| jit(grad(loss)).of(x));
    same_on_both("compiled, batched", |x| jit(vmap(grad(loss), 0, 0)).of(x));
    same_on_both("in a loop", |x| jit(|x: &Tensor| fori_loop(0, 3, |_, x: &Tensor| f(x), x)).of(x));
}

fn hvp_of(loss: impl Fn(&Tensor) -> Tensor + Copy) -> impl Fn(&Tensor) -> Tensor {
    move |x| hvp(loss, x, &x.ones_like())
}

#[test]
fn an_error_of_code_on_slices_has_its_line() {
    let _alone = alone();
    let cube = custom_op(Cube);
    let x = Tensor::from([1.0f32, 1e7]).to(second());
    // The code runs later, and its error is that of the read.
    let error = catch(|| no_grad(|| cube.one(&[&x])).to_vec::<f32>()).unwrap_err().to_string();
    assert!(error.starts_with("cube: element 1 is too large"), "{error}");
    assert!(error.contains("second_device/host_only.rs"), "{error}");
    let wrong = Tensor::from([1i64]).to(second());
    let error = catch(|| cube.one(&[&wrong])).unwrap_err().to_string();
    assert!(error.starts_with("cube: takes floats"), "{error}");
}

/// Twice its operand, in CUDA C.
struct Twice(CudaKernel);

fn twice() -> Twice {
    let text = r#"
        extern "C" __global__ void twice(const T0* x, R0* y, long long n) {
          long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
          if (i < n) y[i] = x[i] + x[i];
        }"#;
    // SAFETY: a thread reads and writes element i alone, and only if there is one.
    Twice(unsafe { CudaKernel::elementwise("twice", text, 1, 1) })
}

impl CustomOp for Twice {
    fn name(&self) -> &'static str {
        "twice"
    }
    fn specs(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        Ok(vec![inputs[0].clone()])
    }
    fn cuda(&self) -> Option<&CudaKernel> {
        Some(&self.0)
    }
    fn derivative(&self) -> Derivative {
        Derivative::Vjp
    }
    fn vjp(&self, _x: &[Tensor], _y: &[Tensor], dy: &[Tensor]) -> Vec<Tensor> {
        vec![&dy[0] * 2.0]
    }
}

#[test]
fn cuda_c_is_refused_where_there_is_no_gpu_of_nvidia() {
    let _alone = alone();
    let (twice, x) = (custom_op(twice()), sample(&[3], 1));
    let said = "twice: its code is CUDA C, which runs on GPUs of NVIDIA alone";
    for x in [&x, &x.to(second())] {
        let error = catch(|| no_grad(|| twice.one(&[x])).to_vec::<f32>()).unwrap_err().to_string();
        assert!(error.starts_with(said) && error.contains("define `forward` too"), "{error}");
        assert!(error.contains("second_device/host_only.rs"), "{error}");
    }
}
