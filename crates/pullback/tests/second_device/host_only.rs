//! What is about memory of the host: moved there and back, or refused with a sentence.

use super::device_second::{alone, second};
use super::{bits, sample};
use pullback::{
    Backward, Compress, CustomOp, Derivative, HostInput, HostOutput, Offload, Result, Spec, Tensor,
    catch, custom_op, jit, with_packing,
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
    let found = with_packing(Arc::new(Compress::new().half(pullback::DType::F16)), || {
        gradient(&x.to(second()))
    });
    assert_eq!(bits(&found), bits(&gradient(&x)));
}

struct Double;

impl CustomOp for Double {
    fn name(&self) -> &'static str {
        "double"
    }
    fn specs(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        Ok(vec![inputs[0].clone()])
    }
    fn forward(&self, inputs: &[HostInput], outputs: &mut [HostOutput]) -> Result<()> {
        let (x, y) = (inputs[0].as_slice::<f32>()?, outputs[0].as_mut_slice::<f32>()?);
        x.iter().zip(y).for_each(|(x, y)| *y = x * 2.0);
        Ok(())
    }
    fn derivative(&self) -> Derivative {
        Derivative::Vjp
    }
    fn vjp(&self, _x: &[Tensor], _y: &[Tensor], dy: &[Tensor]) -> Vec<Tensor> {
        vec![&dy[0] * 2.0]
    }
}

#[test]
fn code_that_gets_slices_is_refused() {
    let _alone = alone();
    let (double, x) = (custom_op(Double), sample(&[3], 1));
    assert_eq!(double.one(&[&x]).to_vec::<f32>(), (&x * 2.0).to_vec::<f32>());
    let there = x.to(second());
    let said = "double: its code works on memory of the host, and its operands are on cuda:0";
    let error = catch(|| double.one(&[&there])).unwrap_err().to_string();
    assert!(error.starts_with(said) && error.contains("second_device/host_only.rs"), "{error}");
    let compiled = jit(move |x: &Tensor| double.one(&[x]));
    let error = compiled.call(&there).unwrap_err().to_string();
    assert!(error.contains(said), "{error}");
}
