//! Fourier transforms, factorisations and triangular systems: cuFFT, cuSOLVER and cuBLAS.
//!
//! Functions for `f32` and `f64` have the same types here, as addresses of a device have no element
//! type. All of them exist in CUDA 12 and in CUDA 13.

use super::{DevicePtr, Ptr, for_driver, search};
use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

/// How a library answers which version it is: 0 is major, 1 minor, 2 patch.
pub type GetProperty = unsafe extern "C" fn(c_int, *mut c_int) -> c_int;

/// The version of a library, as `11.7.5`.
pub fn version(get: GetProperty) -> String {
    let number = |which: c_int| {
        let mut value = 0;
        // SAFETY: writes one integer.
        unsafe { get(which, &mut value) };
        value
    };
    format!("{}.{}.{}", number(0), number(1), number(2))
}

fn cufft_files() -> &'static [&'static str] {
    for_driver(&["libcufft.so.12", "libcufft.so.11"])
}

fn cusolver_files() -> &'static [&'static str] {
    for_driver(&["libcusolver.so.12", "libcusolver.so.11"])
}

fn cublas_files() -> &'static [&'static str] {
    for_driver(&["libcublas.so.13", "libcublas.so.12"])
}

library! {
    /// Fourier transforms. A plan is a number.
    Cufft by cufft from "cuFFT", cufft_files();
    fn cufftGetProperty(c_int, *mut c_int);
    fn cufftCreate(*mut c_int);
    fn cufftDestroy(c_int);
    fn cufftSetAutoAllocation(c_int, c_int);
    fn cufftMakePlanMany64(
        c_int, c_int, *mut i64, *mut i64, i64, i64, *mut i64, i64, i64, c_int, i64, *mut usize,
    );
    fn cufftSetWorkArea(c_int, DevicePtr);
    fn cufftSetStream(c_int, Ptr);
    fn cufftExecC2C(c_int, DevicePtr, DevicePtr, c_int);
    fn cufftExecZ2Z(c_int, DevicePtr, DevicePtr, c_int);
    fn cufftExecR2C(c_int, DevicePtr, DevicePtr);
    fn cufftExecD2Z(c_int, DevicePtr, DevicePtr);
    fn cufftExecC2R(c_int, DevicePtr, DevicePtr);
    fn cufftExecZ2D(c_int, DevicePtr, DevicePtr);
}

library! {
    /// Triangular systems. Matrices are column-major, as everywhere in these libraries.
    Cublas by cublas from "cuBLAS", cublas_files();
    fn cublasGetProperty(c_int, *mut c_int);
    fn cublasCreate_v2(*mut Ptr);
    fn cublasSetStream_v2(Ptr, Ptr);
    fn cublasStrsm_v2(
        Ptr, c_int, c_int, c_int, c_int, c_int, c_int, *const c_void, DevicePtr, c_int, DevicePtr,
        c_int,
    );
    fn cublasDtrsm_v2(
        Ptr, c_int, c_int, c_int, c_int, c_int, c_int, *const c_void, DevicePtr, c_int, DevicePtr,
        c_int,
    );
    fn cublasStrsmBatched(
        Ptr, c_int, c_int, c_int, c_int, c_int, c_int, *const c_void, DevicePtr, c_int, DevicePtr,
        c_int, c_int,
    );
    fn cublasDtrsmBatched(
        Ptr, c_int, c_int, c_int, c_int, c_int, c_int, *const c_void, DevicePtr, c_int, DevicePtr,
        c_int, c_int,
    );
}

