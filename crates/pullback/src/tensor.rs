//! The tensor: a spec, a strided view of shared memory, and an entry in the tape.
//!
//! `Tensor` has no type parameters and is a shared handle: a clone is the same tensor, with the
//! same values, gradient and history. Mutable parts (the history after an in-place write, the
//! tangents of forward mode) are behind one lock, in [`TensorState`].

use crate::backend::{Latch, LatchGuard, Memory, Pooled};
use crate::leaf::{Leaf, Owner};
use crate::storage::Storage;
use crate::tangents::Tangents;
use crate::tape::History;
use crate::{events, trace};
use pullback_ir::{DType, Device, Layout, Line, Shape, Spec, Strides, View};
use std::sync::{Arc, Weak};

/// An n-dimensional array that can be differentiated.
///
/// ```
/// use pullback::Tensor;
/// let x = Tensor::from([1.0, 2.0, 3.0]).requires_grad();
/// let y = (&x * &x).sum();
/// y.backward().unwrap();
/// assert_eq!(x.grad().unwrap().to_vec::<f64>(), [2.0, 4.0, 6.0]);
/// ```
///
/// A `Tensor` is a handle: `clone` gives the same tensor again, sharing values, gradient and
/// history; [`Tensor::deep_clone`] copies the values.
///
/// # Panics
/// Every operation panics, with an error that names the line, where memory is exhausted or a device
/// fails, operands are on different devices, or an operand is a value of a traced function (`jit`,
/// `vmap`, a loop) that was kept after it ended. The section of a method says what else it panics
/// on. [`catch`](crate::catch) turns all of these into an `Err`.
#[derive(Clone)]
pub struct Tensor(pub(crate) Pooled<TensorInner>);

pub(crate) struct TensorInner {
    pub spec: Spec,
    pub layout: Layout,
    pub storage: Pooled<Storage>,
    /// For a view: what it is a view of, and how.
    pub parent: Option<Box<(Tensor, View)>>,
    state: Latch<TensorState>,
}

/// A view of a view of a view … is dropped in a loop, not by nested calls.
impl Drop for TensorInner {
    #[inline]
    fn drop(&mut self) {
        if self.parent.is_some() {
            self.drop_parents();
        }
    }
}

impl TensorInner {
    #[inline(never)]
    fn drop_parents(&mut self) {
        let mut parent = self.parent.take();
        while let Some(link) = parent {
            parent = Pooled::into_inner(link.0.0).and_then(|mut inner| inner.parent.take());
        }
    }
}

/// What may change about a tensor while handles to it are around.
///
/// In this order no bytes without a value are between the fields that begin as zeros, so that they
/// are set where they stay.
#[derive(Default)]
#[repr(C)]
pub(crate) struct TensorState {
    /// Its derivatives in forward mode, one per level, innermost last.
    pub tangents: Tangents,
    /// The storage version for which `history` and `tangents` hold.
    pub version: u64,
    /// For a leaf: what keeps its gradient.
    pub owner: Option<Arc<Owner>>,
    /// The last function that was given it to read: see `read_only.rs`.
    pub read_only: Option<Weak<()>>,
    /// Where its value came from, for reverse mode.
    pub history: History,
    /// Whether it may be written to.
    pub frozen: Frozen,
    /// A view that was made inside `no_grad` of a value that is differentiated: it stays a
    /// constant, whatever is written to that value.
    pub severed: bool,
}

impl TensorState {
    /// That of a constant whose memory has this version.
    #[inline(always)]
    const fn at(version: u64) -> TensorState {
        TensorState {
            tangents: Tangents::new(),
            version,
            owner: None,
            read_only: None,
            history: History::None,
            frozen: Frozen::Not,
            severed: false,
        }
    }
}

/// Why a tensor may not be written in place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Frozen {
    /// It may.
    #[default]
    Not,
    /// The argument of a function that is being differentiated: its memory is the caller's.
    Argument,
    /// A buffer that a mapped function was given: it may, also inside `no_grad`, as it is a
    /// constant to every derivative.
    State,
    /// A value whose derivative was cut inside a body: a variable of its own, where outside it
    /// would share memory.
    Cut,
}

