//! Random texts, for tests of parsers.

/// `count` texts of up to `longest` pieces, the same at every call.
pub fn texts(pieces: &[&str], longest: usize, count: usize) -> Vec<String> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = |n: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % n
    };
    let text = |_| {
        let length = 1 + next(longest);
        (0..length).map(|_| pieces[next(pieces.len())]).collect()
    };
    (0..count).map(text).collect()
}
