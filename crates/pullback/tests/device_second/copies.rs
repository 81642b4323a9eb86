//! Asynchronous copies, which the second device makes as late as it may.

use super::Work;
use super::machine::Machine;
use pullback::Result;
use pullback::backend::Handle;
use std::sync::{Arc, Mutex};

/// Bytes on the host, once they were copied.
pub type OnHost = Arc<Mutex<Option<Vec<u8>>>>;

/// An asynchronous copy that was not made yet: of so many bytes from a place on, or back.
pub enum Copy {
    Out(Handle, usize, usize, OnHost),
    Back(OnHost, Handle),
}

impl Copy {
    pub fn memory(&self) -> Handle {
        match self {
            Copy::Out(memory, ..) | Copy::Back(_, memory) => *memory,
        }
    }
}

impl Machine {
    /// Makes the copies from and to this memory.
    pub fn copy_of(&mut self, memory: Handle) -> Result<()> {
        while let Some(i) = self.copies.iter().position(|copy| copy.memory() == memory) {
            match self.copies.remove(i) {
                Copy::Out(from, start, len, to) => {
                    let bytes = self.get(from)?.slice(start, len).map(<[u8]>::to_vec);
                    *to.lock().expect("nobody panics with it") = bytes;
                }
                Copy::Back(from, to) => {
                    self.copy_to(&from)?;
                    let bytes = from.lock().expect("nobody panics with it").clone();
                    self.work(Work::Upload(to, bytes.unwrap_or_default()))?;
                }
            }
        }
        Ok(())
    }

    /// Makes the copy to this place on the host, if it was not made.
    pub fn copy_to(&mut self, host: &OnHost) -> Result<()> {
        let wanted = |copy: &Copy| match copy {
            Copy::Out(memory, _, _, to) if Arc::ptr_eq(to, host) => Some(*memory),
            _ => None,
        };
        match self.copies.iter().find_map(wanted) {
            Some(memory) => self.copy_of(memory),
            None => Ok(()),
        }
    }
}
