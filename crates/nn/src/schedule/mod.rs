//! Learning rates that change over time.
