//! A vocabulary for the graphs of cuDNN: tensors, pointwise functions, products, reductions and
//! convolutions, each a descriptor with attributes.

use crate::gpu::LibraryHandle;
use pullback_cuda_sys::{Cudnn, Ptr};
use pullback_ir::DType;
use smallvec::SmallVec;
use std::ffi::c_int;
use std::ptr::null_mut;

/// What cuDNN gives, or why it refuses.
pub(crate) type DnnResult<V> = std::result::Result<V, String>;

/// Numbers of cuDNN's headers.
#[rustfmt::skip]
pub(crate) mod code {
    use std::ffi::c_int;
    // Data types.
    pub const FLOAT: c_int = 0; pub const DOUBLE: c_int = 1; pub const HALF: c_int = 2;
    pub const INT32: c_int = 4; pub const BFLOAT16: c_int = 9; pub const BOOLEAN: c_int = 11;
    // Pointwise functions.
    pub const ADD: c_int = 0; pub const MUL: c_int = 1; pub const DIV: c_int = 6;
    pub const SUB: c_int = 9; pub const EXP: c_int = 13; pub const LOG: c_int = 15;
    pub const IDENTITY: c_int = 21; pub const GREATER_OR_EQUAL: c_int = 303;
    pub const INDEX: c_int = 501; pub const SELECT: c_int = 601;
    // Reductions.
    pub const SUM: c_int = 0; pub const MAX: c_int = 3;
    // Notes on the numbers of an engine.
    pub const TENSOR_CORE: c_int = 0; pub const DOWN_CONVERTS: c_int = 1;
    pub const REDUCED_SUMS: c_int = 2; pub const FFT: c_int = 3;
    pub const NONDETERMINISTIC: c_int = 4; pub const WINOGRAD_6: c_int = 7;
    pub const WINOGRAD_13: c_int = 8;
    // Types of attributes.
    pub const OF_HANDLE: c_int = 0; pub const OF_DTYPE: c_int = 1;
    pub const OF_BOOL: c_int = 2; pub const OF_I64: c_int = 3;
    pub const OF_FLOAT: c_int = 4; pub const OF_DOUBLE: c_int = 5;
    pub const OF_POINTER: c_int = 6; pub const OF_CONVOLUTION: c_int = 7;
    pub const OF_HEURISTIC: c_int = 8; pub const OF_NOTE: c_int = 11;
    pub const OF_POINTWISE: c_int = 14; pub const OF_DESCRIPTOR: c_int = 15;
    pub const OF_REDUCTION: c_int = 18; pub const OF_CHAR: c_int = 24;
}
use code::*;

/// cuDNN's code of a dtype.
pub(crate) fn dtype_code(dtype: DType) -> Option<c_int> {
    match dtype {
        DType::F32 => Some(FLOAT),
        DType::F64 => Some(DOUBLE),
        DType::F16 => Some(HALF),
        DType::BF16 => Some(BFLOAT16),
        DType::I64 | DType::I32 | DType::U8 | DType::Bool => None,
    }
}

/// Values that attributes are made of.
pub(crate) trait AttributeValue: Copy {}
impl AttributeValue for c_int {}
impl AttributeValue for i64 {}
impl AttributeValue for u64 {}
impl AttributeValue for u8 {}
impl AttributeValue for f32 {}
impl AttributeValue for f64 {}
impl AttributeValue for bool {}
impl AttributeValue for Ptr {}

/// A descriptor of cuDNN.
pub(crate) struct Descriptor {
    pub library: &'static Cudnn,
    pub at: Ptr,
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: it was created and is not used any more.
        unsafe { (self.library.cudnnBackendDestroyDescriptor)(self.at) };
    }
}

impl Descriptor {
    pub fn new(library: &'static Cudnn, kind: c_int) -> DnnResult<Descriptor> {
        let mut at = null_mut();
        // SAFETY: writes one handle.
        match unsafe { (library.cudnnBackendCreateDescriptor)(kind, &mut at) } {
            0 => Ok(Descriptor { library, at }),
            code => Err(format!("descriptor {kind}: error {code}")),
        }
    }

    pub fn with<V: AttributeValue>(
        self,
        name: c_int,
        kind: c_int,
        values: &[V],
    ) -> DnnResult<Descriptor> {
        let (count, from) = (values.len() as i64, values.as_ptr().cast());
        // SAFETY: the values are of this kind and so many; they are copied.
        match unsafe { (self.library.cudnnBackendSetAttribute)(self.at, name, kind, count, from) } {
            0 => Ok(self),
            code => Err(format!("attribute {name}: error {code}")),
        }
    }

