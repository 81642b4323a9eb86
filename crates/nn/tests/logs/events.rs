//! Reads event files: records with their checksums, then messages, field by field.

/// What the tests look at of an event.
#[derive(Debug, Default)]
pub struct Event {
    pub step: u64,
    pub version: Option<String>,
    pub is_start: bool,
    pub tag: Option<String>,
    pub scalar: Option<f32>,
    pub histogram: Option<Histogram>,
}

#[derive(Debug, Default)]
pub struct Histogram {
    pub least: f64,
    pub most: f64,
    pub count: f64,
    pub limits: Vec<f64>,
    pub buckets: Vec<f64>,
}

/// The events of a file. Panics where it is not as it should be.
pub fn read(mut bytes: &[u8]) -> Vec<Event> {
    let mut events = Vec::new();
    while !bytes.is_empty() {
        let (length, rest) = bytes.split_at(8);
        let (length_sum, rest) = rest.split_at(4);
        check(length, length_sum);
        let (record, rest) = rest.split_at(u64::from_le_bytes(length.try_into().unwrap()) as usize);
        let (record_sum, rest) = rest.split_at(4);
        check(record, record_sum);
        events.push(event(record));
        bytes = rest;
    }
    events
}

fn check(bytes: &[u8], sum: &[u8]) {
    let stored = u32::from_le_bytes(sum.try_into().unwrap()).wrapping_sub(0xa282_ead8);
    assert_eq!(stored.rotate_left(15), crc32c::crc32c(bytes));
}

/// The value of a field.
enum Value<'a> {
    Int(u64),
    Double(f64),
    Float(f32),
    Bytes(&'a [u8]),
}

fn fields(mut bytes: &[u8]) -> Vec<(u64, Value<'_>)> {
    let mut out = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        let mut take = |n: usize| {
            let (taken, rest) = bytes.split_at(n);
            bytes = rest;
            taken
        };
        let value = match tag & 7 {
            1 => Value::Double(f64::from_le_bytes(take(8).try_into().unwrap())),
            5 => Value::Float(f32::from_le_bytes(take(4).try_into().unwrap())),
            0 => Value::Int(varint(&mut bytes)),
            2 => {
                let length = varint(&mut bytes) as usize;
                let (taken, rest) = bytes.split_at(length);
                bytes = rest;
                Value::Bytes(taken)
            }
            wire => panic!("wire type {wire}"),
        };
        out.push((tag >> 3, value));
    }
    out
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let (byte, rest) = bytes.split_first().unwrap();
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            break;
        }
    }
    value
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn event(bytes: &[u8]) -> Event {
    let mut event = Event::default();
    for (field, value) in fields(bytes) {
        match (field, value) {
            (1, Value::Double(time)) => assert!(time > 1.6e9),
            (2, Value::Int(step)) => event.step = step,
            (3, Value::Bytes(version)) => event.version = Some(text(version)),
            (5, Value::Bytes(summary)) => summaries(summary, &mut event),
            (7, Value::Bytes(log)) => {
                event.is_start = matches!(fields(log)[..], [(1, Value::Int(1))])
            }
            (field, _) => panic!("field {field} of an event"),
        }
    }
    event
}

fn summaries(bytes: &[u8], event: &mut Event) {
    let all = fields(bytes);
    let [(1, Value::Bytes(summary))] = all[..] else { panic!("not one summary") };
    for (field, value) in fields(summary) {
        match (field, value) {
            (1, Value::Bytes(tag)) => event.tag = Some(text(tag)),
            (2, Value::Float(value)) => event.scalar = Some(value),
            (5, Value::Bytes(value)) => event.histogram = Some(histogram(value)),
            (field, _) => panic!("field {field} of a summary"),
        }
    }
}

fn histogram(bytes: &[u8]) -> Histogram {
    let doubles = |bytes: &[u8]| -> Vec<f64> {
        bytes.chunks(8).map(|eight| f64::from_le_bytes(eight.try_into().unwrap())).collect()
    };
    let mut out = Histogram::default();
    for (field, value) in fields(bytes) {
        match (field, value) {
            (1, Value::Double(value)) => out.least = value,
            (2, Value::Double(value)) => out.most = value,
            (3, Value::Double(value)) => out.count = value,
            (4 | 5, Value::Double(_)) => (),
            (6, Value::Bytes(values)) => out.limits = doubles(values),
            (7, Value::Bytes(values)) => out.buckets = doubles(values),
            (field, _) => panic!("field {field} of a histogram"),
        }
    }
    out
}
