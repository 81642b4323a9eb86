//! Convolutions and pooling.
//!
//! Where cuDNN does not take a convolution, it is a product over columns: the elements that each
//! window sees, copied next to each other. Its transposes are the same products with other
//! operands.

use crate::compile::KernelKey;
use crate::dnn_conv;
use crate::functions::PRELUDE;
use crate::gpu::Gpu;
use crate::loops::StridedOperand;
use crate::ops::copy;
use crate::product::dot;
use crate::text::{compute, element};
use pullback_ir::{Conv, DType, Frame, Pool, Pooling, Result, Role, Window, element_count};
use smallvec::{SmallVec, smallvec};

const TEXT: &str = include_str!("kernels/window.cu");
const BLOCK: usize = 256;
/// Spatial axes that kernels have room for.
pub(crate) const AXES: usize = 3;

/// As `Window` in `kernels/window.cu`.
struct WindowSizes {
    n: usize,
    c: usize,
    x: [usize; AXES],
    y: [usize; AXES],
    windows: [Window; AXES],
    even: [bool; AXES],
}

const WHOLE: Window = Window { size: 1, stride: 1, dilation: 1, before: 0, after: 0 };

/// The last three of lengths, with ones in front of shorter lists.
fn three(of: &[usize]) -> [usize; AXES] {
    let mut all = [1; AXES];
    all[AXES - of.len()..].copy_from_slice(of);
    all
}