    pub fn finish(self) -> DnnResult<Descriptor> {
        // SAFETY: it was created.
        match unsafe { (self.library.cudnnBackendFinalize)(self.at) } {
            0 => Ok(self),
            code => Err(format!("cannot be made: error {code}")),
        }
    }

    /// Reads up to as many values as there is space for: how many there are.
    pub fn get<V: AttributeValue>(
        &self,
        name: c_int,
        kind: c_int,
        to: &mut [V],
    ) -> DnnResult<usize> {
        let (mut count, space) = (0, to.len() as i64);
        // SAFETY: the values are of this kind, and there is space for so many.
        let code = unsafe {
            let to = if to.is_empty() { null_mut() } else { to.as_mut_ptr().cast() };
            (self.library.cudnnBackendGetAttribute)(self.at, name, kind, space, &mut count, to)
        };
        match code {
            0 => Ok(count.max(0) as usize),
            code => Err(format!("attribute {name} cannot be read: error {code}")),
        }
    }

    /// Stays as long as the process.
    pub fn keep(self) -> LibraryHandle {
        let at = LibraryHandle(self.at);
        std::mem::forget(self);
        at
    }
}

/// A tensor of a graph.
#[derive(Clone, Copy)]
pub(crate) struct DnnTensor(Ptr);

/// A graph in the making.
pub(crate) struct DnnGraph {
    library: &'static Cudnn,
    /// All descriptors, in the order in which they were made.
    descriptors: Vec<Descriptor>,
    operations: Vec<Ptr>,
    /// The number of the next tensor inside.
    next: i64,
}

/// Numbers of tensors with memory are below this.
const INSIDE: i64 = 1000;

impl Drop for DnnGraph {
    fn drop(&mut self) {
        // What refers to others first.
        while self.descriptors.pop().is_some() {}
    }
}

/// The strides of dense memory.
pub(crate) fn dense(dims: &[i64]) -> SmallVec<[i64; 5]> {
    (0..dims.len()).map(|d| dims[d + 1..].iter().product()).collect()
}

impl DnnGraph {
    pub fn new(library: &'static Cudnn) -> DnnGraph {
        DnnGraph { library, descriptors: Vec::new(), operations: Vec::new(), next: 0 }
    }

    fn add(&mut self, descriptor: Descriptor) -> Ptr {
        let at = descriptor.at;
        self.descriptors.push(descriptor);
        at
    }

    fn any(
        &mut self,
        number: i64,
        [dims, strides]: [&[i64]; 2],
        dtype: c_int,
        [inside, by_value]: [bool; 2],
    ) -> DnnResult<DnnTensor> {
        let tensor = Descriptor::new(self.library, 17)?
            .with(901, OF_DTYPE, &[dtype])?
            .with(902, OF_I64, dims)?
            .with(903, OF_I64, strides)?
            .with(906, OF_I64, &[number])?
            // Bytes of alignment.
            .with(900, OF_I64, &[16i64])?
            .with(907, OF_BOOL, &[inside])?
            .with(908, OF_BOOL, &[by_value])?
            .finish()
            .map_err(|why| format!("tensor {dims:?} {strides:?}: {why}"))?;
        Ok(DnnTensor(self.add(tensor)))
    }

    /// Memory, whose address is given at each run under this number.
    pub fn tensor(
        &mut self,
        number: i64,
        dims: &[i64],
        strides: &[i64],
        dtype: c_int,
    ) -> DnnResult<DnnTensor> {
        self.any(number, [dims, strides], dtype, [false, false])
    }

    /// A number of the host, read at each run.
    pub fn scalar(&mut self, number: i64) -> DnnResult<DnnTensor> {
        self.any(number, [&[1; 4], &[1; 4]], FLOAT, [false, true])
    }

    /// A value that never reaches memory.
    pub fn inner(&mut self, dims: &[i64], dtype: c_int) -> DnnResult<DnnTensor> {
        self.inner_strided(dims, &dense(dims), dtype)
    }

    pub fn inner_strided(
        &mut self,
        dims: &[i64],
        strides: &[i64],
        dtype: c_int,
    ) -> DnnResult<DnnTensor> {
        self.next += 1;
        self.any(INSIDE + self.next, [dims, strides], dtype, [true, false])
    }

