//! Launches of the kernels of `kernels/lines.cu`: indexing, sorting, scans, products of integers.

use crate::compile::KernelKey;
use crate::functions::PRELUDE;
use crate::gpu::{Gpu, LibraryHandle, device_error};
use crate::loops::StridedOperand;
use crate::ops::copy;
use crate::text::{compute, element, random, with_random};
use pullback_cuda_sys::DevicePtr;
use pullback_ir::{Combine, Cumulation, DType, Extreme, Line, Op, Random, Result, Spec};
use smallvec::{SmallVec, smallvec};

const TEXT: &str = include_str!("kernels/lines.cu");
const BLOCK: usize = 256;
/// Axes that the kernels have room for.
pub(crate) const AXES: usize = 8;
/// Longest line that a block sorts.
const SHARED: usize = 2048;
/// Lists of indices shorter than this are ordered by comparing all with all: faster than a sort,
/// whose steps are launches.
const RANKED: usize = 1 << 15;
/// Where a run of equal indices is cut, in the ordered list.
const CUT: usize = 256;

/// As `Lines` in `kernels/lines.cu`.
#[derive(Default)]
struct LineParams {
    addresses: [DevicePtr; 6],
    lines: usize,
    len: usize,
    /// The axes that number the lines: length, and strides of up to four operands.
    axes: SmallVec<[(usize, [isize; 4]); 4]>,
    steps: [isize; 4],
    numbers: [u64; 3],
}

impl LineParams {
    fn words(&self) -> Result<SmallVec<[u64; 64]>> {
        // Neighbours that are adjacent in every operand are one axis.
        let mut axes: SmallVec<[(usize, [isize; 4]); 4]> = SmallVec::new();
        for &(n, of) in self.axes.iter().filter(|axis| axis.0 != 1) {
            match axes.last_mut() {
                Some((before, by)) if (0..4).all(|k| by[k] == of[k] * n as isize) => {
                    (*before, *by) = (*before * n, of);
                }
                _ => axes.push((n, of)),
            }
        }
        if axes.len() > AXES {
            let message = format!("more than {AXES} axes that are not adjacent in memory");
            return Err(device_error("launch", message));
        }
        let mut words: SmallVec<[u64; 64]> = SmallVec::from_slice(&self.addresses);
        words.extend([self.lines as u64, self.len as u64, axes.len() as u64]);
        words.extend((0..AXES).map(|d| axes.get(d).map_or(1, |axis| axis.0 as u64)));
        for k in 0..4 {
            words.extend((0..AXES).map(|d| axes.get(d).map_or(0, |axis| axis.1[k] as u64)));
        }
        words.extend(self.steps.iter().map(|&s| s as u64));
        words.extend(self.numbers);
        Ok(words)
    }

    fn launch(&self, gpu: &Gpu, kernel: LibraryHandle, threads: usize) -> Result<()> {
        match threads {
            0 => Ok(()),
            _ => gpu.launch(kernel, threads.div_ceil(BLOCK), BLOCK, &self.words()?),
        }
    }
}

/// The kernel of this name for an element, with more definitions.
fn kernel(
    gpu: &Gpu,
    name: &'static str,
    dtype: DType,
    variant: u32,
    more: &str,
) -> Result<LibraryHandle> {
    let key = KernelKey::Named(name, smallvec![dtype], smallvec![variant]);
    gpu.kernels.get(gpu, &key, || {
        let (e, c) = (element(dtype), compute(dtype));
        let head = format!("#define {name}\ntypedef {e} E;\ntypedef {c} C;\n{more}\n");
        match name {
            "RANDOM_KEYS" => with_random(&format!("{head}{TEXT}")),
            _ => format!("{PRELUDE}{head}{TEXT}"),
        }
    })
}

/// The axes but one, each with the strides of operands (a missing axis has stride 0).
fn others(
    shape: &[usize],
    axis: Option<usize>,
    of: &[&[isize]],
) -> SmallVec<[(usize, [isize; 4]); 4]> {
    let mut axes = SmallVec::new();
    for (d, &n) in shape.iter().enumerate().filter(|(d, _)| Some(*d) != axis) {
        let mut strides = [0; 4];
        for (to, from) in strides.iter_mut().zip(of) {
            *to = from.get(d).copied().unwrap_or(0);
        }
        axes.push((n, strides));
    }
    axes
}

