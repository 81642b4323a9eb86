//! Convolutions by cuDNN.
//!
//! Our images have the channels before the spatial axes, and cuDNN takes them so; in programs they
//! are views of arrays with the channels last (`channels_last`). In bf16 and f16
//! it computes with the channels last: it transposes dense operands itself, faster than we could
//! around it (measured on an H200). Where the strides of operands have that order already, it gets
//! them as they are; what then does not fit is transposed here, so the order with less to move is
//! asked for first.

use crate::dnn::{Dnn, DnnForm};
use crate::dnn_graph::code::*;
use crate::dnn_graph::{DnnGraph, DnnResult, dense, dtype_code};
use crate::gpu::{DeviceScratch, Gpu};
use crate::loops::StridedOperand;
use crate::ops::copy;
use crate::transpose::transpose;
use pullback_ir::{Conv, DType, Result, Role, Window, deterministic, element_count, tf32_allowed};
use smallvec::SmallVec;
use std::ffi::c_int;

type Dims = SmallVec<[i64; 5]>;

/// A convolution as cuDNN sees it.
struct DnnConv {
    role: usize,
    dtype: DType,
    /// Of x, w and y.
    dims: [Dims; 3],
    /// The channels of x and w with zeros behind them, if they are last in memory: tensor cores
    /// take groups of eight, and the engines for fewer are slow.
    channels: i64,
    /// For each spatial axis: dilation, stride, padding after and before.
    windows: SmallVec<[[i64; 4]; 3]>,
}