    /// An operation: its own descriptor, if it has one, and its tensors.
    fn operation(
        &mut self,
        kind: c_int,
        own: Option<(c_int, Descriptor)>,
        of: &[(c_int, DnnTensor)],
    ) -> DnnResult<()> {
        let mut operation = Descriptor::new(self.library, kind)?;
        if let Some((name, own)) = own {
            operation = operation.with(name, OF_DESCRIPTOR, &[self.add(own)])?;
        }
        for (name, tensor) in of {
            operation = operation.with(*name, OF_DESCRIPTOR, &[tensor.0])?;
        }
        let operation = operation.finish().map_err(|why| format!("operation {kind}: {why}"))?;
        let at = self.add(operation);
        self.operations.push(at);
        Ok(())
    }

    /// `y = function(x, b)`, computed in `within`.
    pub fn point(
        &mut self,
        function: c_int,
        (x, b): (DnnTensor, Option<DnnTensor>),
        y: DnnTensor,
        within: c_int,
    ) -> DnnResult<DnnTensor> {
        let how = Descriptor::new(self.library, 0)?
            .with(0, OF_POINTWISE, &[function])?
            .with(1, OF_DTYPE, &[within])?
            .finish()?;
        let of: SmallVec<[(c_int, DnnTensor); 3]> = [(751, Some(x)), (752, b), (753, Some(y))]
            .into_iter()
            .filter_map(|(name, tensor)| tensor.map(|tensor| (name, tensor)))
            .collect();
        self.operation(13, Some((750, how)), &of)?;
        Ok(y)
    }

    /// A function of one or two operands, to a value in f32.
    pub fn value(
        &mut self,
        function: c_int,
        x: DnnTensor,
        b: Option<DnnTensor>,
        dims: &[i64],
    ) -> DnnResult<DnnTensor> {
        let y = self.inner(dims, FLOAT)?;
        self.point(function, (x, b), y, FLOAT)
    }

    /// The index along an axis, for each element of `x`.
    pub fn index(&mut self, x: DnnTensor, axis: i64, dims: &[i64]) -> DnnResult<DnnTensor> {
        let how = Descriptor::new(self.library, 0)?
            .with(0, OF_POINTWISE, &[INDEX])?
            .with(1, OF_DTYPE, &[FLOAT])?
            .with(9, OF_I64, &[axis])?
            .finish()?;
        let y = self.inner(dims, INT32)?;
        self.operation(13, Some((750, how)), &[(751, x), (753, y)])?;
        Ok(y)
    }

    /// `yes` where the condition holds, `no` elsewhere.
    pub fn select(
        &mut self,
        condition: DnnTensor,
        [yes, no]: [DnnTensor; 2],
        dims: &[i64],
    ) -> DnnResult<DnnTensor> {
        let how = Descriptor::new(self.library, 0)?
            .with(0, OF_POINTWISE, &[SELECT])?
            .with(1, OF_DTYPE, &[FLOAT])?
            .finish()?;
        let y = self.inner(dims, FLOAT)?;
        let of = [(751, yes), (752, no), (753, y), (758, condition)];
        self.operation(13, Some((750, how)), &of)?;
        Ok(y)
    }

    /// `c = a·b` over the last two axes.
    pub fn product(&mut self, a: DnnTensor, b: DnnTensor, c: DnnTensor) -> DnnResult<()> {
        let how = Descriptor::new(self.library, 18)?.with(1500, OF_DTYPE, &[FLOAT])?.finish()?;
        self.operation(19, Some((1523, how)), &[(1520, a), (1521, b), (1522, c)])
    }

    /// Over the axes that have length 1 in `y`.
    pub fn reduce(&mut self, kind: c_int, x: DnnTensor, y: DnnTensor) -> DnnResult<()> {
        let how = Descriptor::new(self.library, 21)?
            .with(1600, OF_REDUCTION, &[kind])?
            .with(1601, OF_DTYPE, &[FLOAT])?
            .finish()?;
        self.operation(22, Some((1612, how)), &[(1610, x), (1611, y)])
    }

    /// The elements of `x` with the shape and strides of `y`, rounded to its dtype.
    pub fn reshape(&mut self, x: DnnTensor, y: DnnTensor) -> DnnResult<()> {
        self.operation(31, None, &[(2200, x), (2201, y)])
    }

