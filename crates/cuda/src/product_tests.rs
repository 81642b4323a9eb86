//! Products: layouts anywhere, values, bits and choices where there is a GPU.

use crate::gpu::Gpu;
use crate::loops::StridedOperand;
use crate::product::{Addend, Products};
use crate::product_matrices::{matrix_layout, step};
use pullback_ir::{DType, with_deterministic, with_tf32};
use std::path::{Path, PathBuf};

#[test]
fn a_matrix_is_seen_where_its_elements_are() {
    let mut found = [0, 0];
    for (rows, columns) in (1..4).flat_map(|r| (1..4).map(move |c| (r, c))) {
        for (r, c) in (-2..7).flat_map(|r| (-2..7).map(move |c| (r, c))) {
            let Some((turned, leading)) = matrix_layout(rows, columns, [r, c]) else {
                // Both steps are more than an element, or rows overlap.
                let lies = |step: isize, other: isize, n: usize| step == 1 && other >= n as isize;
                assert!(!lies(c, r, columns) && !lies(r, c, rows), "{rows}×{columns}: {r}, {c}");
                continue;
            };
            found[usize::from(turned)] += 1;
            assert!(leading >= if turned { rows } else { columns });
            let leading = leading as isize;
            for (i, j) in
                (0..rows as isize).flat_map(|i| (0..columns as isize).map(move |j| (i, j)))
            {
                let there = if turned { i + j * leading } else { i * leading + j };
                assert_eq!(i * r + j * c, there, "{rows}×{columns}: {r}, {c}");
            }
        }
    }
    assert!(found.iter().all(|&n| n > 50), "{found:?}");
}

#[test]
fn a_step_goes_over_all_batch_axes() {
    assert_eq!(step(&[], &[]), Some(0));
    assert_eq!(step(&[1, 1], &[5, 7]), Some(0));
    assert_eq!(step(&[4], &[12]), Some(12));
    assert_eq!(step(&[2, 3, 4], &[120, 40, 10]), Some(10));
    assert_eq!(step(&[2, 1, 4], &[40, 99, 10]), Some(10));
    // One matrix for all, and not for all.
    assert_eq!(step(&[2, 3], &[0, 0]), Some(0));
    assert_eq!(step(&[2, 3], &[0, 12]), None);
    assert_eq!(step(&[2, 3], &[12, 0]), None);
    // Axes exchanged, and backward.
    assert_eq!(step(&[2, 3], &[12, 24]), None);
    assert_eq!(step(&[3], &[-12]), None);
}

/// The first GPU, if there is one.
fn gpu() -> Option<Gpu> {
    Gpu::open(0).ok()
}

/// A folder of a test, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let name = format!("pullback-products-{name}-{}", std::process::id());
        Folder(std::env::temp_dir().join(name))
    }

    fn files(&self) -> Vec<PathBuf> {
        let all = std::fs::read_dir(&self.0).into_iter().flatten().flatten();
        all.map(|file| file.path()).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn products(gpu: &Gpu, folder: Option<&Path>) -> Products {
    Products::open_with(gpu, folder.map(Path::to_path_buf)).unwrap()
}

/// A square of numbers between −1 and 1.
const N: usize = 640;

fn numbers(seed: u64) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..N * N).map(|_| next()).collect()
}

fn bytes(dtype: DType, values: &[f32]) -> Vec<u8> {
    match dtype {
        DType::BF16 => {
            values.iter().flat_map(|v| ((v.to_bits() >> 16) as u16).to_le_bytes()).collect()
        }
        _ => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
    }
}

/// `c + a·b`, or `a·b`, computed on the device.
fn on_device(
    gpu: &Gpu,
    products: &Products,
    dtypes: [DType; 2],
    [a, b]: [&[f32]; 2],
    c: Option<&[f32]>,
) -> Vec<u8> {
    let operand = |dtype: DType, values: &[f32]| {
        let values = bytes(dtype, values);
        let memory = gpu.scratch(values.len()).unwrap();
        gpu.upload(&values, memory.at).unwrap();
        (StridedOperand::dense(memory.at, dtype, &[N, N]), memory)
    };
    let ((a, _a), (b, _b)) = (operand(dtypes[0], a), operand(dtypes[0], b));
    let (out, _c) = operand(dtypes[1], c.unwrap_or(&vec![f32::NAN; N * N]));
    let sum = if c.is_some() { Addend::Added } else { Addend::Alone };
    products.dot(gpu, &a, &b, &out, sum).unwrap();
    let mut made = vec![0; out.bytes()];
    gpu.download(out.at, &mut made).unwrap();
    made
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
}

