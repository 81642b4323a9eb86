//! The file of a recording.
//!
//! ```text
//! file    = "pullback recording\n" version table×4 labels nodes visits moments stages tail
//! version = 2
//! table   = count { length bytes }          texts: ops (text, name, family), lines, parts, labels
//! ```
//!
//! Numbers are of variable length, seven bits a byte, the lowest first; floats are eight bytes, the
//! lowest first. `None` is 0 and `Some(n)` is n + 1. There is no padding, and nothing after the
//! end.
//!
//! A reader trusts nothing: a count is rejected if the remaining bytes cannot hold that many items,
//! each reference points at something that is there (operands: at something earlier), and
//! what is larger than the limits is refused. So reading takes memory in proportion to the file.
//! Names are short, and lists have limits of their own: what is shown repeats them, so that a long
//! name with many references to it would take far more memory than the file has bytes. The
//! recorder keeps to the same limits, and names that are longer are cut when they are written.

use super::model::{NodeKind, RecordedNode, RecordedOp, Recording, Sampled, SavedNote, Visit};
use super::stats::{BINS, Stats};

const MAGIC: &[u8] = b"pullback recording\n";
/// The version that is written, and the only one that is read.
pub const VERSION: u64 = 2;
/// Bytes of a file, at most.
pub const MAX_BYTES: usize = 256 << 20;
/// Values of a recording, at most.
pub const MAX_NODES: usize = 250_000;
/// Bytes of a name, at most: of an op, spec, line, part, label.
pub const MAX_NAME: usize = 512;
/// Parts of the model, at most.
pub const MAX_PARTS: usize = 16 << 10;
/// Operands of a node, and contributions of a visit, at most.
pub const MAX_LIST: usize = 4096;
/// Operands of all nodes, and contributions of all visits, at most.
pub const MAX_LISTED: usize = 4 * MAX_NODES;
/// Visits of backward passes, at most.
pub const MAX_VISITS: usize = 4 * MAX_NODES;
/// Values that an op keeps for backward, at most.
pub const MAX_SAVED: usize = 64;
/// Bytes of the text of an op with its attributes, at most.
const MAX_TEXT: usize = 64 << 10;
/// Bytes of the text of a program, at most.
pub const MAX_PROGRAM: usize = 32 << 20;
/// Axes of a shape, at most.
const MAX_RANK: usize = 64;
/// Elements of a value that is kept whole.
pub const WHOLE: usize = 32;

impl Recording {
    /// The bytes of a file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = FileWriter(MAGIC.to_vec());
        out.number(VERSION);
        out.number(self.ops.len() as u64);
        for (text, (name, family)) in self.ops.iter().zip(&self.names) {
            out.text(text);
            [name, family].into_iter().for_each(|name| out.name(name));
        }
        out.number(self.specs.len() as u64);
        for (text, shape) in &self.specs {
            out.name(text);
            out.number(shape.len() as u64);
            shape.iter().for_each(|&n| out.number(n));
        }
        for table in [&self.lines, &self.parts, &self.labels] {
            out.number(table.len() as u64);
            table.iter().for_each(|text| out.name(text));
        }
        out.number(self.nodes.len() as u64);
        self.nodes.iter().for_each(|node| out.node(node));
        out.number(self.visits.len() as u64);
        for visit in &self.visits {
            out.number(visit.node.into());
            out.sampled(&visit.adjoint);
            out.number(visit.contributions.len() as u64);
            for (operand, to, how_much) in &visit.contributions {
                out.number((*operand).into());
                out.number((*to).into());
                out.sampled(how_much);
            }
        }
        out.number(self.moments.len() as u64);
        self.moments.iter().for_each(|moment| out.moment(moment));
        out.number(self.stages.len() as u64);
        for (name, program) in &self.stages {
            out.text(name);
            out.text(program);
        }
        out.optional(self.result);
        out.number(self.left_out);
        out.0
    }

    /// Reads the bytes of a file.
    ///
    /// # Errors
    /// With a sentence, if they are not those of a recording of this version.
    pub fn from_bytes(bytes: &[u8]) -> Result<Recording, String> {
        if bytes.len() > MAX_BYTES {
            return Err(format!("the file is larger than {MAX_BYTES} bytes"));
        }
        let Some(rest) = bytes.strip_prefix(MAGIC) else {
            return Err("this is not a recording of pullback".into());
        };
        let mut input = RecordingReader { rest, whole: bytes.len(), operands: 0, contributions: 0 };
        match input.number("the version")? {
            VERSION => {}
            other => {
                return Err(format!(
                    "the recording has version {other}, and this program reads version {VERSION}"
                ));
            }
        }
        let recording = input.recording()?;
        match input.rest.len() {
            0 => Ok(recording),
            n => Err(format!("{n} bytes follow the end of the recording")),
        }
    }
}