fn specs(of: &[&StridedOperand]) -> Vec<Spec> {
    of.iter().map(|x| Spec::cpu(x.dtype, &x.shape[..])).collect()
}

/// An element of the same size, to be moved only.
fn carrier(dtype: DType) -> DType {
    match dtype.size() {
        1 => DType::U8,
        2 => DType::F16,
        4 => DType::I32,
        _ => DType::I64,
    }
}

/// `out` is dense, of the shape of `index`.
pub(crate) fn gather(
    gpu: &Gpu,
    axis: usize,
    [x, index, out]: [&StridedOperand; 3],
    at: Option<Line>,
) -> Result<()> {
    let (call, fault) = gpu.may_fail("gather", &specs(&[x, index]), at);
    let mut along = x.strides.clone();
    let step = std::mem::replace(&mut along[axis], 0);
    let of = LineParams {
        addresses: [x.at, index.at, out.at, fault, 0, 0],
        lines: index.len(),
        axes: others(&index.shape, None, &[&along, &index.strides]),
        steps: [step, 0, 0, 0],
        numbers: [0, x.shape[axis] as u64, call],
        ..LineParams::default()
    };
    of.launch(gpu, kernel(gpu, "GATHER", carrier(x.dtype), 0, "")?, of.lines)
}

/// `out`, which holds the base, is dense.
pub(crate) fn scatter(
    gpu: &Gpu,
    (axis, how): (usize, Combine),
    [out, index, source]: [&StridedOperand; 3],
    at: Option<Line>,
) -> Result<()> {
    let len = index.shape.get(axis).copied().unwrap_or(1);
    if index.len() == 0 {
        return Ok(());
    }
    let (call, fault) = gpu.may_fail("scatter", &specs(&[out, index, source]), at);
    // All lines share one list if the index is broadcast over the other axes.
    let shared =
        (0..index.shape.len()).all(|d| d == axis || index.strides[d] == 0 || index.shape[d] == 1);
    let lines = index.len() / len;
    let behind: usize = index.shape.iter().skip(axis + 1).product();
    let lists = match shared {
        true => StridedOperand::new(index.at, DType::I64, &[len], &[index.strides[axis]]),
        false => {
            let order: Vec<usize> =
                (0..index.shape.len()).filter(|d| *d != axis).chain([axis]).collect();
            index.permuted(&order)
        }
    };
    let sorted = gpu.scratch(lists.bytes())?;
    let places = gpu.scratch(lists.bytes())?;
    if shared && (SHARED / 4..RANKED).contains(&len) && out.shape[axis] < u32::MAX as usize - 1 {
        ranked(gpu, &lists, out.shape[axis], [sorted.at, places.at])?;
    } else {
        let to = |memory: DevicePtr| StridedOperand::dense(memory, DType::I64, &lists.shape);
        let last = lists.shape.len() - 1;
        sort(gpu, (last, false), (0, len), &lists, [&to(sorted.at), &to(places.at)])?;
    }
    let list = pullback_ir::dense_strides(&lists.shape);
    // The stride of a line in the lists, axis by axis.
    let mut of_list: Vec<isize> = vec![0; index.shape.len()];
    if !shared {
        let kept = (0..index.shape.len()).filter(|d| *d != axis);
        kept.enumerate().for_each(|(i, d)| of_list[d] = list[i]);
    }
    let (variant, combine) = match how {
        Combine::Set => (0, "y"),
        Combine::Add => (1, "b_add(x, y)"),
        Combine::Mul => (2, "b_mul(x, y)"),
        Combine::Max => (3, "b_maximum(x, y)"),
        Combine::Min => (4, "b_minimum(x, y)"),
    };
    let more = format!("#define COMBINE {combine}\n");
    let mut of = LineParams {
        addresses: [out.at, sorted.at, places.at, source.at, fault, 0],
        lines,
        len,
        axes: others(&index.shape, Some(axis), &[&out.strides, &source.strides, &of_list]),
        steps: [out.strides[axis], source.strides[axis], behind as isize, 0],
        numbers: [u64::from(shared), out.shape[axis] as u64, call],
    };
    if !(shared && [out, source].iter().all(|x| is_rows(x, axis, &index.shape))) {
        return of.launch(gpu, kernel(gpu, "SCATTER", out.dtype, variant, &more)?, lines * len);
    }
    let vector = 16 / out.dtype.size();
    let fits = |x: &StridedOperand| {
        x.at.is_multiple_of(16) && x.strides[axis].unsigned_abs().is_multiple_of(vector)
    };
    let fits = lines.is_multiple_of(vector) && fits(out) && fits(source);
    let vector = if fits { vector } else { 1 };
    let warps = lines.div_ceil(32 * vector);
    let parts = gpu.scratch(2 * len.div_ceil(CUT) * lines * out.dtype.compute().size())?;
    of.addresses[5] = parts.at;
    (of.axes, of.numbers[0]) = (SmallVec::new(), warps as u64);
    let more = format!("#define VECTOR {vector}\n#define CUT {CUT}\n{more}");
    let variant = variant + 8 * vector as u32;
    let rows = kernel(gpu, "SCATTER_ROWS", out.dtype, variant, &more)?;
    of.launch(gpu, rows, 32 * warps * len)?;
    if len <= CUT {
        return Ok(());
    }
    let join = kernel(gpu, "SCATTER_JOIN", out.dtype, variant, &more)?;
    of.launch(gpu, join, 32 * warps * (len / CUT))
}

