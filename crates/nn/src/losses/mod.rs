//! Losses, each with an explicit reduction.