/// More than sums in `f32` are wrong by.
const EXACT: f64 = 2e-5;

/// The largest error of some rows against sums in `f64`, relative to the length of a sum of
/// products of such numbers.
fn error(made: &[f32], [a, b]: [&[f32]; 2], c: Option<&[f32]>) -> f64 {
    let scale = (N as f64).sqrt() / 3.0;
    let one = |i: usize, j: usize| {
        let product = |k| f64::from(a[i * N + k]) * f64::from(b[k * N + j]);
        let sum: f64 = (0..N).map(product).sum();
        (f64::from(made[i * N + j]) - sum - c.map_or(0.0, |c| f64::from(c[i * N + j]))).abs()
    };
    let rows = (0..N).step_by(37);
    rows.flat_map(|i| (0..N).map(move |j| (i, j))).map(|(i, j)| one(i, j)).fold(0.0, f64::max)
        / scale
}

#[test]
fn the_same_form_gives_the_same_bits() {
    let Some(gpu) = gpu() else { return };
    let (a, b) = (numbers(1), numbers(2));
    for dtypes in [
        [DType::F32, DType::F32],
        [DType::BF16, DType::BF16],
        [DType::BF16, DType::F32],
        [DType::F32, DType::F32],
    ] {
        // Plans of their own, as two processes have; a folder with choices makes no difference.
        let folder = Folder::new("bits");
        let first = on_device(&gpu, &products(&gpu, None), dtypes, [&a, &b], None);
        let tuned = products(&gpu, Some(&folder.0));
        with_deterministic(false, || on_device(&gpu, &tuned, dtypes, [&a, &b], None));
        for _ in 0..3 {
            let again = on_device(&gpu, &products(&gpu, Some(&folder.0)), dtypes, [&a, &b], None);
            assert!(first == again, "{dtypes:?}");
        }
    }
}

#[test]
fn tf32_is_used_only_where_it_is_allowed() {
    let Some(gpu) = gpu() else { return };
    let (a, b) = (numbers(3), numbers(4));
    let products = products(&gpu, None);
    let made = || floats(&on_device(&gpu, &products, [DType::F32; 2], [&a, &b], None));
    let (exact, fast, after) = (made(), with_tf32(true, made), made());
    assert!(exact == after);
    let (exact, fast) = (error(&exact, [&a, &b], None), error(&fast, [&a, &b], None));
    assert!(exact < EXACT, "f32: {exact}");
    // Operands that are cut to 10 bits: near 10⁻³ of a sum, and some sums are several lengths.
    assert!(fast > 10.0 * exact && fast < 1e-2, "TF32: {fast}, f32: {exact}");
}

#[test]
fn a_product_that_is_measured_is_added_once() {
    let Some(gpu) = gpu() else { return };
    let (a, b, c) = (numbers(5), numbers(6), numbers(7));
    let folder = Folder::new("added");
    let products = products(&gpu, Some(&folder.0));
    for _ in 0..2 {
        let dtypes = [DType::F32; 2];
        let add = || floats(&on_device(&gpu, &products, dtypes, [&a, &b], Some(&c)));
        let error = error(&with_deterministic(false, add), [&a, &b], Some(&c));
        assert!(error < EXACT, "{error}");
    }
}

#[test]
fn choices_outlast_the_process_and_damaged_ones_are_not_used() {
    let Some(gpu) = gpu() else { return };
    let (a, b) = (numbers(8), numbers(9));
    let folder = Folder::new("choices");
    let made = || {
        let products = products(&gpu, Some(&folder.0));
        let run = || on_device(&gpu, &products, [DType::F32; 2], [&a, &b], None);
        with_deterministic(false, run)
    };
    let first = made();
    let files = folder.files();
    assert_eq!(files.len(), 1, "{files:?}");
    let written = std::fs::metadata(&files[0]).unwrap().modified().unwrap();
    // Read, not measured again: the file stays as it was, and so do the bits.
    assert!(made() == first);
    assert_eq!(std::fs::metadata(&files[0]).unwrap().modified().unwrap(), written);
    std::fs::write(&files[0], [0xff; 300]).unwrap();
    assert!(error(&floats(&made()), [&a, &b], None) < EXACT);
    assert_ne!(std::fs::metadata(&files[0]).unwrap().len(), 300);
}