    /// A convolution: with `role` 0 `y` from `x` and `w`, with 1 `x` from `y` and `w`, with 2 `w`
    /// from `x` and `y`. For each spatial axis: dilation, stride, padding after and before.
    pub fn convolution(
        &mut self,
        role: usize,
        [x, w, y]: [DnnTensor; 3],
        windows: &[[i64; 4]],
        within: c_int,
    ) -> DnnResult<()> {
        let mut how = Descriptor::new(self.library, 1)?
            .with(100, OF_DTYPE, &[within])?
            // A correlation: windows are not flipped.
            .with(101, OF_CONVOLUTION, &[1 as c_int])?
            .with(106, OF_I64, &[windows.len() as i64])?;
        for part in 0..4 {
            let of: SmallVec<[i64; 3]> = windows.iter().map(|window| window[part]).collect();
            how = how.with(102 + part as c_int, OF_I64, &of)?;
        }
        let how = how.finish().map_err(|why| format!("windows {windows:?}: {why}"))?;
        let how = self.add(how);
        let (kind, first) = [(10, 700), (12, 706), (11, 712)][role];
        let operation = Descriptor::new(self.library, kind)?;
        // The result is 1 · the convolution + 0 · what is there.
        let operation = match within {
            DOUBLE => {
                operation.with(first, OF_DOUBLE, &[1f64])?.with(first + 1, OF_DOUBLE, &[0f64])
            }
            _ => operation.with(first, OF_FLOAT, &[1f32])?.with(first + 1, OF_FLOAT, &[0f32]),
        };
        let operation = operation?
            .with(first + 2, OF_DESCRIPTOR, &[how])?
            .with(first + 3, OF_DESCRIPTOR, &[w.0])?
            .with(first + 4, OF_DESCRIPTOR, &[x.0])?
            .with(first + 5, OF_DESCRIPTOR, &[y.0])?
            .finish()
            .map_err(|why| format!("convolution: {why}"))?;
        let at = self.add(operation);
        self.operations.push(at);
        Ok(())
    }

    /// The first plan that can be made of a proposal whose notes are allowed, and its workspace.
    pub fn plan(
        &mut self,
        handle: Ptr,
        allows: &dyn Fn(&[c_int]) -> bool,
    ) -> DnnResult<(Descriptor, usize)> {
        let graph = Descriptor::new(self.library, 15)?
            .with(800, OF_HANDLE, &[handle])?
            .with(801, OF_DESCRIPTOR, &self.operations)?
            .finish()
            .map_err(|why| format!("graph: {why}"))?;
        let graph = self.add(graph);
        let mut last = "cuDNN has no engine for it".to_string();
        for mode in [PROPOSALS, ANY] {
            let found = Descriptor::new(self.library, 4)?
                .with(201, OF_DESCRIPTOR, &[graph])?
                .with(200, OF_HEURISTIC, &[mode])?
                .finish();
            let Ok(found) = found else { continue };
            let configurations: Vec<Descriptor> =
                (0..MOST).map(|_| Descriptor::new(self.library, 3)).collect::<DnnResult<_>>()?;
            let mut at: Vec<Ptr> = configurations.iter().map(|c| c.at).collect();
            let Ok(count) = found.get(202, OF_DESCRIPTOR, &mut at) else { continue };
            for configuration in configurations.into_iter().take(count) {
                // One that says nothing of itself may be anything.
                let unknown = |_| SmallVec::from_slice(&[TENSOR_CORE, DOWN_CONVERTS]);
                if !allows(&self.notes(&configuration).unwrap_or_else(unknown)) {
                    last = "cuDNN has no engine with numbers of this kind for it".to_string();
                    continue;
                }
                let plan = Descriptor::new(self.library, 5)?
                    .with(400, OF_HANDLE, &[handle])?
                    .with(401, OF_DESCRIPTOR, &[configuration.at])?
                    .finish();
                let plan = match plan {
                    Ok(plan) => plan,
                    Err(why) => {
                        last = format!("plan: {why}");
                        continue;
                    }
                };
                let mut bytes = [0i64];
                plan.get(402, OF_I64, &mut bytes)?;
                configuration.keep();
                return Ok((plan, bytes[0].max(0) as usize));
            }
        }
        Err(last)
    }

    /// What cuDNN says of the numbers of a configuration's engine.
    fn notes(&self, configuration: &Descriptor) -> DnnResult<SmallVec<[c_int; 10]>> {
        let engine = Descriptor::new(self.library, 2)?;
        configuration.get(300, OF_DESCRIPTOR, &mut [engine.at])?;
        let mut notes = [0 as c_int; 10];
        let count = engine.get(1303, OF_NOTE, &mut notes)?;
        Ok(SmallVec::from_slice(&notes[..count.min(10)]))
    }
}

/// Modes of the heuristics: what they propose, and everything that works.
const PROPOSALS: c_int = 3;
const ANY: c_int = 2;
/// Proposals that are looked at.
const MOST: usize = 32;