/// Whether all axes but one are those of `shape` and contiguous, one element after the other.
fn is_rows(x: &StridedOperand, axis: usize, shape: &[usize]) -> bool {
    let mut next = 1;
    (0..x.shape.len()).rev().filter(|&d| d != axis).all(|d| {
        let fits = x.shape[d] == shape[d] && (x.strides[d] == next || x.shape[d] == 1);
        next *= x.shape[d] as isize;
        fits
    })
}

/// A list of indices below a bound in order, and where each was: by their ranks.
fn ranked(
    gpu: &Gpu,
    list: &StridedOperand,
    bound: usize,
    [sorted, places]: [DevicePtr; 2],
) -> Result<()> {
    let len = list.len();
    let ranks = gpu.scratch(len * 4)?;
    gpu.fill(ranks.at, 0, len * 4)?;
    let slices = len.div_ceil(2048);
    let of = LineParams {
        addresses: [list.at, ranks.at, sorted, places, 0, 0],
        len,
        steps: [list.strides[0], 0, 0, 0],
        numbers: [slices as u64, bound as u64, 0],
        ..LineParams::default()
    };
    let blocks = len.div_ceil(BLOCK) * slices;
    of.launch(gpu, kernel(gpu, "RANKS", DType::I64, 0, "")?, blocks * BLOCK)?;
    of.launch(gpu, kernel(gpu, "ORDER", DType::I64, 0, "")?, len)
}

/// The elements of some ranks along an axis, and their indices, into dense results.
pub(crate) fn sort(
    gpu: &Gpu,
    (axis, descending): (usize, bool),
    (from, count): (usize, usize),
    x: &StridedOperand,
    [values, indices]: [&StridedOperand; 2],
) -> Result<()> {
    let n = x.shape.get(axis).copied().unwrap_or(1);
    if x.len() == 0 || count == 0 {
        return Ok(());
    }
    if n > 1 << 31 {
        return Err(device_error("sort", format!("a line of {n} elements is too long to sort")));
    }
    let (lines, len) = (x.len() / n, n.next_power_of_two());
    let keys = gpu.scratch(lines * len * 8)?;
    let places = gpu.scratch(lines * len * 4)?;
    let step = x.strides.get(axis).copied().unwrap_or(0);
    let of = LineParams {
        addresses: [x.at, keys.at, places.at, 0, 0, 0],
        lines,
        len,
        axes: others(&x.shape, Some(axis), &[&x.strides]),
        steps: [step, 0, 0, 0],
        numbers: [n as u64, u64::from(descending), 0],
    };
    of.launch(gpu, kernel(gpu, "KEYS", x.dtype, 0, "")?, lines * len)?;
    let in_memory = |numbers| LineParams {
        addresses: [keys.at, places.at, 0, 0, 0, 0],
        lines,
        len,
        numbers,
        ..LineParams::default()
    };
    if len > 1 && len <= SHARED {
        let of = in_memory([0; 3]);
        gpu.launch(kernel(gpu, "SORT", DType::I64, 0, "")?, lines, 512, &of.words()?)?;
    } else if len > 1 {
        let exchange = kernel(gpu, "EXCHANGE", DType::I64, 0, "")?;
        let mut run = 2;
        while run <= len {
            let mut distance = run / 2;
            while distance > 0 {
                let of = in_memory([distance as u64, run as u64, 0]);
                of.launch(gpu, exchange, lines * (len / 2))?;
                distance /= 2;
            }
            run *= 2;
        }
    }
    let of = LineParams {
        addresses: [x.at, places.at, values.at, indices.at, 0, 0],
        lines,
        len: count,
        axes: others(&x.shape, Some(axis), &[&x.strides, &values.strides]),
        steps: [step, values.strides.get(axis).copied().unwrap_or(0), 0, 0],
        numbers: [from as u64, len as u64, 0],
    };
    of.launch(gpu, kernel(gpu, "TAKE", carrier(x.dtype), 0, "")?, lines * count)
}