impl WindowSizes {
    fn launch(
        &self,
        gpu: &Gpu,
        (name, variant, more): (&'static str, u32, &str),
        from: &StridedOperand,
        to: &StridedOperand,
        places: u64,
    ) -> Result<()> {
        let count = to.len();
        if count == 0 {
            return Ok(());
        }
        // What is counted, and windows beyond the ends of axes, must fit into 31 bits.
        let far = |w: &Window| {
            let reach = w.size.saturating_mul(w.dilation).saturating_add(w.stride);
            reach.saturating_add(w.before.unsigned_abs())
        };
        let reach = self.windows.iter().map(far).max().unwrap_or(0);
        let wide = count.max(from.len()).saturating_add(reach) >= 1 << 31;
        let each = self.each((name, variant), from, to, places);
        let (name, vector) = each.unwrap_or((name, 1));
        let threads = count / vector;
        let key =
            KernelKey::Named(name, smallvec![from.dtype], smallvec![variant, u32::from(wide)]);
        let kernel = gpu.kernels.get(gpu, &key, || text(name, from.dtype, more, wide, vector))?;
        let mut words: SmallVec<[u64; 48]> = smallvec![from.at, to.at, places, threads as u64];
        words.extend([self.n, self.c].map(|n| n as u64));
        words.extend(self.x.map(|n| n as u64));
        words.extend(self.y.map(|n| n as u64));
        words.extend(self.windows.map(|w| w.size as u64));
        words.extend(self.windows.map(|w| w.stride as u64));
        words.extend(self.windows.map(|w| w.dilation as u64));
        words.extend(self.windows.map(|w| w.before as u64));
        // Strides of what is read; missing axes have length 1.
        let spatial = from.strides.len().saturating_sub(2);
        let mut strides = [0isize; 2 + AXES];
        strides[..2].copy_from_slice(&from.strides[..2]);
        strides[2 + AXES - spatial..].copy_from_slice(&from.strides[2..]);
        words.extend(strides.map(|s| s as u64));
        words.extend(self.even.map(u64::from));
        gpu.launch(kernel, threads.div_ceil(BLOCK), BLOCK, &words)
    }
}

impl WindowSizes {
    /// The kernel for a last axis whose pieces are its elements, such as channels, and how many of
    /// them a thread has: 16 bytes.
    fn each(
        &self,
        (name, variant): (&str, u32),
        from: &StridedOperand,
        to: &StridedOperand,
        places: u64,
    ) -> Option<(&'static str, usize)> {
        let name = match (name, variant) {
            ("POOL", 1) => "POOL_EACH",
            ("GIVE", _) => "GIVE_EACH",
            _ => return None,
        };
        let (vector, last) = (16 / from.dtype.size(), AXES - 1);
        let elements = self.windows[last] == WHOLE && !self.even[last];
        let (end, outer) = from.strides.split_last()?;
        let lies = *end == 1 && outer.iter().all(|s| s % vector as isize == 0);
        let aligned = [from.at, to.at, places].iter().all(|at| at.is_multiple_of(16));
        let whole = self.x[last].is_multiple_of(vector) && vector <= 8;
        (elements && whole && lies && aligned).then_some((name, vector))
    }
}

/// Runs a convolution of up to three spatial axes.
pub(crate) fn conv(
    gpu: &Gpu,
    conv: &Conv,
    a: &StridedOperand,
    b: &StridedOperand,
    out: &StridedOperand,
) -> Result<()> {
    let (of, computed) = match conv.role {
        Role::Forward => ([a, b, out], 2),
        Role::Input(_) => ([out, b, a], 0),
        Role::Filter => ([a, out, b], 1),
    };
    let some = of.iter().all(|x| x.len() > 0);
    match some && dnn_conv::conv(gpu, conv, of, computed)? {
        true => Ok(()),
        false => own_conv(gpu, conv, a, b, out),
    }
}

/// The same by columns.
pub(crate) fn own_conv(
    gpu: &Gpu,
    conv: &Conv,
    a: &StridedOperand,
    b: &StridedOperand,
    out: &StridedOperand,
) -> Result<()> {
    let dtype = out.dtype;
    if !out.is_dense() {
        let memory = gpu.scratch(out.bytes())?;
        let made = StridedOperand::dense(memory.at, dtype, &out.shape);
        own_conv(gpu, conv, a, b, &made)?;
        return copy(gpu, &made, out);
    }
    let groups = conv.groups;
    let mut windows = [WHOLE; AXES];
    windows[AXES - conv.windows.len()..].copy_from_slice(&conv.windows);
    // x [n, g·i, s…], w [g·o, i, k…], y [n, g·o, p…], whichever of them is computed.
    let (x, w, y) = match conv.role {
        Role::Forward => (a, b, out),
        Role::Input(_) => (out, b, a),
        Role::Filter => (a, out, b),
    };
    let (n, channels) = (x.shape[0], x.shape[1]);
    let (o, i) = (w.shape[0] / groups.max(1), w.shape[1]);
    let taps = element_count(&w.shape[2..]);
    let places = element_count(&y.shape[2..]);
    let sizes = WindowSizes {
        n,
        c: channels,
        x: three(&x.shape[2..]),
        y: three(&y.shape[2..]),
        windows,
        even: [false; AXES],
    };
    if out.len() == 0 {
        return Ok(());
    }
    let count = n * channels * taps * places;
    if count == 0 {
        return gpu.fill(out.at, 0, out.bytes());
    }
    let memory = gpu.scratch(count * dtype.size())?;
    let dense =
        |x: &StridedOperand| -> Result<(StridedOperand, Option<crate::gpu::DeviceScratch<'_>>)> {
            if x.is_dense() {
                return Ok((x.clone(), None));
            }
            let memory = gpu.scratch(x.bytes())?;
            let to = StridedOperand::dense(memory.at, x.dtype, &x.shape);
            copy(gpu, x, &to)?;
            Ok((to, Some(memory)))
        };
    let grouped = |x: &StridedOperand, shape: &[usize]| StridedOperand::dense(x.at, dtype, shape);
    let width = i * taps;
    match conv.role {
        Role::Forward => {
            let columns = StridedOperand::dense(memory.at, dtype, &[n, groups, width, places]);
            sizes.launch(gpu, ("COLUMNS", 0, "#define FILTER 0"), x, &columns, 0)?;
            let (w, _held) = dense(w)?;
            let w = grouped(&w, &[groups, o, width]).repeated(0, n);
            dot(gpu, &w, &columns, &grouped(y, &[n, groups, o, places]), false)
        }
        Role::Input(_) => {
            let columns = StridedOperand::dense(memory.at, dtype, &[n, groups, width, places]);
            let ((w, _held), (y, _kept)) = (dense(w)?, dense(y)?);
            let w = grouped(&w, &[groups, o, width]).repeated(0, n).permuted(&[0, 1, 3, 2]);
            dot(gpu, &w, &grouped(&y, &[n, groups, o, places]), &columns, false)?;
            let columns = columns.as_strided(&[n, channels, 1], &[1, 1, 1]);
            sizes.launch(gpu, ("FOLD", 0, ""), &columns, x, 0)
        }
        Role::Filter => {
            let columns = StridedOperand::dense(memory.at, dtype, &[groups, width, n * places]);
            sizes.launch(gpu, ("COLUMNS", 1, "#define FILTER 1"), x, &columns, 0)?;
            // y [n, g·o, p…] as [g, o, n·p].
            let moved = gpu.scratch(y.bytes())?;
            let rank = y.shape.len();
            let order: Vec<usize> = [1, 0].into_iter().chain(2..rank).collect();
            let shape: Vec<usize> = order.iter().map(|&d| y.shape[d]).collect();
            copy(gpu, &y.permuted(&order), &StridedOperand::dense(moved.at, dtype, &shape))?;
            let y = StridedOperand::dense(moved.at, dtype, &[groups, o, n * places]);
            let to = grouped(out, &[groups, o, width]);
            dot(gpu, &y, &columns.permuted(&[0, 2, 1]), &to, false)
        }
    }
}

/// Runs a pooling of up to three spatial axes. What is before them is batch.
/// Some kinds take positions beside the array.
pub(crate) fn pool(
    gpu: &Gpu,
    pool: &Pool,
    x: &[StridedOperand],
    out: &StridedOperand,
) -> Result<()> {
    let (x, places) = (&x[0], x.get(1));
    let held;
    let places = match places {
        Some(places) if !places.is_dense() => {
            held = gpu.scratch(places.bytes())?;
            copy(gpu, places, &StridedOperand::dense(held.at, places.dtype, &places.shape))?;
            held.at
        }
        Some(places) => places.at,
        None => 0,
    };
    let spatial = pool.frames.len();
    let before = x.shape.len() - spatial;
    // Two axes before the spatial ones.
    let memory;
    let batched = |at: u64| {
        let batch = element_count(&x.shape[..before]);
        let shape: Vec<usize> =
            [batch, 1].into_iter().chain(x.shape[before..].iter().copied()).collect();
        StridedOperand::dense(at, x.dtype, &shape)
    };
    let dense = match before {
        2 => x.clone(),
        1 => x.repeated(1, 1),
        _ if x.is_dense() => batched(x.at),
        _ => {
            memory = gpu.scratch(x.bytes())?;
            copy(gpu, x, &StridedOperand::dense(memory.at, x.dtype, &x.shape))?;
            batched(memory.at)
        }
    };
    let (mut windows, mut even) = ([WHOLE; AXES], [false; AXES]);
    for (d, frame) in pool.frames.iter().enumerate() {
        let at = AXES - spatial + d;
        match frame {
            Frame::Sliding(window) => windows[at] = *window,
            Frame::Even(_) => even[at] = true,
        }
    }
    let (inner, outer) = (three(&x.shape[before..]), three(&out.shape[before..]));
    let (n, c) = (dense.shape[0], dense.shape[1]);
    let sizes = |x, y| WindowSizes { n, c, x, y, windows, even };
    match pool.kind {
        Pooling::Sum => sizes(inner, outer).launch(gpu, ("POOL", 0, ""), &dense, out, 0),
        Pooling::ArgMax => {
            sizes(inner, outer).launch(gpu, ("POOL", 1, "#define ARGMAX"), &dense, out, 0)
        }
        Pooling::Spread(_) => sizes(outer, inner).launch(gpu, ("SPREAD", 0, ""), &dense, out, 0),
        Pooling::Take => sizes(inner, outer).launch(gpu, ("TAKE", 0, ""), &dense, out, places),
        Pooling::Give(_) => sizes(outer, inner).launch(gpu, ("GIVE", 0, ""), &dense, out, places),
    }
}

pub(crate) fn text(name: &str, dtype: DType, more: &str, wide: bool, vector: usize) -> String {
    let (e, c) = (element(dtype), compute(dtype));
    let wide = u32::from(wide);
    format!(
        "{PRELUDE}#define {name}\ntypedef {e} E;\ntypedef {c} C;\n#define WIDE {wide}\n\
         #define VEC {vector}\n{more}\n{TEXT}"
    )
}

/// Whether there are kernels for it.
pub(crate) fn has(spatial: usize, dtype: DType) -> bool {
    spatial <= AXES && crate::product::has(dtype)
}