struct FileWriter(Vec<u8>);

impl FileWriter {
    fn number(&mut self, mut n: u64) {
        while n >= 0x80 {
            self.0.push(n as u8 | 0x80);
            n >>= 7;
        }
        self.0.push(n as u8);
    }

    fn optional(&mut self, n: Option<u32>) {
        self.number(n.map_or(0, |n| u64::from(n) + 1));
    }

    fn float(&mut self, x: f64) {
        self.0.extend(x.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.0.extend(text.as_bytes());
    }

    /// A name, cut where it is too long to be read.
    fn name(&mut self, name: &str) {
        if name.len() <= MAX_NAME {
            return self.text(name);
        }
        let mut end = MAX_NAME - "…".len();
        while !name.is_char_boundary(end) {
            end -= 1;
        }
        self.text(&format!("{}…", &name[..end]));
    }

    fn sampled(&mut self, sampled: &Sampled) {
        match sampled {
            Sampled::Unknown => self.number(0),
            Sampled::Whole(values) => {
                self.number(1);
                self.number(values.len() as u64);
                values.iter().for_each(|&x| self.float(x));
            }
            Sampled::Stats(s) => {
                self.number(2);
                [s.count, s.nan, s.inf, s.zero].into_iter().for_each(|n| self.number(n));
                [s.low, s.high, s.mean, s.std, s.rms].into_iter().for_each(|x| self.float(x));
                self.number(s.histogram.len() as u64);
                s.histogram.iter().for_each(|&n| self.number(n.into()));
            }
        }
    }

    fn node(&mut self, node: &RecordedNode) {
        let kind = match node.kind {
            NodeKind::Op => 0,
            NodeKind::Input => 1,
            NodeKind::Parameter => 2,
        };
        let graded = u64::from(node.gradient.is_some());
        self.number(kind | u64::from(node.tracked) << 2 | graded << 3);
        self.optional(node.op);
        self.number(node.output.into());
        self.number(node.spec.into());
        [node.line, node.part, node.label].into_iter().for_each(|n| self.optional(n));
        self.number(node.operands.len() as u64);
        node.operands.iter().for_each(|&n| self.number(n.into()));
        self.number(node.saved.len() as u64);
        for saved in &node.saved {
            self.number(u64::from(saved.index) << 1 | u64::from(saved.result));
            self.number(saved.bytes);
        }
        self.sampled(&node.value);
        node.gradient.iter().for_each(|gradient| self.sampled(gradient));
        self.number(node.nanos);
    }

    fn moment(&mut self, m: &RecordedOp) {
        self.number(u64::from(m.op) << 2 | u64::from(m.backward) << 1 | u64::from(m.again));
        self.optional(m.node);
        self.optional(m.line);
        [m.bytes, m.start, m.nanos].into_iter().for_each(|n| self.number(n));
    }
}

struct RecordingReader<'a> {
    rest: &'a [u8],
    whole: usize,
    /// How many there are so far, of all nodes and of all visits.
    operands: usize,
    contributions: usize,
}

type Decoded<T> = Result<T, String>;

impl<'a> RecordingReader<'a> {
    fn ends(&self, what: &str) -> String {
        format!("the recording ends inside {what}: it is truncated, or was never whole")
    }

    fn wrong(&self, what: &str) -> String {
        format!("{what} is invalid, at byte {}", self.whole - self.rest.len())
    }

