//! The distinct memory of a saved value: each element once.
//!
//! A packed value is a window on memory: perhaps transposed, perhaps one row that is seen a
//! thousand times. What must be kept is the elements, in memory order, and the layout of the window
//! on them. So the transpose of a matrix is the same piece as the matrix, and a repeated row is a
//! row. Two savers of the same piece keep it once ([`Memo`]).

use crate::backend::{Asked, Memory, Pooled, WeakPooled};
use crate::storage::Storage;
use crate::{DType, Device, Spec, Tensor, mode};
use pullback_ir::{Layout, Shape};
use rustc_hash::FxHashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The elements of a value, dense.
pub(super) struct Piece {
    /// The elements: along one axis where they are dense in memory, else as the window shows them.
    window: Tensor,
    /// The layout of the value on a dense copy of them.
    pub layout: Layout,
    key: PieceKey,
}

/// Names a piece of memory as it was at a moment; for as long as the storage is referenced.
#[derive(Clone, PartialEq, Eq, Hash)]
struct PieceKey {
    storage: usize,
    version: u64,
    dtype: DType,
    place: Layout,
    /// What is kept of it.
    manner: u8,
}

impl Piece {
    /// The piece that a value shows.
    pub fn of(x: &Tensor) -> Piece {
        let (layout, storage) = (&x.0.layout, &x.0.storage);
        let seen_once = |(&n, &stride): (&usize, &isize)| if stride == 0 { n.min(1) } else { n };
        let shape: Shape = layout.shape.iter().zip(&layout.strides).map(seen_once).collect();
        let strides = layout.strides.clone();
        let narrow = Layout { shape: shape.clone(), strides, offset: layout.offset };
        let (place, mut kept) = match is_block(&narrow) {
            // Every element from the first on: the same strides fit a copy of that range.
            true => {
                let mut line = Layout::dense(Shape::from_slice(&[narrow.len()]));
                line.offset = narrow.offset;
                (line, Layout { offset: 0, ..layout.clone() })
            }
            false => (narrow, Layout::dense(shape)),
        };
        kept.shape = layout.shape.clone();
        for (to, &from) in kept.strides.iter_mut().zip(&layout.strides) {
            if from == 0 {
                *to = 0;
            }
        }
        let spec = x.spec().with_shape(place.shape.clone());
        let key = PieceKey {
            storage: Pooled::as_ptr(storage) as usize,
            version: storage.version(),
            dtype: x.dtype(),
            place: place.clone(),
            manner: 0,
        };
        Piece { window: Tensor::new(spec, place, storage.clone()), layout: kept, key }
    }

    /// Its elements, where they are; dense, or not.
    pub fn window(&self) -> &Tensor {
        &self.window
    }

    /// Its elements, dense: without a copy if they are dense already.
    pub fn dense(&self) -> Tensor {
        self.window.contiguous()
    }

    pub fn bytes(&self) -> usize {
        self.window.spec().bytes()
    }

    pub fn storage(&self) -> &Pooled<Storage> {
        &self.window.0.storage
    }

    pub fn version(&self) -> u64 {
        self.key.version
    }
}

/// Whether the elements fill a range of memory, in whatever order, the first of them being the
/// first.
fn is_block(layout: &Layout) -> bool {
    let mut axes: Vec<(isize, usize)> =
        layout.strides.iter().copied().zip(layout.shape.iter().copied()).collect();
    axes.retain(|&(_, n)| n != 1);
    axes.sort_unstable();
    let mut expected = 1;
    for (stride, n) in axes {
        if stride != expected {
            return false;
        }
        expected *= n as isize;
    }
    true
}

/// A dense tensor on a device from its bytes, which `fill` writes.
pub(super) fn dense_from(
    device: Device,
    dtype: DType,
    len: usize,
    fill: impl FnOnce(&mut [u8]) -> crate::Result<()>,
) -> crate::Result<Tensor> {
    let spec = Spec::on(device, dtype, Shape::from_slice(&[len]));
    let by = Asked { op: "unpack", at: mode::set_line() };
    let memory = Memory::filled(dtype, spec.bytes(), device, by, fill)?;
    Ok(Tensor::dense(spec, memory))
}

/// What is kept of pieces, so that the same one is kept once.
pub(super) struct Memo<T>(Arc<Mutex<MemoTable<T>>>);

type MemoTable<T> = FxHashMap<PieceKey, Weak<Memoized<T>>>;

/// What is kept of a piece.
pub(super) struct Memoized<T> {
    pub value: T,
    key: PieceKey,
    notes: Arc<Mutex<MemoTable<T>>>,
    /// Held, so that its address is not reused.
    _storage: WeakPooled<Storage>,
}

impl<T> Memo<T> {
    pub fn new() -> Memo<T> {
        Memo(Arc::default())
    }

    /// What is kept of this piece, in this encoding.
    pub fn find(&self, piece: &Piece, manner: u8) -> Option<Arc<Memoized<T>>> {
        let key = PieceKey { manner, ..piece.key.clone() };
        let notes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        notes.get(&key).and_then(Weak::upgrade)
    }

    /// Notes what is kept of a piece.
    pub fn note(&self, piece: &Piece, manner: u8, value: T) -> Arc<Memoized<T>> {
        let key = PieceKey { manner, ..piece.key.clone() };
        let _storage = Pooled::downgrade(piece.storage());
        let kept = Arc::new(Memoized { value, key: key.clone(), notes: self.0.clone(), _storage });
        let mut notes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        notes.insert(key, Arc::downgrade(&kept));
        kept
    }
}

impl<T> Drop for Memoized<T> {
    fn drop(&mut self) {
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        // The same piece may have been noted since the last reference to this was dropped.
        if notes.get(&self.key).is_some_and(|other| other.strong_count() == 0) {
            notes.remove(&self.key);
        }
    }
}
