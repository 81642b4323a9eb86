//! Text as numbers.
