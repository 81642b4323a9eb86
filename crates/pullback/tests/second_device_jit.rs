//! The tests of compiled functions, on a device that is not the host: the same files, with the
//! second device as the default of the process.
//!
//! Tests that measure the host's memory return at once here; each says so in its first lines
//! (`on_host`).

#[path = "device_second/as_default.rs"]
mod as_default;
#[path = "budget_jit.rs"]
mod budget_jit;
#[path = "captured_writes.rs"]
mod captured_writes;
#[path = "checkpoint_compiled.rs"]
mod checkpoint_compiled;
#[path = "compiled_traps.rs"]
mod compiled_traps;
mod device_second;
#[path = "jit.rs"]
mod jit;
#[path = "jit_cache.rs"]
mod jit_cache;
#[path = "jit_dynamic.rs"]
mod jit_dynamic;
#[path = "jit_lengths.rs"]
mod jit_lengths;

use pullback::{Tensor, default_device};

#[test]
fn the_default_device_is_that_of_the_process() {
    let second = device_second::second();
    assert_eq!((default_device(), Tensor::zeros([2]).device()), (second, second));
    let in_a_thread = std::thread::spawn(|| Tensor::from([1.0]).device());
    assert_eq!(in_a_thread.join().unwrap(), second);
    let inside = pullback::with_default_device("cpu", || Tensor::from([1.0]).device());
    assert_eq!(inside, pullback::Device::Cpu);
    assert_eq!(default_device(), second);
}