impl Tensor {
    /// A tensor without history.
    #[inline]
    pub(crate) fn new(spec: Spec, layout: Layout, storage: Pooled<Storage>) -> Tensor {
        Tensor::with_parent(spec, layout, storage, None)
    }

    /// A tensor without history that fills memory.
    pub(crate) fn dense(spec: Spec, memory: Memory) -> Tensor {
        let layout = Layout::dense(spec.shape.clone());
        Tensor::new(spec, layout, Storage::new(memory))
    }

    /// A tensor without history that fills its storage from the start. Every op makes one: it is
    /// made in its block and filled there, so that no shape is moved.
    #[inline]
    pub(crate) fn filling(spec: &Spec, storage: Pooled<Storage>) -> Tensor {
        let version = storage.version();
        let mut pooled = Pooled::make(|| TensorInner {
            spec: Spec { shape: Shape::new(), dtype: DType::Bool, device: Device::Cpu },
            layout: Layout { shape: Shape::new(), strides: Strides::new(), offset: 0 },
            storage,
            parent: None,
            state: Latch::new(TensorState::at(0)),
        });
        let Some(inner) = Pooled::get_mut(&mut pooled) else { unreachable!("it has one handle") };
        inner.state.initial_mut().version = version;
        inner.spec.shape.set(&spec.shape);
        (inner.spec.dtype, inner.spec.device) = (spec.dtype, spec.device);
        inner.layout.set_dense(&spec.shape);
        Tensor(pooled)
    }

    #[inline]
    pub(crate) fn with_parent(
        spec: Spec,
        layout: Layout,
        storage: Pooled<Storage>,
        parent: Option<Box<(Tensor, View)>>,
    ) -> Tensor {
        let version = storage.version();
        Tensor(Pooled::make(|| {
            let state = Latch::new(TensorState::at(version));
            TensorInner { spec, layout, storage, parent, state }
        }))
    }

    /// The same values under another history. A view stays a view of its parent only through
    /// [`Tensor::state`], so the result is an independent constant as far as the tape goes.
    #[track_caller]
    pub(crate) fn alias(&self, history: History, tangents: Tangents) -> Tensor {
        let lifted;
        let inner = match trace::active() {
            false => &*self.0,
            true => {
                lifted = trace::lift(self, Line::caller());
                &*lifted.0
            }
        };
        let out = Tensor::new(inner.spec.clone(), inner.layout.clone(), inner.storage.clone());
        let owner = match &history {
            History::Leaf(leaf) => self.lock().owner.clone().filter(|owner| owner.owns(leaf)),
            History::None | History::Cut(_) | History::Node(..) => None,
        };
        {
            let mut state = out.lock();
            state.history = history;
            state.tangents = tangents;
            state.owner = owner;
        }
        out
    }

    /// The same values without history, for the library itself: unlike `detach`, this leaves no cut
    /// in a body.
    #[track_caller]
    pub(crate) fn plain(&self) -> Tensor {
        self.alias(History::None, Tangents::new())
    }

    /// Makes this tensor a leaf of its own, unless it is one.
    pub(crate) fn become_leaf(&self) -> Arc<Leaf> {
        let mut state = self.lock();
        if let History::Leaf(leaf) = &state.history {
            return leaf.clone();
        }
        let leaf = Arc::new(Leaf::new());
        state.history = History::Leaf(leaf.clone());
        state.owner = Some(Owner::of(&leaf));
        leaf
    }

    /// [`Tensor::alias`] as the argument of a function that is being differentiated.
    pub(crate) fn argument(&self, history: History, tangents: Tangents) -> Tensor {
        let out = self.alias(history, tangents);
        out.lock().frozen = Frozen::Argument;
        out
    }

    /// Whether its memory was written to since it was made.
    pub(crate) fn is_written(&self) -> bool {
        self.0.storage.version() > 0
    }

