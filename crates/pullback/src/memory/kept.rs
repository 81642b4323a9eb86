//! A saved value: its memory as it was, or what a packer returned for it.

use super::packing::{self, Packed, SavedValue};
use crate::backend::Pooled;
use crate::rule::Val;
use crate::storage::Storage;
use crate::tangents::Tangents;
use crate::tape::{History, Node};
use crate::{Error, Result, Tensor, events, mode, trace};
use pullback_ir::{DType, Device, ErrorKind, Layout, Line, Op, Spec};
use std::sync::Arc;

/// What a node holds of a saved value. Copied where it is used, so that nothing is made of it under
/// the lock of the node.
#[derive(Clone)]
pub(crate) enum SavedMemory {
    /// Dense, from the first byte of a memory, at this version: the node knows the spec. Most
    /// values.
    Whole(Pooled<Storage>, u64),
    /// Anything else; elsewhere, so that a node stays small.
    Other(Arc<KeptValue>),
}

impl SavedMemory {
    /// Saves a value, through the active packers.
    pub fn pack(
        value: &Tensor,
        saver: (Option<&Op>, &str, Line),
        is_output: bool,
        history: &History,
    ) -> SavedMemory {
        let (layout, storage) = (&value.0.layout, &value.0.storage);
        if !packing::is_active() && layout.offset == 0 && layout.is_dense() {
            events::value_saved(storage);
            return SavedMemory::Whole(storage.clone(), storage.version());
        }
        SavedMemory::Other(Arc::new(KeptValue::pack(value, saver, is_output, history)))
    }

    /// Whether this is memory that was not written to since.
    pub fn is_plain(&self) -> bool {
        matches!(self, SavedMemory::Whole(storage, version) if storage.version() == *version)
    }
}

/// The value of a node that is all of a memory; an error if it was written to since.
pub(crate) fn whole(
    node: &Node,
    which: Val,
    storage: Pooled<Storage>,
    version: u64,
) -> Result<Tensor> {
    let spec = match which {
        Val::In(i) => node.in_spec(i),
        Val::Out(k) => &node.out_specs[k],
    };
    let is_current = storage.version() == version;
    let x = Tensor::filling(spec, storage);
    if is_current {
        return Ok(x);
    }
    let mut view = SavedView::of(&x);
    view.version = version;
    Err(view.overwritten(node, which))
}

#[derive(Clone)]
pub(crate) enum KeptValue {
    Memory(SavedView),
    Packed(Spec, Arc<dyn Packed>),
}

/// A value of a packer.
pub(crate) fn unpacked(node: &Node, spec: &Spec, what: &dyn Packed) -> Result<Tensor> {
    events::unpacking(&node.op, node.at);
    // A value from outside a body is unpacked outside it, like one that was never packed: the body
    // sees a constant, and outer derivatives see its history.
    let unpack = || packing::unpack(what, spec);
    let x = trace::where_made(node.seq, unpack).map_err(|e| e.at(node.at))?;
    // It may be a user's tensor: the history is given to another handle.
    Ok(Tensor::new(spec.clone(), x.0.layout.clone(), x.0.storage.clone()))
}

/// The error of a node whose values were freed.
#[cold]
pub(crate) fn freed(node: &Node) -> Error {
    let name = node.op.name();
    let message = format!("the graph through `{name}` was freed by an earlier backward");
    // The location is the line of this pass, which the caller adds.
    Error::gradient("backward", message)
        .on(&node.in_specs)
        .detail(format!("`{name}` was recorded at {}", node.at))
        .hint(
            "keep the graph in the earlier pass: `Backward::of(&y).retain_graph()`, or \
             `.create_graph()` where a gradient of its gradient is wanted",
        )
}

/// A view of memory, with the version that the memory had when it was saved.
#[derive(Clone)]
pub(crate) struct SavedView {
    dtype: DType,
    device: Device,
    layout: Layout,
    pub storage: Pooled<Storage>,
    pub version: u64,
}

impl SavedView {
    pub fn of(value: &Tensor) -> SavedView {
        let inner = &*value.0;
        SavedView {
            dtype: inner.spec.dtype,
            device: inner.spec.device,
            layout: inner.layout.clone(),
            storage: inner.storage.clone(),
            version: inner.storage.version(),
        }
    }

    /// What it shows, without history; `None` if it was written to since.
    pub fn tensor(&self) -> Option<Tensor> {
        let spec = Spec::on(self.device, self.dtype, self.layout.shape.clone());
        (self.storage.version() == self.version)
            .then(|| Tensor::new(spec, self.layout.clone(), self.storage.clone()))
    }

    /// The error of a node that finds it written over, where it kept this value.
    pub fn overwritten(&self, node: &Node, which: Val) -> Error {
        let name = node.op.name();
        let what = match which {
            Val::In(_) if node.inputs.len() == 1 => "its input".to_string(),
            Val::In(i) => format!("its operand {}", i + 1),
            Val::Out(_) => "its output".to_string(),
        };
        let message = format!("backward of `{name}` needs {what}, but it was overwritten");
        let saved = format!("saved by     {name:<8} at {}   (version {})", node.at, self.version);
        let error = Error::new(ErrorKind::InPlace, "", message).detail(saved);
        self.storage.named_writer(error).hint("use the out-of-place form, or clone the value first")
    }
}

impl KeptValue {
    /// Saves a value, through the active packers.
    pub fn pack(
        value: &Tensor,
        saver: (Option<&Op>, &str, Line),
        is_output: bool,
        history: &History,
    ) -> KeptValue {
        if !packing::is_active() {
            return KeptValue::memory(value);
        }
        let (op, name, at) = saver;
        let is_parameter = matches!(history, History::Leaf(_));
        let offer = || {
            let plain = mode::set_recording(false, || value.alias(History::None, Tangents::new()));
            packing::pack(&SavedValue { tensor: plain, op, name, at, is_output, is_parameter })
        };
        match events::packing(&value.0.storage, offer) {
            Some(packed) => KeptValue::Packed(value.spec().clone(), packed),
            None => KeptValue::memory(value),
        }
    }

    fn memory(value: &Tensor) -> KeptValue {
        events::value_saved(&value.0.storage);
        KeptValue::Memory(SavedView::of(value))
    }
}
