//! A cache of compiled machine code.
//!
//! Code does not depend on the length of a domain: it takes the number of elements, and accesses
//! memory through the table. So programs that differ only in lengths, and equal layers of one
//! program, run the same code. The key (the instructions with their table entries, the machine, the
//! spare registers) is compared in full, so a hash collision is harmless.
//!
//! Kernels own the code: dropping the last of them frees it, with its entry here.

use super::emit::{EmittedLoop, Emitter, InstructionSet, emit};
use super::micro::Body;
use super::registers::{Registers, assign};
use crate::region::plan::TableRef;
pub(super) use crate::region::steps::NativeLoop as NativeFn;
use memmap2::{Mmap, MmapMut};
use pullback_ir::{Error, ErrorKind, Result};
use std::cell::Cell;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

/// The cache key: everything that code is compiled from.
#[derive(PartialEq, Eq, Hash)]
pub(super) struct CodeKey {
    pub(super) set: InstructionSet,
    /// A domain of one element, without a loop.
    pub(super) scalar: bool,
    /// Where spilled values are written.
    pub(super) spill: TableRef,
    /// The table entries that are written with streaming stores.
    pub(super) streamed: Range<u32>,
    /// The body of each of its functions.
    pub(super) bodies: Vec<Body>,
}

/// Executable memory.
pub(crate) struct MachineCode {
    memory: Mmap,
    /// The starts of its functions.
    entries: Vec<usize>,
    /// Bytes that they need for spilled values.
    pub(super) spilled: usize,
    source: Arc<CodeKey>,
}

type CodeCache = HashMap<Arc<CodeKey>, Weak<MachineCode>>;

static CACHE: LazyLock<Mutex<CodeCache>> = LazyLock::new(Mutex::default);

thread_local! {
    static COUNTS: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

/// How often this thread has compiled code, and found it in the cache.
pub(crate) fn counts() -> (usize, usize) {
    COUNTS.get()
}

fn known() -> MutexGuard<'static, CodeCache> {
    CACHE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl CodeKey {
    /// The code, compiled now or found in the cache.
    ///
    /// # Errors
    /// If an instruction cannot be encoded, or memory for code cannot be allocated.
    pub(super) fn compiled(self) -> Result<Arc<MachineCode>> {
        let (made, found) = COUNTS.get();
        // The lock is released before compiling: threads do not wait for each other.
        let there = known().get(&self).and_then(Weak::upgrade);
        if let Some(code) = there {
            COUNTS.set((made, found + 1));
            return Ok(code);
        }
        COUNTS.set((made + 1, found));
        let code = Arc::new(MachineCode::make(Arc::new(self))?);
        let mut all = known();
        // The old key is removed with the old code.
        all.remove(&code.source);
        all.insert(code.source.clone(), Arc::downgrade(&code));
        Ok(code)
    }
}

impl Drop for MachineCode {
    fn drop(&mut self) {
        let mut all = known();
        if all.get(&self.source).is_some_and(|code| code.strong_count() == 0) {
            all.remove(&self.source);
        }
    }
}

impl MachineCode {
    fn make(source: Arc<CodeKey>) -> Result<MachineCode> {
        let mut emitter = Emitter::new();
        let EmittedCode { entries, patches, places } = source.write(&mut emitter)?;
        let memory = mapped(emitter.finish(), patches)?;
        let spilled = places * if source.scalar { 16 } else { 64 };
        Ok(MachineCode { memory, entries, spilled, source })
    }

    /// The code as text. It is emitted once more, as only its bytes are kept.
    pub(crate) fn listing(&self) -> Option<String> {
        let mut emitter = Emitter::listing();
        self.source.write(&mut emitter).ok()?;
        Some(emitter.text())
    }

    /// Its functions, in the order of the bodies. They are valid as long as the code.
    pub(super) fn functions(&self) -> impl Iterator<Item = NativeFn> {
        self.entries.iter().map(|&entry| {
            let start = self.memory.as_ptr().wrapping_add(entry);
            // SAFETY: a function of this type starts there.
            unsafe { std::mem::transmute::<*const u8, NativeFn>(start) }
        })
    }
}

/// What was emitted: where its functions start, the bytes to be patched, and how many places it
/// needs for spilled values.
struct EmittedCode {
    entries: Vec<usize>,
    patches: Vec<(usize, i32)>,
    places: usize,
}

impl CodeKey {
    /// Emits the code.
    fn write(&self, emitter: &mut Emitter) -> Result<EmittedCode> {
        let registers = match self.set {
            // The last one is a temporary for converting booleans to a mask.
            InstructionSet::Avx512 => Registers { vectors: 31, masks: Some((2, 5)) },
            InstructionSet::Avx2 => Registers { vectors: 12, masks: None },
        };
        let mut written = EmittedCode { entries: Vec::new(), patches: Vec::new(), places: 0 };
        for body in &self.bodies {
            let assigned = assign(body, registers, !self.scalar);
            let double = body.values.iter().any(|v| v.lane.is_double());
            let lanes = match (self.scalar, self.set, double) {
                (true, _, _) => 1,
                (_, InstructionSet::Avx512, false) => 16,
                (_, InstructionSet::Avx512, true) | (_, InstructionSet::Avx2, false) => 8,
                (_, InstructionSet::Avx2, true) => 4,
            };
            written.places = written.places.max(assigned.places);
            let (set, spill, streamed) = (self.set, self.spill, self.streamed.clone());
            let assigned = &assigned;
            let it = EmittedLoop { body, assigned, set, lanes, double, spill, streamed };
            let (entry, jumps) = emit(emitter, &it).map_err(|error| {
                Error::argument("region", format!("cannot encode an instruction: {error}"))
            })?;
            written.entries.push(entry);
            written.patches.extend(jumps);
        }
        Ok(written)
    }
}

/// Code in executable memory, with the jumps patched.
fn mapped(mut code: Vec<u8>, patches: Vec<(usize, i32)>) -> Result<Mmap> {
    for (place, distance) in patches {
        code[place..place + 4].copy_from_slice(&distance.to_le_bytes());
    }
    let none = |error: std::io::Error| {
        Error::new(ErrorKind::Memory, "region", format!("cannot allocate memory for code: {error}"))
    };
    let mut memory = MmapMut::map_anon(code.len()).map_err(none)?;
    memory[..code.len()].copy_from_slice(&code);
    memory.make_exec().map_err(none)
}