library! {
    /// Factorisations of matrices.
    Cusolver by cusolver from "cuSOLVER", cusolver_files();
    fn cusolverGetProperty(c_int, *mut c_int);
    fn cusolverDnCreate(*mut Ptr);
    fn cusolverDnSetStream(Ptr, Ptr);
    fn cusolverDnCreateSyevjInfo(*mut Ptr);
    fn cusolverDnCreateGesvdjInfo(*mut Ptr);
    fn cusolverDnSpotrf_bufferSize(Ptr, c_int, c_int, DevicePtr, c_int, *mut c_int);
    fn cusolverDnDpotrf_bufferSize(Ptr, c_int, c_int, DevicePtr, c_int, *mut c_int);
    fn cusolverDnSpotrf(Ptr, c_int, c_int, DevicePtr, c_int, DevicePtr, c_int, DevicePtr);
    fn cusolverDnDpotrf(Ptr, c_int, c_int, DevicePtr, c_int, DevicePtr, c_int, DevicePtr);
    fn cusolverDnSgetrf_bufferSize(Ptr, c_int, c_int, DevicePtr, c_int, *mut c_int);
    fn cusolverDnDgetrf_bufferSize(Ptr, c_int, c_int, DevicePtr, c_int, *mut c_int);
    fn cusolverDnSgetrf(Ptr, c_int, c_int, DevicePtr, c_int, DevicePtr, DevicePtr, DevicePtr);
    fn cusolverDnDgetrf(Ptr, c_int, c_int, DevicePtr, c_int, DevicePtr, DevicePtr, DevicePtr);
    fn cusolverDnSgeqrf_bufferSize(Ptr, c_int, c_int, DevicePtr, c_int, *mut c_int);
    fn cusolverDnDgeqrf_bufferSize(Ptr, c_int, c_int, DevicePtr, c_int, *mut c_int);
    fn cusolverDnSgeqrf(
        Ptr, c_int, c_int, DevicePtr, c_int, DevicePtr, DevicePtr, c_int, DevicePtr,
    );
    fn cusolverDnDgeqrf(
        Ptr, c_int, c_int, DevicePtr, c_int, DevicePtr, DevicePtr, c_int, DevicePtr,
    );
    fn cusolverDnSorgqr_bufferSize(
        Ptr, c_int, c_int, c_int, DevicePtr, c_int, DevicePtr, *mut c_int,
    );
    fn cusolverDnDorgqr_bufferSize(
        Ptr, c_int, c_int, c_int, DevicePtr, c_int, DevicePtr, *mut c_int,
    );
    fn cusolverDnSorgqr(
        Ptr, c_int, c_int, c_int, DevicePtr, c_int, DevicePtr, DevicePtr, c_int, DevicePtr,
    );
    fn cusolverDnDorgqr(
        Ptr, c_int, c_int, c_int, DevicePtr, c_int, DevicePtr, DevicePtr, c_int, DevicePtr,
    );
    fn cusolverDnSsyevd_bufferSize(
        Ptr, c_int, c_int, c_int, DevicePtr, c_int, DevicePtr, *mut c_int,
    );
    fn cusolverDnDsyevd_bufferSize(
        Ptr, c_int, c_int, c_int, DevicePtr, c_int, DevicePtr, *mut c_int,
    );
    fn cusolverDnSsyevd(
        Ptr, c_int, c_int, c_int, DevicePtr, c_int, DevicePtr, DevicePtr, c_int, DevicePtr,
    );
    fn cusolverDnDsyevd(
        Ptr, c_int, c_int, c_int, DevicePtr, c_int, DevicePtr, DevicePtr, c_int, DevicePtr,
    );
    fn cusolverDnSsyevjBatched_bufferSize(
        Ptr, c_int, c_int, c_int, DevicePtr, c_int, DevicePtr, *mut c_int, Ptr, c_int,
    );
    fn cusolverDnDsyevjBatched_bufferSize(
        Ptr, c_int, c_int, c_int, DevicePtr, c_int, DevicePtr, *mut c_int, Ptr, c_int,
    );
    fn cusolverDnSsyevjBatched(
        Ptr, c_int, c_int, c_int, DevicePtr, c_int, DevicePtr, DevicePtr, c_int, DevicePtr, Ptr,
        c_int,
    );
    fn cusolverDnDsyevjBatched(
        Ptr, c_int, c_int, c_int, DevicePtr, c_int, DevicePtr, DevicePtr, c_int, DevicePtr, Ptr,
        c_int,
    );
    fn cusolverDnSgesvd_bufferSize(Ptr, c_int, c_int, *mut c_int);
    fn cusolverDnDgesvd_bufferSize(Ptr, c_int, c_int, *mut c_int);
    fn cusolverDnSgesvd(
        Ptr, i8, i8, c_int, c_int, DevicePtr, c_int, DevicePtr, DevicePtr, c_int, DevicePtr, c_int,
        DevicePtr, c_int, DevicePtr, DevicePtr,
    );
    fn cusolverDnDgesvd(
        Ptr, i8, i8, c_int, c_int, DevicePtr, c_int, DevicePtr, DevicePtr, c_int, DevicePtr, c_int,
        DevicePtr, c_int, DevicePtr, DevicePtr,
    );
    fn cusolverDnSgesvdjBatched_bufferSize(
        Ptr, c_int, c_int, c_int, DevicePtr, c_int, DevicePtr, DevicePtr, c_int, DevicePtr, c_int,
        *mut c_int, Ptr, c_int,
    );
    fn cusolverDnDgesvdjBatched_bufferSize(
        Ptr, c_int, c_int, c_int, DevicePtr, c_int, DevicePtr, DevicePtr, c_int, DevicePtr, c_int,
        *mut c_int, Ptr, c_int,
    );
    fn cusolverDnSgesvdjBatched(
        Ptr, c_int, c_int, c_int, DevicePtr, c_int, DevicePtr, DevicePtr, c_int, DevicePtr, c_int,
        DevicePtr, c_int, DevicePtr, Ptr, c_int,
    );
    fn cusolverDnDgesvdjBatched(
        Ptr, c_int, c_int, c_int, DevicePtr, c_int, DevicePtr, DevicePtr, c_int, DevicePtr, c_int,
        DevicePtr, c_int, DevicePtr, Ptr, c_int,
    );
}