pub(crate) fn arg_reduce(
    gpu: &Gpu,
    kind: Extreme,
    axis: usize,
    x: &StridedOperand,
    out: &StridedOperand,
) -> Result<()> {
    if x.len() == 0 {
        return Ok(());
    }
    let (variant, beats) = match kind {
        Extreme::Max => (0, ">"),
        Extreme::Min => (1, "<"),
    };
    let mut to = out.strides.clone();
    to.insert(axis, 0);
    let of = LineParams {
        addresses: [x.at, out.at, 0, 0, 0, 0],
        lines: out.len(),
        len: x.shape[axis],
        axes: others(&x.shape, Some(axis), &[&x.strides, &to]),
        steps: [x.strides[axis], 0, 0, 0],
        ..LineParams::default()
    };
    let more = format!("#define BEATS(a, b) ((a) {beats} (b))");
    of.launch(gpu, kernel(gpu, "ARG", x.dtype, variant, &more)?, of.lines * 32)
}

pub(crate) fn cumulate(
    gpu: &Gpu,
    (kind, axis, reverse): (Cumulation, usize, bool),
    x: &StridedOperand,
    out: &StridedOperand,
) -> Result<()> {
    if x.len() == 0 {
        return Ok(());
    }
    let float = out.dtype.is_float();
    // Floats are summed in double precision, as on the CPU.
    let wide = if float { "double" } else { "i64" };
    let extreme = |sign: &str, int: &str| match float {
        true => format!("{sign}INF"),
        false => int.to_string(),
    };
    let (least, most) = ("(i64)0x8000000000000000ull", "0x7fffffffffffffffLL");
    let (variant, combine, none) = match kind {
        Cumulation::Sum => (0, "Sum", "0".to_string()),
        Cumulation::Prod => (1, "Prod", "1".to_string()),
        Cumulation::Max => (2, "Max", extreme("-", least)),
        Cumulation::Min => (3, "Min", extreme("", most)),
        Cumulation::LogSumExp => (4, "Sum", "0".to_string()),
    };
    let len = x.shape[axis];
    let lines = x.len() / len;
    // A product of a part may overflow where that of the whole does not.
    let together = len >= 1024 && lines < 4096 && kind != Cumulation::Prod;
    let threads = if together { 256 } else { 1 };
    let of = LineParams {
        addresses: [x.at, out.at, 0, 0, 0, 0],
        lines,
        len,
        axes: others(&x.shape, Some(axis), &[&x.strides, &out.strides]),
        steps: [x.strides[axis], out.strides[axis], 0, 0],
        numbers: [threads as u64, u64::from(reverse), 0],
    };
    let scaled = if kind == Cumulation::LogSumExp { "#define LOGSUMEXP" } else { "" };
    let more = format!("typedef {wide} W;\ntypedef {combine} K;\n#define NONE {none}\n{scaled}");
    let dtypes: SmallVec<[DType; 4]> = smallvec![x.dtype, out.dtype];
    if dtypes[0] != dtypes[1] {
        // Sums of integers are in i64.
        let memory = gpu.scratch(x.len() * out.dtype.size())?;
        let cast = StridedOperand::dense(memory.at, out.dtype, &x.shape);
        copy(gpu, x, &cast)?;
        return cumulate(gpu, (kind, axis, reverse), &cast, out);
    }
    of.launch(gpu, kernel(gpu, "CUMULATE", x.dtype, variant, &more)?, lines * threads)
}

