//! Messages in the encoding of protocol buffers, as much of it as events need: a field is a number
//! with a wire type, then its value.

/// A message that is being put together.
#[derive(Default)]
pub(super) struct Message(Vec<u8>);

const VARINT: u64 = 0;
const EIGHT_BYTES: u64 = 1;
const LENGTH: u64 = 2;
const FOUR_BYTES: u64 = 5;

impl Message {
    pub fn new() -> Message {
        Message::default()
    }

    /// Seven bits a byte, the lowest first, with a mark on all but the last.
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn tag(&mut self, field: u64, wire: u64) {
        self.varint(field << 3 | wire);
    }

    pub fn int(mut self, field: u64, value: u64) -> Message {
        self.tag(field, VARINT);
        self.varint(value);
        self
    }

    pub fn double(mut self, field: u64, value: f64) -> Message {
        self.tag(field, EIGHT_BYTES);
        self.0.extend(value.to_le_bytes());
        self
    }

    pub fn float(mut self, field: u64, value: f32) -> Message {
        self.tag(field, FOUR_BYTES);
        self.0.extend(value.to_le_bytes());
        self
    }

    pub fn bytes(mut self, field: u64, value: &[u8]) -> Message {
        self.tag(field, LENGTH);
        self.varint(value.len() as u64);
        self.0.extend(value);
        self
    }

    pub fn message(self, field: u64, value: Message) -> Message {
        self.bytes(field, &value.0)
    }

    /// Many doubles in one field.
    pub fn doubles(self, field: u64, values: &[f64]) -> Message {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.bytes(field, &bytes)
    }

    pub fn finish(self) -> Vec<u8> {
        self.0
    }
}

/// `Event`: a wall time in seconds, a step, and what happened.
pub(super) fn event(wall_time: f64, step: u64) -> Message {
    Message::new().double(1, wall_time).int(2, step)
}

/// An event with the version of the format: the first of each file.
pub(super) fn version(wall_time: f64) -> Message {
    Message::new().double(1, wall_time).bytes(3, b"brain.Event:2")
}

/// An event with a `SessionLog` that says start: what other files hold from this step on is void.
pub(super) fn start(wall_time: f64, step: u64) -> Message {
    event(wall_time, step).message(7, Message::new().int(1, 1))
}

/// An event with one `Summary.Value`.
pub(super) fn summary(wall_time: f64, step: u64, value: Message) -> Message {
    event(wall_time, step).message(5, Message::new().message(1, value))
}

pub(super) fn scalar(tag: &str, value: f64) -> Message {
    Message::new().bytes(1, tag.as_bytes()).float(2, value as f32)
}

/// Text is a tensor of one string that says which plugin shows it.
pub(super) fn text(tag: &str, text: &str) -> Message {
    const STRING: u64 = 7;
    let shape = Message::new().message(2, Message::new().int(1, 1));
    let tensor = Message::new().int(1, STRING).message(2, shape).bytes(8, text.as_bytes());
    let plugin = Message::new().message(1, Message::new().bytes(1, b"text"));
    Message::new().bytes(1, tag.as_bytes()).message(8, tensor).message(9, plugin)
}
