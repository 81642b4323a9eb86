//! Fingerprints: what a worker was asked, as the others see it.

use pullback_ir::{Collective, CollectiveCall, Device, Line, Spec};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Bytes of an encoded digest.
pub(crate) const BYTES: usize = 512;
/// Most bytes of each of its two texts. Longer ones are cut where they are stored; the hash is of
/// the whole.
const TEXT: usize = 240;

/// One call, as workers compare it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CallDigest {
    /// Of everything that must agree.
    hash: u64,
    /// How many collectives of the whole group came before.
    number: u64,
    /// Op and operand: `all_reduce of f32[10]`.
    description: String,
    /// The user's line.
    line: String,
}

impl CallDigest {
    /// The digest of a call. The same line is asked for where all workers do the same.
    pub(crate) fn new(group: u64, number: u64, call: &CollectiveCall<'_>) -> CallDigest {
        let what = describe(call);
        let line = call.line.to_string();
        let mut hasher = DefaultHasher::new();
        (group, number, &what).hash(&mut hasher);
        if call.collective.has_one_part() {
            line.hash(&mut hasher);
        }
        CallDigest { hash: hasher.finish(), number, description: what, line }
    }

    /// The digest of the message that a worker receives, as its sender writes it.
    pub(crate) fn of_send(
        group: u64,
        number: u64,
        to: usize,
        spec: &Spec,
        line: Line,
    ) -> CallDigest {
        let (send, operand) = (Collective::Send { to }, spec.with_device(Device::Cpu));
        let call = CollectiveCall { collective: &send, operand: &operand, sequence: 0, line };
        CallDigest::new(group, number, &call)
    }

    /// Whether all workers were asked for the same, in words if not. All workers compare all
    /// digests with that of worker 0, so all find the same difference.
    pub(crate) fn compare(digests: &[CallDigest]) -> Result<(), String> {
        let first = &digests[0];
        let differs = |digest: &&CallDigest| !digest.agrees(first);
        let Some(other) = digests.iter().find(differs) else { return Ok(()) };
        let rank = digests.iter().take_while(|digest| digest.agrees(first)).count();
        let mut message = format!(
            "workers were asked for different things: worker 0 for {first}, worker {rank} for \
             {other}"
        );
        if first.description == other.description && first.number == other.number {
            message += "; the op is the same, but not the line, so these may be different tensors: \
                        let all workers call it at one line";
        }
        Err(message)
    }

    /// Whether both workers were asked for the same.
    pub(crate) fn agrees(&self, other: &CallDigest) -> bool {
        self.hash == other.hash
    }

    pub(crate) fn encode(&self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        bytes[..8].copy_from_slice(&self.hash.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.number.to_le_bytes());
        // The head of a spec says most; so does the tail of a path.
        let what = head(&self.description, TEXT);
        let line = tail(&self.line, TEXT);
        for (at, text) in [(16, what), (16 + TEXT + 8, line)] {
            bytes[at] = text.len() as u8;
            bytes[at + 1..at + 1 + text.len()].copy_from_slice(text.as_bytes());
        }
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; BYTES]) -> CallDigest {
        let word = |at: usize| u64::from_le_bytes(*bytes[at..].first_chunk().unwrap());
        let text = |at: usize| {
            let len = usize::from(bytes[at]).min(TEXT);
            String::from_utf8_lossy(&bytes[at + 1..at + 1 + len]).into_owned()
        };
        CallDigest {
            hash: word(0),
            number: word(8),
            description: text(16),
            line: text(16 + TEXT + 8),
        }
    }
}

impl fmt::Display for CallDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (#{}, at {})", self.description, self.number, self.line)
    }
}

/// Op and operand.
pub(crate) fn describe(call: &CollectiveCall<'_>) -> String {
    call.to_string()
}

/// The beginning of a text, of at most so many bytes.
pub(crate) fn head(text: &str, bytes: usize) -> &str {
    let end = (0..=bytes.min(text.len())).rev().find(|&at| text.is_char_boundary(at));
    &text[..end.unwrap_or(0)]
}

/// The end of a text, of at most so many bytes.
fn tail(text: &str, bytes: usize) -> &str {
    let start =
        (text.len().saturating_sub(bytes)..=text.len()).find(|&at| text.is_char_boundary(at));
    &text[start.unwrap_or(text.len())..]
}