/// Runs a convolution that has elements, of x, w and y, of which `out` is computed; false, and
/// nothing done, if cuDNN does not take it.
pub(crate) fn conv(
    gpu: &Gpu,
    conv: &Conv,
    [x, w, y]: [&StridedOperand; 3],
    out: usize,
) -> Result<bool> {
    let Some(dnn) = gpu.dnn() else { return Ok(false) };
    let Some(problem) = DnnConv::new(conv, [x, w, y]) else { return Ok(false) };
    let narrow = matches!(problem.dtype, DType::BF16 | DType::F16);
    // Bytes that have to be moved around a layout.
    let moved = |channels_last: bool| -> usize {
        [x, w, y].iter().filter(|x| !fits(x, channels_last)).map(|x| x.bytes()).sum()
    };
    let layouts: &[bool] = match narrow || tf32_allowed() {
        true if moved(true) < moved(false) => &[true, false],
        true => &[false, true],
        false => &[false],
    };
    for &channels_last in layouts {
        if problem.run(gpu, dnn, [x, w, y], out, channels_last)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The same with the channels last in cuDNN, or not.
#[cfg(test)]
pub(crate) fn in_layout(
    gpu: &Gpu,
    conv: &Conv,
    of: [&StridedOperand; 3],
    out: usize,
    channels_last: bool,
) -> Result<bool> {
    match (gpu.dnn(), DnnConv::new(conv, of)) {
        (Some(dnn), Some(problem)) => problem.run(gpu, dnn, of, out, channels_last),
        _ => Ok(false),
    }
}

/// Padding after an axis counts only in the number of windows: the same as before it, which cuDNN
/// likes, if that gives as many.
fn window(window: &Window, len: usize, count: usize) -> Option<[i64; 4]> {
    let even = Window { after: window.before, ..*window };
    let after = if even.count(len) == Some(count) { window.before } else { window.after };
    let padding = [i64::try_from(after).ok()?, i64::try_from(window.before).ok()?];
    (padding.iter().all(|&p| p >= 0)).then_some([
        window.dilation as i64,
        window.stride as i64,
        padding[0],
        padding[1],
    ])
}

impl DnnConv {
    /// `None` where cuDNN is not asked.
    fn new(conv: &Conv, of: [&StridedOperand; 3]) -> Option<DnnConv> {
        let [x, _, y] = of;
        let dtype = y.dtype;
        dtype_code(dtype)?;
        let small = |x: &&StridedOperand| x.dtype == dtype && i32::try_from(x.len()).is_ok();
        if conv.windows.is_empty() || conv.windows.len() > 3 || !of.iter().all(small) {
            return None;
        }
        let lengths = x.shape[2..].iter().zip(&y.shape[2..]);
        let mut windows = conv
            .windows
            .iter()
            .zip(lengths)
            .map(|(w, (&len, &count))| window(w, len, count))
            .collect::<Option<SmallVec<[[i64; 4]; 3]>>>()?;
        let mut dims = of.map(|x| x.shape.iter().map(|&n| n as i64).collect::<Dims>());
        // One spatial axis is the second of two.
        if windows.len() == 1 {
            windows.insert(0, [1, 1, 0, 0]);
            dims.iter_mut().for_each(|dims| dims.insert(2, 1));
        }
        let role = match conv.role {
            Role::Forward => 0,
            Role::Input(_) => 1,
            Role::Filter => 2,
        };
        let narrow = matches!(dtype, DType::BF16 | DType::F16);
        let channels = match dims[0][1] {
            3..8 if narrow && conv.groups == 1 => 8,
            channels => channels,
        };
        Some(DnnConv { role, dtype, dims, channels, windows })
    }

    /// Of x, w and y, as cuDNN gets them.
    fn dims(&self, channels_last: bool) -> [Dims; 3] {
        let mut dims = self.dims.clone();
        if channels_last && self.dims[0][1] != self.channels {
            (dims[0][1], dims[1][1]) = (self.channels, self.channels);
        }
        dims
    }

    fn form(&self, channels_last: bool) -> DnnForm {
        let flags = [channels_last, deterministic(), tf32_allowed()].map(i64::from);
        let mut numbers = SmallVec::from_slice(&flags);
        numbers.push(self.windows.len() as i64);
        self.dims(channels_last).iter().for_each(|dims| numbers.extend_from_slice(dims));
        self.windows.iter().for_each(|window| numbers.extend_from_slice(window));
        let what = ["convolution", "convolution to the input", "convolution to the filter"];
        DnnForm { what: what[self.role], dtype: self.dtype, numbers }
    }

    fn build(&self, g: &mut DnnGraph, channels_last: bool) -> DnnResult<()> {
        let dtype = dtype_code(self.dtype).ok_or("no such dtype")?;
        let within = if dtype == DOUBLE { DOUBLE } else { FLOAT };
        let all = self.dims(channels_last);
        let mut tensor = |number: usize| {
            let dims = &all[number];
            let strides = match channels_last {
                false => dense(dims),
                true => {
                    let mut moved = dims.clone();
                    let channels = moved.remove(1);
                    moved.push(channels);
                    let mut strides = dense(&moved);
                    strides.rotate_right(1);
                    strides.swap(0, 1);
                    strides
                }
            };
            g.tensor(number as i64 + 1, dims, &strides, dtype)
        };
        let of = [tensor(0)?, tensor(1)?, tensor(2)?];
        g.convolution(self.role, of, &self.windows, within)
    }

    /// Whether an engine's numbers are as exact as ours, and the same in every run.
    fn allows(&self, notes: &[c_int]) -> bool {
        let exact = [DOWN_CONVERTS, REDUCED_SUMS, FFT, WINOGRAD_6, WINOGRAD_13];
        let rounded = self.dtype == DType::F32 && !tf32_allowed();
        !notes.iter().any(|note| {
            exact.contains(note)
                || (*note == NONDETERMINISTIC && deterministic())
                || (*note == TENSOR_CORE && rounded)
        })
    }

    fn run(
        &self,
        gpu: &Gpu,
        dnn: &Dnn,
        of: [&StridedOperand; 3],
        out: usize,
        channels_last: bool,
    ) -> Result<bool> {
        let form = self.form(channels_last);
        let build = |g: &mut DnnGraph| self.build(g, channels_last);
        let Some(plan) = dnn.plan(gpu, &form, &|notes| self.allows(notes), build) else {
            return Ok(false);
        };
        let mut held: Vec<DeviceScratch<'_>> = Vec::new();
        let mut at: SmallVec<[(i64, u64); 3]> = SmallVec::new();
        for (number, &x) in of.iter().enumerate() {
            let mut address = x.at;
            let pads = self.pads(number, channels_last);
            if pads || !fits(x, channels_last) {
                let bytes = match pads {
                    true => x.bytes() / x.shape[1] * self.channels as usize,
                    false => x.bytes(),
                };
                let memory = gpu.scratch(bytes)?;
                address = memory.at;
                held.push(memory);
                if number != out && pads {
                    gpu.fill(address, 0, bytes)?;
                    copy(gpu, &moved(x), &self.padded(x, address))?;
                } else if number != out {
                    arrange(gpu, x, address, channels_last)?;
                }
            }
            at.push((number as i64 + 1, address));
        }
        if !dnn.run(gpu, &form, plan, &at)? {
            return Ok(false);
        }
        let made = at[out].1;
        if self.pads(out, channels_last) {
            copy(gpu, &self.padded(of[out], made), &moved(of[out]))?;
        } else if made != of[out].at {
            restore(gpu, made, of[out], channels_last)?;
        }
        Ok(true)
    }
}

impl DnnConv {
    /// Whether x or w has zeros behind its channels.
    fn pads(&self, number: usize, channels_last: bool) -> bool {
        channels_last && number < 2 && self.dims[0][1] != self.channels
    }

    /// An array like this one, with the channels last and zeros behind them: the part without them.
    fn padded(&self, x: &StridedOperand, at: u64) -> StridedOperand {
        let mut whole: SmallVec<[usize; 5]> = SmallVec::from_slice(&moved(x).shape);
        let last = whole.len() - 1;
        whole[last] = self.channels as usize;
        let strides = pullback_ir::dense_strides(&whole);
        StridedOperand::new(at, x.dtype, &moved(x).shape, &strides)
    }
}

/// The channels after the spatial axes.
fn moved(x: &StridedOperand) -> StridedOperand {
    let order: SmallVec<[usize; 5]> = [0].into_iter().chain(2..x.shape.len()).chain([1]).collect();
    x.permuted(&order)
}

fn fits(x: &StridedOperand, channels_last: bool) -> bool {
    let dense = if channels_last { moved(x).is_dense() } else { x.is_dense() };
    dense && x.at.is_multiple_of(16)
}

/// A dense copy, with the channels last or not.
fn arrange(gpu: &Gpu, x: &StridedOperand, to: u64, channels_last: bool) -> Result<()> {
    match channels_last {
        false => copy(gpu, x, &StridedOperand::dense(to, x.dtype, &x.shape)),
        true if x.is_dense() => {
            let sizes = [x.shape[0], x.shape[1], element_count(&x.shape[2..])];
            transpose(gpu, x.dtype, x.at, to, sizes)
        }
        true => {
            let seen = moved(x);
            copy(gpu, &seen, &StridedOperand::dense(to, x.dtype, &seen.shape))
        }
    }
}

/// A result, from memory with the channels last or not.
fn restore(gpu: &Gpu, from: u64, out: &StridedOperand, channels_last: bool) -> Result<()> {
    if !out.is_dense() {
        let to = if channels_last { moved(out) } else { out.clone() };
        return copy(gpu, &StridedOperand::dense(from, out.dtype, &to.shape), &to);
    }
    if !channels_last {
        return gpu.copy(from, out.at, out.bytes());
    }
    let sizes = [out.shape[0], element_count(&out.shape[2..]), out.shape[1]];
    transpose(gpu, out.dtype, from, out.at, sizes)
}
