//! Records as TFRecord files have them: length, checksum of the length, bytes, checksum of the
//! bytes.

/// A record with these bytes.
pub(super) fn framed(bytes: &[u8]) -> Vec<u8> {
    let length = (bytes.len() as u64).to_le_bytes();
    let mut out = Vec::with_capacity(bytes.len() + 16);
    out.extend(length);
    out.extend(masked(&length).to_le_bytes());
    out.extend(bytes);
    out.extend(masked(bytes).to_le_bytes());
    out
}

/// The masked CRC-32C of TFRecord: a checksum of bytes that contain a checksum would be weak.
fn masked(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}
