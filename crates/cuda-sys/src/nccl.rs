//! Collectives between GPUs: NCCL.

use super::{DevicePtr, Ptr, search};
use std::ffi::{c_char, c_int, c_uint};
use std::sync::OnceLock;

/// What the workers of a communicator have in common: worker 0 draws it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NcclId(pub [u8; 128]);

/// How a communicator is made: what NCCL 2.14 knows. Newer versions see the version in it, and take
/// their defaults for the rest.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NcclConfig {
    size: usize,
    magic: c_uint,
    version: c_uint,
    blocking: c_int,
}

impl NcclConfig {
    /// Calls return at once, and say that they are in progress.
    pub fn non_blocking() -> NcclConfig {
        NcclConfig {
            size: size_of::<NcclConfig>(),
            magic: 0xcafe_beef,
            version: 21400,
            blocking: 0,
        }
    }
}

library! {
    /// Collectives. Addresses of memory are the device's; the last argument of a collective is its
    /// stream.
    Nccl by nccl from "NCCL", &["libnccl.so.2"];
    fn ncclGetVersion(*mut c_int);
    fn ncclGetErrorString(c_int) -> *const c_char;
    fn ncclGetLastError(Ptr) -> *const c_char;
    fn ncclGetUniqueId(*mut NcclId);
    fn ncclCommInitRankConfig(*mut Ptr, c_int, NcclId, c_int, *mut NcclConfig);
    fn ncclCommGetAsyncError(Ptr, *mut c_int);
    fn ncclCommFinalize(Ptr);
    fn ncclCommDestroy(Ptr);
    fn ncclCommAbort(Ptr);
    fn ncclAllReduce(DevicePtr, DevicePtr, usize, c_int, c_int, Ptr, Ptr);
    fn ncclReduceScatter(DevicePtr, DevicePtr, usize, c_int, c_int, Ptr, Ptr);
    fn ncclAllGather(DevicePtr, DevicePtr, usize, c_int, Ptr, Ptr);
    fn ncclBroadcast(DevicePtr, DevicePtr, usize, c_int, c_int, Ptr, Ptr);
    fn ncclSend(DevicePtr, usize, c_int, c_int, Ptr, Ptr);
    fn ncclRecv(DevicePtr, usize, c_int, c_int, Ptr, Ptr);
    fn ncclGroupStart();
    fn ncclGroupEnd();
}

/// The version of an NCCL, as `2.30.7`.
pub fn nccl_version(library: &Nccl) -> String {
    let mut code = 0;
    // SAFETY: writes one integer.
    unsafe { (library.ncclGetVersion)(&mut code) };
    let step = if code < 10_000 { 1000 } else { 10_000 };
    format!("{}.{}.{}", code / step, code % step / 100, code % 100)
}
