//! The table tests on a device that is not the host: the same files, with the second device as the
//! default of the process. What is about the CPU's kernels alone returns at once (`on_host`).

#[path = "device_second/as_default.rs"]
mod as_default;
#[path = "table.rs"]
mod table;

use table::device_second;