    /// The stored state, which may be out of date: see [`Tensor::state`] in `inplace/refresh.rs`.
    #[inline]
    pub(crate) fn lock(&self) -> LatchGuard<'_, TensorState> {
        self.0.state.lock()
    }

    /// Whether it never had a history or tangents, and cannot get any from what it is a view of.
    #[inline]
    pub(crate) fn is_constant(&self) -> bool {
        self.0.state.is_untouched() && self.0.parent.is_none()
    }

    /// The stored state, without the lock, if this is the only handle.
    #[inline]
    pub(crate) fn sole_state(&mut self) -> Option<&mut TensorState> {
        Pooled::get_mut(&mut self.0).map(|inner| inner.state.get_mut())
    }

    /// Sets the history: without the lock, if this is the only handle, as that of a new result is.
    #[inline(always)]
    pub(crate) fn set_history(&mut self, history: History) {
        match Pooled::get_mut(&mut self.0) {
            Some(inner) => {
                // An assignment would drop what was there in between, and copy the history twice.
                let before = std::mem::replace(&mut inner.state.get_mut().history, history);
                drop(before);
            }
            None => self.replace_state(Some(history), None, None),
        }
    }

    /// Replaces parts of the state. What was there is dropped after the lock is released: with it a
    /// graph may go, and hooks and packed values of users, whose destructors may look at this
    /// tensor.
    pub(crate) fn replace_state(
        &self,
        history: Option<History>,
        tangents: Option<Tangents>,
        version: Option<u64>,
    ) {
        let mut state = self.lock();
        let history = history.map(|history| std::mem::replace(&mut state.history, history));
        let tangents = tangents.map(|tangents| std::mem::replace(&mut state.tangents, tangents));
        state.version = version.unwrap_or(state.version);
        drop(state);
        drop((history, tangents));
    }

    /// Makes this a constant whose derivative was cut.
    pub(crate) fn set_cut(&self, history: History, severed: bool) {
        let mut state = self.lock();
        state.severed = severed;
        let before = std::mem::replace(&mut state.history, history);
        drop(state);
        drop(before);
    }

    /// Shape, dtype and device.
    ///
    /// ```
    /// use pullback::{DType, Tensor};
    /// let x = Tensor::zeros([2, 3]);
    /// assert_eq!(x.spec().to_string(), "f32[2,3]");
    /// assert_eq!(x.spec().dtype, DType::F32);
    /// ```
    pub fn spec(&self) -> &Spec {
        &self.0.spec
    }

    /// Length of each axis; empty for a scalar.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::zeros([2, 3]).shape(), [2, 3]);
    /// assert!(Tensor::from(1.0).shape().is_empty());
    /// ```
    #[doc(alias = "size")]
    pub fn shape(&self) -> &[usize] {
        &self.0.spec.shape
    }

    pub(crate) fn dims(&self) -> &Shape {
        &self.0.spec.shape
    }

    /// Number of axes.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::zeros([2, 3]).rank(), 2);
    /// assert_eq!(Tensor::from(1.0).rank(), 0);
    /// ```
    #[doc(alias = "ndim")]
    #[doc(alias = "dim")]
    pub fn rank(&self) -> usize {
        self.0.spec.shape.len()
    }

    /// Number of elements.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::zeros([2, 3]).len(), 6);
    /// assert_eq!(Tensor::from(1.0).len(), 1);
    /// ```
    #[doc(alias = "numel")]
    #[doc(alias = "nelement")]
    pub fn len(&self) -> usize {
        self.0.spec.len()
    }

    /// Whether there are no elements: some axis has length zero.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert!(Tensor::zeros([2, 0]).is_empty());
    /// assert!(!Tensor::from(1.0).is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.0.spec.is_empty()
    }

    /// Type of the elements.
    ///
    /// ```
    /// use pullback::{DType, Tensor};
    /// assert_eq!(Tensor::from([1.0f32]).dtype(), DType::F32);
    /// assert_eq!(Tensor::from([1i64]).dtype(), DType::I64);
    /// ```
    pub fn dtype(&self) -> DType {
        self.0.spec.dtype
    }

    /// The device that holds the elements.
    ///
    /// ```
    /// use pullback::{Device, Tensor};
    /// assert_eq!(Tensor::zeros([2]).device(), Device::Cpu);
    /// ```
    pub fn device(&self) -> Device {
        self.0.spec.device
    }

    /// Distance between neighbours on each axis, in elements: zero where an axis is broadcast,
    /// negative where it is flipped.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::zeros([2, 3]);
    /// assert_eq!(x.strides(), [3, 1]);
    /// assert_eq!(x.t().strides(), [1, 3]);
    /// assert_eq!(Tensor::zeros([3]).expand([2, 3]).strides(), [0, 1]);
    /// ```
    pub fn strides(&self) -> &[isize] {
        &self.0.layout.strides
    }

    /// Whether the elements are contiguous in row-major order.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::zeros([2, 3]);
    /// assert!(x.is_contiguous());
    /// assert!(!x.t().is_contiguous());
    /// ```
    pub fn is_contiguous(&self) -> bool {
        self.0.layout.is_dense()
    }

    /// Whether two tensors share memory (as a view and what it was taken from do).
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::zeros([2, 3]);
    /// assert!(x.t().shares_memory(&x));
    /// assert!(!x.deep_clone().shares_memory(&x));
    /// ```
    ///
    /// # Panics
    /// Never.
    pub fn shares_memory(&self, other: &Tensor) -> bool {
        let same = |a: &Tensor, b: &Tensor| Pooled::ptr_eq(&a.0.storage, &b.0.storage);
        // In a body, a variable represents a tensor from outside, and views are taken of that.
        let lifted = |a: &Tensor, b: &Tensor| trace::lifted(a).is_some_and(|a| same(&a, b));
        same(self, other) || trace::active() && (lifted(self, other) || lifted(other, self))
    }

    /// Whether both are handles of one tensor.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::zeros([2]);
    /// assert!(x.is_same(&x.clone()));
    /// assert!(!x.is_same(&x.deep_clone()));
    /// ```
    pub fn is_same(&self, other: &Tensor) -> bool {
        Pooled::ptr_eq(&self.0, &other.0)
    }

    /// A number that handles of one tensor have in common, and no other tensor while it lives: for
    /// maps from tensors.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::zeros([2]);
    /// assert!(x.id() == x.clone().id() && x.id() != x.deep_clone().id());
    /// ```
    #[must_use]
    pub fn id(&self) -> usize {
        Pooled::as_ptr(&self.0) as usize
    }

    /// How often the memory was written to in place.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::zeros([2]);
    /// let before = x.version();
    /// x.add_(1.0);
    /// assert_eq!(x.version(), before + 1);
    /// ```
    pub fn version(&self) -> u64 {
        self.0.storage.version()
    }

    pub(crate) fn leaf(&self) -> Option<Arc<Leaf>> {
        match &self.lock().history {
            History::Leaf(leaf) => Some(leaf.clone()),
            _ => None,
        }
    }

    /// Whether forward mode is differentiating this value.
    pub(crate) fn carries_tangents(&self) -> bool {
        !self.lock().tangents.is_empty()
    }

    /// Whether this is a constant that is known to be 1 everywhere, without reading its memory.
    pub(crate) fn is_constant_one(&self) -> bool {
        if trace::active() && events::is_traced_one(self) {
            return !self.is_tracked() && !self.carries_tangents();
        }
        let wide = matches!(self.dtype(), DType::F32 | DType::F64);
        let known = wide && trace::knows(self) && self.0.storage.is_ones();
        known && !self.is_tracked() && !self.carries_tangents()
    }

    /// Whether there is no other reference to this tensor or its memory, so that it may be
    /// overwritten. Weak references count too: packed values (`memory/packing.rs`) are restored
    /// from memory that is still alive.
    pub(crate) fn is_sole_owner(&self) -> bool {
        let storage = &self.0.storage;
        storage.as_traced().is_none() && Pooled::is_last(&self.0) && Pooled::is_sole(storage)
    }

    /// Whether there is no other reference to this tensor or its storage, be that memory or a value
    /// of a trace.
    pub(crate) fn is_alone(&self) -> bool {
        Pooled::is_last(&self.0) && Pooled::is_last(&self.0.storage)
    }
}