    fn bytes(&mut self, n: usize, what: &str) -> Decoded<&'a [u8]> {
        if n > self.rest.len() {
            return Err(self.ends(what));
        }
        let (taken, rest) = self.rest.split_at(n);
        self.rest = rest;
        Ok(taken)
    }

    fn number(&mut self, what: &str) -> Decoded<u64> {
        let mut n = 0u64;
        for shift in (0..64).step_by(7) {
            let [byte] = *self.bytes(1, what)? else { return Err(self.ends(what)) };
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                return Err(self.wrong(what));
            }
            n |= bits << shift;
            if byte < 0x80 {
                return Ok(n);
            }
        }
        Err(self.wrong(what))
    }

    /// A number below a limit: a reference into a table.
    fn below(&mut self, limit: usize, what: &str) -> Decoded<u32> {
        let n = self.number(what)?;
        match n < limit as u64 && n < u64::from(u32::MAX) {
            true => Ok(n as u32),
            false => Err(self.wrong(what)),
        }
    }

    fn optional(&mut self, limit: usize, what: &str) -> Decoded<Option<u32>> {
        Ok(self.below(limit.saturating_add(1), what)?.checked_sub(1))
    }

    /// How many things of at least `least` bytes each follow.
    fn count(&mut self, most: usize, least: usize, what: &str) -> Decoded<usize> {
        let n = self.number(what)?;
        if n > most as u64 {
            return Err(format!("the recording has {n} {what}, and at most {most} are read"));
        }
        match (n as usize).saturating_mul(least) <= self.rest.len() {
            true => Ok(n as usize),
            false => Err(self.ends(what)),
        }
    }

    /// The length of one of many lists, which together have a limit; `so_far` are in the others.
    fn length(&mut self, so_far: usize, least: usize, what: &str) -> Decoded<usize> {
        let n = self.count(MAX_LIST, least, what)?;
        match so_far + n > MAX_LISTED {
            true => Err(format!("the recording has more than {MAX_LISTED} {what} in all")),
            false => Ok(n),
        }
    }

    fn float(&mut self, what: &str) -> Decoded<f64> {
        let bytes = self.bytes(8, what)?;
        Ok(f64::from_le_bytes(bytes.try_into().map_err(|_| self.wrong(what))?))
    }

    fn text(&mut self, most: usize, what: &str) -> Decoded<String> {
        let n = self.number(what)?;
        if n > most as u64 {
            return Err(format!("{what} has {n} bytes, and at most {most} are read"));
        }
        let bytes = self.bytes(n as usize, what)?;
        String::from_utf8(bytes.to_vec()).map_err(|_| self.wrong(what))
    }

    fn names(&mut self, most: usize, all: &str, one: &str) -> Decoded<Vec<String>> {
        let n = self.count(most, 1, all)?;
        (0..n).map(|_| self.text(MAX_NAME, one)).collect()
    }

    fn recording(&mut self) -> Decoded<Recording> {
        let mut out = Recording::default();
        for _ in 0..self.count(MAX_NODES, 3, "ops")? {
            out.ops.push(self.text(MAX_TEXT, "an op")?);
            let name = self.text(MAX_NAME, "the name of an op")?;
            out.names.push((name, self.text(MAX_NAME, "the family of an op")?));
        }
        for _ in 0..self.count(MAX_NODES, 2, "specs")? {
            let text = self.text(MAX_NAME, "a spec")?;
            let rank = self.count(MAX_RANK, 1, "axes of a spec")?;
            let shape = (0..rank).map(|_| self.number("a spec")).collect::<Decoded<_>>()?;
            out.specs.push((text, shape));
        }
        out.lines = self.names(MAX_NODES, "lines", "a line")?;
        out.parts = self.names(MAX_PARTS, "parts", "a part")?;
        out.labels = self.names(MAX_NODES, "labels", "a label")?;
        let nodes = self.count(MAX_NODES, 10, "nodes")?;
        for i in 0..nodes {
            let node = self.node(&out, i)?;
            out.nodes.push(node);
        }
        for _ in 0..self.count(MAX_VISITS, 3, "visits")? {
            let node = self.below(nodes, "a visit")?;
            let adjoint = self.sampled("a visit")?;
            let count = self.length(self.contributions, 3, "contributions")?;
            self.contributions += count;
            let mut contributions = Vec::with_capacity(count);
            for _ in 0..count {
                let operand = self.below(MAX_NODES, "a contribution")?;
                let to = self.below(nodes, "a contribution")?;
                contributions.push((operand, to, self.sampled("a contribution")?));
            }
            out.visits.push(Visit { node, adjoint, contributions });
        }
        for _ in 0..self.count(32 * MAX_NODES, 6, "moments")? {
            let moment = self.moment(&out)?;
            out.moments.push(moment);
        }
        for _ in 0..self.count(256, 2, "stages")? {
            let name = self.text(MAX_TEXT, "a stage")?;
            out.stages.push((name, self.text(MAX_PROGRAM, "a program")?));
        }
        out.result = self.optional(nodes, "the result")?;
        out.left_out = self.number("the end")?;
        Ok(out)
    }

    fn node(&mut self, out: &Recording, i: usize) -> Decoded<RecordedNode> {
        let what = "a node";
        let bits = self.below(16, what)?;
        let kind = match bits & 3 {
            0 => NodeKind::Op,
            1 => NodeKind::Input,
            2 => NodeKind::Parameter,
            _ => return Err(self.wrong(what)),
        };
        let op = self.optional(out.ops.len(), what)?;
        if op.is_some() != (kind == NodeKind::Op) {
            return Err(self.wrong(what));
        }
        let output = self.below(MAX_NODES, what)?;
        let spec = self.below(out.specs.len(), what)?;
        let line = self.optional(out.lines.len(), what)?;
        let part = self.optional(out.parts.len(), what)?;
        let label = self.optional(out.labels.len(), what)?;
        let count = self.length(self.operands, 1, "operands")?;
        self.operands += count;
        // Operands come first: what is read can have no cycles.
        let operands = (0..count).map(|_| self.below(i, what)).collect::<Decoded<_>>()?;
        let mut saved = Vec::new();
        for _ in 0..self.count(MAX_SAVED, 2, "saved values")? {
            let which = self.below(2 * MAX_NODES, what)?;
            let (index, result) = (which >> 1, which & 1 == 1);
            saved.push(SavedNote { result, index, bytes: self.number(what)? });
        }
        let value = self.sampled(what)?;
        let gradient = match bits & 8 {
            0 => None,
            _ => Some(self.sampled(what)?),
        };
        let tracked = bits & 4 != 0;
        let nanos = self.number(what)?;
        Ok(RecordedNode {
            kind,
            op,
            output,
            spec,
            line,
            part,
            label,
            tracked,
            operands,
            saved,
            value,
            gradient,
            nanos,
        })
    }

    fn sampled(&mut self, what: &str) -> Decoded<Sampled> {
        match self.number(what)? {
            0 => Ok(Sampled::Unknown),
            1 => {
                let n = self.count(WHOLE, 8, "elements of a value")?;
                Ok(Sampled::Whole((0..n).map(|_| self.float(what)).collect::<Decoded<_>>()?))
            }
            2 => {
                let [count, nan, inf, zero] = [(); 4].map(|()| self.number(what));
                let [low, high, mean, std, rms] = [(); 5].map(|()| self.float(what));
                let bins = self.count(BINS, 1, "bins of a histogram")?;
                let bin = |_| self.below(u32::MAX as usize, what);
                let histogram = (0..bins).map(bin).collect::<Decoded<_>>()?;
                let (count, nan, inf, zero) = (count?, nan?, inf?, zero?);
                if [nan, inf, zero].into_iter().any(|n| n > count) {
                    return Err(self.wrong(what));
                }
                let (low, high, mean, std, rms) = (low?, high?, mean?, std?, rms?);
                Ok(Sampled::Stats(Stats {
                    count,
                    nan,
                    inf,
                    zero,
                    low,
                    high,
                    mean,
                    std,
                    rms,
                    histogram,
                }))
            }
            _ => Err(self.wrong(what)),
        }
    }

    fn moment(&mut self, out: &Recording) -> Decoded<RecordedOp> {
        let what = "a moment";
        let bits = self.below(out.ops.len().saturating_mul(4), what)?;
        let node = self.optional(out.nodes.len(), what)?;
        let line = self.optional(out.lines.len(), what)?;
        let (bytes, start, nanos) = (self.number(what)?, self.number(what)?, self.number(what)?);
        let (op, backward, again) = (bits >> 2, bits & 2 != 0, bits & 1 != 0);
        Ok(RecordedOp { op, node, line, backward, again, bytes, start, nanos })
    }
}