/// The product of integers, into a dense result.
pub(crate) fn integer_dot(
    gpu: &Gpu,
    a: &StridedOperand,
    b: &StridedOperand,
    out: &StridedOperand,
) -> Result<()> {
    let rank = out.shape.len();
    let [rows, columns] = [out.shape[rank - 2], out.shape[rank - 1]];
    let batch = &out.shape[..rank - 2];
    let of = LineParams {
        addresses: [a.at, b.at, out.at, 0, 0, 0],
        lines: out.len(),
        len: a.shape[rank - 1],
        axes: others(batch, None, &[&a.strides, &b.strides]),
        steps: [a.strides[rank - 2], a.strides[rank - 1], b.strides[rank - 2], b.strides[rank - 1]],
        numbers: [columns as u64, rows as u64, 0],
    };
    of.launch(gpu, kernel(gpu, "INTEGER_DOT", out.dtype, 0, "")?, out.len())
}

/// Random numbers: each of the keys draws as many.
pub(crate) fn random_keys(
    gpu: &Gpu,
    kind: Random,
    keys: &StridedOperand,
    out: &StridedOperand,
) -> Result<()> {
    let count = keys.len() / 2;
    if out.len() == 0 {
        return Ok(());
    }
    let dense = gpu.scratch(keys.bytes())?;
    copy(gpu, keys, &StridedOperand::dense(dense.at, DType::I64, &keys.shape))?;
    let of = LineParams {
        addresses: [dense.at, out.at, 0, 0, 0, 0],
        lines: count,
        len: out.len() / count,
        ..LineParams::default()
    };
    let more = format!("#define DRAW {}", random(kind, out.dtype, "key", "at"));
    let variant = match kind {
        Random::Bits => 0,
        Random::Uniform => 1,
        Random::Normal => 2,
    };
    of.launch(gpu, kernel(gpu, "RANDOM_KEYS", out.dtype, variant, &more)?, out.len())
}

/// Cross-entropy of rows of logits, or its derivative if there is a cotangent.
pub(crate) fn cross_entropy(
    gpu: &Gpu,
    op: &Op,
    [logits, classes]: [&StridedOperand; 2],
    gradient: Option<[&StridedOperand; 2]>,
    losses: &StridedOperand,
    at: Option<Line>,
) -> Result<()> {
    let (rows, len) = (logits.shape[0], logits.shape[1]);
    if rows == 0 {
        return Ok(());
    }
    let (call, fault) = gpu.may_fail(op.name(), &specs(&[logits, classes]), at);
    let first = |x: &StridedOperand| x.strides.first().copied().unwrap_or(0);
    let [of_dy, of_out] = gradient.map_or([0; 2], |pair| pair.map(first));
    let [dy, out] = gradient.map_or([0; 2], |pair| pair.map(|x| x.at));
    let along = gradient.map_or(0, |[_, out]| out.strides[1]);
    let of = LineParams {
        addresses: [logits.at, classes.at, out, fault, dy, losses.at],
        lines: rows,
        len,
        axes: smallvec![(rows, [first(logits), first(classes), of_out, of_dy])],
        steps: [logits.strides[1], 0, along, 0],
        numbers: [0, 0, call],
    };
    // Rows of one block, by vectors of 16 bytes where both are contiguous and aligned.
    let vector = 16 / logits.dtype.size();
    let fits = |x: &StridedOperand| {
        let apart = x.strides[0].unsigned_abs();
        x.strides[1] == 1 && x.at.is_multiple_of(16) && apart.is_multiple_of(vector)
    };
    let all = fits(logits) && gradient.is_none_or(|[_, out]| fits(out));
    let vector = if len.is_multiple_of(vector) && all { vector } else { 1 };
    let threads = if len >= 8192 { 512 } else { BLOCK };
    let vjp = if gradient.is_some() { "#define VJP\n" } else { "" };
    let more = format!("{vjp}#define VECTOR {vector}\n#define THREADS {threads}\n");
    let variant = u32::from(gradient.is_some()) + 2 * vector as u32 + 64 * threads as u32;
    let kernel = kernel(gpu, "CROSS_ENTROPY", logits.dtype, variant, &more)?;
    gpu.launch(kernel, rows, threads, &of.words()?)
}
