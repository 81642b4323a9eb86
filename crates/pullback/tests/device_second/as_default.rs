//! Makes the second device the default of the process before the first test.
//!
//! The loader calls the functions of this section before `main`, so the harness starts its tests
//! with the default device set. Tests have no common entry point, and a default that each sets for
//! itself would need another text of every test.

use super::device_second;
use pullback::set_default_device;

#[cfg(target_os = "linux")]
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

extern "C" fn start() {
    set_default_device(device_second::second());
    // An operation that fails is the error of the next wait, of whichever test: one at a time.
    // SAFETY: no other thread reads or writes the environment before `main`.
    unsafe { std::env::set_var("RUST_TEST_THREADS", "1") };
}
